#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Stages of a pipeline from the command line: the bits of one device, checkpoints of any layout resumed under any other,
# verify, wrong use, a rank that is killed.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1

write_sentences 800 "one row" "a table" > text.txt
network="--layers 4 --width 32 --heads 2 --dropout 0.1"
data="--data text.txt --dataset text --tokens characters --context 24"

# $1: folder, $2: steps, $3: samples of a rank; the rest: flags. A search measures kernels, four ranks at once.
run() {
    local folder=$1 steps=$2 batch=$3
    shift 3
    # shellcheck disable=SC2086
    timeout 600 "$trireme" train gpt2 $data $network --clip-norm 0.3 --deterministic strict --batch-size "$batch" --micro-batches 4 --steps "$steps" \
        --eval-every-epochs 0 --output "$folder" --resume --launch-dir logs --quiet "$@" > out 2>&1 || fail "$folder, $*: $(tail -3 out)"
}
# $1: folder whose files must be those of one device
same() {
    for part in model optimizer; do
        cmp "one/ckpt-6/$part.safetensors" "$1/ckpt-6/$part.safetensors" || fail "$1: $part differs from one device"
    done
}

# ---- from one layout to another
run one 6 8
run a 3 8 -n 2 --stages 2
run a 6 8
run b 3 8
run b 6 8 -n 4 --stages 4 --pipeline-schedule gpipe
run c 3 4 -n 4 --stages 2 --pipeline-schedule interleaved
run c 6 4 -n 2
run d 3 4 -n 4 --stages 2 --parallel-mode semi_auto_parallel
run d 6 8 -n 3 --stages 3 --stage-begins h.0.attn.c_attn.linear0,h.2.mlp.c_fc.linear10
for folder in a b c d; do
    same $folder
done

# ---- verify
# shellcheck disable=SC2086
"$trireme" verify gpt2 $data $network --batch-size 4 -n 4 --stages 2 --micro-batches 2 --mesh 2 --steps 2 --launch-dir logs > out 2>&1 &&
    grep -q "agrees with one device" out || fail "verify: $(tail -3 out)"

# ---- stages that a search has chosen, from its file
tiny="--layers 3 --width 48 --heads 4 --context 32 --vocabulary 300 --batch-size 4 -n 4"
# $1: file; the rest: flags of plan
searched() {
    local file=$1
    shift
    # shellcheck disable=SC2086
    timeout 300 "$trireme" plan gpt2 $tiny --no-measure --links guess --save "$file" --json "$@" > plan.json 2> out || fail "plan $*: $(tail -3 out)"
    # shellcheck disable=SC2086
    timeout 300 "$trireme" verify gpt2 $tiny --plan "$file" --launch-dir logs > out 2>&1 && grep -q "agrees with one device" out ||
        fail "verify --plan of $*: $(tail -3 out)"
}
searched two.txt --stages 2 --micro-batches 4
searched four.txt --stages 4 --pipeline-schedule 1f1b
searched gpipe.txt --stages 2 --micro-batches 2 --pipeline-schedule gpipe
searched less.txt --stages 2 --micro-batches 4 --memory 3.5MB
python3 - << 'END' || fail "the JSON of plan --stages"
import json
report = json.load(open("plan.json"))
pipe = report["pipeline"]
assert pipe["stages"] == 2 and pipe["micro_batches"] == 4 and len(pipe["stage_list"]) == 2, pipe
assert 0 < pipe["compiled_bytes"] <= 3.5e6 and pipe["fits"], pipe
ends = [stage["update_begins_seconds"] + stage["update_seconds"] for stage in pipe["stage_list"]]
assert min(s["update_begins_seconds"] for s in pipe["stage_list"]) > max(actions[-1]["end"] for actions in pipe["actions"]), "the stages meet before their updates"
assert max(ends) <= pipe["step_seconds"] <= max(ends) * 1.1, (ends, pipe["step_seconds"])
# what a rank does not work, wait for others or update it meets: the two meetings are a kind of their own
met = pipe["meetings"]
assert len(met) == 2 and met[0]["begin"] >= max(actions[-1]["end"] for actions in pipe["actions"]) * (1 - 1e-9) and met[1]["begin"] >= max(ends) * (1 - 1e-9), met
assert abs(met[0]["end"] - pipe["stage_list"][0]["update_begins_seconds"]) < 1e-9, met
for stage in pipe["stage_list"]:
    assert abs(stage["meeting_seconds"] - sum(m["end"] - m["begin"] for m in met)) < 1e-9 and stage["bubble_seconds"] >= -1e-9, stage
    assert abs(sum(stage[key] for key in ("busy_seconds", "update_seconds", "meeting_seconds", "bubble_seconds")) - pipe["step_seconds"]) < 1e-9, stage
assert report["certificate"]["lower_bound"] <= pipe["step_seconds"]
assert min(row["lower_bound"] for row in report["pipelines"] if row["lower_bound"] is not None) == report["certificate"]["lower_bound"]
END
# shellcheck disable=SC2086
expect 2 "leave --stages" verify gpt2 $tiny --plan two.txt --micro-batches 8
# shellcheck disable=SC2086
expect 2 "stages divide the ranks, micro-batches the samples" plan gpt2 $tiny --stages 2 --micro-batches 3 --no-measure --links guess
# shellcheck disable=SC2086
expect 2 "no forward operator has this name" plan gpt2 $tiny --stages 2 --stage-begins nothing --no-measure --links guess
# shellcheck disable=SC2086
expect 2 "auto, or a number from 1 to 64 that divides the 4 ranks" plan gpt2 $tiny --stages 3
# shellcheck disable=SC2086
{
expect 2 "2 chunks with schedule 1f1b" plan gpt2 $tiny --stages 2 --pipeline-schedule 1f1b --chunks 2 --no-measure --links guess
expect 2 "schedule interleaved: 1 stage found" plan gpt2 $tiny --stages 1 --pipeline-schedule interleaved --no-measure --links guess
expect 2 "schedule interleaved: 1 chunk found" plan gpt2 $tiny --stages 2 --pipeline-schedule interleaved --chunks 1 --no-measure --links guess
expect 2 "mesh 4 of a stage has 4 ranks, so that 2 stages have 8" plan gpt2 $tiny --stages 2 --mesh 4 --no-measure --links guess
expect 2 "which makes 3 runs: a multiple of the 2 stages expected" plan gpt2 $tiny --stages 2 --stage-begins h.0.add1,h.0.add2 --no-measure --links guess
}

# ---- a given number of stages: nothing is measured on the 4 or 16 samples of plans without stages, which are only compared with
# shellcheck disable=SC2086
XDG_CACHE_HOME=$PWD/staged timeout 300 "$trireme" plan gpt2 $tiny --stages 4 --micro-batches 8 --links guess --json > staged.json 2> out || fail "plan: $(tail -3 out)"
if [ -f staged/trireme/operators.txt ]; then
    grep -q "m p10 \[2, 32, " staged/trireme/operators.txt || fail "no operator of a stage was measured"
    ! grep " p10 \[\(4\|16\), 32, " staged/trireme/operators.txt || fail "operators of plans without stages were measured"
fi
python3 -c 'import json; report = json.load(open("staged.json")); assert report["without_stages"]["step_seconds"] > 0, report' || fail "the plan without stages has no price"

# ---- a plan by hand: the price that the search gives the same plan, and what is better
guess="--no-measure --links guess --json"
# shellcheck disable=SC2086
"$trireme" plan gpt2 $tiny --stages 4 --micro-batches 4 --pipeline-schedule 1f1b --save own.txt $guess > own.json 2> out || fail "plan: $(tail -3 out)"
# shellcheck disable=SC2086
"$trireme" plan gpt2 $tiny --plan own.txt $guess > given.json 2> out || fail "plan --plan with stages: $(tail -3 out)"
# shellcheck disable=SC2086
"$trireme" plan gpt2 $tiny --stages 2 --micro-batches 4 --pipeline-schedule 1f1b --stage-begins h.0.add1 $guess > cut.json 2> out || fail "a cut: $(tail -3 out)"
python3 - << 'END' || fail "a plan by hand"
import json
own, given, cut = (json.load(open(f"{name}.json")) for name in ("own", "given", "cut"))
mine, there = own["pipeline"], given["given_pipeline"]
for key in ("step_seconds", "memory_bytes", "stages", "mesh", "micro_batches", "schedule"):
    assert there[key] == mine[key], (key, there[key], mine[key])
best = given["pipeline"]["step_seconds"] if given["pipeline"] else given["without_stages"]["step_seconds"]
assert there["compared_with"] == "best plan" and there["best_step_seconds"] == best <= there["step_seconds"], there
more = sum(there[f"{part}_more_seconds"] for part in ("operators", "waits", "meetings", "update"))
assert abs(more - (there["step_seconds"] - best)) < 0.02 * there["step_seconds"], (more, there)
there = cut["given_pipeline"]
assert there["compared_with"] == "best cut" and there["best_step_seconds"] < there["step_seconds"] == cut["pipeline"]["step_seconds"], there
assert own["given_pipeline"] is None
END
sed "s/micro-batches=4/micro-batches=3/" own.txt > uneven.txt
# shellcheck disable=SC2086
expect 2 "a batch that 3 micro-batches divide expected, found 4 ranks and 16 samples" plan gpt2 $tiny --plan uneven.txt

# ---- stages that the job itself searches: the plan of `trireme plan`, and the losses of one device
search="--parallel-mode auto_parallel --backend ref"
small="--layers 1 --width 16 --heads 2 --vocabulary 50 -n 4"
# shellcheck disable=SC2086
timeout 300 "$trireme" plan gpt2 $small --context 24 --full-batch --batch-size 4 --backend ref --no-measure --links guess --stages 2 --micro-batches 4 --save planned.txt > out 2>&1 ||
    fail "plan --backend ref: $(tail -3 out)"
# shellcheck disable=SC2086
timeout 300 "$trireme" verify gpt2 $small --batch-size 1 --steps 1 $search --stages 2 --micro-batches 4 --context "24; strategy_ckpt_save_file=$PWD/taken.txt" --launch-dir logs \
    > out 2>&1 && grep -q "agrees with one device" out || fail "verify of a search: $(tail -3 out)"
grep -q "plan: 2 stages on mesh .* each, 4 micro-batches, .*; predicted .* no plan takes less than" out || fail "the plan is not told: $(grep plan out)"
sed "s/^trireme-plan 1.*/trireme-plan 1/" taken.txt | cmp - planned.txt || fail "the job takes another plan than trireme plan saves"
# shellcheck disable=SC2086
timeout 300 "$trireme" train gpt2 $data --layers 3 --width 48 --heads 4 --batch-size 4 -n 4 $search --stages auto --steps 3 --eval-every-epochs 0 --json \
    --launch-dir logs > out 2> error.log || fail "train --stages auto: $(tail -3 error.log)"
python3 - << 'END' || fail "the event of a searched plan: $(grep -m1 '"plan"' out)"
import json
events = [json.loads(line) for line in open("out") if line.startswith("{")]
plan = next(e for e in events if e["event"] == "plan")
assert plan["stages"] in (0, 1, 2, 4) and 0 <= plan["gap"] < 1 and plan["lower_bound"] <= plan["predicted_step_seconds"], plan
assert any(e["event"] == "done" and e["global_step"] == 3 for e in events)
END

# ---- without --stages: stages are searched, too, of a model with blocks; none where an option says how the job is planned
# shellcheck disable=SC2086
timeout 300 "$trireme" verify gpt2 $tiny $search --steps 1 --launch-dir logs > out 2>&1 && grep -q "agrees with one device" out &&
    grep -q "plan: .*; predicted .* no plan takes less than" out || fail "auto_parallel without --stages: $(tail -3 out)"
# shellcheck disable=SC2086
timeout 300 "$trireme" verify gpt2 $tiny $search --mesh 4 --steps 1 --launch-dir logs > out 2>&1 && grep -q "agrees with one device" out &&
    ! grep -q "no plan takes less than" out || fail "auto_parallel with a mesh: $(tail -3 out)"

# ---- searched stages in strict mode: the bits of one device with as many micro-batches
run strict 6 2 -n 4 --parallel-mode auto_parallel --stages 2
same strict

# ---- a step is all micro-batches of an update, also where the parts of one are fewer than ranks
# shellcheck disable=SC2086
timeout 300 "$trireme" train gpt2 $data $network --batch-size 8 --full-batch -n 4 $search --stages 1 --micro-batches 4 --steps 1 --eval-every-epochs 0 \
    --launch-dir logs > out 2>&1 && grep -q "a step has 2 samples a rank, 8 together" out || fail "the samples of a step: $(cat out)"

# ---- --global-batch: all micro-batches of the plan that is found together, whether or not their number is given
for case in "--stages 2 --micro-batches 4" "--stages 2" "--stages 1 --micro-batches 2"; do
    # shellcheck disable=SC2086
    timeout 300 "$trireme" train gpt2 $data $network --global-batch 16 -n 4 $search $case --steps 1 --eval-every-epochs 0 --launch-dir logs > out 2>&1 &&
        grep -qE "a step has [0-9]+ samples a rank, 16 together" out || fail "--global-batch 16 $case: $(cat out)"
done
# The launcher counts the parts of a batch as the ranks do: --full-batch in either spelling.
for case in "--context 24;parallel_mode=semi_auto_parallel;full_batch=true" "--context 24;parallel_mode=semi_auto_parallel --full-batch"; do
    # shellcheck disable=SC2086
    timeout 300 "$trireme" train gpt2 ${data%--context*} $network --global-batch 6 -n 4 $case --steps 1 --eval-every-epochs 0 --launch-dir logs \
        > out 2>&1 && grep -q "6 together" out || fail "--global-batch 6 $case: $(cat out)"
done
# shellcheck disable=SC2086
expect 2 "pipeline_stages=4: each stage needs a rank, and the job has 2 (-n)" train gpt2 ${data%--context*} $network --global-batch 8 -n 2 \
    --context "24; pipeline_stages=4" --steps 1

# ---- wrong use
# shellcheck disable=SC2086
expect 2 "a number of tokens from 1 to 16777216, options NAME=VALUE, or both" train gpt2 ${data%--context*} $network --context "24, gradients_mean=true" --steps 1
# shellcheck disable=SC2086
expect 2 "--parallel-mode auto_parallel, which searches stages, is expected" train gpt2 $data $network --stages auto --steps 1 -n 2
# shellcheck disable=SC2086
expect 2 "--micro-batches 3 does not divide the batch of 8 samples" train gpt2 $data $network --batch-size 8 --micro-batches 3 --steps 1
# shellcheck disable=SC2086
expect 2 "--mesh 4 has 4 ranks; -n says 2 for each of the stages" verify gpt2 $data $network -n 4 --stages 2 --mesh 4

# ---- a rank dies
: > out # the background job opens it later
# shellcheck disable=SC2086
timeout 300 "$trireme" train gpt2 $data $network --batch-size 8 --micro-batches 4 --steps 100000 -n 3 --stages 3 --launch-dir dying --log-every 1 \
    --eval-every-epochs 0 > out 2>&1 &
job=$!
for _ in $(seq 200); do
    grep -q "step: 3" out && break
    sleep 0.1
done
victim=$(pgrep -P "$job" -f "train gpt2" | while read -r p; do pgrep -P "$p"; done | head -1)
[ -n "$victim" ] || victim=$(pgrep -P "$job" | head -1)
kill -9 "$victim"
wait "$job" && fail "a job of which a rank was killed succeeded"
grep -qE "rank [0-9]" out || fail "the killed rank has no name: $(tail -5 out)"
