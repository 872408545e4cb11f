#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages (cmake/TriremePackages.cmake) in build/deb, checks them with lintian where it is installed, unpacks them
# into an empty root and tries program, library and plug-ins from there. Prints the packages' files. The folder of the build is
# kept, so that a second run is short.
# Usage: deb.sh [OUTPUT]     OUTPUT: where the packages go (dist)
set -eu
cd "$(dirname "$0")/.."
output=${1:-dist}
mkdir -p build "$output"
cmake -S . -B build/deb -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DTRIREME_TESTS=OFF -DTRIREME_DEB=ON > build/deb.log 2>&1 &&
    cmake --build build/deb -j"$(nproc)" --target product -- --no-print-directory -s >> build/deb.log 2>&1 &&
    rm -f build/deb/packages/*.deb && (cd build/deb && cpack -G DEB >> ../deb.log 2>&1) || { tail -40 build/deb.log; exit 1; }
if command -v lintian > /dev/null; then
    lintian --no-cfg --allow-root --fail-on error --tag-display-limit 0 build/deb/packages/*.deb > build/deb/lintian.log 2>&1 ||
        { grep '^E:' build/deb/lintian.log; exit 1; }
else
    echo "lintian is not installed: the packages are not checked (apt-get install lintian)" >&2
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
for package in build/deb/packages/*.deb; do
    dpkg-deb -x "$package" "$root"
done
version=$(sed -n 's/^project(trireme VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
"$root/usr/bin/trireme" --version | grep -qF "$version" || { echo "trireme --version does not print $version"; exit 1; }
lib=$(dirname "$(find "$root" -name 'libtrireme.so.0')")
cc -std=c11 -Wall -Wextra -Werror examples/own_loop.c -o "$root/own_loop" $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs trireme) -lm
for command in "$root/own_loop" "$root/usr/bin/trireme run -n 2 -- $root/own_loop"; do
    (cd "$root" && LD_LIBRARY_PATH=$lib timeout 120 $command > log 2>&1) || { echo "$command from the packages fails:"; cat "$root/log"; exit 1; }
done
[ -z "$(find "$lib/trireme" -name '*_ucx.so')" ] || "$root/usr/bin/trireme" bench comm -n 2 --engine ucx --sizes 1K --launch-dir "$root" > "$root/log" 2>&1 ||
    { echo "the plug-in for UCX of the packages fails:"; cat "$root/log"; exit 1; }
mv build/deb/packages/*.deb "$output/"
ls "$output"/*.deb
