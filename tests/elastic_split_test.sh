#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Elastic jobs whose ranks have parts of the state: slices of the optimiser, split graphs, pipelines. A rank is killed, leaves or
# comes back; the weights are the bits of one rank. On one host one rank that is left has the parts of all; elsewhere two neighbours that
# die at once cost the steps since the newest checkpoint.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1

steps=400
model="mlp --data synth --image-size 32 --synth-train 1024 --epochs 100000 --steps $steps --learning-rate 0.01 --optimizer adam
    --deterministic strict --eval-every-epochs 0 --log-every 1 --json"
# shellcheck disable=SC2086
timeout 600 "$trireme" train $model --batch-size 32 --output one > out.txt 2> err.txt || fail "one rank: $(cat err.txt)"
timeout 300 "$trireme" plan mlp --image-size 32 -n 4 --mesh 2x2 --batch-size 8 --no-measure --links guess --save cut.plan > out.txt 2>&1 ||
    fail "plan: $(cat out.txt)"
grep -q "op fc.*k" cut.plan || fail "the plan cuts no parameters: $(cat cut.plan)"

# Runs a job of four ranks and sends signals to ranks of it after some steps: FOLDER "SIGNAL SIGNAL" "RANK|RANK" BATCH FLAGS...
disturbed() {
    local folder=$1 signal=$2 ranks=$3 batch=$4 job
    shift 4
    : > out.txt # the background job opens it later
    # shellcheck disable=SC2086
    "$trireme" train $model --batch-size "$batch" -n 4 --elastic 1:4 --output "$folder" --launch-dir "$folder-logs" "$@" > out.txt 2> err.txt &
    job=$!
    until [ "$(grep -c '"event":"step"' out.txt)" -gt 12 ] || ! kill -0 $job 2> /dev/null; do
        sleep 0.05
    done
    signal_ranks "$signal" "$ranks"
    wait $job
}
# Sends signals to ranks of $job: "SIGNAL SIGNAL" "RANK|RANK"
signal_ranks() {
    local pid pids="" name
    for pid in $(cat /proc/$job/task/*/children); do
        tr '\0' '\n' < "/proc/$pid/environ" | grep -qxE "TRIREME_RANK=($2)" && pids="$pids $pid"
    done
    for name in $1; do
        # shellcheck disable=SC2086
        kill "-$name" $pids
    done
}
# Checks that the job of FOLDER has ended with the bits of one rank, and has reported each of the PATTERNs. No change of ranks costs more
# than the step that it interrupts, unless a checkpoint serves.
same() {
    local folder=$1 part pattern
    shift
    grep '"event":"membership"' "$folder/run.jsonl" | grep -v '"restored"' | grep '"redone_steps":' | grep -qv '"redone_steps":[01],' &&
        fail "$folder: more than one step is done again: $(grep membership "$folder/run.jsonl")"
    for part in model optimizer; do
        cmp "one/ckpt-$steps/$part.safetensors" "$folder/ckpt-$steps/$part.safetensors" || fail "$folder: $part differs from one rank: $(cat err.txt)"
    done
    for pattern in "$@"; do
        grep -q "\"event\":\"membership\".*$pattern" "$folder/run.jsonl" || fail "$folder: no $pattern: $(grep membership "$folder/run.jsonl")"
    done
}
# A process that is started again soon enough joins with the change that leaves the dead one out.
lost='"lost":\[2\],"left":\[\]'
joined='"ranks":4.*"joined":\[4\]'
semi="--parallel-mode semi_auto_parallel"

disturbed slices KILL 2 8 --shard-optimizer --elastic-restarts 1 || fail "slices: $(cat err.txt)"
same slices "$lost" "$joined"
# shellcheck disable=SC2086
disturbed split KILL 2 8 $semi --plan cut.plan --elastic-restarts 1 || fail "split: $(cat err.txt)"
same split "$lost" "$joined"
# shellcheck disable=SC2086
disturbed mesh TERM 2 8 $semi --mesh 2x2 || fail "mesh: $(cat err.txt)"
same mesh '"lost":\[\],"left":\[2\],"joined":\[\],"redone_steps":0'
# Cuts of the inputs are for four ranks: the others read whole batches, too.
# shellcheck disable=SC2086
disturbed cuts KILL 2 8 $semi --context "dataset_strategy=((1,1,1,2),(2,))" --elastic-restarts 1 || fail "cuts: $(cat err.txt)"
same cuts "$lost" "$joined"
# shellcheck disable=SC2086
disturbed samples KILL 2 8 $semi --context "dataset_strategy=((4,1,1,1),(4,))" --elastic-restarts 1 || fail "samples: $(cat err.txt)"
same samples "$lost" "$joined"
disturbed auto KILL 2 8 --parallel-mode auto_parallel || fail "auto: $(cat err.txt)"
same auto "$lost"
disturbed stages KILL 2 16 --stages 2 --elastic-restarts 1 || fail "stages: $(cat err.txt)"
same stages "$lost" "$joined"
# The first rank of a pipeline of two stages, of two ranks with slices each.
disturbed first KILL 0 16 --stages 2 --shard-optimizer || fail "first: $(cat err.txt)"
same first '"lost":\[0\]'

# Gradients that ranks make together, which has other bits: the loss is that of one rank all the same.
strict=$model
model=${model/--deterministic strict/}
disturbed together KILL 2 8 --shard-optimizer --context "cooperative_gradients=all" || fail "together: $(cat err.txt)"
model=$strict
loss() { sed -n "/\"global_step\":$steps,/s/.*\"event\":\"step\".*\"loss\":\([0-9.e-]*\).*/\1/p" "$1/run.jsonl"; }
echo "$(loss one) $(loss together)" | awk '{ d = $1 - $2; exit NF != 2 || d > 1e-3 || d < -1e-3 }' || fail "together: losses $(loss one) and $(loss together)"
grep -q "\"event\":\"membership\".*$lost" together/run.jsonl || fail "together: $(grep membership together/run.jsonl)"

# All but one at once. All are stopped first, so that none takes part in the membership change after the death of another.
disturbed most "STOP KILL" '0|1|2' 8 --shard-optimizer --save-every-steps 1000000 || fail "most: $(cat err.txt)"
same most '"lost":\[0, 1, 2\]'
# Three ranks have no equal parts of the samples, so the last one is spare. When it alone is left, a newer checkpoint serves for the state
# with which it became spare; that state itself, where the checkpoint cannot be read. The job ends by a signal: FOLDER PATTERN COMMAND...,
# which runs before the others die
step_of() { sed -n "s/.*\"event\":\"$1\".*\"global_step\":\([0-9]*\).*/\1/p" "$2" 2> /dev/null | tail -n 1; }
wait_until() { # CONDITION...: while the job runs
    local end=$((SECONDS + 300 * patience))
    until "$@"; do
        kill -0 $job 2> /dev/null && [ $SECONDS -lt $end ] || { fail "$folder: waited for $*: $(tail -n 2 out.txt) $(cat err.txt)"; return 1; }
        sleep 0.05
    done
}
has_newer() { [ "$(step_of checkpoint out.txt)0" -gt "$(step_of membership out.txt)0" ] && grep -q '"event":"membership"' out.txt; }
is_alone() { grep -q '"event":"membership".*"ranks":1,' "$folder/run.jsonl"; }
end_job() { # waits for the end of the job, with a deadline
    local end=$((SECONDS + 300 * patience))
    while kill -0 $job 2> /dev/null; do
        [ $SECONDS -lt $end ] || { fail "$folder: the job does not end: $(tail -n 2 out.txt) $(cat err.txt)"; kill -KILL $job; }
        sleep 0.05
    done
    wait $job
}
spare() {
    local folder=$1 pattern=$2 endless=${model/--steps $steps/--steps 1000000000} end part
    shift 2
    : > out.txt
    # shellcheck disable=SC2086
    "$trireme" train $endless --batch-size 8 -n 4 --elastic 1:4 --output "$folder" --launch-dir "$folder-logs" --save-every-steps 5 > out.txt 2> err.txt &
    job=$!
    wait_until grep -q '"event":"step"' out.txt
    signal_ranks KILL 3
    wait_until has_newer
    signal_ranks STOP '0|1'
    "$@"
    signal_ranks KILL '0|1'
    wait_until is_alone
    kill -TERM $job
    end_job
    end=$(step_of done "$folder/run.jsonl")
    # shellcheck disable=SC2086
    timeout 600 "$trireme" train ${model/--steps $steps/--steps ${end:-1}} --batch-size 32 --output "$folder-one" > out.txt 2> one.txt || fail "$folder: one rank: $(cat one.txt)"
    for part in model optimizer; do
        cmp "$folder-one/ckpt-$end/$part.safetensors" "$folder/ckpt-$end/$part.safetensors" || fail "$folder: $part differs from one rank: $(cat err.txt)"
    done
    grep '"event":"membership"' "$folder/run.jsonl" | tail -n 1 | grep -q "$pattern" || fail "$folder: no $pattern: $(grep membership "$folder/run.jsonl")"
}
damage() { truncate -s 100 damaged/ckpt-*/optimizer.safetensors; }
spare spare '"lost":\[0, 1\].*"restored":"checkpoint step [0-9]*"' true
spare damaged '"lost":\[0, 1\].*"redone_steps":0,' damage
grep '"event":"membership"' damaged/run.jsonl | grep -q restored && fail "damaged: a checkpoint that cannot be read is taken"
grep -rq "the ranks go on with their state of step" damaged-logs || fail "damaged: no warning: $(tail -n 3 damaged-logs/device*/train.log*)"
# Ranks that share no memory send each other copies. Two that are no neighbours have theirs on others; of neighbours one part is lost
# with its copy.
disturbed sent KILL 3 16 --stages 2 --engine tcp || fail "sent: $(cat err.txt)"
same sent '"lost":\[3\]'
disturbed apart "STOP KILL" '0|2' 8 --shard-optimizer --engine tcp --save-every-steps 1000000 || fail "apart: $(cat err.txt)"
same apart '"lost":\[0, 2\]'
disturbed pair "STOP KILL" '1|2' 8 --shard-optimizer --engine tcp --save-every-steps 5 || fail "pair: $(cat err.txt)"
same pair '"lost":\[1, 2\].*"restored":"checkpoint step [0-9]*"'
disturbed nothing "STOP KILL" '1|2' 8 --shard-optimizer --engine tcp --save-every-steps 1000000 && fail "nothing: it goes on without a part of the state"
grep -q "no rank that is left has the state of the model, and nothing has no checkpoint yet" err.txt || fail "nothing: $(cat err.txt)"

# Two ranks need more memory than four, and more than they may use: the job ends and says so.
disturbed full "STOP KILL" '1|2' 8 --parallel-mode auto_parallel --memory 9M && fail "full: it goes on with a plan that cannot be"
grep -q "found no plan: no plan fits 9.44 MB a rank" err.txt || fail "full: $(cat err.txt)"
[ $failed = 0 ] && echo passed
exit $failed
