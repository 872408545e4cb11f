#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A small GPT-2, Llama (tied and untied), BERT and ViT through Trireme and transformers from the same weights and batches: 20 losses, every gradient.
# Needs torch and transformers: PYTHON, or the one that tools make under ~/.cache/trireme-peers/oracle.
peers=${XDG_CACHE_HOME:-$HOME/.cache}/trireme-peers
. "$(dirname "$0")/common.sh"
set -e
python=${PYTHON:-$peers/oracle/bin/python}
"$python" -c 'import torch, transformers' 2> /dev/null || skip "$python has no torch and transformers"
for model in gpt2 llama llama-untied bert vit; do
    mkdir "$work/$model" "$work/$model-mixed"
    "$TRIREME_BUILD/tests/transformer_dump" $model 20 fp32 "$work/$model"
    "$python" "$source/tests/parity/transformer.py" 1e-4 1e-5 "$work/$model"
    "$TRIREME_BUILD/tests/transformer_dump" $model 20 mixed "$work/$model-mixed"
    "$python" "$source/tests/parity/transformer.py" 1e-2 1e-1 "$work/$model-mixed"
done
# adapters beside peft's
for model in gpt2-lora llama-lora bert-lora vit-lora; do
    "$python" -c 'import peft' 2> /dev/null || continue
    mkdir "$work/$model"
    "$TRIREME_BUILD/tests/transformer_dump" $model 20 fp32 "$work/$model"
    "$python" "$source/tests/parity/transformer.py" 1e-5 1e-5 "$work/$model"
done
