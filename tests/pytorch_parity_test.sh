#!/usr/bin/env bash
# ResNet-18 and ResNet-50 through Trireme and PyTorch from the same weights and batches: 20 steps.
# Needs torch and torchvision (Debian: python3-torch python3-torchvision; or PYTHON=... of a venv).
set -eu
python=${PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torch, torchvision' 2> /dev/null; then
    echo "skipped: $python has no torch and torchvision"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for model in resnet18 resnet50; do
    "$TRIREME_BUILD/tests/parity_dump" $model 64 32 10 20 fp32 "$folder"
    "$python" "$TRIREME_SOURCE/tests/parity/parity.py" $model "$folder" 1e-3 1e-2
done
