#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of a sanitizer build room by room, so that processes that tests start do not starve other tests.
# Usage: sanitize.sh asan|tsan [ROOM...]     rooms as `ctest --print-labels` prints them; all by default
#
# asan: addresses, leaks and undefined behaviour. tsan: data races. That build is clang's, because libgomp's barriers
# are invisible to the thread sanitizer and every OpenMP loop would look like a race; LLVM's libomp reports them
# through the tool Archer (libarcher.so; libomp would look for it along the program's own path only). Libraries that are
# not instrumented (oneDNN, MPI, UCX) are not checked. UCX's own hooks of madvise run in threads that tsan has not seen
# yet: they are off.
set -u
cd "$(dirname "$0")/.." || exit 2
preset=${1:-}
shift
case $preset in
asan)
    export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
    run=() ;;
tsan)
    export TSAN_OPTIONS="ignore_noninstrumented_modules=1 suppressions=$PWD/tools/tsan.supp" UCX_MEM_EVENTS=n
    export OMP_TOOL_LIBRARIES=$(dirname "$(readlink -f "$(command -v clang)")")/../lib/libarcher.so
    # LLVM 14 cannot place its shadow where the kernel shifts addresses by more than 28 bits (Ubuntu 24.04: 32).
    [ "$(cat /proc/sys/vm/mmap_rnd_bits 2> /dev/null || echo 28)" -gt 28 ] && run=(setarch -R) || run=() ;;
*)
    echo "usage: sanitize.sh asan|tsan [ROOM...]" >&2
    exit 2 ;;
esac
rooms=("$@")
[ ${#rooms[@]} -gt 0 ] || mapfile -t rooms < <(ctest --test-dir "build/$preset" --print-labels | sed -n 's/^  //p')
failed=()
for room in "${rooms[@]}"; do
    ${run[@]+"${run[@]}"} ctest --test-dir "build/$preset" --output-on-failure -L "^$room\$" || failed+=("$room")
done
[ ${#failed[@]} -eq 0 ] && echo "$preset: clean in ${rooms[*]}" && exit 0
echo "$preset: failures in ${failed[*]}" >&2
exit 1
