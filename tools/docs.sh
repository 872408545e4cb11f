#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The generated reference: commands.md from the program's help, and the HTML of the public headers by Doxygen, without
# warnings. OUTPUT is a folder beside the program. Usage: docs.sh ROOT OUTPUT
# Exit 77: no doxygen.
set -u
mkdir -p "$2"
[ ! -x "$2/../trireme" ] || { python3 "$1/tools/commands.py" "$2/../trireme" "$2/commands.md" && echo "$2/commands.md"; } || exit 1
command -v doxygen > /dev/null || { echo "skipped: no doxygen (apt-get install doxygen)"; exit 77; }
cd "$1" || exit 2
version=$(sed -n 's/^project(trireme VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
{ cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = $2"; echo "PROJECT_NUMBER = $version"; } | doxygen - > "$2/doxygen.log" 2> "$2/warnings.log" || { cat "$2/warnings.log"; exit 1; }
if [ -s "$2/warnings.log" ]; then
    cat "$2/warnings.log"; exit 1
fi
echo "$2/html/index.html"
