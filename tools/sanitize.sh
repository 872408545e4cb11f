#!/usr/bin/env bash
# Runs the tests of a sanitizer preset. Usage: sanitize.sh asan|tsan
# tsan: libgomp's barriers are invisible to it, so one OpenMP thread, and without the tests whose threads
# are OpenMP's alone (the fast kernels); data, comm, ps, save and train have threads of their own.
# UCX hooks madvise in threads that tsan does not know yet, and crashes: its hooks are off there.
set -eu
case $1 in
asan)
    ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
        ctest --test-dir build/asan --output-on-failure -LE 'script|house' ;;
tsan)
    OMP_NUM_THREADS=1 UCX_MEM_EVENTS=n TSAN_OPTIONS=halt_on_error=1 \
        ctest --test-dir build/tsan --output-on-failure -L 'base|data|comm|ps|save' ;;
*) echo "sanitize.sh asan|tsan" >&2; exit 2 ;;
esac
