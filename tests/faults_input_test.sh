#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults of input that take seconds: connections of unknown processes, flipped bits, wrong files. bench/faults.sh has all faults and
# the expected messages.
exec bash "${TRIREME_SOURCE:?}/bench/faults.sh" --short N07 S01 S02 S04 S05 S06 S09 S10
