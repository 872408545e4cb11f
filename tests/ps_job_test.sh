#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Jobs with parameter servers, started in one line, by guide 000's lines, and by TF_CONFIG: synchronous servers give one device's
# numbers, and errors of configuration have messages.
. "$(dirname "$0")/common.sh"
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
data="--data synth --synth-train 400 --synth-test 60"

# ---- all roles on this machine, against one device with the whole batch
# shellcheck disable=SC2086
"$trireme" train lenet $data --batch-size 40 --steps 12 --seed 3 --log-every 1 --json > one.json || fail "one device"
# shellcheck disable=SC2086
TF_CONFIG= "$trireme" train lenet $data --batch-size 20 --steps 12 --seed 3 --log-every 1 --json -n 2 --ps 2 --mode sync \
    --output run --evaluator --save-every-steps 5 --export-best safetensors:accuracy --export-latest npz --export-final onnx > job.json 2> job.err || fail "the job: $(tail -n 3 job.err)"
python3 - << 'END' || fail "synchronous servers and one device differ"
import json
one, job = ([json.loads(l) for l in open(f)] for f in ("one.json", "job.json"))
steps = [e for e in job if e["event"] == "step"]
assert [e["global_step"] for e in steps] == list(range(1, 13)), steps
loss = lambda events: [e["loss"] for e in events if e["event"] == "eval"][-1]
assert abs(loss(one) - loss(job)) < 1e-5 * loss(one), (loss(one), loss(job))
done = [e for e in job if e["event"] == "done"]
assert len(done) == 1 and done[0]["global_step"] == 12, done
assert [e["global_step"] for e in job if e["event"] == "checkpoint"] == [1, 5, 10, 12]
END
[ "$(grep -o '"state": "[a-z]*"' run/job.json)" = '"state": "done"' ] || fail "job.json: $(cat run/job.json)"
grep -q 'model_checkpoint_path: "ckpt-12"' run/checkpoint || fail "checkpoint: $(cat run/checkpoint)"
ls run/events.out.tfevents.* run/eval/events.out.tfevents.* > /dev/null || fail "no summaries"
grep -q '"event":"done","role":"ps"' run/logs/ps0/train.log0 || fail "server 0 did not end by itself"
[ -z "$(ls -d ps* device* 2> /dev/null)" ] || fail "logs beside --output: $(ls)"
"$trireme" ps inspect run > inspect.txt && grep -q "global step 12" inspect.txt || fail "ps inspect of a job's folder: $(cat inspect.txt)"
for file in latest/model-12.npz final/model-12.onnx; do
    "$trireme" inspect run/export/$file > inspect.txt || fail "$file: $(ls -R run/export)"
done
ls run/export/best/model-*.safetensors > /dev/null && grep -q '"metric": "accuracy"' run/export/best/best.json || fail "no best export"
# shellcheck disable=SC2086
"$trireme" eval lenet $data --batch-size 20 --checkpoint run --json > eval.json || fail "eval of a job's checkpoint"
python3 - << 'END' || fail "eval of the last checkpoint"
import json
a = json.loads(open("eval.json").readline())
b = [json.loads(l) for l in open("job.json") if '"eval"' in l][-1]
assert abs(a["loss"] - b["loss"]) < 1e-6, (a, b)
END

# ---- a folder that another job holds is refused before anything is started
# shellcheck disable=SC2086
"$trireme" train lenet $data --steps 100000 --output held > held.txt 2>&1 & holder=$!
for _ in $(seq 400); do [ -e held/.trireme.lock ] && break; sleep 0.05; done
begun=$SECONDS
# shellcheck disable=SC2086
"$trireme" train lenet $data --steps 2 -n 2 --ps 1 --output held > refused.txt 2>&1
[ $? = 2 ] && grep -q "writes here since" refused.txt && [ ! -e held/logs ] && [ $((SECONDS - begun)) -lt $((5 * patience)) ] ||
    fail "a folder in use, after $((SECONDS - begun)) s: $(cat refused.txt)"
kill $holder; wait $holder 2> /dev/null

# ---- the job resumes and does not begin again
# shellcheck disable=SC2086
"$trireme" train lenet $data --batch-size 20 --steps 16 --seed 3 -n 2 --ps 2 --mode sync --output run 2> again.err
[ $? = 2 ] && grep -q "run has a job's files already: --resume continues it" again.err || fail "begun again: $(cat again.err)"
# shellcheck disable=SC2086
"$trireme" train lenet $data --batch-size 20 --steps 16 --seed 3 -n 2 --ps 2 --mode sync --output run --resume \
    --log-every 1 --json > more.json 2> more.err || fail "resumed: $(tail -n 3 more.err)"
python3 - << 'END' || fail "resumed steps"
import json
steps = [json.loads(l)["global_step"] for l in open("more.json") if '"step",' in l]
assert steps == [13, 14, 15, 16], steps
END

# ---- resumed with another number of workers, the rest of the epoch is dealt to them: 120 batches an epoch
clicks="deepfm --data synth --fields 4 --table-rows 100 --synth-train 1200 --synth-test 100 --batch-size 10 --hidden 4 --json"
for mode in sync staleness=1; do
    # shellcheck disable=SC2086
    "$trireme" train $clicks --steps 45 -n 2 --ps 1 --mode $mode --output dealt-$mode > dealt.json 2> dealt.err || fail "$mode: $(tail -n 3 dealt.err)"
    # shellcheck disable=SC2086
    "$trireme" train $clicks --epochs 2 -n 3 --ps 2 --mode $mode --output dealt-$mode --resume > dealt.json 2> dealt.err ||
        fail "$mode, continued by three workers: $(tail -n 3 dealt.err)"
    grep -q "error" dealt.err && fail "$mode, continued by three workers: $(cat dealt.err)"
    python3 - $mode << 'END' || fail "$mode: epochs of a job that was continued by three workers: $(cat dealt-$mode/job.json)"
import json, sys
done = [json.loads(l) for l in open("dealt.json") if '"done"' in l][-1]
assert done["least_updates"] == done["most_updates"], done
# synchronous: 45 steps of two batches, 10 of three, 40 of three; else each batch is an update
assert done["least_updates"] == 95 if sys.argv[1] == "sync" else 230 <= done["least_updates"] <= 240, done
END
done

# ---- guide 000's lines: one process a task; blanks in lists are fine
read -r p0 p1 w0 w1 ev <<< "$(free_ports 5)"
line() {
    "$trireme" train lenet --data synth --ps_hosts "127.0.0.1:$p0, 127.0.0.1:$p1" --worker_hosts "127.0.0.1:$w0, 127.0.0.1:$w1" \
        --evaluator_hosts "127.0.0.1:$ev" --model_dir "$work/guide" --synth-train=400 --synth-test=60 --batch-size=20 --steps=30 --log-every=10 "$@"
}
line --job_name=ps --task_index=0 > ps0.log 2>&1 & ps0=$!
line --job_name=ps --task_index=1 > ps1.log 2>&1 & ps1=$!
line --job_name=evaluator --task_index=0 > ev.log 2>&1 & evaluator=$!
line --job_name=worker --task_index=1 > w1.log 2>&1 & worker1=$!
line --job_name=worker --task_index=0 > w0.log 2>&1 || fail "worker 0: $(tail -n 3 w0.log)"
wait $worker1 || fail "worker 1: $(tail -n 3 w1.log)"
wait $ps0 || fail "ps 0: $(tail -n 3 ps0.log)"
wait $ps1 || fail "ps 1: $(tail -n 3 ps1.log)"
wait $evaluator || fail "evaluator: $(tail -n 3 ev.log)"
# the worker that came first may have made all updates
grep -qhE "^loss = [0-9.]+, step = [0-9]+ \([0-9.]+ sec\)" w0.log w1.log || fail "no loss line: $(cat w0.log w1.log)"
grep -qhE "^global_step/sec: [0-9.]+" w0.log w1.log || fail "no speed line"
grep -q "Saving dict for global step" ev.log || fail "the evaluator said nothing"
# A late worker of a job that is over.
line --job_name=worker --task_index=1 > late.log 2>&1 || fail "late worker: $(tail -n 3 late.log)"
grep -q "the job has ended already" late.log || fail "late worker: $(cat late.log)"

# ---- --check, and its errors
export TF_CONFIG='{"cluster": {"chief": ["127.0.0.1:2221"], "worker": ["127.0.0.1:2222"], "ps": ["127.0.0.1:2223"]}, "task": {"type": "chief", "index": 0}}'
"$trireme" train lenet --data synth --check --output x > plan.txt || fail "--check"
grep -q "this process: chief, trainer 0 of 2 (saves" plan.txt || fail "plan: $(cat plan.txt)"
"$trireme" train lenet --data synth --check --mode sync --json > plan.json || fail "--check --json"
python3 -c 'import json
e = [json.loads(l) for l in open("plan.json")]
assert e[1]["event"] == "plan" and e[1]["mode"] == "synchronous" and e[1]["servers"] == 1, e' || fail "plan.json"
"$trireme" train lenet --data synth --check --tables "x:staleness=2" > plan.txt || fail "--check of bounded tables"
grep -q "updates asynchronous, tables bounded" plan.txt && grep -q "samples: lent" plan.txt || fail "plan: $(cat plan.txt)"
wrong() { # TEXT ARGS...
    local text=$1 code
    shift
    "$trireme" train lenet --data synth "$@" > /dev/null 2> wrong.err
    code=$?
    [ $code = 2 ] && grep -qF -- "$text" wrong.err || fail "$*: $code, $(cat wrong.err)"
}
wrong "--mode fast: sync, async or staleness=K expected" --mode fast
wrong "--mode staleness=-1" --mode staleness=-1
wrong "--tables staleness: synchronous rows are never old" --mode sync --tables "x:staleness=2"
wrong "iterations_per_loop" --sink
wrong "one of the two" --save-every-steps 5 --save-every-seconds 5 --output x
unset TF_CONFIG
wrong "--evaluator needs --output" --ps 1 --evaluator
wrong "--mode is of jobs with parameter servers: give --ps N too" --mode sync
wrong "--export-best is of jobs" --export-best npz
wrong "--early-stop: with parameter servers give --steps" --ps 1 --early-stop 2
wrong "--init x: nothing is there" --ps 1 --init x
wrong "--accumulate: with parameter servers each batch" --ps 1 --accumulate 2
wrong "neither a worker nor a chief" --job_name=ps --ps_hosts=127.0.0.1:1
wrong "--task_index without --job_name" --task_index 1
exit $failed
