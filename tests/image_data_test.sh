#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains and evaluates on ImageNet's two forms from the command line, class folders and TFRecords; the message about a damaged file
# names it. Uses real JPEG files from $TRIREME_DATA/imagenet-sample if they exist, else PNG files made here.
. "$(dirname "$0")/common.sh"
# fails CODE TEXT ARGS...: one line with TEXT, and the code
fails() {
    local code=$1 text=$2 got
    shift 2
    "$trireme" "$@" --quiet > out 2> err
    got=$?
    [ $got = "$code" ] && [ "$(wc -l < err)" = 1 ] && grep -qF -- "$text" err || fail "trireme $*: $got, expected $code with '$text': $(cat err)"
}

# ---- two classes of bright and dark pictures, larger than their crops; folders and records
python3 - "$TRIREME_DATA/imagenet-sample" << 'END' || fail "the data"
import glob, os, random, struct, sys, zlib
import tfrecord
random.seed(3)

def png(level):
    width, height = random.randint(40, 70), random.randint(40, 70)
    rows = b"".join(b"\0" + bytes(min(255, max(0, level + random.randint(-40, 40))) for _ in range(3 * width)) for _ in range(height))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

for part, count in (("train", 24), ("val", 8)):
    for i in range(count):
        folder = f"folders/{part}/{('dark', 'light')[i % 2]}"
        os.makedirs(folder, exist_ok=True)
        open(f"{folder}/{i}.png", "wb").write(png((60, 190)[i % 2]))

real = sorted(glob.glob(sys.argv[1] + "/*/*.JPEG"), key=os.path.getsize)[:24]
print("records of", "real JPEG files" if len(real) == 24 else "PNG (skipped: no imagenet-sample)")
images = [open(f, "rb").read() for f in real] if len(real) == 24 else [png((60, 190)[i % 2]) for i in range(24)]
os.makedirs("records")
for shard in range(2):
    with open(f"records/train-{shard:05}-of-00002", "wb") as f:
        f.write(b"".join(tfrecord.record(tfrecord.image(images[i], 1 + i % 2)) for i in range(shard, 16, 2)))
with open("records/validation-00000-of-00001", "wb") as f:
    f.write(b"".join(tfrecord.record(tfrecord.image(images[i], 1 + i % 2)) for i in range(16, 24)))
END

# ---- trained, resumed to the same bits, evaluated
learn="--image-size 32 --batch-size 8 --learning-rate 0.02 --log-every 1 --classes"
for form in "folders resnet18 2" "records lenet 1000"; do
    # shellcheck disable=SC2086
    set -- $form
    # shellcheck disable=SC2086
    "$trireme" train "$2" --data "$1" $learn "$3" --epochs 3 --output "$1.a" --json > "$1.json" || fail "train on $1"
    # shellcheck disable=SC2086
    "$trireme" train "$2" --data "$1" $learn "$3" --epochs 3 --steps 2 --output "$1.b" --quiet > out 2>&1 &&
        "$trireme" train "$2" --data "$1" $learn "$3" --epochs 3 --output "$1.b" --resume --quiet > out 2>&1 ||
        fail "stop and resume on $1: $(cat out)"
    last=$(basename "$(ls -d "$1".a/ckpt-* | sort -V | tail -1)")
    cmp "$1.a/$last/model.safetensors" "$1.b/$last/model.safetensors" || fail "$1: the resumed run differs"
    "$trireme" eval "$2" --checkpoint "$1.a" --data "$1" --json > "$1.eval" || fail "eval on $1"
    grep -q '"samples":8' "$1.eval" || fail "eval on $1: $(cat "$1.eval")"
    "$trireme" bench data --data "$1" --batch-size 8 --image-size 32 --repeats 3 --json > "$1.rate" || fail "bench data on $1"
done
grep -q '"libjpeg_ratio"' folders.rate && fail "PNG beside a decoder of JPEG: $(cat folders.rate)"
python3 -c 'import json
events = [json.loads(l) for l in open("folders.json")]
losses = [e["loss"] for e in events if e["event"] == "step"]
assert len(losses) == 9 and min(losses[6:]) < losses[0], losses' || fail "training on folders: $(cat folders.json)"

# ---- fewer samples than a batch have a message
"$trireme" data info folders > out 2> err && grep -q "train: 24 samples" out && grep -q "test: 8 samples" out &&
    grep -q "an epoch has no batch" err || fail "data info of a few images: $(cat out err)"

# ---- damaged: the file, and the record, are named
cp -r folders cut && head -c 900 folders/train/dark/0.png > cut/train/dark/0.png
# shellcheck disable=SC2086
fails 3 "cut/train/dark/0.png" train lenet --data cut $learn 2
cp -r records flipped && printf 'XXXX' | dd of=flipped/train-00001-of-00002 bs=1 seek=500 conv=notrunc 2> /dev/null
# shellcheck disable=SC2086
fails 3 "flipped/train-00001-of-00002" train lenet --data flipped $learn 1000
cp -r records short && head -c 3000 records/train-00000-of-00002 > short/train-00000-of-00002
# shellcheck disable=SC2086
fails 3 "short/train-00000-of-00002" train lenet --data short $learn 1000
jpeg=$(find "$TRIREME_DATA/imagenet-sample" -name '*.JPEG' 2> /dev/null | sort | head -1)
[ -z "$jpeg" ] || { cp --no-preserve=mode "$jpeg" one.jpeg && jpeg=one.jpeg; } # the data may be read-only
if [ -n "$jpeg" ]; then
    mkdir -p broken/train/one broken/train/two broken/val/one
    for i in 1 2 3 4 5 6 7 8; do cp "$jpeg" broken/train/one/$i.jpeg; cp "$jpeg" broken/train/two/$i.jpeg; done
    cp "$jpeg" broken/val/one/1.jpeg
    { head -c 2 "$jpeg"; head -c 4000 /dev/zero; } > broken/train/two/5.jpeg
    # shellcheck disable=SC2086
    fails 3 "broken/train/two/5.jpeg" train lenet --data broken $learn 2 --epochs 1
    # a PNG with another name; a scan with 200 changed bytes; a file without its end
    cp folders/train/dark/0.png broken/train/two/5.jpeg
    # shellcheck disable=SC2086
    "$trireme" train lenet --data broken $learn 2 --epochs 1 --quiet > out 2>&1 || fail "a PNG that is called JPEG: $(cat out)"
    cp "$jpeg" broken/train/two/5.jpeg
    head -c 200 /dev/zero | dd of=broken/train/two/5.jpeg bs=1 seek=$(($(stat -c %s "$jpeg") / 2)) conv=notrunc 2> /dev/null
    # shellcheck disable=SC2086
    fails 3 "broken/train/two/5.jpeg" train lenet --data broken $learn 2 --epochs 1
    grep -q "damaged JPEG data: .*; replace or remove the image" err || fail "a damaged scan: $(cat err)"
    : > broken/train/one/2.jpeg
    "$trireme" data info broken --read > out 2> err
    [ $? = 3 ] && [ "$(grep -c "^damaged: " out)" = 2 ] && grep -q "^damaged: .*broken/train/two/5.jpeg" out && grep -q "^test: 1 samples" out &&
        grep -q "damaged samples: 2" err || fail "data info --read: $(cat out err)"
    python3 - "$jpeg" << 'END' || fail "records of a cut image"
import os, sys
import tfrecord
image = open(sys.argv[1], "rb").read()
os.makedirs("cut_records")
with open("cut_records/train-00000-of-00001", "wb") as f:
    f.write(b"".join(tfrecord.record(tfrecord.image(image[:len(image) - 500] if i == 6 else image, 1 + i % 2)) for i in range(8)))
END
    # shellcheck disable=SC2086
    fails 3 "train-00000-of-00001: record 6" train lenet --data cut_records $learn 1000 --epochs 1
fi
exit $failed
