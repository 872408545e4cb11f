#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A checkpoint of Trireme loads in PyTorch with strict=True and gives the same logits to 1e-4; weights that PyTorch wrote give the same
# logits in Trireme. Needs torch and torchvision (PYTHON=... of a venv).
. "$(dirname "$0")/common.sh"
set -e
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import torch, torchvision' 2> /dev/null || skip "$python has no torch and torchvision"
"$trireme" data synth --output "$work/data" --synth-train 320 --synth-test 32 --quiet > /dev/null
evaluate() { # MODEL WEIGHTS PREDICTIONS
    "$trireme" eval "$1" --checkpoint "$2" --data "$work/data" --batch-size 16 --predictions "$3" --quiet
}
check() { "$python" "$source/tests/parity/checkpoint.py" "$@"; }
check make "$work" resnet18 resnet50
"$trireme" train resnet50 --data "$work/data" --batch-size 32 --steps 4 --eval-every-epochs 0 \
    --output "$work/run" --quiet > /dev/null
evaluate resnet50 "$work/run" "$work/ours.npz"
set -- resnet50 "$work/run/ckpt-4/model.safetensors" "$work/ours.npz"
for model in resnet18 resnet50; do
    evaluate $model "$work/$model.theirs.safetensors" "$work/$model.npz"
    set -- "$@" $model "$work/$model.theirs.safetensors" "$work/$model.npz"
done
check compare "$work/data/test_batch.bin" "$@"
