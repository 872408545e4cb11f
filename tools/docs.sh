#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The HTML reference of the public headers, by Doxygen, without warnings. Usage: docs.sh ROOT OUTPUT
# Exit 77: no doxygen.
set -u
command -v doxygen > /dev/null || { echo "skipped: no doxygen (apt-get install doxygen)"; exit 77; }
mkdir -p "$2"
cd "$1" || exit 2
version=$(sed -n 's/^project(trireme VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
{ cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = $2"; echo "PROJECT_NUMBER = $version"; } | doxygen - > "$2/doxygen.log" 2> "$2/warnings.log" || { cat "$2/warnings.log"; exit 1; }
if [ -s "$2/warnings.log" ]; then
    cat "$2/warnings.log"; exit 1
fi
echo "$2/html/index.html"
