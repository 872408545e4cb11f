#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --recompute block: the bits of a run that keeps its values, for every model with blocks, in both precisions, with dropout, with
# accumulated batches, on two ranks (data parallel, strict, split, a pipeline) and with servers; less memory, as predicted.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1

write_sentences 1500 "a row" "one table" "the weights" > text.txt
data="--data text.txt --dataset text --tokens characters --context 24"
learn="--batch-size 8 --learning-rate 3e-3 --seed 3 --steps 6 --eval-every-epochs 0 --launch-dir logs --quiet"

# Trains twice, with and without; the losses and the weights must be equal.
same() { # name, arguments
    local name=$1 way
    shift
    for way in off block; do
        "$trireme" train "$@" --recompute $way --output "$name-$way" > out 2>&1 || fail "$name, $way: $(tail -3 out)"
    done
    cmp "$name-off/ckpt-6/model.safetensors" "$name-block/ckpt-6/model.safetensors" || fail "$name: recomputed values change the weights"
}
small="--layers 3 --width 32 --heads 4"
# shellcheck disable=SC2086
for precision in fp32 mixed; do
    same "gpt2-$precision" gpt2 $data $small $learn --dropout 0.1 --precision $precision
    same "llama-$precision" llama $data $small --kv-heads 2 $learn --dropout 0.1 --precision $precision
    same "bert-$precision" bert $data $small $learn --dropout 0.1 --precision $precision
    same "moe-$precision" moe $data $small --experts 4 $learn --dropout 0.1 --precision $precision
    same "resnet-$precision" resnet18 --data synth --synth-train 64 --image-size 32 --stem cifar --batch-size 4 --steps 6 --eval-every-epochs 0 --quiet \
        --precision $precision
    same "vit-$precision" vit --data synth --synth-train 64 --image-size 32 --layers 3 --width 32 --heads 4 --batch-size 4 --steps 6 --dropout 0.1 \
        --eval-every-epochs 0 --quiet --precision $precision
done
# shellcheck disable=SC2086
same accumulated gpt2 $data $small $learn --dropout 0.1 --accumulate 2
for mode in "" "--shard-optimizer" "--deterministic strict" "--parallel-mode semi_auto_parallel" "--stages 2 --micro-batches 2" "--precision mixed"; do
    # shellcheck disable=SC2086
    same "ranks${mode// /}" gpt2 $data $small $learn --dropout 0.1 -n 2 $mode
done
# shellcheck disable=SC2086
same servers gpt2 $data $small $learn -n 2 --ps 1 --mode sync
# strict: the bits of one rank, too
# shellcheck disable=SC2086
same strict-1 gpt2 $data $small ${learn/--batch-size 8/--batch-size 16} --dropout 0.1 --deterministic strict
cmp strict-1-block/ckpt-6/model.safetensors ranks--deterministicstrict-block/ckpt-6/model.safetensors || fail "strict: two ranks differ from one"

# ---- memory: of twelve blocks remains one; prediction and measurement agree
deep="--layers 12 --width 64 --heads 4 --vocabulary 65 --context 256 --batch-size 8 --repeats 3 --json"
for way in off block; do
    # shellcheck disable=SC2086
    "$trireme" bench train gpt2 $deep --recompute $way > "bench-$way.json" || fail "bench train --recompute $way"
    # shellcheck disable=SC2086
    "$trireme" plan gpt2 --layers 12 --width 64 --heads 4 --vocabulary 65 --context 256 --batch-size 8 --json --recompute $way > "plan-$way.json" ||
        fail "plan --recompute $way"
done
python3 - << 'END' || fail "memory: $(cat bench-off.json bench-block.json plan-off.json plan-block.json)"
import json
read = lambda name: json.loads(open(name).readline())
bench, plan = [[read(f"{kind}-{way}.json") for way in ("off", "block")] for kind in ("bench", "plan")]
activations = [p["memory"]["activation_bytes"] for p in plan]
assert activations[1] < 0.35 * activations[0], activations
assert bench[1]["predicted_peak_bytes"] < 0.6 * bench[0]["predicted_peak_bytes"], bench
saved, predicted = [bench[0][key] - bench[1][key] for key in ("peak_bytes", "predicted_peak_bytes")]
assert abs(predicted / saved - 1) < 0.02, bench
END

# ---- wrong use
expect 2 "the network has no segments" train mlp --data synth --synth-train 128 --steps 1 --recompute block
expect 2 "--recompute" train gpt2 --data text.txt --dataset text --tokens bytes --recompute some
exit $failed
