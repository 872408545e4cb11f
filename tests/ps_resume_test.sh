#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A synchronous job with parameter servers is killed as a whole at different steps and resumed: the bits are those of an undisturbed job.
# The short version of bench/ps_resume.py; ps/last_step_test has each set of shards that lack a step.
. "$(dirname "$0")/common.sh"
timeout 60 python3 "$source/bench/ps_resume.py" --trireme "$trireme" --kills 8 --steps 8 --save-every 3 \
    --limit $((20 * patience)) || fail "a killed job gave other bits"
exit $failed
