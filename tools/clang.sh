#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds everything with clang, warnings being errors, and runs the tests of the rooms that compute: the two compilers treat
# mistakes differently. Skips (0, with a line) where clang or its OpenMP is missing.
# Usage: clang.sh [ROOM...]      rooms as `ctest --print-labels` prints them
set -eu
cd "$(dirname "$0")/.."
rooms=("$@")
[ ${#rooms[@]} -gt 0 ] || rooms=(base graph data ref onednn exec plan save)
if ! printf '#include <omp.h>\nint main(void) { return omp_get_num_threads() - 1; }\n' |
    clang -fopenmp -x c - -o /dev/null 2> /dev/null; then
    echo "clang is not tried: clang and libomp-dev are not both here"
    exit 0
fi
mkdir -p build
cmake -S . -B build/clang -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang -DTRIREME_WERROR=ON > build/clang.log
cmake --build build/clang -j"$(nproc)" -- --no-print-directory -s >> build/clang.log 2>&1 || { tail -40 build/clang.log; exit 1; }
ctest --test-dir build/clang -L "^($(IFS='|'; echo "${rooms[*]}"))\$" --output-on-failure -j"$(nproc)"
