#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# trireme verify: plans on 2 and 4 ranks against one device from the command line; its report and its exit codes.
. "$(dirname "$0")/common.sh"
dir=$work T=$trireme
export OMP_NUM_THREADS=1

cat >plan <<'END'
trireme-plan 1
mesh 2x2
op fc2.linear2 kn pinned   # classes, samples
op fc1.linear1 cn
END
"$T" verify mlp -n 4 --plan plan --batch-size 3 --image-size 8 --classes 11 --threads 1 --steps 4 --json >out 2>err ||
    { fail "mlp by classes"; tail -3 err; }
python3 - out <<'END' || fail "the JSON of verify"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
v = [l for l in lines if l["event"] == "verify"]
assert len(v) == 1, lines
v = v[0]
assert v["agrees"] and v["ranks"] == 4 and v["steps"] == 4, v
kinds = {}
for t in v["tensors"]:
    assert t["agrees"] and t["error"] < 1e-4 and t["elements"] > 0, t
    kinds[t["kind"]] = kinds.get(t["kind"], 0) + 1
assert kinds["loss"] == 4 and kinds["gradient"] == 6 and kinds["variable"] == 12 and kinds["forward"] >= 5, kinds
END

# Without a plan all operators are cut by samples; with accumulation, clipping, LARS and a schedule too.
"$T" verify lenet -n 2 --batch-size 2 --image-size 16 --classes 10 --threads 1 --accumulate 2 --clip-norm 1 --optimizer lars \
    --schedule cosine --warmup-steps 1 --label-smoothing 0.1 >out 2>err || { fail "lenet"; tail -3 err; cat out; }
grep -q "^agrees with one device" out || fail "no verdict: $(tail -1 out)"
grep -q "step 3 " out || fail "three losses are expected"

# Each operator must agree by itself: only tolerance and rounding are allowed.
"$T" verify mlp -n 2 --batch-size 3 --image-size 8 --threads 1 --bitwise --json >out 2>err
code=$?
grep -q '"same_bits":false,"chaos"' out || fail "sums over 2 ranks are expected to round differently: $(cut -c1-120 out)"
[ $code -ne 0 ] || fail "differs, but ends with 0"
grep -q "differs from one device" err || fail "no sentence: $(tail -2 err)"

"$T" verify mlp --image-size 8 >out 2>err && fail "one rank was taken"
grep -q "at least 2 ranks" err || fail "no sentence about one rank: $(cat err)"
sed 's/fc2.linear2 kn/fc9.linear9 kn/' plan >bad
"$T" verify mlp -n 4 --plan bad --batch-size 3 --image-size 8 --classes 11 >out 2>err && fail "a plan of another network was taken"
grep -q "fc9.linear9" err || fail "no sentence about the operator: $(tail -2 err)"
exit $failed
