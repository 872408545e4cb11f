#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that Trireme builds and computes with oneDNN's C API v3: takes onednn-cpu-gomp 3.2 from PyPI, builds with it, runs the tests
# of the back-end. Skips (0, with a line) where PyPI cannot be reached.
# Usage: onednn3.sh [FOLDER]
set -eu
cd "$(dirname "$0")/.."
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/trireme/onednn3}
if [ ! -d "$folder/prefix" ]; then
    mkdir -p "$folder"
    if ! python3 -m pip download -q --no-deps --no-binary :none: -d "$folder" 'onednn-cpu-gomp==2023.2.0' \
        'onednn-devel-cpu-gomp==2023.2.0' 2> "$folder/pip.log"; then
        echo "oneDNN v3 is not tried: PyPI cannot be reached ($folder/pip.log)"
        exit 0
    fi
    for wheel in "$folder"/*.whl; do
        python3 -m zipfile -e "$wheel" "$folder/unpacked"
    done
    mkdir -p "$folder/prefix"
    cp -r "$folder"/unpacked/*.data/data/{include,lib} "$folder/prefix/"
    library=$(ls "$folder"/prefix/lib/libdnnl.so.3* "$folder"/prefix/lib/*/libdnnl.so.3* 2> /dev/null | head -1)
    ln -sf "$(basename "$library")" "$(dirname "$library")/libdnnl.so"
fi
mkdir -p build
cmake -S . -B build/onednn3 -DCMAKE_BUILD_TYPE=Release -DDNNL_DIR="$folder/prefix" > build/onednn3.log
cmake --build build/onednn3 -j"$(nproc)" -- --no-print-directory -s >> build/onednn3.log
build/onednn3/trireme doctor | grep oneDNN
ctest --test-dir build/onednn3 -L 'onednn|exec|train' --output-on-failure -j"$(nproc)"
