#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains the recommendation models in Trireme and in PyTorch from the same weights and batches: 20 steps, losses agree to 1e-5.
# Needs torch (Debian: python3-torch; or PYTHON=... of a venv).
. "$(dirname "$0")/common.sh"
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import torch' 2> /dev/null || skip "$python has no torch"
export OMP_NUM_THREADS=1
runs="widedeep,adagrad widedeep,adagrad,bags deepfm,adam deepfm,sgd,bags dcnv2,sgd dcnv2,adagrad,stacked
    dcnv2,adagrad,rank dlrm,adagrad dlrm,sgd,bags"
for run in $runs; do
    mkdir -p "$work/$run"
    IFS=, read -r model optimizer variant <<< "$run"
    "$TRIREME_BUILD/tests/click_dump" "$model" "$optimizer" 20 "$work/$run" ${variant:+"$variant"} || exit 1
done
# shellcheck disable=SC2086
"$python" "$source/tests/parity/click.py" "$work" 1e-5 1e-4 $runs
