#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libtrireme.so exports exactly the symbols of docs/reference/symbols.txt, and only trm_*.
# Usage: symbols.sh ROOT LIBRARY [--update]
set -u
list=$1/docs/reference/symbols.txt
# Names that begin with _ or . are the compiler's and the linker's own.
nm -D --defined-only "$2" | awk '{print $3}' | grep -v '^[_.]' | LC_ALL=C sort > "/tmp/trireme_symbols_$$"
trap 'rm -f "/tmp/trireme_symbols_$$"' EXIT
if [ "${3:-}" = --update ]; then
    cp "/tmp/trireme_symbols_$$" "$list"
fi
bad=0
if grep -v '^trm_' "/tmp/trireme_symbols_$$"; then
    echo "exported, but not public (trm_ expected): make them static, or hide them"; bad=1
fi
if ! diff "$list" "/tmp/trireme_symbols_$$"; then
    echo "docs/reference/symbols.txt: the library exports other symbols (<: listed, >: found)." \
         "A removed one breaks programs. If it is meant: tools/symbols.sh $1 $2 --update"; bad=1
fi
exit $bad
