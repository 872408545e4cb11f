#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs guide 002's program (examples/resnet50_cifar10) with 8 ranks in each parallel mode: one epoch of a small generated CIFAR-10 at
# 32x32, or of the given data and image size.
#   bench/guide_002_modes.sh build/release [DIR [IMAGE_SIZE]]
# Prints mode, seconds, steps and loss; ends with 1 if a mode fails. stand_alone is one process.
set -u
build=$(readlink -f "${1:?folder of the build}")
data=${2:-} size=${3:-32} code=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$data" ]; then
    data=$work/data # two batches of 32 for each of 8 ranks
    "$build/trireme" data synth --output "$data" --synth-train 512 --synth-test 10 --quiet > /dev/null || exit 1
fi
data=$(readlink -f "$data")
cd "$work" || exit 1
for mode in stand_alone data_parallel hybrid_parallel semi_auto_parallel auto_parallel; do
    ranks=8
    [ $mode = stand_alone ] && ranks=1
    begin=$(date +%s)
    if "$build/trireme" run -n $ranks -- "$build/examples/resnet50_cifar10" "$data" "$size" 1 $mode > $mode.log 2>&1; then
        printf '%-20s %d ranks %5d s   %s\n' $mode $ranks $(($(date +%s) - begin)) "$(grep '^epoch: 1 step' $mode.log | tail -1)"
    else
        printf '%-20s failed: %s\n' $mode "$(tail -1 $mode.log)"
        code=1
    fi
done
exit $code
