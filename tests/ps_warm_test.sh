#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --init with servers: synchronous losses are those of one device that begins with the same weights, dense variables and tables. A
# resumed job needs the file where it was, but not on its command line.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
train() { # FILE MODEL ARGS...
    local to=$1 model=$2
    shift 2
    "$trireme" train $model --data synth --synth-test 64 --batch-size 16 --optimizer sgd --log-every 1 --threads 1 --eval-every-epochs 0 \
        --json --launch-dir logs "$@" > "$to" 2> err || fail "train $*: $(tail -n 3 err)"
}
clicks="--fields 3 --dense 2 --table-rows 12 --hidden 8 --embedding-width 4"
train first.json lenet --synth-train 160 --steps 5 --seed 3 --learning-rate 0.01 --output first
train device.json lenet --synth-train 160 --steps 5 --seed 7 --learning-rate 0.01 --init first
train servers.json lenet --synth-train 160 --steps 5 --seed 7 --learning-rate 0.01 --init first -n 1 --ps 2 --mode sync --output served
train clicks.json deepfm $clicks --learning-rate 0.05 --synth-train 320 --steps 20 --seed 3 --output clicks
"$trireme" export deepfm $clicks --checkpoint clicks --to safetensors --output clicks.safetensors > out.txt 2>&1 || fail "export: $(cat out.txt)"
train clicks_device.json deepfm $clicks --learning-rate 0.05 --synth-train 320 --steps 10 --seed 7 --init clicks.safetensors
train clicks_servers.json deepfm $clicks --learning-rate 0.05 --synth-train 320 --steps 10 --seed 7 --init clicks.safetensors -n 1 --ps 2 --mode sync --output clicked
python3 - << 'END' || failed=1
import json
def losses(file):
    return [e["loss"] for e in map(json.loads, open(file)) if e.get("event") == "step"]
for one, many, cold in (("device", "servers", "first"), ("clicks_device", "clicks_servers", "clicks")):
    a, b, c = (losses(f + ".json") for f in (one, many, cold))
    assert len(a) == len(b) > 4 and all(abs(x - y) < 1e-5 for x, y in zip(a, b, strict=True)), (a, b)
    assert abs(a[0] - c[0]) > 1e-3, (a[0], c[0]) # not the values of a cold start
END
train on.json lenet --synth-train 160 --steps 7 --seed 7 --learning-rate 0.01 -n 1 --ps 2 --mode sync --output served --resume
mv first elsewhere
expect 2 "put it back" train lenet --data synth --synth-train 160 --synth-test 64 --batch-size 16 --steps 9 --seed 7 -n 1 --ps 2 --mode sync --output served \
    --resume --restarts 0 --launch-dir gone
grep -qs "rows that are not trained yet begin with its values" gone/ps0/train.log0 out.txt || fail "the missing file is not named: $(tail -n 2 gone/ps0/train.log0)"
expect 2 "the network's is float32 [12" train lenet --classes 12 --data synth --synth-train 160 --synth-test 64 --batch-size 16 --steps 2 \
    --init elsewhere -n 1 --ps 1 --output other --restarts 0 --launch-dir other_logs
exit $failed
