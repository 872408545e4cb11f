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
for run in "resnet18 64" "resnet50 48"; do
    # shellcheck disable=SC2086
    set -- $run
    mkdir "$folder/$1"
    "$TRIREME_BUILD/tests/parity_dump" "$1" "$2" 32 10 20 fp32 "$folder/$1"
done
"$python" "$TRIREME_SOURCE/tests/parity/parity.py" 1e-3 1e-2 "$folder/resnet18" "$folder/resnet50"
