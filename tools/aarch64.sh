#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves that Trireme builds and computes on 64-bit ARM: cross-compiled with Debian's gcc-aarch64-linux-gnu against
# libraries fetched for arm64 into a folder of its own (the machine's packages stay as they are), without oneDNN; then
# tests and a short training under qemu. Usage: aarch64.sh [FOLDER]
set -eu
cd "$(dirname "$0")/.."
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/trireme/aarch64}
command -v aarch64-linux-gnu-gcc > /dev/null || { echo "missing: apt-get install gcc-aarch64-linux-gnu" >&2; exit 2; }
packages="libc6 libgcc-s1 libgomp1 zlib1g zlib1g-dev libjansson-dev libjansson4 libturbojpeg0-dev libturbojpeg0
    libpng-dev libpng16-16 libssl-dev libssl3 libxxhash-dev libxxhash0 libcmocka-dev libcmocka0"
root=$folder/root
if [ ! -f "$folder/complete" ]; then
    mkdir -p "$folder/state/lists/partial" "$folder/cache/archives/partial" "$folder/debs" "$root"
    touch "$folder/status"
    printf '%s\n' 'APT::Architecture "arm64";' 'APT::Architectures { "arm64"; };' "Dir::State \"$folder/state\";" \
        "Dir::State::status \"$folder/status\";" "Dir::Cache \"$folder/cache\";" > "$folder/apt.conf"
    # shellcheck disable=SC2086
    (export APT_CONFIG=$folder/apt.conf && apt-get update -qq && cd "$folder/debs" && apt-get download -qq $packages) 2> "$folder/apt.log" ||
        { cat "$folder/apt.log" >&2; exit 1; }
    command -v qemu-aarch64-static > /dev/null || (cd "$folder/debs" && apt-get download -qq qemu-user-static 2> "$folder/apt.log")
    for file in "$folder"/debs/*.deb; do
        case $file in
        */qemu*) dpkg-deb -x "$file" "$folder/host" ;;
        *) dpkg-deb -x "$file" "$root" ;;
        esac
    done
    touch "$folder/complete"
fi
qemu=$(command -v qemu-aarch64-static || echo "$folder/host/usr/bin/qemu-aarch64-static")
export PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root QEMU_LD_PREFIX=$root
cmake -S . -B build/aarch64 -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CROSSCOMPILING_EMULATOR="$qemu" -DTRIREME_WITH_ONEDNN=OFF -DCMAKE_SKIP_BUILD_RPATH=ON \
    -DCMAKE_C_FLAGS="-isystem $root/usr/include/aarch64-linux-gnu" \
    -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath-link,$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu" \
    -DCMAKE_SHARED_LINKER_FLAGS="-Wl,-rpath-link,$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu" > build/aarch64.log
tests="base_test graph_rows_test ref_gradient_test ref_golden_test exec_test update_test data_transform_test safetensors_test"
# shellcheck disable=SC2086
cmake --build build/aarch64 -j"$(nproc)" --target trireme trireme_shared $tests -- --no-print-directory -s >> build/aarch64.log 2>&1 ||
    { tail -30 build/aarch64.log >&2; exit 1; }
ctest --test-dir build/aarch64 --output-on-failure -R "/($(echo $tests | tr ' ' '|'))\$"
XDG_CACHE_HOME=$folder OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive "$qemu" build/aarch64/trireme train lenet --data synth --synth-train 64 --synth-test 20 --batch-size 16 \
    --epochs 2 --log-every 4 --output "$(mktemp -d)/run"
echo "aarch64: built and run"
