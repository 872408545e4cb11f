#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the tests that the last run skipped, with the reasons, and the one line that installs what they need.
# Usage: skipped.sh BUILD
set -u
log=$1/Testing/Temporary/LastTest.log
[ -f "$log" ] || exit 0
# Scripts print "skipped: WHY" or "part skipped: WHY", C tests the same; a test's output follows its "N/M Testing: NAME".
awk '/^[0-9]+\/[0-9]+ Testing: / { name = $3 }
     /^(\[ *note *\] *)?(part )?skipped: / { sub(/^\[ *note *\] */, ""); line = name ": " $0; if (!seen[line]++) print "  " line }' "$log" |
    sort > "$log.skipped"
if [ -s "$log.skipped" ]; then
    echo "Skipped, wholly or in part:"
    cat "$log.skipped"
    line=$("$(dirname "$0")/deps.sh" missing)
    [ -z "$line" ] || printf '%s\n' "What these tests need from packages is installed by this line:" "    $line"
else
    echo "No test was skipped."
fi
rm -f "$log.skipped"
