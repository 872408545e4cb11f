#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Strangers, flipped bits and wrong input that take seconds; bench/faults.sh makes all of them and has the words.
exec bash "${TRIREME_SOURCE:?}/bench/faults.sh" --short N07 S01 S02 S04 S05 S06 S09 S10
