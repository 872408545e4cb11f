#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program whose ranks end with exit() while they are joined ends with its own code: threads of the library may still
# check frames of other ranks then. Before, one run of ten died of SIGSEGV in OpenSSL's exit handler.
. "$(dirname "$0")/common.sh"
for i in $(seq 30); do
    timeout 60 "$trireme" run -n 3 -- "$TRIREME_BUILD/examples/resnet50_imagenet" --use_synthetic_data --batch_size 8 > out 2>&1
    code=$?
    if [ $code != 2 ] || grep -q "died of signal" out; then
        fail "run $i: exit code $code, 2 expected: $(tail -2 out)"
        break
    fi
done
exit $failed
