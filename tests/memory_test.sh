#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The predicted memory is the memory that a process uses: within 2 %, with and without measured kernels.
. "$(dirname "$0")/common.sh"
sanitized && skip "a sanitizer's own memory is in the way"

# check ARGS...
check() {
    "$trireme" bench train "$@" --classes 10 --threads 2 --repeats 3 --json > "$work/out" 2> "$work/err" ||
        { echo "FAIL: bench train $*: $(cat "$work/err")"; failed=1; return; }
    python3 - "$work/out" "$*" <<'END' || failed=1
import json, sys
row = json.load(open(sys.argv[1]))
real, predicted = row["peak_bytes"], row["predicted_peak_bytes"]
print(f"{sys.argv[2]}: peak {real}, predicted {predicted}, ratio {predicted / real:.4f}")
sys.exit(not 0.98 <= predicted / real <= 1.02)
END
}

check resnet18 --image-size 32 --batch-size 64 --precision fp32
check resnet18 --image-size 32 --batch-size 64 --precision fp32
check resnet18 --image-size 64 --batch-size 16 --precision mixed

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
