#!/usr/bin/env bash
# Puts onnx, ONNX Runtime and TensorBoard from PyPI into the cache: readers of our files that we did not write and Debian 12
# does not have. tests/onnx_export_test.sh and tests/tensorboard_test.sh find them there. Says so where PyPI cannot be
# reached, and ends with 0.
# Usage: readers.sh [FOLDER]
set -eu
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/trireme-peers/readers}
have() { "$folder/bin/python" -c 'import onnx, onnxruntime, tensorboard' 2> /dev/null; }
have && exit 0
mkdir -p "$(dirname "$folder")"
log=$folder.log
if python3 -m venv --clear "$folder" > "$log" 2>&1 &&
    timeout 280 "$folder/bin/pip" install -q onnx onnxruntime tensorboard 'setuptools<80' >> "$log" 2>&1 && have; then
    "$folder/bin/python" -c 'import onnx, onnxruntime as o, tensorboard as t
print("in the cache: onnx %s, ONNX Runtime %s, TensorBoard %s" % (onnx.__version__, o.__version__, t.__version__))'
else
    echo "exported ONNX and event files will not be read by others: $(tail -1 "$log")"
fi
