#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An elastic job whose ranks are killed or leave ends with the bits of the undisturbed job; what cannot be elastic is refused.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1

refused() { # TEXT FLAGS...
    local text=$1 code
    shift
    timeout 300 "$trireme" train mlp --data synth --image-size 32 --steps 2 -n 2 --launch-dir refused "$@" > out.txt 2> err.txt
    code=$?
    [ $code = 2 ] || fail "$*: exit code $code, 2 expected: $(cat err.txt)"
    cat err.txt refused/device*/train.log* 2> /dev/null | grep -q "$text" || fail "$*: '$text' expected: $(cat err.txt)"
}
refused "layerwise parameters have other values on each of them" --elastic 1:2 --parallel-mode hybrid_parallel --layerwise fc2
refused "a job survives the death of workers by itself: leave --elastic out" --elastic 1:2 --ps 1
refused "is not in this range" --elastic 3:4
refused "the least and the most ranks" --elastic all
refused "give one of them" --elastic 1:2 --global-batch 32 --batch-size 16
refused "give one of them" --elastic 1:2 --global-batch 32 --elastic-batch rank
refused "each worker has a batch of its own" --global-batch 32 --ps 1
TF_CONFIG='{"cluster": {"ps": ["h:1"], "worker": ["h:2"]}, "task": {"type": "worker", "index": 0}}' "$trireme" train mlp --data synth --steps 2 \
    --global-batch 32 > out.txt 2>&1
grep -q "each worker has a batch of its own" out.txt || fail "--global-batch of one role: $(cat out.txt)"
refused "its 2 parts .* do not divide it" --elastic 1:2 --global-batch 33

expect 0 "--elastic-restarts has no effect here: it is for --elastic" run -n 1 --elastic-restarts 1 --launch-dir refused -- true
# Kills and leaves at random moments, of rank 0 too, and ranks that come back: the benchmark, for less time. What counts is what the jobs
# compute, on a machine of any speed.
for restarts in 0 2; do
    timeout 1500 python3 "$source/bench/elastic_kills.py" --program "$trireme" --kills 6 --leaves 0.3 --restarts $restarts --models mlp --ranks 4 --seed 3 \
        --joins $((restarts > 0)) --slow 0 --hang 600 > out.txt 2> err.txt ||
        fail "kills, $restarts restarts: $(cat out.txt err.txt)"
done

# Waits until out.txt has a line with TEXT, while the job runs: TEXT [FILE in place of out.txt]
wait_for() {
    local end=$((SECONDS + 300 * patience)) file=${2:-out.txt}
    until grep -q "$1" "$file" 2> /dev/null; do
        kill -0 $job 2> /dev/null && [ $SECONDS -lt $end ] && sleep 0.1 && continue
        grep -q "$1" "$file" 2> /dev/null && return # its last line
        fail "waited for $1 in $file: $(tail -n 2 "$file") $(cat err.txt hand.txt 2> /dev/null)"
        return
    done
}
# Starts a job of the mlp in the background, waits for its first step, and sends a signal to a rank ("launcher": to the
# launcher): SIGNAL RANK FLAGS...
start_and_signal() {
    local signal=$1 rank=$2
    shift 2
    : > out.txt # the background job opens it later: without this the loop below could read the events of the job before
    "$trireme" train mlp --data synth --image-size 32 --epochs 100000 --eval-every-epochs 0 --log-every 1 --json "$@" > out.txt 2> err.txt &
    job=$!
    wait_for '"event":"step"'
    [ "$rank" = launcher ] && kill "-$signal" "$job"
    signal_rank "$signal" "$rank"
    end_job
    return $code
}
# Waits for the end of the job, with a deadline. $code: its exit code
end_job() {
    local end=$((SECONDS + 600 * patience))
    while kill -0 $job 2> /dev/null; do
        [ $SECONDS -lt $end ] || { fail "the job does not end: $(tail -n 2 out.txt) $(cat err.txt)"; kill -KILL $job; break; }
        sleep 0.1
    done
    wait $job
    code=$?
}
signal_rank() { # SIGNAL RANK
    local pid
    for pid in $(cat /proc/$job/task/*/children); do
        tr '\0' '\n' < "/proc/$pid/environ" | grep -qx "TRIREME_RANK=$2" && kill "-$1" "$pid"
    done
}

# Fewer ranks than LEAST: code 137, as the killed rank's, and the reason in the logs of the others.
start_and_signal KILL 1 --steps 100000 -n 2 --elastic 2:2 --launch-dir few
code=$?
[ $code = 137 ] || fail "too few: exit code $code, 137 expected: $(cat err.txt)"
grep -q "1 rank is left, the job needs 2" err.txt || fail "too few: no reason: $(cat err.txt)"
# The console is that of rank 0, so the launcher says it, too.
start_and_signal KILL 0 --steps 100000 -n 2 --elastic 2:2 --launch-dir few
code=$?
[ $code = 137 ] || fail "too few without rank 0: exit code $code, 137 expected: $(cat err.txt)"
grep -q "1 rank is left, the job needs 2" err.txt || fail "too few without rank 0: no reason: $(cat err.txt)"

# Rank 0 dies: the next rank keeps the record of the run until its end.
start_and_signal KILL 0 --steps 600 -n 2 --elastic 1:2 --output run
code=$?
[ $code = 0 ] || fail "without rank 0: exit code $code: $(cat err.txt)"
for event in '"event":"membership".*"lost":\[0\]' '"event":"done".*"global_step":600'; do
    grep -q "$event" run/run.jsonl || fail "without rank 0: no $event in the record: $(tail -n 3 run/run.jsonl)"
done
grep -q '"event":"step"' run/run-rank-1.jsonl || fail "rank 1 has no record of its own before it is rank 0"
"$trireme" report run > report.txt || fail "report of an elastic job"
grep -q "mlp, done, step 600" report.txt || fail "report of an elastic job: $(cat report.txt)"
# An evaluator beside any job needs no addresses and takes the job's own command: it ends after the checkpoint of the last step.
evaluate() { # FLAGS...
    timeout 300 "$trireme" train mlp --data synth --image-size 32 --epochs 100000 --eval-every-epochs 0 --log-every 1 --json --steps 600 --output run \
        --job_name evaluator "$@" > eval.txt 2>&1
}
evaluate -n 2 --elastic 1:2 --elastic-restarts 1 --global-batch 64 --accumulate 2 --loss-scale fixed:1024 --metrics run/metrics.csv ||
    fail "an evaluator of an elastic job: $(tail -3 eval.txt)"
grep -q '"event":"eval".*"global_step":600' eval.txt || fail "an evaluator of an elastic job: $(tail -3 eval.txt)"
[ -e run/metrics.csv ] && fail "an evaluator writes the metrics of its job"
evaluate --early-stop 3 && fail "an evaluator waits for the last step of a job that may stop early"
grep -q "which a job that stops early may not have: leave it out" eval.txt || fail "an evaluator with --early-stop: $(cat eval.txt)"
"$trireme" train mlp --data synth --steps 2 -n 2 --evaluator --output none > out.txt 2>&1
grep -q "the same command with --job_name evaluator and the job's --output" out.txt || fail "--evaluator beside ranks: $(cat out.txt)"
# On one host the ranks have slices of the optimiser, also when their number has changed.
start_and_signal KILL 2 --steps 300 -n 3 --elastic 1:3 --output sliced
code=$?
[ $code = 0 ] || fail "slices: exit code $code: $(cat err.txt)"
grep -q '"event":"membership".*"ranks":2' sliced/run.jsonl || fail "slices: no change of ranks: $(tail -n 3 sliced/run.jsonl)"
grep -q '"event":"done".*"shard_optimizer":true' sliced/run.jsonl || fail "slices: $(tail -n 1 sliced/run.jsonl)"

# A rank leaves, also when a scheduler warns it: the job goes on without redoing a step, and both end with 0.
for signal in TERM USR1; do
    start_and_signal $signal 0 --steps 600 -n 2 --elastic 1:2 --output left$signal
    code=$?
    [ $code = 0 ] || fail "a rank leaves: exit code $code: $(cat err.txt)"
    grep -q '"event":"membership".*"lost":\[\],"left":\[0\],"joined":\[\],"redone_steps":0' left$signal/run.jsonl ||
        fail "a rank leaves: no event: $(grep membership left$signal/run.jsonl)"
    grep -q '"event":"left"' out.txt || fail "a rank leaves: it does not say so: $(tail -n 3 out.txt)"
done

# Each rank keeps its batch: the rate of one rank is half of that of two.
start_and_signal KILL 1 --steps 600 -n 2 --elastic 1:2 --elastic-batch rank --learning-rate 0.01 --output kept
code=$?
[ $code = 0 ] || fail "ranks keep their batches: exit code $code: $(cat err.txt)"
grep '"event":"step"' kept/run.jsonl | sed -n '1s/.*"learning_rate":\([0-9.e-]*\).*/\1/p;$s/.*"learning_rate":\([0-9.e-]*\).*/\1/p' | tr '\n' ' ' > out.txt
[ "$(cat out.txt)" = "0.01 0.005 " ] || fail "ranks keep their batches: rates $(cat out.txt)"

# Ranks that die before they have met the others: these begin without them, or with those that are started again, and with the bits of all.
cat > dies.sh << 'END'
for rank in $DEAD; do
    [ "$TRIREME_RANK" = "$rank" ] && [ ! -e "again/$rank" ] && { [ -n "$AGAIN" ] && : > "again/$rank"; kill -KILL $$; }
done
exec "$@"
END
mlp="train mlp --data synth --image-size 32 --batch-size 8 --steps 5 --eval-every-epochs 0 --deterministic strict -n 3 --elastic 1:3"
"$trireme" $mlp --output whole > out.txt 2>&1 || fail "three ranks: $(cat out.txt)"
global=${mlp/--batch-size 8/--global-batch 24}
"$trireme" ${global/-n 3/-n 2} --output global > out.txt 2>&1 || fail "--global-batch: $(cat out.txt)"
cmp whole/ckpt-5/model.safetensors global/ckpt-5/model.safetensors || fail "--global-batch 24 on two ranks: other weights than 8 each on three"
mkdir again
for case in "0" "1" "2" "0 1" "1 2" "0 again" "1 2 again"; do
    restarts=0
    [[ $case == *again ]] && restarts=1
    DEAD=${case% again} AGAIN=${case#${case% again}} timeout 600 "$trireme" run -n 3 --elastic 1:3 --elastic-restarts $restarts --launch-dir early \
        -- sh dies.sh "$trireme" $mlp --output "early $case" > out.txt 2> err.txt
    code=$?
    [ $code = 0 ] || fail "dead early: $case: exit code $code: $(cat out.txt err.txt)"
    cmp whole/ckpt-5/model.safetensors "early $case/ckpt-5/model.safetensors" || fail "dead early: $case: $(cat out.txt err.txt)"
    lost=${case// /, }
    [ $restarts = 1 ] || grep -q "\"event\":\"membership\".*\"lost\":\[$lost\]" "early $case/run.jsonl" ||
        fail "dead early: $case: not lost in the event: $(grep membership "early $case/run.jsonl")"
    rm -f again/*
done
# The same of split graphs and pipelines, which those that are left may not divide.
split="train mlp --data synth --image-size 32 --steps 5 --eval-every-epochs 0 --deterministic strict -n 4 --elastic 1:4"
for case in "1:--batch-size 6 --parallel-mode semi_auto_parallel" "0:--batch-size 24 --full-batch --parallel-mode semi_auto_parallel" \
    "3:--batch-size 12 --stages 2"; do
    # shellcheck disable=SC2086
    DEAD=${case%%:*} AGAIN="" timeout 600 "$trireme" run -n 4 --elastic 1:4 --launch-dir early -- sh dies.sh "$trireme" $split ${case#*:} \
        --output "early $case" > out.txt 2> err.txt
    code=$?
    [ $code = 0 ] || fail "dead early: $case: exit code $code: $(cat out.txt err.txt)"
    cmp whole/ckpt-5/model.safetensors "early $case/ckpt-5/model.safetensors" || fail "dead early: $case: $(cat out.txt err.txt)"
done

# One more process with the environment of a rank joins by hand, up to MOST ranks.
: > out.txt
"$trireme" train mlp --data synth --image-size 32 --epochs 100000 --steps 100000 --eval-every-epochs 0 --log-every 1 --json -n 2 --elastic 1:3 \
    --launch-dir hand > out.txt 2> err.txt &
job=$!
wait_for '"event":"step"'
grep '^TRIREME_' hand/device1/env1.log > variables.txt || { fail "by hand: no environment of rank 1"; kill -KILL $job; exit; }
# A program that cleans /tmp removes the socket at which processes find the job: it is made again.
place=$(sed -n 's/^TRIREME_RENDEZVOUS=unix://p' variables.txt)
rm "$place"
for _ in $(seq $((100 * patience))); do [ -e "$place" ] && break; sleep 0.1; done
[ -e "$place" ] || fail "by hand: a removed socket is not made again"
(export $(grep -v CONSOLE variables.txt) && exec "$trireme" train mlp --data synth --image-size 32 --epochs 100000 --steps 100000 \
    --eval-every-epochs 0 --json -n 2 --elastic 1:3 > hand.txt 2>&1) &
hand=$!
wait_for '"event":"membership".*"ranks":3.*"lost":\[\],"left":\[\],"joined":\[2\],"redone_steps":0'
kill -TERM $hand
wait $hand || fail "by hand: exit code $?: $(cat hand.txt)"
wait_for '"event":"membership".*"ranks":2.*"left":\[2\]'
# One that does not fit the job is told what differs, and the job goes on without it: TEXT FLAGS...
misfit() {
    local text=$1 code
    shift
    (export $(grep -v CONSOLE variables.txt) && exec timeout 300 "$trireme" train mlp --data synth --image-size 32 --epochs 100000 --steps 100000 \
        --eval-every-epochs 0 --json -n 2 --elastic 1:3 "$@" > hand.txt 2>&1)
    code=$?
    [ $code = 2 ] || fail "by hand: $*: exit code $code, 2 expected: $(tail -n 2 hand.txt)"
    grep -q "$text" hand.txt || fail "by hand: $*: '$text' expected: $(tail -n 2 hand.txt)"
}
misfit "learning_rate differs (found 0.5, the job has 0.01); start it with the command line of the job" --learning-rate 0.5
misfit "the seed differs (found 7, the job has 1)" --seed 7
misfit "data differs (found 2048 samples" --synth-train 2048
misfit "optimizer differs (found adam, the job has momentum)" --optimizer adam
misfit "batches of an update (accumulate) differs (found 2, the job has 1)" --accumulate 2
misfit "how ranks share the work differs" --parallel-mode semi_auto_parallel
misfit "how ranks share the work differs" --sync-batch-norm off
misfit "ranks disagree about the communicator's options" --deterministic strict
misfit 'callbacks of all ranks differ (found "checkpoints every .* and at the end", the job has "")' --output hand-saves
misfit "sink mode differs (found 1, the job has 0)" --sink
misfit "whether a timeline is recorded differs (found 1, the job has 0)" --profile hand.json
steps=$(grep -c '"event":"step"' out.txt)
wait_for_steps() { # N: more than N
    local end=$((SECONDS + 300 * patience))
    until [ "$(grep -c '"event":"step"' out.txt)" -gt "$1" ]; do
        kill -0 $job 2> /dev/null && [ $SECONDS -lt $end ] && sleep 0.1 && continue
        fail "by hand: no steps after processes that do not fit: $(tail -n 2 out.txt) $(cat err.txt)"
        return
    done
}
wait_for_steps "$steps"
grep '"event":"membership"' out.txt | grep -v '"lost":\[\],' > refused.txt && fail "by hand: a refused process counts as lost: $(cat refused.txt)"
kill -TERM $job # SIGINT is ignored by what a script has started in the background
end_job

# A job begins with one rank. Three processes with its variables join it; they are killed, and the first one goes on alone, with the bits of
# one process.
grown="train mlp --data synth --image-size 32 --epochs 100000 --eval-every-epochs 0 --log-every 1 --json --deterministic strict --global-batch 32"
: > out.txt
# shellcheck disable=SC2086
"$trireme" $grown -n 1 --elastic 1:4 --output grown > out.txt 2> err.txt &
job=$!
wait_for '"event":"step"'
hands=
for i in 1 2 3; do
    # shellcheck disable=SC2046,SC2086
    env $(grep ^TRIREME_ grown/logs/device0/env0.log) "$trireme" $grown -n 1 --elastic 1:4 --output grown > "hand$i.txt" 2>&1 &
    hands="$hands $!"
    disown $!
done
wait_for '"event":"membership".*"ranks":4,"spare":0'
wait_for_steps "$(grep -c '"event":"step"' out.txt)"
# shellcheck disable=SC2086
kill -KILL $hands
wait_for '"event":"membership".*"ranks":1,"spare":0,"lost":\[[123], [123], [123]\],"left":\[\],"joined":\[\],"redone_steps":[01],'
wait_for_steps "$(grep -c '"event":"step"' out.txt)"
kill -TERM $job
end_job
[ $code = 143 ] || fail "one rank grows: exit code $code, 143 expected: $(cat err.txt)"
end=$(sed -n 's/.*"event":"done".*"global_step":\([0-9]*\).*/\1/p' grown/run.jsonl)
# shellcheck disable=SC2086
"$trireme" $grown --steps "${end:-1}" --output grown-one > out.txt 2>&1 || fail "one rank: $(tail -n 2 out.txt)"
cmp "grown-one/ckpt-$end/model.safetensors" "grown/ckpt-$end/model.safetensors" || fail "one rank grows: other weights: $(cat err.txt)"

# A program of its own loop and the three calls: a rank is killed, another one leaves, and the last one cannot leave: the job ends. The
# weights are those of one process after as many steps, but for the order of sums.
loop=${TRIREME_BUILD:?}/examples/elastic_loop
"${loop%elastic_loop}own_loop" | sed 's/.*weights/weights/' > own.txt
"$loop" | grep weights | cmp - own.txt || fail "a loop of its own: other weights in one process"
# Starts the program in the background and waits for its first step: RANKS FLAGS...
start_loop() {
    : > out.txt
    "$trireme" run -n "$1" --elastic "1:$1" --launch-dir loop "${@:2}" -- "$loop" 1000000000 20 > out.txt 2> err.txt &
    job=$!
    wait_for "rank 0 of $1: begins"
}
start_loop 3
signal_rank KILL 2
wait_for 'rank 0 of 2, lost \[2\], left \[\]'
signal_rank TERM 0
wait_for 'rank 0 of 1, lost \[\], left \[0\]' loop/device1/train.log1
signal_rank TERM 1
end_job
[ $code = 143 ] || fail "a loop of its own: exit code $code, 143 expected: $(cat err.txt)"
steps=$(sed -n 's/too few ranks would be left: ends after step //p' loop/device1/train.log1)
"$loop" "${steps:-0}" | cat - loop/device1/train.log1 | awk '/^weights/ { n += 1; for (i = 2; i <= NF; i++) w[n, i] = $i; fields = NF }
    END { for (i = 2; i <= fields; i++) { d = w[1, i] - w[2, i]; if (d > 0.01 || d < -0.01) exit 1 }; exit n != 2 }' ||
    fail "a loop of its own: other weights after $steps steps: $(cat loop/device1/train.log1)"
# A rank that is started again joins it.
start_loop 2 --elastic-restarts 1
signal_rank KILL 1
wait_for 'rank 0 of 2, lost .*, joined \[[12]\]' # 2: in the change without the dead one
kill -TERM $job
end_job
# The last rank dies after the other one has left: the job has not ended well.
start_loop 2
signal_rank TERM 1
wait_for 'rank 0 of 1, lost \[\], left \[1\]'
signal_rank KILL 0
end_job
[ $code = 137 ] || fail "the last rank dies: exit code $code, 137 expected: $(cat err.txt)"
grep -q "0 ranks are left, the job needs 1" err.txt || fail "the last rank dies: $(cat err.txt)"

# Too few ranks would be left, or the launcher is asked: the job stops, with a checkpoint.
for case in "TERM 1 2:2 143" "TERM launcher 2:2 143" "USR1 launcher 1:2 138"; do
    read -r signal whom range expected <<< "$case"
    start_and_signal "$signal" "$whom" --steps 100000 -n 2 --elastic "$range" --output "stops $case"
    code=$?
    [ $code = "$expected" ] || fail "SIG$case: exit code $code: $(cat err.txt)"
    ls -d "stops $case"/ckpt-* > out.txt 2>&1 || fail "SIG$case: no checkpoint: $(cat out.txt err.txt)"
done

# The folder is locked by a host that has died a moment ago: the ranks wait for it no longer than they may wait for each other.
mkdir locked
printf 'trireme-lock 1\nhost elsewhere\npid 17\nstart_ticks 1\nmachine other-boot/pid:[1]\nsince 1700000000.000\nserial 0\n' > locked/.trireme.lock
begin=$SECONDS
"$trireme" train mlp --data synth --image-size 32 --steps 2 -n 2 --elastic 1:2 --start-timeout 4 --output locked > out.txt 2> err.txt &&
    fail "locked: it goes on beside the owner of the lock"
grep -q "the limit: start again then, or raise the limit (--start-timeout)" err.txt || fail "locked: $(cat out.txt err.txt)"
[ $((SECONDS - begin)) -lt 45 ] || fail "locked: it took $((SECONDS - begin)) s"
[ $failed = 0 ] && echo passed
exit $failed
