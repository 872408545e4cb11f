#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The faults of processes that take seconds; bench/faults.sh makes all of them and has the words.
exec bash "${TRIREME_SOURCE:?}/bench/faults.sh" --short F01 F05 F07 F09
