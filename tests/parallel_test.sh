#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Data parallel from the command line: context options, evaluation on many ranks, stopping a job.
. "$(dirname "$0")/common.sh"
data="--data synth --synth-train 96 --synth-test 42"
recipe="--learning-rate 0.02 --seed 7 --log-every 1 --json --epochs 1"
# shellcheck disable=SC2086
train() { "$trireme" train mlp $data $recipe "$@"; }
losses() { python3 -c 'import json,sys; print(*[json.loads(l)["loss"] for l in open(sys.argv[1]) if "\"step\"," in l])' "$1"; }

# ---- flags and context options are the same thing
train --batch-size 8 -n 2 --reduce sum --bucket 0.05 --accumulate 2 > flags.json || fail "flags"
train --batch-size 8 -n 2 --context "mirror_mean=false; comm_fusion=size:0.05;grad_accumulation_step=2;device_num=2" > context.json ||
    fail "--context"
[ "$(losses flags.json)" = "$(losses context.json)" ] && [ -n "$(losses flags.json)" ] || fail "flags and --context differ"
grep -q '"epoch_steps":3' context.json || fail "grad_accumulation_step does nothing"
train --batch-size 8 -n 2 --context "parallel_mode=hybrid_parallel;layerwise_parameters=fc2" > hybrid.json || fail "hybrid"
grep -q '"parallel_mode":"hybrid_parallel"' hybrid.json || fail "hybrid_parallel is not told"
# ---- parameters that a rank keeps for itself are in the checkpoint and are restored on that rank
hybrid="--batch-size 8 -n 2 --parallel-mode hybrid_parallel --layerwise fc2 --output own"
# shellcheck disable=SC2086
{ train $hybrid --steps 3 > own1.json && train $hybrid --resume > own2.json; } 2> err.txt || fail "hybrid, resumed: $(cat err.txt)"
[ "$(losses own1.json) $(losses own2.json)" = "$(losses hybrid.json)" ] || fail "a resumed hybrid job has other losses"
expect 2 "checkpoint of a hybrid_parallel job of 2 ranks" train mlp $data $recipe --batch-size 8 -n 2 --output own --resume
expect 2 "checkpoint of a hybrid_parallel job of 2 ranks, this run has 4" train mlp $data $recipe --batch-size 4 -n 4 --parallel-mode hybrid_parallel --layerwise fc2 --output own --resume
expect 2 "no parameter has this name" train mlp $data $recipe --batch-size 8 -n 2 --parallel-mode hybrid_parallel --layerwise fc9
# ---- options that do not fit the mode are refused before ranks start
rm -rf device0
expect 2 "--layerwise: layerwise_parameters is for parallel_mode hybrid_parallel; the mode is data_parallel" train mlp $data $recipe --batch-size 8 -n 2 --layerwise fc2
expect 2 "--mesh is for --parallel-mode semi_auto_parallel and auto_parallel; the mode is data_parallel" train mlp $data $recipe --batch-size 8 -n 2 --mesh 2
expect 2 "--mesh is for --parallel-mode" bench train mlp --batch-size 8 -n 2 --mesh 2
expect 2 "all_reduce_fusion_config and comm_fusion both" train mlp $data $recipe --batch-size 8 -n 2 --bucket 4 --context all_reduce_fusion_config=3,
expect 2 "cheapest route" train mlp $data $recipe --batch-size 8 -n 2 --parallel-mode semi_auto_parallel --context enable_alltoall=false
expect 2 "groups of 3 ranks; the 2 of -n do not divide" train resnet18 --data synth --batch-size 8 -n 2 --sync-batch-norm 3
expect 2 "mesh '2xx': at character 3: sizes with x between them" train mlp $data $recipe --batch-size 8 -n 2 --parallel-mode auto_parallel --mesh 2xx
expect 2 "--data is needed" train mlp --batch-size 8 -n 2
expect 2 "--data is needed" eval mlp --checkpoint own -n 2
[ ! -e device0 ] || fail "ranks were started with options that do not go together"
expect 2 "device_num is 4, but the job has 2 ranks" train mlp --data synth --synth-train 64 --batch-size 8 --epochs 1 -n 2 --context device_num=4
expect 2 "nearest is gradients_mean" train mlp --data synth --context gradient_mean=true
expect 2 "are the same option" train mlp --data synth --reduce sum --context mirror_mean=true
expect 2 "NAME=VALUE" train mlp --data synth --context mirror_mean
expect 2 "stand_alone" train mlp --data synth --parallel-mode stand_alone --reduce sum
expect 0 "gradients_mean, mirror_mean = true|false" help context
expect 0 "Modes: data_parallel, semi_auto_parallel, auto_parallel." help context
expect 0 "--sync-batch-norm has no effect here: it is for models" train mlp $data $recipe --batch-size 8 -n 2 --sync-batch-norm on

# ---- evaluation on many ranks is that on one, inside training and after it; 42 samples are no whole batches
same_evaluation() { # counts equal, losses to 1e-5: they are added in another order
    python3 - "$1" "$2" << 'END'
import json, sys
a, b = ([json.loads(l) for l in open(f) if '"eval"' in l][-1] for f in sys.argv[1:])
assert all(a[k] == b[k] for k in ("samples", "top1", "top5")) and abs(a["loss"] - b["loss"]) < 1e-5, (a, b)
END
}
train --batch-size 8 -n 2 --output run --eval-every-epochs 1 > run.json || fail "train and evaluate"
for n in 1 2 3; do
    "$trireme" eval mlp --checkpoint run --data synth --synth-test 42 --batch-size 8 --seed 7 -n $n --json > "eval$n.json" ||
        fail "eval -n $n"
    same_evaluation "eval$n.json" run.json || fail "eval -n $n is not the evaluation in training"
done
grep -q '"samples":42' eval3.json || fail "eval -n 3 does not see every sample once"

# ---- SIGTERM on the launcher: all ranks end after a step, rank 0 has saved, and the resumed job has the same bits
train --batch-size 8 -n 2 --epochs 3 > straight.json 2> /dev/null && fail "--epochs twice should be refused"
long="--data synth --synth-train 3200 --synth-test 16 --learning-rate 0.02 --seed 7 --log-every 1 --json --epochs 2 --batch-size 8 -n 2"
# shellcheck disable=SC2086
"$trireme" train mlp $long > straight.json || fail "straight"
# shellcheck disable=SC2086
"$trireme" train mlp $long --output stop > a.json &
launcher=$!
for _ in $(seq 100); do grep -q '"global_step":60,' a.json && break; sleep 0.05; done
kill -TERM $launcher
wait $launcher
code=$?
[ $code = 143 ] || fail "SIGTERM on the launcher: exit code $code"
ls stop | grep -q ckpt || fail "SIGTERM on the launcher: no checkpoint"
# shellcheck disable=SC2086
"$trireme" train mlp $long --output stop --resume > b.json || fail "resuming after SIGTERM"
[ "$(losses a.json) $(losses b.json)" = "$(losses straight.json)" ] || fail "a job stopped by SIGTERM has other losses"
exit $failed
