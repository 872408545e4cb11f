#!/usr/bin/env bash
# A checkpoint written here loads in PyTorch with strict=True and gives the same logits to 1e-4; weights
# that PyTorch wrote give the same logits here. Needs torch and torchvision (PYTHON=... of a venv).
set -eu
python=${PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torch, torchvision' 2> /dev/null; then
    echo "skipped: $python has no torch and torchvision"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME=$folder/cache
"$TRIREME" data synth --output "$folder/data" --synth-train 320 --synth-test 32 --quiet > /dev/null
evaluate() { # MODEL WEIGHTS PREDICTIONS
    "$TRIREME" eval "$1" --checkpoint "$2" --data "$folder/data" --batch-size 16 --predictions "$3" --quiet
}
check() { "$python" "$TRIREME_SOURCE/tests/parity/checkpoint.py" "$@"; }
check make "$folder" resnet18 resnet50
"$TRIREME" train resnet50 --data "$folder/data" --batch-size 32 --steps 4 --eval-every-epochs 0 \
    --output "$folder/run" --quiet > /dev/null
evaluate resnet50 "$folder/run" "$folder/ours.npz"
set -- resnet50 "$folder/run/ckpt-4/model.safetensors" "$folder/ours.npz"
for model in resnet18 resnet50; do
    evaluate $model "$folder/$model.theirs.safetensors" "$folder/$model.npz"
    set -- "$@" $model "$folder/$model.theirs.safetensors" "$folder/$model.npz"
done
check compare "$folder/data/test_batch.bin" "$@"
