#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Real data through parameter servers: the Criteo sample and MovieLens, synchronous (one device's numbers) and asynchronous, from files
# to evaluation; the checkpoint is evaluated again; bags of keys likewise.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
train() { # FILE MODEL ARGS...: events go to FILE
    local to=$1
    shift
    "$trireme" train "$@" --seed 3 --json --log-every 1000000 --hidden 32 --embedding-width 8 > "$to" 2> err || fail "train $*: $(tail -n 3 err)"
}
auc() { # FILE LOW [FILE TOLERANCE]: the last evaluation's AUC is above; and near the other's
    python3 - "$@" << 'END' || fail "$1: $(grep '"eval"' "$1")"
import json, sys
last = lambda f: [json.loads(line) for line in open(f) if '"eval"' in line][-1]
e = last(sys.argv[1])
print(f"{sys.argv[1]}: auc {e['auc']:.4f} logloss {e['logloss']:.4f} of {e['samples']} samples")
assert e["auc"] > float(sys.argv[2]) and 0.3 < e["calibration"] < 3, e
if len(sys.argv) > 3:
    other = last(sys.argv[3])
    assert abs(e["auc"] - other["auc"]) < float(sys.argv[4]) and abs(e["loss"] - other["loss"]) < float(sys.argv[4]), (e, other)
END
}
last_step() { python3 -c 'import json, sys
print([json.loads(l) for l in open(sys.argv[1]) if "\"done\"" in l][-1]["global_step"])' "$1"; }

# ---- bags, made here
python3 - << 'END'
import os, random
random.seed(4)
os.mkdir("csv")
for part, rows in (("train", 3000), ("test", 600)):
    with open(f"csv/{part}.csv", "w") as f:
        f.write("age,liked,city,words\n")
        for _ in range(rows):
            words, city = random.sample(range(40), random.randint(0, 4)), random.randint(0, 9)
            liked = int(random.gauss(0, 0.5) + sum(w % 3 - 1 for w in words) + (city % 2) - 0.5 > 0)
            f.write(f"{round(random.random(), 3)},{liked},c{city},{'|'.join(f'w{w}' for w in words)}\n")
END
bags="--data csv --columns liked:label,age:dense,city:key,words:bag --table-rows 100 --learning-rate 0.05 --optimizer adagrad"
# shellcheck disable=SC2086
{
    train bags.one widedeep $bags --batch-size 100 --epochs 3
    train bags.sync widedeep $bags --batch-size 50 --epochs 3 -n 2 --ps 2 --mode sync --output bags
}
auc bags.sync 0.8 bags.one 1e-5

# ---- real data
data=$TRIREME_DATA
if [ ! -d "$data" ]; then
    echo "part skipped: no data in $data (TRIREME_DATA)"
    exit $failed
fi
criteo="--data $data/criteo-8k --table-rows 1000 --bottom 32"
# shellcheck disable=SC2086
{
    train criteo.one dlrm $criteo --batch-size 128 --epochs 2
    train criteo.sync dlrm $criteo --batch-size 64 --epochs 2 -n 2 --ps 2 --mode sync --output criteo
    train criteo.async dlrm $criteo --batch-size 128 --epochs 2 -n 2 --ps 1 --output criteo2
    "$trireme" eval dlrm $criteo --batch-size 64 --checkpoint criteo --json > criteo.eval || fail "eval of a job's checkpoint"
}
auc criteo.one 0.62
auc criteo.sync 0.62 criteo.one 1e-4
auc criteo.async 0.6
auc criteo.eval 0.62 criteo.sync 1e-6
# 7,200 rows in batches of 128, the rest of an epoch left out as on one device: each lent once.
[ "$(last_step criteo.async)" = "$(last_step criteo.one)" ] || fail "asynchronous steps: $(last_step criteo.async), one device: $(last_step criteo.one)"
mkdir ml
awk '{ print > (NR % 10 == 0 ? "ml/test.tsv" : "ml/train.tsv") }' "$data/ml-100k/u.data"
movies="--data ml --dataset csv --separator tab --columns user:key,item:key,rating:label,time:skip --label-threshold 4 --table-rows 2000
    --learning-rate 0.003"
# shellcheck disable=SC2086
train movies.async deepfm $movies --batch-size 1000 --epochs 6 -n 2 --ps 1 --output movies
auc movies.async 0.73
exit $failed
