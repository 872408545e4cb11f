#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains ResNet-18 and ResNet-50 in Trireme and in PyTorch from the same weights and batches for 20 steps.
# Needs torch and torchvision (Debian: python3-torch python3-torchvision; or PYTHON=... of a venv).
. "$(dirname "$0")/common.sh"
set -e
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import torch, torchvision' 2> /dev/null || skip "$python has no torch and torchvision"
for run in "resnet18 64" "resnet50 48"; do
    # shellcheck disable=SC2086
    set -- $run
    mkdir "$work/$1"
    "$TRIREME_BUILD/tests/parity_dump" "$1" "$2" 32 10 20 fp32 "$work/$1"
done
"$python" "$source/tests/parity/parity.py" 1e-3 1e-2 "$work/resnet18" "$work/resnet50"
