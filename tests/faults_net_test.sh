#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults of networks that take seconds. bench/faults.sh has all faults and the expected messages.
exec bash "${TRIREME_SOURCE:?}/bench/faults.sh" --short N01 N03 N09 N10 N11 N12
