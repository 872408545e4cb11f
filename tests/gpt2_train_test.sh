#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains GPT-2 from the command line on characters, bytes and ids: losses, resuming, evaluation, ranks, wrong use. The text is
# generated; tiny Shakespeare too where it is present.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1 PYTHONPATH=$source/tests/readers:$PYTHONPATH

# Sentences of a small grammar: their letters can be learned in few steps.
write_sentences 4000 "é row" "one table" "the weights" > text.txt
network="--layers 2 --width 32 --heads 2"
data="--data text.txt --dataset text --tokens characters --context 24"
learn="--batch-size 8 --optimizer adam --learning-rate 5e-3 --seed 3"

# ---- training, evaluation
# shellcheck disable=SC2086
"$trireme" train gpt2 $data $network $learn --dropout 0.1 --steps 120 --log-every 10 --output a --json > a.json || fail "train"
"$trireme" eval gpt2 --checkpoint a --data text.txt --dataset text --json > eval.json || fail "eval"
"$trireme" eval gpt2 --checkpoint a --data text.txt --dataset text > eval.txt && grep -q "perplexity .*bits per byte" eval.txt || fail "eval: $(cat eval.txt)"
python3 - << 'END' || fail "events"
import json, math
events = [json.loads(line) for line in open("a.json")]
by = lambda kind: [e for e in events if e["event"] == kind]
start, steps, done = by("start")[0], by("step"), by("done")[0]
text = open("text.txt").read()
assert start["context"] == 24 and start["vocabulary"] == len(set(text)), start
assert abs(steps[0]["loss"] - math.log(start["vocabulary"])) < 0.3, steps[0]
assert steps[-1]["loss"] < 1.2, steps[-1]
assert all(e["tokens_per_second"] > 0 for e in steps) and done["tokens_per_second"] > 0 and "images_per_second" not in done
again, last = json.loads(open("eval.json").readline()), by("eval")[-1]
for e in again, last:
    assert abs(math.log(e["perplexity"]) - e["loss"]) < 1e-6 and e["loss"] < 1.2, e
assert again["tokens"] == last["tokens"] and abs(again["loss"] - last["loss"]) < 1e-6, (again, last)
# the test part: the last tenth of the characters; its last one has nothing behind it
part = text[len(text) * 9 // 10:]
assert abs(again["tokens"] - (len(part) - 1)) <= 24, (again["tokens"], len(part))
size = len(part.encode()) / len(part)
assert size > 1 and abs(again["bits_per_byte"] * size * math.log(2) / again["loss"] - 1) < 1e-3, (again, size)
END

# ---- a stopped run continues bit for bit, on one rank and on two; strict: the same bits on both
# shellcheck disable=SC2086
"$trireme" train gpt2 $data $network $learn --dropout 0.1 --steps 57 --output b --quiet > out 2>&1 &&
    "$trireme" train gpt2 $data $network $learn --dropout 0.1 --steps 120 --output b --resume --quiet > out 2>&1 || fail "resume: $(cat out)"
for part in model optimizer; do
    cmp "a/ckpt-120/$part.safetensors" "b/ckpt-120/$part.safetensors" || fail "$part of the resumed run"
done
# ---- a run that begins with the weights of another one is told what no shape shows: heads, and which texts the ids stand for
tr w W < text.txt > other.txt
for change in "--heads 4|heads is 2 there and 4 here" "--data other.txt|its tokenizer has other tokens than that of the data" "|"; do
    flags=${change%|*}
    # shellcheck disable=SC2086
    "$trireme" train gpt2 $([ "$flags" = "--data other.txt" ] || echo --data text.txt) --dataset text --tokens characters --context 24 --layers 2 --width 32 \
        $([ "$flags" = "--heads 4" ] || echo --heads 2) $flags $learn --init a --steps 1 --eval-every-epochs 0 > out 2>&1 || fail "--init a $flags: $(cat out)"
    if [ -n "$flags" ]; then
        grep -qF -- "${change#*|}" out || fail "--init a $flags: $(cat out)"
    else
        grep -q "warning" out && fail "--init a: $(cat out)"
    fi
done

for n in 1 2; do
    # shellcheck disable=SC2086
    "$trireme" train gpt2 $data $network --batch-size $((16 / n)) -n $n --deterministic strict --steps 6 --eval-every-epochs 0 --output s$n \
        --launch-dir logs --quiet > out 2>&1 || fail "strict on $n ranks: $(cat out)"
done
cmp s1/ckpt-6/model.safetensors s2/ckpt-6/model.safetensors || fail "strict: two ranks differ from one"
# experts, as many as a rank has samples: their load balance is that of the batch of all ranks
for n in 1 2 4; do
    # shellcheck disable=SC2086
    "$trireme" train moe $data $network --experts 4 --balance 3 --batch-size $((16 / n)) -n $n --deterministic strict --steps 6 --eval-every-epochs 0 \
        --output m$n --launch-dir logs --quiet > out 2>&1 || fail "strict experts on $n ranks: $(cat out)"
done
cmp m1/ckpt-6/model.safetensors m2/ckpt-6/model.safetensors && cmp m1/ckpt-6/model.safetensors m4/ckpt-6/model.safetensors ||
    fail "strict experts: several ranks differ from one"
# shellcheck disable=SC2086
"$trireme" verify gpt2 $data $network --batch-size 4 -n 2 --steps 2 --launch-dir logs > out 2>&1 && grep -q "agrees with one device" out ||
    fail "verify: $(tail -3 out)"
# contexts in four parts, attention as a ring; three heads cannot be divided. Strict: the keys are gathered
{
    printf 'trireme-plan 1\nmesh 4\n'
    for i in 0 1; do
        printf 'op h.%d.attn.c_attn.linear%d m\nop h.%d.attn.attention%d r\n' $i $((4 * i)) $i $i
    done
} > ring.txt
for mode in "" "--precision mixed --loss-scale fixed:1024" "--deterministic strict --bitwise"; do
    # shellcheck disable=SC2086
    timeout 300 "$trireme" verify gpt2 $data --layers 2 --width 24 --heads 3 --batch-size 4 -n 4 --plan ring.txt --steps 2 $mode --launch-dir logs > out 2>&1 &&
        grep -q "agrees with one device" out || fail "verify of a ring $mode: $(tail -3 out)"
done
# shellcheck disable=SC2086
"$trireme" train gpt2 $data $network --batch-size 8 -n 2 --ps 1 --mode sync --weight-decay 0.5 --learning-rate 3e-3 --steps 20 --output ps --launch-dir logs \
    > out 2>&1 || fail "servers: $(tail -3 out)"
# shellcheck disable=SC2086
"$trireme" train gpt2 $data $network --batch-size 16 --weight-decay 0.5 --learning-rate 3e-3 --steps 20 --output alone --quiet > out 2>&1 || fail "alone: $(cat out)"
for run in ps alone; do
    "$trireme" eval gpt2 --checkpoint $run --data text.txt --dataset text --json | sed 's/.*"loss":\([0-9.]*\).*/\1/'
done > out
awk '{ d = NR == 1 ? $1 : d - $1 } END { exit !(NR == 2 && d < 1e-3 && d > -1e-3) }' out || fail "AdamW on servers beside one process: $(cat out)"

# ---- ids of a tokenizer, bytes, JSON lines
"$trireme" tokenizer train text.txt --vocabulary 300 --output tokens > out 2>&1 &&
    "$trireme" tokenizer encode text.txt --tokenizer tokens --output text.bin > out 2>&1 || fail "tokenizer: $(cat out)"
# shellcheck disable=SC2086
"$trireme" train gpt2 --data text.bin --dataset tokens --vocabulary 300 --context 16 $network $learn --hidden 48 --steps 30 --output ids > out 2>&1 &&
    "$trireme" eval gpt2 --checkpoint ids --data text.bin --dataset tokens --json > ids.json || fail "ids: $(cat out)"
# shellcheck disable=SC2086
"$trireme" train gpt2 --data text.txt --dataset text --tokenizer tokens --context 16 $network $learn --hidden 48 --steps 30 --output words > out 2>&1 &&
    "$trireme" eval gpt2 --checkpoint words --data text.txt --dataset text --tokenizer tokens --json > words.json || fail "words: $(cat out)"
grep -q '"bits_per_byte"' words.json && ! grep -q '"bits_per_byte"' ids.json && grep -q '"perplexity"' ids.json || fail "figures: $(cat ids.json words.json)"
head -300 text.txt | sed 's/.*/{"text": "&"}/' > text.jsonl
# shellcheck disable=SC2086
"$trireme" train gpt2 --data text.jsonl --dataset jsonl --tokens bytes --context 16 $network $learn --epochs 1 --eval-every-epochs 1 --tensorboard --metrics m.jsonl \
    --output lines > out 2>&1 && grep -q perplexity m.jsonl || fail "lines: $(cat out)"

# ---- AdamW: after one step of equal gradients weights differ by rate times decay times weight; embeddings, norms and biases do not
for optimizer in adam "adamw --weight-decay 1"; do
    # shellcheck disable=SC2086
    "$trireme" train gpt2 $data $network --batch-size 8 --learning-rate 1e-2 --seed 3 --optimizer $optimizer --betas 0.9,0.95 --steps 1 \
        --eval-every-epochs 0 --output "${optimizer%% *}" --quiet > out 2>&1 || fail "$optimizer: $(cat out)"
done
python3 - << 'END' || fail "decoupled decay"
import checkpoint, struct
def read(path):
    return {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (dtype, _, data) in checkpoint.open_safetensors(path).items() if dtype == "F32"}
without, decayed = read("adam/ckpt-1/model.safetensors"), read("adamw/ckpt-1/model.safetensors")
assert len(without) == 28, sorted(without)
for name, values in without.items():
    moved = [a - b for a, b in zip(values, decayed[name])]
    if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight", "bias")) or name in ("wte.weight", "wpe.weight"):
        assert not any(moved), name
    else: # 0.01 times N(0, 0.02) or, of the last layers, N(0, 0.01)
        deviation = (sum(m * m for m in moved) / len(moved)) ** 0.5
        expected = 0.01 * (0.01 if "c_proj" in name else 0.02)
        assert abs(deviation / expected - 1) < 0.1, (name, deviation)
END
"$trireme" train gpt2 --data text.txt --dataset text --tokens characters --context 24 --layers 2 --width 32 --heads 2 --batch-size 8 \
    --learning-rate 1e-2 --seed 3 --optimizer adam --betas 0.9,0.95 --steps 2 --eval-every-epochs 0 --output adamw --resume > out 2>&1
[ $? = 2 ] && grep -q "optimizer differs (found adam decoupled, expected adam)" out || fail "resume with another optimizer: $(cat out)"

# ---- measuring, export
# shellcheck disable=SC2086
"$trireme" bench train gpt2 --context 24 $network --vocabulary 40 --batch-size 4 --repeats 3 --json > out && grep -q '"context":24,' out &&
    grep -q '"tokens_per_second":' out || fail "bench train: $(cat out)"
"$trireme" bench train gpt2 --preset peer --size tiny --context 64 --batch-size 12 --repeats 3 --json > out && grep -q '"tokens_per_second":' out ||
    fail "bench train --preset peer: $(cat out)"
"$trireme" plan gpt2 --size tiny --vocabulary 65 --context 64 --json > out && grep -q '"parameters":809856,' out || fail "tiny: $(cat out)"
# shellcheck disable=SC2086
"$trireme" plan gpt2 --context 24 $network --vocabulary 40 --batch-size 4 > out && grep -q "24 tokens" out || fail "plan: $(cat out)"
"$trireme" export gpt2 --checkpoint a --to safetensors --output a.safetensors > out 2>&1 && "$trireme" inspect a.safetensors > out &&
    grep -q "h.1.attn.c_attn.weight" out || fail "export: $(cat out)"
"$trireme" export gpt2 --checkpoint a --to onnx --output a.onnx > out 2>&1 && "$trireme" inspect a.onnx > out && grep -q "logits" out ||
    fail "ONNX: $(cat out)"

# ---- wrong use
for i in $(seq 20); do echo "the rank."; done > short.txt
expect 2 "the data has no tokens" train gpt2 --data synth
expect 2 "--context abc: a number of tokens" train gpt2 --data text.txt --dataset text --tokens bytes --context abc
expect 2 "--context '0': an integer from 1 to" eval gpt2 --checkpoint a --data text.txt --context 0
expect 2 "--vocabulary 'many': an integer from 1" train gpt2 --data text.txt --dataset text --tokens bytes --vocabulary many
expect 2 "--hidden '4,4': an integer from 1" train gpt2 --data text.txt --dataset text --tokens bytes --hidden 4,4
expect 2 "--betas 0.9: two numbers" train gpt2 --data text.txt --dataset text --tokens bytes --betas 0.9
expect 2 "a vocabulary of 100 ids: the tokenizer has 256" train gpt2 --data text.txt --dataset text --tokens bytes --vocabulary 100
expect 2 "the width must be a multiple of the heads" train gpt2 --data text.txt --dataset text --tokens bytes --width 30 --heads 4
expect 2 "a context of at most 24 expected" eval gpt2 --checkpoint a --data text.txt --dataset text --context 25
expect 2 "--predictions is for models with labels" eval gpt2 --checkpoint a --data text.txt --dataset text --predictions p.npz
"$trireme" train mlp --data synth --synth-train 128 --steps 1 --eval-every-epochs 0 --heads 2 > out 2>&1
grep -q -- "--heads has no effect here: it is for language models" out || fail "a flag without effect: $(cat out)"
once="$data $network --steps 1 --eval-every-epochs 0"
for flag in "experts 3|moe" "top-experts 2|moe" "balance 0.1|moe" "untied|llama" "rotary-theta 5|llama" "lazy-embedding|llama" "text-field body|JSON lines"; do
    # shellcheck disable=SC2086
    expect 0 "--${flag%%[ |]*} has no effect here: it is for ${flag#*|}" train gpt2 $once --${flag%|*}
done
# shellcheck disable=SC2086
expect 0 "--lazy-embedding has no effect here: it is for --untied" train llama $once --lazy-embedding
# shellcheck disable=SC2086
expect 0 "--lora without --init: the frozen weights are random" train gpt2 $once --lora r=2
# shellcheck disable=SC2086
expect 2 "--lora r=2,r=3: 'r=3'" train gpt2 $once --lora r=2,r=3
expect 0 "--context 9 has no effect here" train mlp --data synth --synth-train 128 --steps 1 --eval-every-epochs 0 --context 9
expect 0 "--size has no effect here" eval gpt2 --checkpoint a --data text.txt --dataset text --size xl
expect 2 "text.txt: text needs a tokenizer, or tokens" train gpt2 --data text.txt
expect 0 "the model is not evaluated: short.txt: 20 tokens for evaluation, 25 (the context and one more) expected; lower the context or give more text" train gpt2 --data short.txt --tokens bytes --context 24 --batch-size 2 $network
expect 4 "use a smaller batch, context, image or network" train gpt2 --data text.txt --tokens bytes --layers 2000 --width 16384 --heads 2 --dry-run

# ---- tiny Shakespeare
shakespeare=$TRIREME_DATA/tiny-shakespeare/input.txt
if [ -f "$shakespeare" ] && ! sanitized; then
    "$trireme" train gpt2 --data "$shakespeare" --dataset text --tokens characters --context 64 --layers 4 --width 128 --heads 4 --batch-size 12 \
        --optimizer adam --learning-rate 1e-3 --steps 200 --eval-every-epochs 0 --output shakespeare --json > out || fail "tiny Shakespeare"
    python3 -c '
import json
losses = [e["loss"] for e in map(json.loads, open("out")) if e["event"] == "step"]
assert losses[-1] < 2.6 < losses[0], losses' || fail "losses of tiny Shakespeare"
fi
exit $failed
