#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults of processes that take seconds. bench/faults.sh has all faults and the expected messages.
exec bash "${TRIREME_SOURCE:?}/bench/faults.sh" --short F01 F05 F07 F09
