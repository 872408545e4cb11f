#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks docs/guides/from-guide-001.md: runs each of its blocks marked sh, and finds each line of its blocks marked c in an example
# that these blocks run.
. "$(dirname "$0")/common.sh"
examples=${TRIREME_BUILD:?}/examples
export PATH="$(dirname "$trireme"):$examples:$PATH"

python3 - "$source/docs/guides/from-guide-001.md" << 'END'
import re, sys
blocks = re.findall(r"^```(\w+)\n(.*?)^```$", open(sys.argv[1]).read(), re.M | re.S)
for i, text in enumerate(t for kind, t in blocks if kind == "sh"):
    open(f"{i:02}.sh", "w").write("set -e\n" + text)
open("lines.c", "w").write("".join(t for kind, t in blocks if kind == "c"))
END

while IFS= read -r line; do
    grep -qxF -- "$line" "$source"/examples/resnet50_imagenet.c "$source"/examples/own_loop.c || fail "in no example: $line"
done < lines.c
[ "$(wc -l < lines.c)" -ge 10 ] || fail "the document has only $(wc -l < lines.c) lines of C"

# 24 images of ImageNet, and the same as TFRecords, in the order and with the labels of their folders.
if [ -d "$TRIREME_DATA/imagenet-sample" ]; then
    mkdir -p data/imagenet-sample
    find "$TRIREME_DATA/imagenet-sample" -mindepth 1 -maxdepth 1 | sort | head -24 | xargs cp -r --no-preserve=mode -t data/imagenet-sample
    TRIREME_DATA=$work/data
fi
export TFRECORDS=$work/tfrecords
[ ! -d "$TRIREME_DATA/imagenet-sample" ] || python3 - "$TRIREME_DATA/imagenet-sample" "$TFRECORDS" << 'END'
import os, sys
import tfrecord
source, out = sys.argv[1:]
os.mkdir(out)
names = sorted((os.path.join(c, f) for c in os.listdir(source) if os.path.isdir(os.path.join(source, c))
                for f in os.listdir(os.path.join(source, c))), key=os.fsencode)
classes = sorted({os.path.dirname(name) for name in names}, key=os.fsencode)
for part in range(2):
    with open(f"{out}/train-{part:05}-of-00002", "wb") as file:
        for name in names[len(names) * part // 2:len(names) * (part + 1) // 2]:
            image = open(os.path.join(source, name), "rb").read()
            file.write(tfrecord.record(tfrecord.image(image, 1 + classes.index(os.path.dirname(name)), packed=False)))
END

ran=0
for block in [0-9]*.sh; do
    if grep -q "TRIREME_DATA\|TFRECORDS" "$block" && [ ! -d "$TRIREME_DATA/imagenet-sample" ]; then
        echo "skipped: no $TRIREME_DATA/imagenet-sample for: $(tail -1 "$block")"
        continue
    fi
    timeout 400 bash "$block" > "$block.out" 2> "$block.err" || { fail "block $block:"; cat "$block" "$block.out" "$block.err"; }
    ran=$((ran + 1))
done
[ $ran -ge 5 ] || fail "only $ran blocks of commands"
grep -h "step 2 of 2: loss" 00.sh.out 01.sh.out 02.sh.out > losses.txt
[ "$(wc -l < losses.txt)" = 3 ] || fail "the job's lines: $(cat losses.txt)"
[ "$(grep -c "step 2 of 2" 01.sh.out)" = 1 ] || fail "rank 1 speaks too"
# ---- the same images from folders and from TFRecords: the same losses
folders=$(grep -l imagenet-sample [0-9]*.sh) records=$(grep -l TFRECORDS [0-9]*.sh)
if [ -d "$TFRECORDS" ]; then
    cat "$folders.out" "$records.out" | sed -n 's/step 2 of 2: loss \([0-9.]*\),.*/\1/p' |
        awk 'NR == 1 { a = $1 } NR == 2 { ok = a > 1 && ($1 - a) ^ 2 < 1e-8 } END { exit !ok }' ||
        fail "folders and TFRecords differ: $(cat "$folders.out" "$records.out")"
    # 24 images: an epoch is 2 steps of 12; the rate is that of 0.05 for 256 images, without warm-up
    [ "$(grep -c "step 2 of 2: loss [0-9.]*," "$records.out")" = 2 ] && grep -q "step 2 of 2: .*learning rate 0.002344," "$records.out" ||
        fail "TFRecords on 2 ranks: $(cat "$records.out")"
    printf x | dd of="$TFRECORDS/train-00001-of-00002" bs=1 seek=2 conv=notrunc status=none
    resnet50_imagenet --data_dir "$TFRECORDS" --batch_size 8 --train_steps 1 --image_size 32 > out.txt 2>&1
    [ $? = 3 ] && grep -q "train-00001-of-00002: record 0 at offset 0" out.txt || fail "a damaged record: $(cat out.txt)"
fi

# ---- own_loop: three lines and a header make a program of plain C run on many ranks
last=$(ls [0-9]*.sh | tail -2 | head -1)
[ "$(sed -n 's/.*weights//p' "$last.out" | sort -u | wc -l)" = 1 ] && [ "$(grep -c weights "$last.out")" = 2 ] ||
    fail "own_loop has other weights on two ranks: $(cat "$last.out")"
own=$source/examples/own_loop.c
[ "$(grep -c '/\* + \*/$' "$own") $(grep -c 'trm_\|TRM_\|trireme/' "$own") $(grep -c '^#include.*/\* + \*/$' "$own")" = "4 4 1" ] ||
    fail "own_loop.c has other lines of ours than three and a header"
grep -v '/\* + \*/$' "$own" > plain.c
${CC:-cc} -O2 plain.c -o plain -lm && [ "$(./plain | sed 's/.*weights//')" = "$(own_loop | sed 's/.*weights//')" ] ||
    fail "own_loop without its lines: $(./plain)"

# ---- no rank waits for a rank that ended on its own
test=$TRIREME_BUILD/tests/distribute_test
for status in 0 3; do
    timeout 60 trireme run -n 3 -- "$test" $status > out.txt 2>&1
    [ $? = 2 ] && grep -q "rank 1 .*\(died\|left\)" out.txt || fail "rank 1 ends with $status: $(cat out.txt)"
done

resnet50_imagenet --help | grep -q -- "--guide_l2" || fail "resnet50_imagenet --help does not tell its flags"
resnet50_imagenet --batch_size 8 > out.txt 2>&1
[ $? = 2 ] && grep -q "data_dir" out.txt || fail "no data: $(cat out.txt)"
resnet50_imagenet --use_synthetic_data --batch_size eight > out.txt 2>&1
[ $? = 2 ] && grep -q -- "--batch_size: not a flag with a value it can have" out.txt || fail "a word as a number: $(cat out.txt)"
resnet50_imagenet --use_synthetic_data --dtype fp16 > out.txt 2>&1
[ $? = 2 ] && grep -q "fp32 or bf16" out.txt || fail "a type that there is not: $(cat out.txt)"
trireme run -n 3 -- resnet50_imagenet --use_synthetic_data --batch_size 8 > out.txt 2>&1
[ $? = 2 ] && grep -q "does not divide among 3 ranks" out.txt || fail "8 images on 3 ranks: $(cat out.txt)"
exit $failed
