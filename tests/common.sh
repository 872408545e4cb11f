# SPDX-License-Identifier: Apache-2.0
# Sourced first by the script tests: the program, a working folder that is removed at the end, with a cache of its own.
set -u
trireme=$(readlink -f "${TRIREME:?}") || exit 1
source=${TRIREME_SOURCE:-$(cd "$(dirname "$0")/.." && pwd)}
work=$(mktemp -d)
# A script that has failed ends with 1, whatever its last command was.
trap 'code=$?; rm -rf "$work"; [ $code = 0 ] && [ "$failed" = 1 ] && exit 1; exit $code' EXIT
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1
failed=0
# Real data. Tests that need them are skipped where they are missing.
export TRIREME_DATA=${TRIREME_DATA:-$(readlink -m "$source/../shared/data")}
fail() { echo "FAIL: $*"; failed=1; }
# Built with a sanitizer: times and memory are then not the program's own.
sanitized() { grep -qaE '__(a|t)san_init' "$trireme"; }
# The factor of all time limits: six under a sanitizer, times $TRIREME_PATIENCE on a crowded machine, as in tests/check.h.
patience=${TRIREME_PATIENCE:-1}
sanitized && patience=$((patience * 6))
timeout() { # SECONDS COMMAND...: with that patience
    local seconds=$1
    shift
    command timeout $((seconds * patience)) "$@"
}
# N ports for this script, outside the range that the system hands out: a connection of another test could take such a port
# before a server listens.
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
# CODE TEXT ARGS: trireme ARGS must end with CODE and print TEXT; its output is in out.txt.
expect() { # CODE TEXT ARGS
    local code=$1 text=$2
    shift 2
    "$trireme" "$@" > out.txt 2>&1
    local got=$?
    [ $got = "$code" ] && grep -qF -- "$text" out.txt || { fail "trireme $*: $got, expected $code with '$text'"; head -5 out.txt; }
}
# tests/tfrecord.py
export PYTHONPATH=$source/tests${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
# Prints sentences of a small grammar, whose letters can be learned in few steps; the objects are chosen among the words given.
write_sentences() { # COUNT OBJECT...
    python3 - "$@" << 'END'
import random, sys
pick = random.Random(1)
for _ in range(int(sys.argv[1])):
    print(pick.choice(["the rank", "a worker", "the server"]), pick.choice(["sends", "reads", "keeps"]), pick.choice(sys.argv[2:]) + ".")
END
}
# Two hosts on this one: ranks of the second half are in an IPC or a pid name space of their own, so that they share no memory with the first
# half and meet it over the loopback. $host_space is the command that makes the name space.
make_space="unshare"
[ "$(id -u)" = 0 ] || make_space="unshare --map-current-user" # tokens are found by user
ipc_space="$make_space --ipc" pid_space="$make_space --pid --fork --kill-child --mount-proc"
host_space=$ipc_space
can_two_hosts() { $host_space true 2> /dev/null; }
# two_hosts N ARGS...: runs trireme ARGS as N ranks; prints the output of rank 0, writes that of the others into rank1.txt ...; 0 if all ended with 0
two_hosts() {
    local ranks=$1 port
    shift
    port=$(free_ports 1)
    part() { # FIRST COUNT
        local r pids='' code=0
        for r in $(seq "$1" $(($1 + $2 - 1))); do
            export TRIREME_RANK=$r TRIREME_SIZE=$ranks TRIREME_RENDEZVOUS=127.0.0.1:$port
            if [ "$r" = 0 ]; then "$trireme" "${@:3}" & else "$trireme" "${@:3}" > "rank$r.txt" 2>&1 & fi
            pids+=" $!"
        done
        for r in $pids; do wait "$r" || code=$?; done
        return $code
    }
    (
        export -f part
        export trireme ranks port
        $host_space bash -c 'part "$@"' part $((ranks / 2)) $((ranks - ranks / 2)) "$@" &
        second=$!
        part 0 $((ranks / 2)) "$@"
        code=$?
        wait $second && exit $code
    )
}
