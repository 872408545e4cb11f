# SPDX-License-Identifier: Apache-2.0
# Sourced first by the script tests: the program, a working folder that is removed at the end, with a cache of its own.
set -u
trireme=$(readlink -f "${TRIREME:?}") || exit 1
source=${TRIREME_SOURCE:-$(cd "$(dirname "$0")/.." && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1
failed=0
fail() { echo "FAIL: $*"; failed=1; }
# Built with a sanitizer: times and memory are then not the program's own.
sanitized() { grep -qaE '__(a|t)san_init' "$trireme"; }
# How many times longer things may take: six under a sanitizer; $TRIREME_PATIENCE speaks for a crowded machine, as in tests/check.h.
patience=${TRIREME_PATIENCE:-1}
sanitized && patience=$((patience * 6))
timeout() { # SECONDS COMMAND...: with that patience
    local seconds=$1
    shift
    command timeout $((seconds * patience)) "$@"
}
# N ports of this script's own: outside those that the system hands out, which another test's connection may take in the
# moment before a server listens.
free_ports() {
    python3 - "$1" $$ << 'END'
import random, socket, sys
pick, found = random.Random(int(sys.argv[2])), []
while len(found) < int(sys.argv[1]):
    port = pick.randrange(10000, 32000)
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
    found += [port] if port not in found else []
print(*found)
END
}
skip() { echo "skipped: $*"; exit 77; }
# CODE TEXT ARGS: what trireme ARGS ends with, and prints among other things; all of it stays in out.txt.
expect() { # CODE TEXT ARGS
    local code=$1 text=$2
    shift 2
    "$trireme" "$@" > out.txt 2>&1
    local got=$?
    [ $got = "$code" ] && grep -qF -- "$text" out.txt || { fail "trireme $*: $got, expected $code with '$text'"; head -5 out.txt; }
}
# tests/tfrecord.py
export PYTHONPATH=$source/tests${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
