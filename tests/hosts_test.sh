#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# trireme run --hosts: agents started by a remote shell, logs fetched, failures named once, no orphans. The hosts
# are this one under two names; with root also two network name spaces, where ranks really talk over tcp and ucx.
set -u
trireme=${TRIREME:?}
work=$(mktemp -d)
a=trma$$ b=trmb$$ made=0 failed=0
cleanup() {
    [ $made = 1 ] && ip netns del $a 2> /dev/null && ip netns del $b 2> /dev/null
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME=$work/cache
fail() { echo "FAIL: $*"; failed=1; }
two=(--hosts "a@127.0.0.1:2,b:2" --remote-shell "env HOST={}")
# expect CODE TEXT ARGS...: exit code, and a text that the output has exactly once
expect() {
    local code=$1 text=$2; shift 2
    timeout 60 "$trireme" "$@" > out.txt 2>&1
    local got=$? times
    times=$(grep -cF -- "$text" out.txt)
    [ $got = "$code" ] && [ "$times" -ge 1 ] || { fail "trireme $*: $got ('$text' $times times), expected $code"; tail -15 out.txt; }
}
nothing_left() {
    for _ in $(seq 50); do
        pgrep -f "MARK$$" > /dev/null || pgrep -f "$trireme run --agent" > /dev/null || break
        sleep 0.1
    done
    pgrep -fa "MARK$$" && fail "$1: processes are left"
    local dir pid
    for dir in /tmp/trireme-agent-*-*; do # of agents that have ended: other jobs of this machine may have theirs
        pid=${dir#*-agent-}
        [ -d "$dir" ] && ! kill -0 "${pid%-*}" 2> /dev/null && [ -d "$dir" ] && fail "$1: $dir is left"
    done
}

expect 0 "training success" run "${two[@]}" -- sh -c 'echo I am $TRIREME_RANK of $TRIREME_SIZE on $HOST'
grep -qx "I am 0 of 4 on a" out.txt || fail "rank 0 is not shown"
for r in 0 1 2 3; do
    grep -q "I am $r of 4" device$r/train.log$r || fail "log of rank $r"
    grep -q "^RANK_ID=$r" device$r/env$r.log || fail "environment of rank $r"
done
grep -q "TRIREME_TOKEN_FILE=/tmp/trireme-agent" device2/env2.log || fail "no token"
expect 0 "ranks 2 to 3 by env HOST=b" run "${two[@]}" --dry-run -- true

# failures: the first cause, the end of its log, exit codes
expect 2 "the first to fail: rank 3 on b" run "${two[@]}" -- sh -c 'echo last words of $TRIREME_RANK; test $TRIREME_RANK != 3 || exit 7; sleep 60'
grep -q "last words of 3" out.txt || fail "the end of the log of rank 3"
expect 137 "rank 1 on a, which died of signal 9" run "${two[@]}" -- sh -c 'test $TRIREME_RANK != 1 || kill -9 $$; sleep 60'
expect 2 "cannot run" run "${two[@]}" -- /no/such/program
expect 5 "still runs after" run "${two[@]}" --timeout 1 -- sleep 60
printf '#!/bin/sh\n[ "$1" = b ] && exit 1\nshift\nexec "$@"\n' > shell && chmod +x shell
expect 2 "b: the remote shell ended with code 1 before trireme answered" run --hosts "a@127.0.0.1:1,b:1" --remote-shell "$work/shell" -- true
expect 3 "cannot be started" run --hosts a@127.0.0.1:1 --remote-shell /no/shell -- true
# an agent that greets and then reads nothing, with an order larger than a pipe: the launcher still keeps its time
printf '#!/bin/sh\nprintf "\\001mrt\\377\\377\\377\\377\\006\\000\\000\\0002 5000"\nexec sleep 62\n' > deaf && chmod +x deaf
export TRIREME_LONG
TRIREME_LONG=$(head -c 100000 /dev/zero | tr '\0' x)
expect 5 "still runs after" run --hosts a@127.0.0.1:1 --remote-shell "$work/deaf" --timeout 1 -- true
unset TRIREME_LONG
expect 2 "listed twice" run --hosts a:1,a:1 -- true
expect 2 "name@address:ranks expected" run --hosts a:0 -- true
expect 2 "where others cannot reach rank 0" run --hosts localhost:1,b:1 -- true
expect 2 "not from a person" run --agent
nothing_left failures

# the launcher dies, in both ways
for signal in TERM KILL; do
    "$trireme" run "${two[@]}" -- sh -c "sleep 61 # MARK$$" > out.txt 2>&1 &
    launcher=$!
    for _ in $(seq 100); do [ "$(pgrep -fc "sleep 61 # MARK$$")" -ge 4 ] && break; sleep 0.1; done
    kill -$signal $launcher
    wait $launcher 2> /dev/null
    code=$?
    [ $code = $([ $signal = TERM ] && echo 143 || echo 137) ] || fail "SIG$signal to the launcher: exit code $code"
    nothing_left "SIG$signal"
done

# training is the same as on one host; a start takes no longer than on one
data="--data synth --synth-train 32 --synth-test 8 --epochs 1 --batch-size 8 --seed 3 --learning-rate 0.02 --deterministic strict --log-every 1 --json"
# shellcheck disable=SC2086
"$trireme" train lenet $data "${two[@]}" > hosts.json 2> err.txt || { fail "train --hosts"; tail -5 err.txt; }
# shellcheck disable=SC2086
"$trireme" train lenet $data -n 4 > one.json 2> err.txt || fail "train -n 4"
losses() { grep '"event":"step"' "$1" | sed 's/.*"loss":\([^,}]*\).*/\1/'; }
[ -n "$(losses one.json)" ] && [ "$(losses one.json)" = "$(losses hosts.json)" ] || fail "other losses with --hosts"

# real hosts, as far as name spaces are
if ip netns add $a 2> /dev/null && ip netns add $b 2> /dev/null; then
    made=1
    ip link add w$$ netns $a type veth peer name w$$ netns $b
    ip -n $a addr add 10.79.0.1/24 dev w$$; ip -n $b addr add 10.79.0.2/24 dev w$$
    for n in $a $b; do ip -n $n link set lo up; ip -n $n link set w$$ up; done
    for _ in $(seq 50); do ip -n $b link show w$$ | grep -q "state UP" && break; sleep 0.1; done
    spaces=(--hosts "$a@10.79.0.1:2,$b:2" --remote-shell "ip netns exec")
    for engine in auto ucx; do
        [ $engine = ucx ] && [ ! -e "${TRIREME_BUILD:?}/plugins/trireme_comm_ucx.so" ] && continue
        timeout 60 "$trireme" bench comm "${spaces[@]}" --engine $engine --sizes 4,64K --json > comm.json 2> err.txt ||
            { fail "bench comm --engine $engine"; tail -5 err.txt; }
        [ "$(grep -c '"ranks":4.*"wrong":0' comm.json)" = 2 ] || fail "bench comm --engine $engine: $(cat comm.json)"
    done
    # shellcheck disable=SC2086
    timeout 100 "$trireme" train lenet $data "${spaces[@]}" > spaces.json 2> err.txt || { fail "train between name spaces"; tail -5 err.txt; }
    [ "$(losses one.json)" = "$(losses spaces.json)" ] || fail "other losses between name spaces"
    nothing_left "name spaces"
else
    echo "skipped: network name spaces cannot be made here"
fi
exit $failed
