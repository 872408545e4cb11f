#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Roles of a running job die by SIGKILL, one after the other, and the launcher starts them again: the job does not hang, and no batch
# is lost or used twice. PS_KILL_LONG=1: more roles at more moments.
. "$(dirname "$0")/common.sh"
. "$source/tests/roles.sh"
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
samples=8000 batch=20 epochs=4
[ -n "${PS_KILL_LONG:-}" ] && epochs=10
updates=$((samples / batch * epochs))

dies() {
    local p
    if [ "$1" = obstacle ]; then
        until [ -d run/ps ] || ! kill -0 "$pid" 2> /dev/null; do sleep 0.02; done
        touch run/ps/snapshot-000003
        until grep -q '"event":"error"' job.json || ! kill -0 "$pid" 2> /dev/null; do sleep 0.02; done
        rm -rf run/ps/snapshot-000003
        return 0
    fi
    p=$(process "$work/run" "$1")
    [ -n "$p" ] && kill -9 "$p" && echo "killed $1 after $(find "$work/run" -name 'ckpt-*' 2> /dev/null | grep -c .) checkpoints" && return
    return 1
}

# Every row has learnt from every batch once: from as many updates as there are batches, on every server.
job() { # MODE SERVERS EXPECTED-UPDATES VICTIMS...
    local mode=$1 servers=$2 expected=$3 pid code
    shift 3
    rm -rf run device* ps? evaluator0
    : > job.json # the background job opens it later: an obstacle waits for an error of this job
    timeout 120 "$trireme" train lenet --data synth --synth-train $samples --synth-test 200 --batch-size $batch \
        --epochs $epochs --seed 3 -n 2 --ps "$servers" --mode "$mode" --evaluator --output "$work/run" \
        --restarts 20 --save-every-steps 100 --log-every 50 --json > job.json 2> job.err &
    pid=$!
    for victim in "$@"; do
        sleep "${PAUSE:-0.7}"
        kill -0 $pid 2> /dev/null || break
        # one that is just being started again, or the job's end
        dies "$victim" || { sleep 0.3; dies "$victim"; } || ! kill -0 $pid 2> /dev/null || fail "no process of $victim"
    done
    wait $pid
    code=$?
    [ $code = 0 ] || { fail "$mode: exit code $code: $(tail -n 5 job.err)"; return; }
    python3 - "$expected" << 'END' || fail "$mode after $*"
import json, sys
events = [json.loads(l) for l in open("job.json") if l.startswith("{")]
done = [e for e in events if e["event"] == "done"][-1]
evals = [e for e in events if e["event"] == "eval"]
print("updates of dense rows", done["least_updates"], "to", done["most_updates"], "expected", sys.argv[1],
      "; evaluations", len(evals), "last loss", evals[-1]["loss"] if evals else None)
assert int(sys.argv[1]) == done["least_updates"] == done["most_updates"], done
assert evals, "no evaluation"
END
    [ "$(grep -o '"state": "[a-z]*"' run/job.json)" = '"state": "done"' ] || fail "$mode: $(cat run/job.json)"
}

job async 2 $updates 'worker 1' 'ps 0' 'worker 0' 'evaluator 0' 'ps 1'
job sync 1 $((updates / 2)) 'worker 0' 'ps 0' 'worker 1' 'evaluator 0'

# A chief that fails at a checkpoint counts as killed, and the other processes wait for it. It fails because a file lies where the folder of its third snapshot belongs.
last_loss() { grep '"event":"eval"' job.json | tail -n 1 | grep -o '"loss":[^,]*'; }
rm -rf run
PAUSE=0 job sync 1 $((updates / 2))
calm=$(last_loss)
PAUSE=0 job sync 1 $((updates / 2)) obstacle
[ -n "$calm" ] && [ "$calm" = "$(last_loss)" ] || fail "a chief that failed: $(last_loss) instead of $calm"
grep -q '"event":"error"' job.json || fail "the chief did not fail"

if [ -n "${PS_KILL_LONG:-}" ]; then
    for pause in 0.2 0.5 1.1 1.7; do
        PAUSE=$pause
        job async 2 $updates 'ps 1' 'worker 1' 'worker 0' 'ps 0' 'evaluator 0' 'worker 0' 'ps 1'
        job sync 2 $((updates / 2)) 'worker 1' 'ps 1' 'ps 0' 'worker 0' 'evaluator 0' 'worker 1'
        job async 1 $updates 'ps 0' 'ps 0' 'worker 0' 'worker 0' 'worker 1' 'worker 1'
    done
fi
exit $failed
