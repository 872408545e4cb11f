#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Recommendation models with their tables on servers, from the command line: the numbers are those of one device.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
data="--data clicks --table-rows 3000 --synth-train 10240 --synth-test 2000"
# shellcheck disable=SC2086
train() { "$trireme" train $data --steps 10 --json "$@" 2> err || fail "$*: $(tail -n 3 err)"; }
same() { # FILE FILE TOLERANCE: the last evaluations agree
    python3 - "$@" << 'END' || fail "$1 and $2 differ"
import json, sys
a, b = ([json.loads(l) for l in open(f) if '"eval"' in l][-1] for f in sys.argv[1:3])
for key in ("loss", "auc", "calibration"):
    assert abs(a[key] - b[key]) < float(sys.argv[3]), (key, a[key], b[key])
END
}
# Adagrad is the same rule on both sides; Adam's rows add epsilon at another place (trireme/ps.h).
for case in "widedeep 1e-6" "deepfm 1e-4"; do
    model=${case% *} tolerance=${case#* }
    train "$model" --batch-size 1024 > one.json
    train "$model" --batch-size 512 -n 2 --ps 2 --mode sync --output "$model" > sync.json
    same one.json sync.json "$tolerance"
done
train widedeep --batch-size 1024 > one.json
train widedeep --batch-size 512 -n 2 --ps 1 --mode sync --hybrid --output hybrid > hybrid.json
same one.json hybrid.json 1e-6
train widedeep --batch-size 512 -n 2 --ps 1 --output async > async.json
python3 -c 'import json
done = [json.loads(l) for l in open("async.json") if "\"done\"" in l][-1]
assert done["least_updates"] == done["most_updates"] == done["global_step"] and 10 <= done["global_step"] <= 12, done' || fail "asynchronous: $(grep done async.json)"
# Lent samples in synchronous mode, each used once; hot rows of workers.
lent="--data clicks --table-rows 1000 --synth-train 8192 --synth-test 2000 --batch-size 256 --epochs 2"
for mode in sync staleness=2; do
    hot=$([ $mode = sync ] || echo "--hot-rows 4000 --hot-age 2")
    # shellcheck disable=SC2086
    "$trireme" train widedeep $lent -n 3 --ps 2 --mode $mode --lend always $hot --output lent-$mode --json > lent.json 2> err || fail "$mode: $(tail -n 3 err)"
    python3 - $mode << 'END' || fail "lent in mode $mode: $(grep done lent.json)"
import json, sys
done = [json.loads(l) for l in open("lent.json") if '"done"' in l][-1]
batches, sync = 2 * 8192 // 256, sys.argv[1] == "sync"
# Synchronous sums are of one to three workers' batches, and not of the same ones on each server (train/remote_test: samples).
least, most = done["least_updates"], done["most_updates"]
assert batches / 3 <= least <= most <= batches if sync else least == most == done["global_step"] == batches, done
assert (done["cached_keys"] == 0) == sync and done["cached_keys"] < done["unique_keys"] < done["lookups"], done
END
done
expect 2 "the synchronous mode allows no age" train widedeep $data --steps 2 -n 2 --ps 1 --mode sync --hot-rows 10
"$trireme" eval widedeep $data --batch-size 512 --checkpoint hybrid --json > eval.json || fail "eval"
same hybrid.json eval.json 1e-6
exit $failed
