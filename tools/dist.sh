#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the source archive dist/trireme-VERSION.tar.gz of the commit that is checked out: it builds without git.
# Usage: dist.sh [OUTPUT]    OUTPUT: where the archive goes (dist)
set -eu
cd "$(dirname "$0")/.."
output=${1:-dist}
mkdir -p "$output"
version=$(sed -n 's/^project(trireme VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "files differ from the commit; the archive holds the commit's" >&2
git archive --format=tar --prefix="trireme-$version/" HEAD | gzip -9n > "$output/trireme-$version.tar.gz"
echo "$output/trireme-$version.tar.gz"
