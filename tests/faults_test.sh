#!/usr/bin/env bash
# The faults that take seconds; bench/faults.sh makes all of them and has the words.
exec bash "${TRIREME_SOURCE:?}/bench/faults.sh" --short "$@"
