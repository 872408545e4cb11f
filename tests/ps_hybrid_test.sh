#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tables on servers, dense parameters by all-reduce: a resumed job equals an undisturbed one. A server or a worker that is killed comes
# back, the other processes continue with what they hold, and each row learns from each batch once.
. "$(dirname "$0")/common.sh"
. "$source/tests/roles.sh"
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
train() { # FOLDER MODE ARGS...
    local folder=$1 mode=$2
    shift 2
    timeout 120 "$trireme" train widedeep --data synth --fields 4 --dense 3 --table-rows 50 --hidden 16 --embedding-width 8 --synth-train 60000 \
        --synth-test 2000 --batch-size 50 --seed 3 --learning-rate 0.01 -n 2 --ps 2 --hybrid --mode "$mode" --output "$work/$folder" \
        --launch-dir "$work/logs-$folder" --restarts 9 --save-every-steps 100 --log-every 10 --json "$@"
}
train whole sync --steps 600 > whole.json 2> whole.err || fail "whole: $(tail -n 3 whole.err)"
train parts sync --steps 250 > parts1.json 2> parts.err || fail "its first part: $(tail -n 3 parts.err)"
train parts sync --steps 600 --resume > parts.json 2> parts.err || fail "its second part: $(tail -n 3 parts.err)"
train async async --steps 600 > async.json 2> async.err || fail "asynchronous tables: $(tail -n 3 async.err)"

# NAME MODE VICTIM: killed once it has made 100 steps; no checkpoint is due by then but the first.
killed() {
    local job p
    train "$1" "$2" --steps 600 > "$1.json" 2> "$1.err" &
    job=$!
    for ((i = 0; i < 6000 * patience; i++)); do
        grep -q '"global_step":1[0-9][0-9],' "$1.json" && break
        kill -0 $job 2> /dev/null || break
        sleep 0.01
    done
    p=$(process "$work/$1" "$3")
    [ -n "$p" ] && kill -9 "$p" || fail "$1: no process of $3: $(tail -n 3 "$1.err")"
    grep -q '"global_step":600,' "$1.json" && fail "$1: the job was over before $3 was killed"
    wait $job || fail "$3 killed: exit code $?: $(tail -n 5 "$1.err")"
}
killed server sync "ps 1"
killed worker sync "worker 1"
killed chief sync "worker 0"
killed late async "worker 1"
for job in whole parts async server worker chief late; do
    for table in embedding.weight wide.weight; do
        "$trireme" ps export $job/ps --table $table --output $job-$table.safetensors > out.txt 2>&1 || fail "$job: $(cat out.txt)"
    done
done
python3 - << 'END' || failed=1
import json, struct
def last(job):
    return [e for e in map(json.loads, open(job + ".json")) if e.get("event") == "eval"][-1]
def updates(job, table):
    data = open(f"{job}-{table}.safetensors", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    def numbers(name):
        a, b = head[name]["data_offsets"]
        return struct.unpack(f"<{(b - a) // 8}q", data[8 + size + a:8 + size + b])
    return dict(zip(numbers("keys"), numbers("updates"), strict=True))
for job, like, most in (("parts", "whole", 0), ("server", "whole", 0), ("worker", "whole", 1e-4), ("chief", "whole", 1e-4), ("late", "async", 3e-3)):
    off = abs(last(job)["loss"] - last(like)["loss"])
    print(job, last(job)["loss"], "beside", last(like)["loss"])
    assert off <= most, (job, last(job), last(like))
    for table in ("embedding.weight", "wide.weight"):
        a, b = updates(job, table), updates(like, table)
        assert a == b, (job, table, {k: (a.get(k), b.get(k)) for k in a.keys() | b.keys() if a.get(k) != b.get(k)})
END
exit $failed
