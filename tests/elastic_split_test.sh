#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Elastic jobs whose ranks have parts of the state: slices of the optimiser, split graphs, pipelines. A rank is killed, leaves or
# comes back; the weights are the bits of one rank. On one host one rank that is left has the parts of all; elsewhere two neighbours that
# die at once cost the steps since the newest checkpoint.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1

# Jobs have no end: one has done all steps before a signal reaches it, where a machine is fast. They are ended by a signal.
model="mlp --data synth --image-size 32 --synth-train 1024 --epochs 100000 --steps 1000000000 --learning-rate 0.01 --optimizer adam
    --deterministic strict --eval-every-epochs 0 --log-every 1 --json"
timeout 300 "$trireme" plan mlp --image-size 32 -n 4 --mesh 2x2 --batch-size 8 --no-measure --links guess --save cut.plan > out.txt 2>&1 ||
    fail "plan: $(cat out.txt)"
grep -q "op fc.*k" cut.plan || fail "the plan cuts no parameters: $(cat cut.plan)"

# Starts a job of four ranks in the background: FOLDER BATCH FLAGS...
start_job() {
    folder=$1
    local batch=$2
    shift 2
    : > out.txt # the background job opens it later
    # shellcheck disable=SC2086
    "$trireme" train $model --batch-size "$batch" -n 4 --elastic 1:4 --output "$folder" --launch-dir "$folder-logs" "$@" > out.txt 2> err.txt &
    job=$!
}
wait_until() { # CONDITION...: while the job runs
    local end=$((SECONDS + 300 * patience))
    until "$@"; do
        kill -0 $job 2> /dev/null && [ $SECONDS -lt $end ] || { fail "$folder: waited for $*: $(grep -h membership out.txt "$folder"/run*.jsonl) $(tail -n 2 out.txt) $(cat err.txt)"; return 1; }
        sleep 0.05
    done
}
end_job() { # waits for the end of the job, with a deadline
    local end=$((SECONDS + 300 * patience))
    while kill -0 $job 2> /dev/null; do
        [ $SECONDS -lt $end ] || { fail "$folder: the job does not end: $(tail -n 2 out.txt) $(cat err.txt)"; kill -KILL $job; }
        sleep 0.05
    done
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
has_steps() { [ "$(grep -c '"event":"step"' out.txt)" -gt 12 ]; }
# Starts a job and sends signals to ranks of it after some steps: FOLDER "SIGNAL SIGNAL" "RANK|RANK" BATCH FLAGS...
disturb() {
    local signal=$2 ranks=$3
    start_job "$1" "$4" "${@:5}"
    wait_until has_steps && signal_ranks "$signal" "$ranks"
}
step_of() { sed -n "s/.*\"event\":\"$1\".*\"global_step\":\([0-9]*\).*/\1/p" "$2" 2> /dev/null | tail -n 1; }
# The job has reported a change of ranks with each of the PATTERNs, and steps after the last one.
has_changed() {
    local pattern
    for pattern in "$@"; do
        grep -q "\"event\":\"membership\".*$pattern" "$folder/run.jsonl" || return 1
    done
    awk '/"event":"membership"/ { steps = 0 } /"event":"step"/ { steps++ } END { exit !steps }' "$folder/run.jsonl"
}
# Ends the job when it has changed so, and trains one rank to the step at which it ends (`end`), in the folder FOLDER-one.
stop_after() { # PATTERN...
    wait_until has_changed "$@"
    kill -TERM $job
    end_job
    local code=$?
    [ $code = 143 ] || fail "$folder: exit code $code, 143 expected: $(cat err.txt)"
    end=$(step_of done "$folder/run.jsonl")
    # shellcheck disable=SC2086
    timeout 600 "$trireme" train ${model/--steps 1000000000/--steps ${end:-1}} --batch-size 32 --save-every-steps 1000000000 --output "$folder-one" \
        > out.txt 2> one.txt || fail "$folder: one rank: $(cat one.txt)"
}
# Ends the job when it has reported each of the PATTERNs: it has the bits of one rank then, and no change of ranks costs more than the step
# that it interrupts, unless a checkpoint serves.
same() {
    local part
    stop_after "$@"
    grep '"event":"membership"' "$folder/run.jsonl" | grep -v '"restored"' | grep '"redone_steps":' | grep -qv '"redone_steps":[01],' &&
        fail "$folder: more than one step is done again: $(grep membership "$folder/run.jsonl")"
    for part in model optimizer; do
        cmp "$folder-one/ckpt-$end/$part.safetensors" "$folder/ckpt-$end/$part.safetensors" || fail "$folder: $part differs from one rank: $(cat err.txt)"
    done
}
# A process that is started again soon enough joins with the change that leaves the dead one out.
lost='"lost":\[2\],"left":\[\]'
joined='"ranks":4.*"joined":\[4\]'
semi="--parallel-mode semi_auto_parallel"

disturb slices KILL 2 8 --shard-optimizer --elastic-restarts 1
same "$lost" "$joined"
# shellcheck disable=SC2086
disturb split KILL 2 8 $semi --plan cut.plan --elastic-restarts 1
same "$lost" "$joined"
# shellcheck disable=SC2086
disturb mesh TERM 2 8 $semi --mesh 2x2
same '"lost":\[\],"left":\[2\],"joined":\[\],"redone_steps":0'
# Cuts of the inputs are for four ranks: the others read whole batches, too.
# shellcheck disable=SC2086
disturb cuts KILL 2 8 $semi --context "dataset_strategy=((1,1,1,2),(2,))" --elastic-restarts 1
same "$lost" "$joined"
# shellcheck disable=SC2086
disturb samples KILL 2 8 $semi --context "dataset_strategy=((4,1,1,1),(4,))" --elastic-restarts 1
same "$lost" "$joined"
disturb auto KILL 2 8 --parallel-mode auto_parallel
same "$lost"
disturb stages KILL 2 16 --stages 2 --elastic-restarts 1
same "$lost" "$joined"
# The first rank of a pipeline of two stages, of two ranks with slices each.
disturb first KILL 0 16 --stages 2 --shard-optimizer
same '"lost":\[0\]'

# Gradients that ranks make together, which has other bits: the loss is that of one rank all the same.
strict=$model
model=${model/--deterministic strict/}
disturb together KILL 2 8 --shard-optimizer --context "cooperative_gradients=all"
stop_after "$lost"
model=$strict
loss() { sed -n "/\"global_step\":$end,/s/.*\"event\":\"step\".*\"loss\":\([0-9.e-]*\).*/\1/p" "$1/run.jsonl" | tail -n 1; }
echo "$(loss together-one) $(loss together)" | awk '{ d = $1 - $2; exit NF != 2 || d > 1e-3 || d < -1e-3 }' ||
    fail "together: losses $(loss together-one) and $(loss together)"

# All but one at once. All are stopped first, so that none takes part in the membership change after the death of another.
disturb most "STOP KILL" '0|1|2' 8 --shard-optimizer --save-every-steps 1000000
same '"lost":\[0, 1, 2\]'
# Three ranks have no equal parts of the samples, so the last one is spare. When it alone is left, a newer checkpoint serves for the state
# with which it became spare; that state itself, where the checkpoint cannot be read. FOLDER COMMAND..., which runs before the others die
# Whether the last change of ranks is followed by a checkpoint of a later step, from one reading of the events: both may come meanwhile.
has_newer() {
    awk 'match($0, /"global_step":[0-9]+[,}]/) { step = substr($0, RSTART + 14, RLENGTH - 15) + 0
            if (/"event":"membership"/) { changed = step + 1; newer = 0 }
            if (/"event":"checkpoint"/ && changed) newer = step >= changed } END { exit !newer }' out.txt
}
spare() {
    start_job "$1" 8 --save-every-steps 5
    wait_until grep -q '"event":"step"' out.txt
    signal_ranks KILL 3
    wait_until has_newer
    signal_ranks STOP '0|1'
    "${@:2}"
    signal_ranks KILL '0|1'
}
damage() { truncate -s 100 damaged/ckpt-*/optimizer.safetensors; }
spare spare true
same '"ranks":1,.*"lost":\[0, 1\].*"restored":"checkpoint step [0-9]*"'
spare damaged damage
same '"ranks":1,.*"lost":\[0, 1\].*"redone_steps":0,'
grep '"event":"membership"' damaged/run.jsonl | grep -q restored && fail "damaged: a checkpoint that cannot be read is taken"
grep -rq "the ranks go on with their state of step" damaged-logs || fail "damaged: no warning: $(tail -n 3 damaged-logs/device*/train.log*)"
# Ranks that share no memory send each other copies. Two that are no neighbours have theirs on others; of neighbours one part is lost
# with its copy.
disturb sent KILL 3 16 --stages 2 --engine tcp
same '"lost":\[3\]'
disturb apart "STOP KILL" '0|2' 8 --shard-optimizer --engine tcp --save-every-steps 1000000
same '"lost":\[0, 2\]'
disturb pair "STOP KILL" '1|2' 8 --shard-optimizer --engine tcp --save-every-steps 5
same '"lost":\[1, 2\].*"restored":"checkpoint step [0-9]*"'
disturb nothing "STOP KILL" '1|2' 8 --shard-optimizer --engine tcp --save-every-steps 1000000
end_job && fail "nothing: it goes on without a part of the state"
grep -q "no rank that is left has the state of the model, and nothing has no checkpoint yet" err.txt || fail "nothing: $(cat err.txt)"

# Two ranks need more memory than four (38 and 21 MB, nearly all of it activations, so that no cut helps), and more than they may use:
# the job ends and says so.
model=${model/mlp/lenet}
disturb full "STOP KILL" '1|2' 256 --parallel-mode auto_parallel --memory 28M --trial-seconds 0
end_job && fail "full: it goes on with a plan that cannot be"
grep -q "no plan fits 29.4 MB a rank; the one of least memory takes" err.txt || fail "full: $(cat err.txt)"
[ $failed = 0 ] && echo passed
exit $failed
