#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# trireme tokenizer beside the `tokenizers` package: the same files when trained, the same ids of every line of tiny
# Shakespeare, of random Unicode and of random bytes; each loads the other's files. Needs a python with tokenizers:
# PYTHON, Debian's, or the one of the oracle in the cache.
peers=${XDG_CACHE_HOME:-$HOME/.cache}/trireme-peers
. "$(dirname "$0")/common.sh"

# ---- without the package: commands, their errors, encode and decode
printf 'the test tested the tester, the rest rested\n\n<s>the test\n' > small.txt
expect 0 "264 tokens" tokenizer train small.txt --vocabulary 264 --special-tokens '<s>' --output small
expect 0 "0 259" tokenizer encode small.txt --tokenizer small --lines
tail -1 out.txt | grep -q '^0 ' || fail "the special token is not the last line's first: $(tail -1 out.txt)"
expect 0 "tokens of 57 bytes" tokenizer encode small.txt --tokenizer small --output small.bin
expect 0 "back.txt: 57 bytes of 28 tokens" tokenizer decode small.bin --tokenizer small --output back.txt
cmp small.txt back.txt || fail "decoded text differs"
"$trireme" tokenizer encode small.txt --tokenizer small > ids.txt || fail "encode to stdout"
"$trireme" tokenizer decode ids.txt --tokenizer small | cmp - small.txt || fail "decoded text of printed ids differs"
"$trireme" tokenizer encode small.txt --tokenizer small --json | python3 -c '
import json, sys
event = json.load(sys.stdin)
assert event["tokens"] == len(event["token_ids"]) and event["bytes"] == 57, event' || fail "encode --json"
expect 0 "nothing was written" tokenizer train small.txt --vocabulary 264 --output none --dry-run
[ ! -e none ] || fail "a dry run wrote a tokenizer"
expect 0 "261 tokens" tokenizer train small.txt --vocabulary 9000 --min-count 4 --output few
grep -q "9000 were asked for" out.txt || fail "no word about a vocabulary that is not reached"
expect 2 "needs --vocabulary N and --output DIR" tokenizer train small.txt
expect 2 "needs --tokenizer DIR" tokenizer encode small.txt
expect 3 "nowhere.txt" tokenizer encode nowhere.txt --tokenizer small
expect 3 "no such tokenizer" tokenizer encode small.txt --tokenizer nowhere
printf '1 2 x 3' > bad.txt
expect 3 "bad.txt: byte 4: 'x 3'" tokenizer decode bad.txt --tokenizer small
printf '1 99999' > bad.txt
expect 2 "token 1: id 99999 is not in the vocabulary" tokenizer decode bad.txt --tokenizer small
printf '1 2\0003' > bad.txt
expect 3 "bad.txt: byte 3: a zero byte" tokenizer decode bad.txt --tokenizer small
echo '{"text": "a row"}' > lines.jsonl
expect 0 "lines.jsonl is read as text, names and brackets of its JSON lines too" tokenizer encode lines.jsonl --tokenizer small
expect 0 "small.bin is read as text; a file .bin usually has token ids" tokenizer train small.bin --vocabulary 256 --output none --dry-run
mkdir broken && cp small/merges.txt broken
sed 's/: *5,/:5.0,/' small/vocab.json > broken/vocab.json
expect 3 "the id is no whole number; 0 to" tokenizer encode small.txt --tokenizer broken
echo '[1]' > broken/vocab.json
expect 3 'vocab.json: an array; {"token": id, ...} expected' tokenizer encode small.txt --tokenizer broken
printf 'abc' > odd.bin
expect 3 "odd.bin: 3 bytes" tokenizer decode odd.bin --tokenizer small
for command in train encode decode; do
    expect 0 "Example: trireme tokenizer $command" tokenizer $command --help
done
[ $failed = 0 ] || exit 1

have() { "$1" -c 'import tokenizers' 2> /dev/null; }
for python in ${PYTHON:+"$PYTHON"} /usr/bin/python3 "$peers/oracle/bin/python" ''; do
    [ -z "$python" ] && skip "no python with tokenizers (pip install tokenizers, then PYTHON=...); the rest held"
    have "$python" && break
done
[ -r "$TRIREME_DATA/tiny-shakespeare/input.txt" ] || skip "no $TRIREME_DATA/tiny-shakespeare/input.txt; the rest held"
timeout 600 "$python" "$source/tests/tokenizer_peer.py" "$trireme" "$TRIREME_DATA/tiny-shakespeare/input.txt"
