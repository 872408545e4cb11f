#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing packages of Debian (or Ubuntu), or prints the one line to run.
# Usage: deps.sh build|test|tsan; deps.sh missing prints the line for packages that only more tests need
set -eu
build="gcc make cmake pkg-config libdnnl-dev libjansson-dev libturbojpeg0-dev libpng-dev zlib1g-dev libssl-dev libxxhash-dev libucx-dev"
test="$build g++ libcmocka-dev python3 python3-numpy python3-pytest iproute2"
optional="libhwloc-dev python3-clang python3-venv python3-pip python3-torch python3-torchvision python3-onnx openmpi-bin libopenmpi-dev mpich libmpich-dev slurm-wlm clang libomp-dev clang-format graphviz doxygen lintian chromium"
case ${1:-build} in
build) wanted=$build ;;
test) wanted=$test ;;
missing) wanted=$optional ;;
tsan) wanted="$test clang libclang-rt-dev libomp-dev" ;;
*) echo "deps.sh build|test|tsan|missing" >&2; exit 2 ;;
esac

if ! command -v dpkg-query > /dev/null; then
    exit 0 # another distribution: CMake says what it misses
fi
missing=""
for package in $wanted; do
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing="$missing $package"
done
if [ "${1:-build}" = missing ]; then
    [ -z "$missing" ] || echo "apt-get update && apt-get install -y --no-install-recommends$missing && tools/readers.sh"
    exit 0
fi
# Packages that only more tests need are tried once, and their absence is no error.
extra=""
if [ "${1:-build}" = test ] && [ "${TRIREME_ALL_TESTS:-0}" = 1 ]; then
    for package in $optional; do
        dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || extra="$extra $package"
    done
fi
[ -z "$missing$extra" ] && exit 0
if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo > /dev/null && sudo -n true 2> /dev/null; then
    as_root="sudo"
elif command -v sudo > /dev/null && [ -t 0 ]; then
    as_root="sudo"
elif [ -z "$missing" ]; then
    echo "not installed:$extra (some tests will be skipped)" >&2
    exit 0
else
    echo "Missing packages. Run this line as root, then try again:" >&2
    echo "    apt-get update && apt-get install -y --no-install-recommends$missing" >&2
    exit 2
fi
echo "installing:$missing$extra" >&2
$as_root apt-get update -qq
export DEBIAN_FRONTEND=noninteractive
if [ -n "$missing" ]; then
    $as_root apt-get install -y -qq --no-install-recommends $missing > /dev/null
fi
for package in $extra; do
    $as_root apt-get install -y -qq --no-install-recommends "$package" > /dev/null 2>&1 ||
        echo "not available here: $package (some tests will be skipped)" >&2
done
