#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job: ResNet-50 at 32x32, one epoch and an evaluation. Data: $DATA, else CIFAR-10 in the cache
# (fetched if there is a network), else the generated set. Usage: DATA=DIR train.sh TRIREME
set -eu
trireme=$1
data=${DATA:-}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trireme
if [ -z "$data" ]; then
    data=$cache/cifar-10-batches-bin
    if [ ! -f "$data/test_batch.bin" ] && ! "$trireme" data fetch cifar10 --quiet; then
        echo "CIFAR-10 is not here and could not be fetched: training on the generated set" >&2
        data=synth
    fi
fi
echo "data: $data" >&2
exec "$trireme" train resnet50 --data "$data" --image-size 32 --batch-size 128 --epochs 1 \
    --optimizer momentum --learning-rate 0.01 --momentum 0.9 --weight-decay 5e-4 \
    --schedule cosine --warmup-steps 100 --eval-every-epochs 1 --log-every 20 \
    --output "${OUTPUT:-runs/resnet50}"
