#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains BERT on masked tokens from the command line: losses, resuming, evaluation, ranks, servers, planning, export, wrong use.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1

# Sentences of a small grammar: a masked letter can be read off the others.
write_sentences 4000 "é row" "one table" "the weights" > text.txt
network="--layers 2 --width 32 --heads 2"
data="--data text.txt --dataset text --tokens characters --context 24"
learn="--batch-size 16 --learning-rate 2e-3 --seed 3"

# ---- training, evaluation; a stopped run continues bit for bit
# shellcheck disable=SC2086
"$trireme" train bert $data $network $learn --steps 350 --log-every 10 --tensorboard --output a --json > a.json || fail "train"
"$trireme" eval bert --checkpoint a --data text.txt --dataset text --json > eval.json || fail "eval"
"$trireme" eval bert --checkpoint a --data text.txt --dataset text > eval.txt && grep -q "perplexity" eval.txt && ! grep -q "bits per byte" eval.txt ||
    fail "eval: $(cat eval.txt)"
python3 - << 'END' || fail "events: $(cat eval.json)"
import json, math
events = [json.loads(line) for line in open("a.json")]
by = lambda kind: [e for e in events if e["event"] == kind]
start, steps = by("start")[0], by("step")
text = open("text.txt").read()
assert start["vocabulary"] == len(set(text)) + 1, start  # and the token for masked ones
assert abs(steps[0]["loss"] - math.log(start["vocabulary"])) < 0.3, steps[0]
assert sum(e["loss"] for e in steps[-5:]) / 5 < 2.3, steps[-5:]  # the frequencies of characters alone: 2.7
chance = max(text.count(c) for c in set(text)) / len(text)
assert chance < by("eval")[-1]["accuracy"] < 1, (chance, by("eval")[-1])
again, last = json.loads(open("eval.json").readline()), by("eval")[-1]
assert abs(again["loss"] - last["loss"]) < 1e-6 and last["loss"] < 2.3 and abs(math.log(again["perplexity"]) - again["loss"]) < 1e-6, (again, last)
# 15 % of the tokens of the test part, rounded in each sample: 4 of 24
part = len(text) - len(text) * 9 // 10
assert abs(again["tokens"] - part / 24 * 4) < 5, (again, part)
END
"$trireme" inspect "$(ls a/events.out.tfevents.*)" > out && grep -q "train/loss" out || fail "events for TensorBoard: $(cat out)"
for steps in 23 40; do
    # shellcheck disable=SC2086
    "$trireme" train bert $data $network $learn --dropout 0.1 --steps $steps --output b --resume --quiet > out 2>&1 || fail "resume: $(cat out)"
done
# shellcheck disable=SC2086
"$trireme" train bert $data $network $learn --dropout 0.1 --steps 40 --output whole --quiet > out 2>&1 || fail "whole: $(cat out)"
for part in model optimizer; do
    cmp "whole/ckpt-40/$part.safetensors" "b/ckpt-40/$part.safetensors" || fail "$part of the resumed run"
done

# ---- ranks and servers: strict has the same bits on both, a split is verified, synchronous servers have one process's losses
for n in 1 2; do
    # shellcheck disable=SC2086
    "$trireme" train bert $data $network --batch-size $((16 / n)) -n $n --deterministic strict --steps 6 --eval-every-epochs 0 --output s$n \
        --launch-dir logs --quiet > out 2>&1 || fail "strict on $n ranks: $(cat out)"
done
cmp s1/ckpt-6/model.safetensors s2/ckpt-6/model.safetensors || fail "strict: two ranks differ from one"
# shellcheck disable=SC2086
"$trireme" verify bert $data $network --batch-size 4 -n 2 --steps 2 --launch-dir logs > out 2>&1 && grep -q "agrees with one device" out ||
    fail "verify: $(tail -3 out)"
# shellcheck disable=SC2086
"$trireme" train bert $data $network --batch-size 8 --learning-rate 2e-3 --seed 3 -n 2 --ps 1 --mode sync --steps 12 --output ps --launch-dir logs \
    > out 2>&1 || fail "servers: $(tail -3 out)"
# shellcheck disable=SC2086
"$trireme" train bert $data $network $learn --steps 12 --output alone --quiet > out 2>&1 || fail "alone: $(cat out)"
for run in ps alone; do
    "$trireme" eval bert --checkpoint $run --data text.txt --dataset text --json | sed 's/.*"loss":\([0-9.]*\).*/\1/'
done > out
awk '{ d = NR == 1 ? $1 : d - $1 } END { exit !(NR == 2 && d < 1e-3 && d > -1e-3) }' out || fail "servers beside one process: $(cat out)"

# ---- a tokenizer with a mask token, ids without one, mixed precision
"$trireme" tokenizer train text.txt --vocabulary 290 --special-tokens '<|endoftext|>,[MASK]' --output tokens > out 2>&1 &&
    "$trireme" tokenizer encode text.txt --tokenizer tokens --output text.bin > out 2>&1 || fail "tokenizer: $(cat out)"
# shellcheck disable=SC2086
"$trireme" train bert --data text.txt --dataset text --tokenizer tokens --context 16 $network $learn --precision mixed --steps 20 --output words --json > words.json &&
    grep -q '"vocabulary":290,' words.json && [ -f words/tokenizer/tokenizer.json ] || fail "words: $(cat words.json)"
# shellcheck disable=SC2086
"$trireme" train bert --data text.bin --dataset tokens --vocabulary 290 --mask-token 1 --masking 0.3 --context 16 $network $learn --steps 20 --output ids > out 2>&1 &&
    "$trireme" eval bert --checkpoint ids --data text.bin --dataset tokens --json > ids.json || fail "ids: $(cat out)"
python3 -c '
import json
e = json.loads(open("ids.json").readline())
assert e["tokens"] >= 5 * (e["samples"] - 1), e' || fail "30 % of 16 tokens: $(cat ids.json)" # recalled from the checkpoint

# ---- each line a sample: with [CLS] and [SEP] around it, on two ranks as on one; eval recalls it; of JSON lines the same; gpt2 reads lines, too
"$trireme" tokenizer train text.txt --vocabulary 290 --special-tokens '<|endoftext|>,[PAD],[CLS],[SEP],[MASK]' --output framed > out 2>&1 || fail "tokenizer: $(cat out)"
python3 -c '
import json
for line in open("text.txt"):
    print(json.dumps({"text": line[:-1]}))' > text.jsonl
lines="--tokenizer framed --context 16 --documents"
for n in 1 2; do
    # shellcheck disable=SC2086
    "$trireme" train bert --data text.txt --dataset text $lines $network --batch-size $((16 / n)) -n $n --deterministic strict --steps 6 --eval-every-epochs 0 \
        --output l$n --launch-dir logs --quiet > out 2>&1 || fail "lines on $n ranks: $(cat out)"
done
cmp l1/ckpt-6/model.safetensors l2/ckpt-6/model.safetensors || fail "lines: two ranks differ from one"
"$trireme" eval bert --checkpoint l1 --data text.txt --dataset text --json > lines.json &&
    "$trireme" eval bert --checkpoint l1 --data text.jsonl --dataset jsonl --json > jsonl.json || fail "eval of lines"
# shellcheck disable=SC2086
"$trireme" train gpt2 --data text.txt --dataset text $lines $network $learn --steps 20 --json > gpt2.json || fail "gpt2 on lines"
python3 - << 'END' || fail "lines: $(cat lines.json jsonl.json)"
import json
one, other = (json.load(open(name)) for name in ("lines.json", "jsonl.json"))
assert 400 <= one["samples"] < 800 and all(one[k] == other[k] for k in ("samples", "tokens", "loss", "accuracy")), (one, other)
events = [json.loads(line) for line in open("gpt2.json")]
assert 0 < [e for e in events if e["event"] == "eval"][-1]["accuracy"] < 1, events[-1]
END

# ---- planning, measuring, export
"$trireme" plan bert --size base --context 512 --json > out && grep -q '"parameters":109514298,' out || fail "base: $(cat out)"
for model in bert llama; do # whose output layers are part of the loss
    # shellcheck disable=SC2086
    "$trireme" plan $model $network --vocabulary 40 --context 24 --batch-size 4 -n 2 --no-measure > out 2>&1 && grep -q "data parallel" out ||
        fail "plan $model -n 2: $(tail -3 out)"
done
# shellcheck disable=SC2086
"$trireme" simulate bert $network --vocabulary 40 --context 24 --batch-size 4 --mesh 2x4 --links guess --no-measure > out 2>&1 &&
    grep -q "one rank 2 times as slow" out || fail "simulate: $(tail -3 out)"
"$trireme" bench train bert --preset peer --size tiny --context 32 --batch-size 4 --repeats 3 --json > out && grep -q '"tokens_per_second":' out ||
    fail "bench train: $(cat out)"
# shellcheck disable=SC2086
"$trireme" bench ops bert $network --vocabulary 40 --context 24 --batch-size 4 --repeats 3 --json > out && grep -q '"linear_xent"' out ||
    fail "bench ops: $(tail -3 out)"
"$trireme" export bert --checkpoint a --to onnx --output a.onnx > out 2>&1 && "$trireme" inspect a.onnx > out && grep -q "logits" out ||
    fail "ONNX: $(cat out)"

# ---- wrong use
expect 2 "generate: bert predicts masked tokens from those on both sides, not the next one" generate bert --checkpoint a --prompt "the"
expect 2 "bench generate: bert predicts masked tokens" bench generate bert
expect 2 "no bert of size 'huge'; there are base, large, medium, small, mini, tiny" train bert --data text.txt --dataset text --tokens bytes --size huge
expect 2 "1 key heads for 2 heads: as many expected" train bert --data text.txt --dataset text --tokens bytes --heads 2 --width 32 --kv-heads 1
expect 2 "boundary tokens: masked samples and a tokenizer with [CLS] and [SEP]" train bert --data text.txt --dataset text --tokens bytes --boundary-tokens on
expect 2 "ids have no documents" train bert --data text.bin --dataset tokens --vocabulary 290 --documents
expect 2 "mask token 400: an id below 257" train bert --data text.txt --dataset text --tokens bytes --vocabulary 257 --mask-token 400
# shellcheck disable=SC2086
expect 0 "--masking has no effect here: it is for bert" train gpt2 $data $network --masking 0.3 --steps 1 --eval-every-epochs 0
exit $failed
