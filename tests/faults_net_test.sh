#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The faults of networks that take seconds; bench/faults.sh makes all of them and has the words.
exec bash "${TRIREME_SOURCE:?}/bench/faults.sh" --short N01 N03 N09 N10 N11 N12
