#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every C source but the examples (the README and the guides show them line by line) is as clang-format 14 (Debian 12's)
# writes it by the tree's .clang-format. C sources, scripts and build files carry the SPDX line.
# Other versions break lines elsewhere: the check is skipped (77). Usage: format.sh ROOT
set -u
cd "$1" || exit 2
bad=0
mapfile -t sources < <(git ls-files '*.c' '*.h' '*.def' 2> /dev/null)
[ ${#sources[@]} -gt 0 ] || { echo "skipped: $1 is not a git checkout"; exit 77; }
mapfile -t scripts < <(git ls-files '*.sh' '*.py' '*.js' '*.cmake' '*.yml' .ci/run docs/Doxyfile Makefile CMakeLists.txt)
for file in "${sources[@]}" "${scripts[@]}"; do
    [ -f "$file" ] || continue
    head -3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || { echo "$file: no SPDX line"; bad=1; }
done
format=$(command -v clang-format-14 || command -v clang-format) || format=
if [ -z "$format" ] || ! "$format" --version | grep -q 'version 14\.'; then
    [ $bad -eq 0 ] || exit 1
    echo "skipped: clang-format 14 is not here (apt-get install clang-format on Debian 12)"
    exit 77
fi
changed=$(printf '%s\n' "${sources[@]}" | grep -v '\.def$' |
    xargs "$format" --dry-run 2>&1 | sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: .*code should be clang-formatted.*/\1/p' | sort -u)
if [ -n "$changed" ]; then
    echo "make format would change:"
    printf '%s\n' "$changed"
    bad=1
fi
exit $bad
