#!/usr/bin/env bash
# Puts onnx and ONNX Runtime from PyPI into the cache, where tests/onnx_export_test.sh finds them: Debian 12 has no
# runtime for ONNX files. Says so where PyPI cannot be reached, and ends with 0.
# Usage: onnx_runtime.sh [FOLDER]
set -eu
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/trireme-peers/onnx}
have() { "$folder/bin/python" -c 'import onnx, onnxruntime' 2> /dev/null; }
have && exit 0
mkdir -p "$(dirname "$folder")"
log=$folder.log
if python3 -m venv --clear "$folder" > "$log" 2>&1 && timeout 280 "$folder/bin/pip" install -q onnx onnxruntime >> "$log" 2>&1 && have; then
    "$folder/bin/python" -c 'import onnx, onnxruntime; print("onnx", onnx.__version__, "and ONNX Runtime", onnxruntime.__version__, "are in the cache")'
else
    echo "exported ONNX files will not be run: $(tail -1 "$log")"
fi
