#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The predicted memory is the memory that a process uses: within 2 %, with and without measured kernels; within 5 % for ranks of small models,
# of which the code of libraries is a part, and whose shared pages count where they were allocated.
. "$(dirname "$0")/common.sh"
sanitized && skip "a sanitizer's own memory is in the way"

# check PERCENT ARGS...
check() {
    local percent=$1
    shift
    "$trireme" bench train "$@" --repeats 3 --json > "$work/out" 2> "$work/err" ||
        { echo "FAIL: bench train $*: $(cat "$work/err")"; failed=1; return; }
    python3 - "$work/out" "$*" "$percent" <<'END' || failed=1
import json, sys
row = next(json.loads(line) for line in open(sys.argv[1]) if line.startswith("{"))
real, predicted = row["peak_bytes"], row["predicted_peak_bytes"]
print(f"{sys.argv[2]}: peak {real}, predicted {predicted}, ratio {predicted / real:.4f}")
sys.exit(abs(predicted / real - 1) > int(sys.argv[3]) / 100)
END
}

resnet18="resnet18 --classes 10 --threads 2"
gpt2="gpt2 --layers 2 --width 256 --heads 4 --context 32 --vocabulary 8000 --batch-size 4 --threads 1 -n 2"
stages="gpt2 --layers 8 --width 128 --heads 4 --context 64 --vocabulary 1000 --batch-size 4 --threads 1 -n 4 --stages 2 --micro-batches 4"
# sums of layers that are large beside the parameters: computed again, whichever way the ranks train
long="gpt2 --layers 6 --width 128 --heads 4 --context 512 --vocabulary 512 --batch-size 4 --threads 1 -n 2"
bert="bert --size mini --context 128"
# shellcheck disable=SC2086
{
    check 2 $resnet18 --image-size 32 --batch-size 64 --precision fp32
    check 2 $resnet18 --image-size 32 --batch-size 64 --precision fp32
    check 2 $resnet18 --image-size 64 --batch-size 16 --precision mixed
    # the first job also chooses kernels, which takes memory for a moment
    "$trireme" bench train $gpt2 --stages 2 --micro-batches 4 --repeats 1 > "$work/out" 2>&1
    check 5 $gpt2 --stages 2 --micro-batches 4
    check 5 $gpt2 --parallel-mode semi_auto_parallel
    check 5 $gpt2 --parallel-mode data_parallel
    # stages of two ranks, which add up the gradients of micro-batches, and more ranks than cores, of which each reads what it finds
    check 5 $stages
    check 5 ${stages/-n 4/-n 8}
    check 2 $long --parallel-mode data_parallel
    check 2 $long --parallel-mode semi_auto_parallel
    check 2 $long --stages 2 --micro-batches 4
    # of masked tokens few count: the output layer has logits of these alone
    check 2 $bert --batch-size 4 --threads 2
    check 2 $bert --batch-size 16 --threads 2 --precision mixed
    check 5 $bert --batch-size 4 -n 2 --threads 1 --parallel-mode data_parallel
}

# The first job that searches also measures, within the limit, libraries included (about 45 MB). Without the limit it would take twice that.
limit=160
HOME=$work XDG_CACHE_HOME=$work/fresh "$trireme" bench train mlp --classes 100000 --batch-size 4 -n 2 --threads 1 --memory ${limit}MB --parallel-mode auto_parallel \
    --repeats 3 --json > "$work/out" 2> "$work/err" || { echo "FAIL: a first job under a limit: $(tail -1 "$work/err")"; failed=1; }
peak=$(grep -o '"peak_bytes":[0-9]*' "$work/out" | head -1 | cut -d: -f2)
echo "measuring within $limit MB: peak ${peak:-unknown}"
[ "${peak:-999999999}" -le $(((limit + 60) * 1000000)) ] || { echo "FAIL: the first job takes $peak bytes, its limit is $limit MB"; failed=1; }

# The memory of the process image before exec does not count (torchrun is half a gigabyte of Python).
python3 -c 'import os, sys; large = b"x" * (600 << 20); os.execv(sys.argv[1], sys.argv[1:])' "$trireme" bench train mlp --image-size 32 --classes 10 \
    --batch-size 8 --threads 1 --repeats 3 --json > "$work/out" 2> "$work/err" || { echo "FAIL: mlp behind another program: $(tail -1 "$work/err")"; failed=1; }
peak=$(grep -o '"peak_bytes":[0-9]*' "$work/out" | head -1 | cut -d: -f2)
[ "${peak:-999999999}" -le 500000000 ] || { echo "FAIL: mlp takes $peak bytes behind another program of 600 MB"; failed=1; }
exit $failed
