#!/usr/bin/env bash
# The memory that is predicted is the memory that is used: within 2 %, with and without measured choices.
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
exit $failed
