#!/usr/bin/env bash
# docs/from-guide-001.md says nothing that is not run: its blocks marked sh are run one by one, each line of its
# blocks marked c stands in an example that they run.
set -u
trireme=${TRIREME:?}
examples=${TRIREME_BUILD:?}/examples
root=$(cd "$(dirname "$0")/.." && pwd)
export TRIREME_DATA=${TRIREME_DATA:-/work/shared/data}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache PATH="$(dirname "$trireme"):$examples:$PATH"
cd "$work" || exit 1
failed=0
fail() { echo "FAIL: $*"; failed=1; }

python3 - "$root/docs/from-guide-001.md" << 'END'
import re, sys
blocks = re.findall(r"^```(\w+)\n(.*?)^```$", open(sys.argv[1]).read(), re.M | re.S)
for i, text in enumerate(t for kind, t in blocks if kind == "sh"):
    open(f"{i:02}.sh", "w").write("set -e\n" + text)
open("lines.c", "w").write("".join(t for kind, t in blocks if kind == "c"))
END

while IFS= read -r line; do
    grep -qxF -- "$line" "$root"/examples/resnet50_imagenet.c "$root"/examples/own_loop.c || fail "in no example: $line"
done < lines.c
[ "$(wc -l < lines.c)" -ge 9 ] || fail "the document has only $(wc -l < lines.c) lines of C"

ran=0
for block in [0-9]*.sh; do
    if grep -q TRIREME_DATA "$block" && [ ! -d "$TRIREME_DATA/imagenet-sample" ]; then
        echo "skipped: no $TRIREME_DATA/imagenet-sample for: $(tail -1 "$block")"
        continue
    fi
    bash "$block" > "$block.out" 2> "$block.err" || { fail "block $block:"; cat "$block" "$block.out" "$block.err"; }
    ran=$((ran + 1))
done
[ $ran -ge 5 ] || fail "only $ran blocks of commands"
grep -h "step 2 of 2: loss" 00.sh.out 01.sh.out 02.sh.out > losses.txt
[ "$(wc -l < losses.txt)" = 3 ] || fail "the job's lines: $(cat losses.txt)"
[ "$(grep -c "step 2 of 2" 01.sh.out)" = 1 ] || fail "rank 1 speaks too"
last=$(ls [0-9]*.sh | tail -2 | head -1)
[ "$(sed -n 's/.*weights//p' "$last.out" | sort -u | wc -l)" = 1 ] && [ "$(grep -c weights "$last.out")" = 2 ] ||
    fail "own_loop has other weights on two ranks: $(cat "$last.out")"

resnet50_imagenet --batch_size 8 > out.txt 2>&1
[ $? = 2 ] && grep -q "data_dir" out.txt || fail "no data: $(cat out.txt)"
resnet50_imagenet --use_synthetic_data --batch_size eight > out.txt 2>&1
[ $? = 2 ] && grep -q "batch_size" out.txt || fail "a word as a number: $(cat out.txt)"
trireme run -n 3 -- resnet50_imagenet --use_synthetic_data --batch_size 8 > out.txt 2>&1
[ $? = 2 ] && grep -q "does not divide among 3 ranks" out.txt || fail "8 images on 3 ranks: $(cat out.txt)"
exit $failed
