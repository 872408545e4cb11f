#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ResNet-50 with its variables on two parameter servers: synchronous, with the losses and the evaluation of one device; asynchronous with
# two workers, which stop exactly at the last step; synchronous with a backup worker while one worker is stopped. A small
# network learns from late gradients.
. "$(dirname "$0")/common.sh"
. "$source/tests/roles.sh"
export OMP_NUM_THREADS=1
train() { # FILE ARGS...: events go to FILE
    local to=$1
    shift
    "$trireme" train resnet50 --data synth --synth-train 64 --synth-test 16 --batch-size 8 --learning-rate 0.002 --log-every 1 --threads 1 \
        --seed 3 --json "$@" > "$to" 2> err || fail "train $*: $(tail -n 3 err)"
}
train device.json --steps 4
train sync.json --steps 4 -n 1 --ps 2 --mode sync --output sync
train async.json --steps 6 -n 2 --ps 2 --mode async --output async
"$trireme" train lenet --data synth --synth-train 6400 --synth-test 64 --batch-size 32 --optimizer adam --learning-rate 0.002 --steps 500 -n 3 --ps 1 --mode async \
    --staleness-aware --threads 1 --seed 3 --log-every 1 --json --launch-dir late > late.json 2> err || fail "late gradients: $(tail -n 3 err)"
# Three workers, and each step needs two: one worker is stopped, the other two continue, and no sample is lost. At the end of an epoch they
# wait for the samples that are lent to the stopped one, so the epoch is longer than the stop and 20 steps take. Then ResNet-50.
backup="--mode sync --backup-workers 1"
# shellcheck disable=SC2086
"$trireme" train lenet --data synth --synth-train 16384 --synth-test 64 --batch-size 16 --epochs 2 -n 3 --ps 1 $backup --threads 1 --seed 3 --log-every 1 \
    --json --launch-dir backup --output "$work/lenet" > backup.json 2> err &
job=$!
grows() { # at least so many steps
    for ((i = 0; i < 6000 * patience; i++)); do
        [ "$(grep -c '"event":"step"' backup.json)" -ge "$1" ] && return
        kill -0 $job 2> /dev/null || return
        sleep 0.01
    done
    return 1
}
grows 10
idle=$(process "$work/lenet" "worker 2")
[ -n "$idle" ] && kill -STOP "$idle" || fail "no worker 2: $(tail -n 3 err)"
steps=$(grep -c '"event":"step"' backup.json)
grows $((steps + 20)) || fail "the others wait for a backup worker"
kill -CONT "$idle"
wait $job || fail "a job with a backup worker: $(tail -n 3 err)"
# shellcheck disable=SC2086
train resnet-backup.json --steps 4 -n 3 --ps 2 $backup --output resnet-backup
python3 - << 'END' || failed=1
import json
def events(file, kind):
    return [e for e in map(json.loads, open(file)) if e.get("event") == kind]
losses = {f: [e["loss"] for e in events(f, "step")] for f in ("device.json", "sync.json")}
assert len(losses["device.json"]) == 4, losses
assert all(abs(a - b) < 1e-6 for a, b in zip(losses["device.json"], losses["sync.json"], strict=True)), losses
ours, theirs = (events(f, "eval")[-1]["loss"] for f in ("sync.json", "device.json"))
assert abs(ours - theirs) < 1e-4 * abs(theirs), (ours, theirs)
done = events("async.json", "done")[-1]["global_step"]
assert done == 6, done
done = events("resnet-backup.json", "done")[-1]["global_step"]
assert done >= 4, done
late = [json.loads(line) for f in [open("late.json")] for line in f]
assert [e for e in late if e["event"] == "done"][-1]["global_step"] == 500, late[-1]
falls = [e["loss"] for e in late if e["event"] == "step"]
first, last = sum(falls[:20]) / 20, sum(falls[-20:]) / 20
assert last < 0.9 * first, (first, last)
print("late gradients", first, last)
print("losses", losses["sync.json"], "evaluation", ours)
END
exit $failed
