#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains ViT from the command line on CIFAR-10's files, on class folders and on generated images: losses, resuming, evaluation, ranks,
# servers, planning, export, wrong use.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1

# Pictures of three colours: in CIFAR-10's binary files (data synth makes shorter ones), and folders of PNG files.
"$trireme" data synth --synth-train 200 --synth-test 32 --output cifar > /dev/null || fail "data synth"
python3 - << 'END'
import os, random, struct, zlib
pick = random.Random(1)

def pixels(label, side):
    return [[[max(0, min(255, (200 if c == label else 60) + pick.randint(-50, 50))) for c in range(3)] for _ in range(side)] for _ in range(side)]

for name, count in [(f"data_batch_{i}.bin", 40) for i in range(1, 6)] + [("test_batch.bin", 32)]:
    with open(f"cifar/{name}", "wb") as f:
        for i in range(count):
            p = pixels(i % 3, 32)
            f.write(bytes([i % 3]) + bytes(p[y][x][c] for c in range(3) for y in range(32) for x in range(32)))
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for part, count in (("train", 24), ("val", 12)):
    for i in range(count):
        os.makedirs(f"folders/{part}/{'rgb'[i % 3]}", exist_ok=True)
        rows = b"".join(b"\0" + bytes(v for p in row for v in p) for row in pixels(i % 3, 40))
        open(f"folders/{part}/{'rgb'[i % 3]}/{i}.png", "wb").write(
            b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 40, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
END
network="--layers 2 --width 32 --heads 2 --patch 8"
learn="--batch-size 8 --learning-rate 2e-3 --warmup-steps 5 --seed 3"

# ---- training, evaluation; a stopped run continues bit for bit
# shellcheck disable=SC2086
"$trireme" train vit --data cifar $network $learn --dropout 0.1 --epochs 3 --log-every 10 --tensorboard --output a --json > a.json || fail "train"
"$trireme" eval vit --checkpoint a --data cifar --json > eval.json || fail "eval"
python3 - << 'END' || fail "events: $(cat eval.json)"
import json
events = [json.loads(line) for line in open("a.json")]
by = lambda kind: [e for e in events if e["event"] == kind]
assert by("start")[0]["image_size"] == 32 and by("start")[0]["classes"] == 10, by("start")
assert by("step")[0]["loss"] > 1.9 and by("step")[-1]["loss"] < 0.5, by("step")
again, last = json.loads(open("eval.json").readline()), by("eval")[-1]
assert again["top1"] > 0.9 and again["samples"] == 32 and again["loss"] == last["loss"], (again, last)
END
"$trireme" inspect "$(ls a/events.out.tfevents.*)" > out && grep -q "train/loss" out || fail "events for TensorBoard: $(cat out)"
# shellcheck disable=SC2086
"$trireme" train vit --data cifar $network $learn --dropout 0.1 --epochs 3 --steps 29 --output b --quiet > out 2>&1 &&
    "$trireme" train vit --data cifar $network $learn --dropout 0.1 --epochs 3 --output b --resume --quiet > out 2>&1 || fail "resume: $(cat out)"
for part in model optimizer; do
    cmp "a/ckpt-75/$part.safetensors" "b/ckpt-75/$part.safetensors" || fail "$part of the resumed run"
done
# shellcheck disable=SC2086
"$trireme" train vit --data folders --image-size 32 $network $learn --precision mixed --epochs 12 --output f --json > f.json &&
    "$trireme" eval vit --checkpoint f --data folders --json > out && grep -q '"samples":12' out || fail "folders: $(cat out)"
python3 -c '
import json
losses = [e["loss"] for e in map(json.loads, open("f.json")) if e["event"] == "step"]
assert losses[-1] < 0.7 < losses[0], losses' || fail "losses of folders in mixed precision"

# ---- ranks and servers: strict has the same bits on both, a split is verified, synchronous servers have one process's losses
for n in 1 2; do
    # shellcheck disable=SC2086
    "$trireme" train vit --data cifar $network --batch-size $((16 / n)) -n $n --deterministic strict --steps 6 --eval-every-epochs 0 --output s$n \
        --launch-dir logs --quiet > out 2>&1 || fail "strict on $n ranks: $(cat out)"
done
cmp s1/ckpt-6/model.safetensors s2/ckpt-6/model.safetensors || fail "strict: two ranks differ from one"
# shellcheck disable=SC2086
"$trireme" verify vit --data cifar $network --batch-size 4 -n 2 --steps 2 --launch-dir logs > out 2>&1 && grep -q "agrees with one device" out ||
    fail "verify: $(tail -3 out)"
# shellcheck disable=SC2086
"$trireme" train vit --data cifar $network $learn -n 2 --ps 1 --mode sync --steps 12 --output ps --launch-dir logs > out 2>&1 || fail "servers: $(tail -3 out)"
# shellcheck disable=SC2086
"$trireme" train vit --data cifar $network ${learn/8/16} --steps 12 --output alone --quiet > out 2>&1 || fail "alone: $(cat out)"
for run in ps alone; do
    "$trireme" eval vit --checkpoint $run --data cifar --json | sed 's/.*"loss":\([0-9.]*\).*/\1/'
done > out
awk '{ d = NR == 1 ? $1 : d - $1 } END { exit !(NR == 2 && d < 1e-3 && d > -1e-3) }' out || fail "servers beside one process: $(cat out)"

# ---- planning, measuring, export
"$trireme" plan vit --size base --image-size 224 --classes 1000 --json > out && grep -q '"parameters":86567656,' out || fail "base: $(cat out)"
# shellcheck disable=SC2086
"$trireme" plan vit $network --batch-size 4 -n 2 --no-measure > out 2>&1 && grep -q "data parallel" out || fail "plan -n 2: $(tail -3 out)"
# shellcheck disable=SC2086
"$trireme" simulate vit $network --batch-size 4 --mesh 2x4 --links guess --no-measure > out 2>&1 && grep -q "one rank 2 times as slow" out ||
    fail "simulate: $(tail -3 out)"
# shellcheck disable=SC2086
"$trireme" bench train vit $network --batch-size 4 --repeats 3 --json > out && grep -q '"images_per_second":' out || fail "bench train: $(cat out)"
# shellcheck disable=SC2086
"$trireme" bench ops vit $network --batch-size 4 --repeats 3 --json > out && grep -q '"attention"' out || fail "bench ops: $(tail -3 out)"
"$trireme" export vit --checkpoint a --to safetensors --output a.safetensors > out 2>&1 && "$trireme" inspect a.safetensors > out &&
    grep -q "vit.encoder.layer.1.attention.attention.query.weight" out || fail "export: $(cat out)"
"$trireme" export vit --checkpoint a --to onnx --output a.onnx > out 2>&1 && "$trireme" inspect a.onnx > out && grep -q "logits" out ||
    fail "ONNX: $(cat out)"

# ---- wrong use
expect 2 "images of 32x32 with patches of 5x5: the patch must divide" train vit --data cifar --patch 5
expect 2 "no vit of size 'huge'; there are tiny, small, base, large" train vit --data cifar --size huge
expect 2 "a width of 30 with 4 heads" train vit --data cifar --width 30 --heads 4
expect 2 "generate is for language models, not for vit" generate vit --checkpoint a
# shellcheck disable=SC2086
expect 0 "--kv-heads has no effect here: it is for language models" train vit --data cifar $network --kv-heads 1 --steps 1 --eval-every-epochs 0
expect 0 "--patch has no effect here: it is for vit" train lenet --data cifar --patch 8 --steps 1 --eval-every-epochs 0
expect 0 "--size has no effect here: it is for language models and vit" train lenet --data cifar --size tiny --steps 1 --eval-every-epochs 0
exit $failed
