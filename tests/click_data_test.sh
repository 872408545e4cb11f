#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains recommendation models on files: samples of Criteo and Avazu, MovieLens, libsvm, slots, TFRecords, CSV with bags;
# hashing and vocabularies.
. "$(dirname "$0")/common.sh"
train() { "$trireme" train "$@" --threads 1 --json --log-every 1000000 --hidden 32 --embedding-width 8 > "$work/events" 2> "$work/out" || fail "train $*: $(cat "$work/out")"; }
auc() { # LOW: the last evaluation's AUC is above
    python3 - "$work/events" "$1" << 'END' || fail "auc: $(grep eval "$work/events")"
import json, sys
e = [json.loads(line) for line in open(sys.argv[1]) if '"eval"' in line][-1]
print(f"auc {e['auc']:.4f} logloss {e['logloss']:.4f} calibration {e['calibration']:.3f} of {e['samples']} samples")
sys.exit(0 if e["auc"] > float(sys.argv[2]) and 0.3 < e["calibration"] < 3 else 1)
END
}

# ---- made here: bags, quotes, missing values; libsvm
python3 - "$work" << 'END'
import random, sys
random.seed(4)
for part, rows in (("train", 3000), ("test", 600)):
    with open(f"{sys.argv[1]}/{part}.csv", "w") as f, open(f"{sys.argv[1]}/{part}.svm", "w") as g, \
            open(f"{sys.argv[1]}/{part}.txt", "w") as h:
        f.write("age,liked,city,words\n")
        for _ in range(rows):
            words = random.sample(range(40), random.randint(0, 4))
            city, age = random.randint(0, 9), random.random()
            liked = int(random.gauss(0, 0.5) + sum(w % 3 - 1 for w in words) + (city % 2) - 0.5 > 0)
            f.write(f"{'' if random.random() < 0.1 else round(age, 3)},{liked},\"c{city}\",{'|'.join(f'w{w}' for w in words)}\n")
            h.write(f"click:{liked} dense_feature:{age:.3f} 1:c{city} " + " ".join(f"2:w{w}" for w in words) + "\n")
            g.write(f"{liked or -1} " + " ".join(f"{w}:{1 + w % 2}" for w in [city + 100] + words) + "\n")
END
mkdir "$work/csv" "$work/svm" "$work/slots"
mv "$work"/t*.txt "$work/slots"
mv "$work"/t*.csv "$work/csv"
for part in train test; do mv "$work/$part.svm" "$work/svm/$part.svm"; done
columns="liked:label,age:dense,city:key,words:bag"
for model in widedeep dlrm; do # shellcheck disable=SC2086
    rule="adam --learning-rate 0.01"
    train $model --data "$work/csv" --dataset csv --columns $columns --table-rows 100 --batch-size 100 --epochs 5 --output "$work/$model" --seed 2 --optimizer $rule
    auc 0.8
    train $model --data "$work/csv" --dataset csv --columns $columns --table-rows 100 --batch-size 100 --epochs 5 --steps 77 --output "$work/$model.2" --seed 2 --optimizer $rule
    train $model --data "$work/csv" --dataset csv --columns $columns --table-rows 100 --batch-size 100 --epochs 5 --output "$work/$model.2" --seed 2 --optimizer $rule --resume
    cmp "$work/$model/ckpt-150/model.safetensors" "$work/$model.2/ckpt-150/model.safetensors" || fail "bags of $model, resumed"
done
train deepfm --data "$work/csv" --columns $columns --table-rows 100 --batch-size 100 --epochs 5 --pooling mean --optimizer adagrad --learning-rate 0.05
auc 0.8
"$trireme" data vocabulary "$work/csv" --columns $columns --min-count 1 --output "$work/words" > "$work/out" || fail "vocabulary: $(cat "$work/out")"
grep -q "2 fields, 52 rows" "$work/out" || fail "vocabulary: $(cat "$work/out")"
train widedeep --data "$work/csv" --columns $columns --vocabulary "$work/words" --batch-size 100 --epochs 5 --output "$work/words.run"
auc 0.85
"$trireme" eval widedeep --checkpoint "$work/words.run" --data "$work/csv" --columns $columns > "$work/out" 2>&1 && fail "eval without the vocabulary"
grep -q "evaluate it likewise" "$work/out" || fail "eval without the vocabulary: $(cat "$work/out")"
"$trireme" eval widedeep --checkpoint "$work/words.run" --data "$work/csv" --columns $columns --vocabulary "$work/words" > "$work/out" || fail "eval with the vocabulary"
"$trireme" export widedeep --checkpoint "$work/words.run" --to npz --output "$work/words.npz" > "$work/out" || fail "export: $(cat "$work/out")"
train deepfm --data "$work/slots" --table-rows 100 --batch-size 100 --epochs 5 --pooling mean --optimizer adagrad --learning-rate 0.05 # its form is seen
auc 0.8
train dcnv2 --data "$work/svm" --dataset libsvm --table-rows 300 --batch-size 100 --epochs 6 --optimizer adagrad --learning-rate 0.05
auc 0.8

# ---- TFRecords of tf.Example, written by hand: from the rows of the CSV files
python3 - "$work" << 'END'
import csv, struct, sys
from tfrecord import feature, field, record
for part in ("train", "test"):
    with open(f"{sys.argv[1]}/{part}.tfrecord", "wb") as f:
        for row in csv.DictReader(open(f"{sys.argv[1]}/csv/{part}.csv")):
            one = feature("liked", 3, field(1, bytes([int(row["liked"])])))
            if row["age"]:
                one += feature("age", 2, field(1, struct.pack("<f", float(row["age"]))))
            one += feature("city", 1, field(1, row["city"].encode()))
            if row["words"]:
                one += feature("words", 1, b"".join(field(1, w.encode()) for w in row["words"].split("|")))
            f.write(record(one))
END
train widedeep --data "$work/train.tfrecord" --dataset tfrecord --columns $columns --table-rows 100 --batch-size 100 --epochs 5
auc 0.85
grep -q "trained on" "$work/out" || fail "no warning about evaluating on the training file: $(cat "$work/out")"

# ---- real data
data=$TRIREME_DATA
if [ ! -d "$data" ]; then
    echo "part skipped: no data in $data (TRIREME_DATA)"
    exit $failed
fi
train dlrm --data "$data/criteo-8k" --table-rows 1000 --batch-size 128 --epochs 2 --bottom 32 && auc 0.62
"$trireme" data vocabulary "$data/criteo-8k" --min-count 3 --output "$work/criteo" > "$work/out" || fail "vocabulary: $(cat "$work/out")"
train deepfm --data "$data/criteo-8k" --vocabulary "$work/criteo" --batch-size 128 --epochs 3 && auc 0.62
train widedeep --data "$data/avazu-9k" --table-rows 1000 --batch-size 128 --epochs 2 && auc 0.6
mkdir "$work/ml"
awk -v d="$work/ml" '{ print > (NR % 10 == 0 ? d "/test.tsv" : d "/train.tsv") }' "$data/ml-100k/u.data"
ratings="user:key,item:key,rating:label,time:skip"
train deepfm --data "$work/ml" --dataset csv --separator tab --columns $ratings --label-threshold 4 --table-rows 2000 --batch-size 1000 --epochs 6 --learning-rate 0.003 && auc 0.74
exit $failed
