#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks bench comm: its output, its limit with exit code 1, and the choice of algorithms.
. "$(dirname "$0")/common.sh"

"$trireme" bench comm -n 2 --sizes 4,16K --json > comm.json || fail "bench comm"
[ "$(grep -c '"wrong":0' comm.json)" = 2 ] || fail "bench comm: two sizes, nothing wrong"
# operations, types and reductions are checked; one that reduces nothing says so
for what in "allreduce fp16 mean" "reduce int64 prod" "reducescatter bf16 max" "scatter uint8 sum" "gather fp64 sum"; do
    set -- $what
    redop=$3; case $1 in scatter | gather) redop=none ;; esac
    "$trireme" bench comm -n 2 --op "$1" --dtype "$2" --redop "$3" --sizes 6K --json > comm.json || fail "bench comm $what"
    grep -q "\"op\":\"$1\",\"dtype\":\"$2\",\"redop\":\"$redop\".*\"wrong\":0" comm.json || fail "bench comm $what: $(cat comm.json)"
done
expect 0 "--redop has no effect here: it is for --op allreduce, reduce and reducescatter" bench comm -n 2 --op broadcast --redop max --sizes 4
# vectors in blocks have at least an element a rank
expect 0 '"bytes":8,' bench comm -n 2 --op allgather --sizes 4 --json
# a missed limit is exit code 1, that of the ranks (the launcher of `run` ends with 2 for any failing rank); wrong use is 2
expect 1 "gate missed (--min-busbw): 2 of 2 sizes are below 1e+05 GB/s" bench comm -n 2 --sizes 1K,4 --min-busbw 100000
expect 1 '"name":"min-busbw","at_least":100000,"sizes":1,"missed":1,"passed":false' bench comm -n 2 --sizes 1K --min-busbw 100000 --json
expect 0 "reached" bench comm -n 2 --sizes 1K --min-busbw 0.000001
expect 2 "ended with exit code 1" run -n 2 -- "$trireme" bench comm --sizes 1K --min-busbw 100000
expect 2 "min-busbw" bench comm -n 2 --sizes 1K --min-busbw fast
# HCCL_ALGO, as --algorithm
export HCCL_ALGO="allreduce=level0:NA;level1:ring/others=NB"
expect 0 "fp32" bench comm -n 3 --sizes 4K --engine tcp
expect 0 "algorithm   $HCCL_ALGO (HCCL_ALGO)" run -n 2 -- "$trireme" cluster show
export HCCL_ALGO="level0:NA;level1:rung"
expect 2 "HCCL_ALGO 'level0:NA;level1:rung': 'rung' is none of" bench comm -n 2 --sizes 4K
expect 0 "single process" cluster show
unset HCCL_ALGO
expect 2 "algorithm 'rung': 'rung' is none of" bench comm -n 2 --sizes 4K --algorithm rung

exit $failed
