#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --resume refuses another job: data whose labels changed, another network, precision or back-end; --accept-changes accepts them.
# Another learning rate or more epochs give a warning. One device, two ranks, parameter servers.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
"$trireme" data synth --output cifar --synth-train 640 --synth-test 20 > out.txt 2>&1 || fail "data synth: $(cat out.txt)"
python3 - << 'END' || fail "the data"
import os, random, struct, zlib
random.seed(3)

def png(level):
    rows = b"".join(b"\0" + bytes(level + random.randint(-40, 40) for _ in range(3 * 40)) for _ in range(40))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 40, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

for part, count in (("train", 64), ("val", 4)):
    for i in range(count):
        os.makedirs(f"folders/{part}/{'ab'[i % 2]}", exist_ok=True)
        open(f"folders/{part}/{'ab'[i % 2]}/{i}.png", "wb").write(png((60, 190)[i % 2]))
os.mkdir("csv")
for part, rows in (("train", 640), ("test", 20)):
    with open(f"csv/{part}.csv", "w") as f:
        f.write("age,liked,city\n")
        for i in range(rows):
            f.write(f"{round(random.random(), 3)},{random.randint(0, 1)},c{random.randint(0, 9)}\n")
END
flip() { # FOLDER: each label is another one
    python3 - "$1" << 'END'
import glob, os, sys
if sys.argv[1] == "cifar":
    for path in glob.glob("cifar/data_batch_*.bin"):
        data = bytearray(open(path, "rb").read())
        for at in range(0, len(data), 3073):
            data[at] = 9 - data[at]
        open(path, "wb").write(data)
elif sys.argv[1] == "folders":
    for part in glob.glob("folders/*"):
        os.rename(part + "/a", part + "/c"), os.rename(part + "/b", part + "/a"), os.rename(part + "/c", part + "/b")
elif sys.argv[1] == "csv-one":  # one label of 640, not among 64 that are spread over them
    lines = open("csv/train.csv").read().split("\n")
    age, liked, city = lines[4].split(",")
    lines[4] = f"{age},{1 - int(liked)},{city}"
    open("csv/train.csv", "w").write("\n".join(lines))
else:
    lines = open("csv/train.csv").read().split("\n")
    flipped = [",".join([a, str(1 - int(b)), c]) for a, b, c in (line.split(",") for line in lines[1:] if line)]
    open("csv/train.csv", "w").write("\n".join(lines[:1] + flipped) + "\n")
END
}
images="--image-size 32 --classes 10 --batch-size 32 --eval-every-epochs 0 --quiet"
clicks="--columns age:dense,liked:label,city:key --table-rows 50 --batch-size 32 --hidden 8 --eval-every-epochs 0 --quiet"
number=0
# The job runs to its second step; then it is resumed with other labels, and with its own.
refuses_other_labels() { # FOLDER ARGS...
    local folder=$1 run=run$((++number))
    shift
    timeout 60 "$trireme" train "$@" --data "$folder" --output $run --steps 2 > out.txt 2>&1 || { fail "$*: $(tail -n 2 out.txt)"; return; }
    flip "$folder"
    expect 2 "data differs" train "$@" --data "$folder" --output $run --steps 4 --resume
    flip "$folder"
    expect 0 "" train "$@" --data "$folder" --output $run --steps 4 --resume
}
# shellcheck disable=SC2086
{
    refuses_other_labels cifar lenet $images
    refuses_other_labels folders resnet18 $images
    refuses_other_labels csv widedeep $clicks
    refuses_other_labels cifar lenet $images -n 2
    refuses_other_labels csv widedeep $clicks -n 2 --ps 2 --mode sync
    flip csv-one
    expect 2 "data differs" train widedeep $clicks --data csv --output run3 --steps 6 --resume
    flip csv-one
    flip csv
    expect 0 "resumed with changes: data" train widedeep ${clicks% --quiet} -n 2 --ps 2 --mode sync --data csv --output run5 --steps 6 --resume --accept-changes

    # ---- the same data, another job
    for change in "--precision origin|precision differs (found fp32, expected origin)" "--backend ref|backend differs" \
        "--optimizer sgd --momentum 0|"; do
        expect 2 "${change#*|}" train lenet $images --data cifar --output run1 --steps 6 --resume ${change%|*}
    done
    expect 0 "learning_rate 0.01 -> 0.02" train lenet ${images% --quiet} --data cifar --output run1 --steps 6 --resume --learning-rate 0.02
    step=7
    for change in "--label-smoothing 0.1|label_smoothing 0 -> 0.1" "--clip-norm 1|clip_norm 0 -> 1" "--loss-scale dynamic|loss_scale off -> dynamic" \
        "--deterministic strict|strict_block 0 -> -1"; do
        rm -rf run1-changed && cp -r run1 run1-changed
        expect 0 "${change#*|}" train lenet ${images% --quiet} --data cifar --output run1-changed --steps $step --resume ${change%|*}
    done
    expect 0 "backend onednn -> ref" train lenet ${images% --quiet} --data cifar --output run1 --steps 7 --resume --backend ref --accept-changes
    timeout 60 "$trireme" train resnet18 $images --data cifar --output stem --steps 1 > out.txt 2>&1 || fail "resnet18: $(cat out.txt)"
    timeout 60 "$trireme" train resnet18 $images --stem cifar --data cifar -n 2 --output ranks --steps 1 > out.txt 2>&1 || fail "resnet18: $(cat out.txt)"
    for change in "--sync-batch-norm off|batch_norm over all ranks' samples -> over each rank's own samples" "--reduce sum|reduce mean -> sum" \
        "--wire bf16|wire float32 -> bfloat16"; do
        rm -rf ranks-changed && cp -r ranks ranks-changed
        expect 0 "${change#*|}" train resnet18 ${images% --quiet} --stem cifar --data cifar -n 2 --output ranks-changed --steps 2 --resume ${change%|*}
    done
    expect 2 "network differs" train resnet18 $images --data cifar --output stem --steps 2 --resume --stem cifar
}
exit $failed
