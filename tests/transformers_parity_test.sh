#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A small GPT-2 through Trireme and transformers from the same weights and batches: 20 losses, every gradient.
# Needs torch and transformers: PYTHON, or the one that tools make under ~/.cache/trireme-peers/oracle.
peers=${XDG_CACHE_HOME:-$HOME/.cache}/trireme-peers
. "$(dirname "$0")/common.sh"
set -e
python=${PYTHON:-$peers/oracle/bin/python}
"$python" -c 'import torch, transformers' 2> /dev/null || skip "$python has no torch and transformers"
mkdir "$work/fp32" "$work/mixed"
"$TRIREME_BUILD/tests/gpt2_dump" 20 fp32 "$work/fp32"
"$python" "$source/tests/parity/gpt2.py" 1e-4 1e-4 "$work/fp32"
"$TRIREME_BUILD/tests/gpt2_dump" 20 mixed "$work/mixed"
"$python" "$source/tests/parity/gpt2.py" 1e-2 1e-1 "$work/mixed"
