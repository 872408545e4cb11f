#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# trireme generate from checkpoints of gpt2 and llama: the tokenizer beside the checkpoint, prompts, choices, wrong use.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1

for i in $(seq 400); do echo "the rank sends one row"; echo "a server keeps the é row"; done > text.txt
train() { # MODEL OUTPUT ARGS
    local model=$1 output=$2
    shift 2
    "$trireme" train "$model" --data text.txt --dataset text --context 32 --layers 2 --width 32 --heads 4 --batch-size 8 \
        --learning-rate 0.01 --eval-every-epochs 0 --quiet --output "$output" "$@" > log.txt 2>&1 || { fail "train $*"; cat log.txt; }
}
field() { python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).read())[sys.argv[2]])' out.json "$1"; }
train gpt2 characters --tokens characters --steps 150
train llama bytes --tokens bytes --kv-heads 2 --untied --rotary-theta 500 --steps 120
train moe mixed --tokens bytes --experts 4 --top-experts 2 --steps 200
"$trireme" generate moe --checkpoint mixed --prompt "the rank se" --tokens 12 > out.txt 2> log.txt || { fail "generate moe"; cat log.txt; }
[ "$(cat out.txt)" = "the rank sends one row" ] || fail "moe continues with '$(cat out.txt)'"
expect 2 "3 of 2 experts compute a token" train moe --data text.txt --dataset text --tokens bytes --experts 2 --top-experts 3 --steps 1
expect 2 "transformers has no moe" export moe --checkpoint mixed --to huggingface --output no
"$trireme" tokenizer train text.txt --vocabulary 300 --special-tokens '<|endoftext|>' --output tokenizer --quiet > /dev/null
train gpt2 pieces --tokenizer tokenizer --steps 60
for folder in characters bytes pieces; do
    [ -f $folder/tokenizer/tokenizer.json ] || fail "$folder has no tokenizer"
done

# A trained model repeats the text that it has learned, from a folder of checkpoints and from one of
# them; the prompt comes first.
"$trireme" generate gpt2 --checkpoint characters --prompt "the rank" --tokens 14 > out.txt 2> log.txt || { fail "generate gpt2"; cat log.txt; }
[ "$(cat out.txt)" = "the rank sends one row" ] || fail "gpt2 continues with '$(cat out.txt)'"
grep -q "14 tokens, .* tokens/s" log.txt || fail "the rate of generate: $(cat log.txt)"
"$trireme" generate llama --checkpoint bytes/ckpt-120 --prompt "a server ke" --tokens 13 --json > out.json || fail "generate llama"
python3 - << 'END' || fail "llama's JSON: $(cat out.json)"
import json
event = json.loads(open("out.json").read())
assert event["text"] == "eps the é row"[:len(event["text"])] and len(event["token_ids"]) == 13, event
assert bytes(event["token_ids"]).decode() == event["text"] and event["prompt_tokens"] == 11 and event["tokens_per_second"] > 0, event
END
# Longer than the context of 32; the same seed draws the same text, another one another text.
"$trireme" generate gpt2 --checkpoint characters --prompt "the" --tokens 90 --temperature 3 --seed 5 --json > out.json || fail "generate 90"
first=$(field text)
[ ${#first} = 90 ] || fail "90 characters expected: '$first'"
"$trireme" generate gpt2 --checkpoint characters --prompt "the" --tokens 90 --temperature 3 --top-k 40 --seed 5 --json > out.json
[ "$(field text)" = "$first" ] || fail "--top-k of all tokens changes the text"
"$trireme" generate gpt2 --checkpoint characters --prompt "the" --tokens 90 --temperature 3 --seed 6 --json > out.json
[ "$(field text)" != "$first" ] || fail "the seed changes nothing"
"$trireme" generate gpt2 --checkpoint characters --prompt "the" --tokens 30 --temperature 5 --top-p 0.000001 --json > out.json
sampled=$(field text)
"$trireme" generate gpt2 --checkpoint characters --prompt "the" --tokens 30 --json > out.json
[ "$(field text)" = "$sampled" ] || fail "--top-p of almost nothing is not the most probable token"
# A prompt of a file, and none: the token between documents.
printf 'the rank' > prompt.txt
"$trireme" generate gpt2 --checkpoint characters --prompt-file prompt.txt --tokens 14 > out.txt 2> log.txt
[ "$(cat out.txt)" = "the rank sends one row" ] || fail "--prompt-file: '$(cat out.txt)'"
"$trireme" generate gpt2 --checkpoint pieces --tokens 5 --precision mixed --json > out.json || fail "no prompt"
[ "$(field prompt_tokens)" = 1 ] || fail "no prompt has one token"
"$trireme" generate gpt2 --checkpoint pieces --prompt '<|endoftext|>the rank' --tokens 1 --quiet > out.txt || fail "a prompt that begins with the end"
grep -q '^<|endoftext|>the rank' out.txt || fail "the prompt is missing: $(cat out.txt)"
# eval finds the tokenizer, too: another text's characters would have other ids
echo "sends" > other.txt && for i in $(seq 40); do cat other.txt; done > many.txt
"$trireme" eval gpt2 --checkpoint characters --data many.txt --dataset text --usage all --json > out.json || fail "eval with the checkpoint's characters"
python3 -c 'import json; assert json.loads(open("out.json").read())["loss"] < 8' || fail "eval of another text"

expect 0 "nothing was generated" generate gpt2 --checkpoint characters --dry-run
expect 2 "generate is for language models, not for lenet" generate lenet --checkpoint characters
expect 2 "generate needs --checkpoint" generate gpt2
expect 2 "is of gpt2, not of llama" generate llama --checkpoint characters
expect 3 "no checkpoint there" generate gpt2 --checkpoint nowhere
expect 2 "exclude each other" generate gpt2 --checkpoint characters --prompt a --prompt-file prompt.txt
# A vocabulary that is larger than the tokenizer's: ids without a token have no text.
train gpt2 padded --tokens bytes --vocabulary 8192 --steps 1
expect 0 "60 tokens" generate gpt2 --checkpoint padded --prompt a --tokens 60 --temperature 1000
# So have ids in a gap before a token that was added.
cp -r tokenizer gap
python3 - << 'EOF'
import json
t = json.load(open("gap/tokenizer.json"))
t["added_tokens"].append(dict(t["added_tokens"][0], id=4000, content="<far>"))
json.dump(t, open("gap/tokenizer.json", "w"))
EOF
expect 0 "60 tokens" generate gpt2 --checkpoint padded --tokenizer gap --prompt a --tokens 60 --temperature 1000
expect 2 "character" generate gpt2 --checkpoint characters --prompt "Ω"
printf 'the\0rank' > zero.txt
expect 3 "zero.txt: byte 3: a zero byte; text expected" generate gpt2 --checkpoint characters --prompt-file zero.txt
expect 0 "--context has no effect here: the network has 32 positions" generate gpt2 --checkpoint characters --tokens 1 --context 64
expect 0 "--dropout has no effect here" generate gpt2 --checkpoint characters --tokens 1 --dropout 0.5
expect 0 "--top-k and --top-p have no effect with --temperature 0" generate gpt2 --checkpoint characters --tokens 1 --temperature 0 --top-k 5
expect 2 "there are small, gpt2, medium" train gpt2 --data text.txt --dataset text --tokens bytes --size huge
mv characters/tokenizer away
expect 2 "has no tokenizer beside it; --tokenizer DIR expected" generate gpt2 --checkpoint characters
expect 0 "the rank sends" generate gpt2 --checkpoint characters --tokenizer away --prompt "the rank" --tokens 8
"$trireme" bench generate gpt2 --layers 2 --width 64 --heads 2 --repeats 5 --json > out.json || fail "bench generate"
python3 -c '
import json
event = json.loads(open("out.json").read())
assert event["weight_bytes"] == 4 * (2 * 12 * 64 * 64 + 50257 * 64) and event["bound_fraction"] > 0 and event["tokens_per_second"] > 0, event' || fail "bench generate: $(cat out.json)"
expect 0 "nothing was measured" bench generate llama --layers 1 --width 32 --heads 2 --dry-run
exit $failed
