#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the bandwidth of pulls and pushes between a worker and its server in two network name spaces joined by a veth pair, and that of a
# plain TCP stream each way and, where it is installed, of UCX's own bandwidth test over the same link (its tcp transport, polling and
# sleeping: the better of both), in turns in one run. First the CPUs limit the link, then RATE does (tc tbf; 10gbit), as a network card would. Needs root, ip, tc. Usage: bench/ps_link.sh [BUILD_DIR] [ROUNDS] [RATE...]
# Not under real-time priority: the kernel thread that delivers packets would starve.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release} rounds=${2:-3}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- none 10gbit
work=$(mktemp -d)
a=trireme-a-$$ b=trireme-b-$$
cleanup() { ip netns del "$a" 2>/dev/null; ip netns del "$b" 2>/dev/null; rm -rf "$work"; }
trap cleanup EXIT
trap "exit 143" TERM INT HUP
ip netns add "$a" && ip netns add "$b" || { echo "ps_link.sh: no network namespaces here" >&2; exit 77; }
ip link add ta$$ netns "$a" type veth peer name tb$$ netns "$b" || exit 77
ip -n "$a" addr add 10.99.1.1/24 dev ta$$ && ip -n "$b" addr add 10.99.1.2/24 dev tb$$
ip -n "$a" link set ta$$ up; ip -n "$b" link set tb$$ up; ip -n "$a" link set lo up; ip -n "$b" link set lo up
cc -O2 "$root/bench/stream.c" -o "$work/stream" || exit 1
head -c 32 /dev/urandom > "$work/token"
chmod 600 "$work/token"
sleep 1 # both ends are up

stream() { # FROM TO ADDRESS MEGABYTES
    ip netns exec "$2" "$work/stream" receive "$3" 7100 > "$work/rate" &
    local receiver=$!
    ip netns exec "$1" "$work/stream" send "$3" 7100 "$4"
    wait $receiver
    cat "$work/rate"
}
rows() { # prints pull and push in GB/s
    ip netns exec "$a" "$build/trireme" bench ps --listen 10.99.1.1:7200 --token-file "$work/token" --quiet &
    local server=$!
    sleep 0.5
    ip netns exec "$b" "$build/trireme" bench ps --connect 10.99.1.1:7200 --token-file "$work/token" --rows 2000000 --tcp-only --json > "$work/rows"
    wait $server
    awk -F'[:,}]' '/"wire.pull"/ { for (i = 1; i < NF; i++) if ($i ~ /"median"|"value"/) pull = $(i+1) }
        /"wire.push"/ { for (i = 1; i < NF; i++) if ($i ~ /"median"|"value"/) push = $(i+1) } END { print pull, push }' "$work/rows"
}
# UCX_TLS=tcp: otherwise it finds shared memory between the name spaces.
perftest() { # MODE: GB/s
    local best
    UCX_TLS=tcp ip netns exec "$a" timeout 60 ucx_perftest -t tag_bw -s 8388608 -n 80 -w 1 -p 13401 -E "$1" > /dev/null 2>&1 &
    local server=$!
    sleep 0.7
    best=$(UCX_TLS=tcp ip netns exec "$b" timeout 60 ucx_perftest 10.99.1.1 -t tag_bw -s 8388608 -n 80 -w 1 -p 13401 -E "$1" 2> /dev/null |
        awk '/^Final/ { printf "%.3f", $6 * 1048576e-9 }')
    wait $server
    echo "${best:-0}"
}
for rate; do
    megabytes=3000
    if [ "$rate" != none ]; then
        megabytes=1000
        ip netns exec "$a" tc qdisc replace dev ta$$ root tbf rate "$rate" burst 4mb limit 64mb
        ip netns exec "$b" tc qdisc replace dev tb$$ root tbf rate "$rate" burst 4mb limit 64mb
    fi
    for ((round = 0; round < rounds; round++)); do
        read -r pull push < <(rows)
        down=$(stream "$a" "$b" 10.99.1.2 $megabytes) up=$(stream "$b" "$a" 10.99.1.1 $megabytes)
        poll=0 sleeping=0
        if command -v ucx_perftest > /dev/null; then
            poll=$(perftest poll) sleeping=$(perftest sleep)
        fi
        awk -v r="$rate" -v pull="$pull" -v push="$push" -v down="$down" -v up="$up" -v poll="$poll" -v sleeping="$sleeping" 'BEGIN {
            printf "link %s: a stream %.2f and %.2f GB/s; pulls %.2f GB/s, %.2f of it; pushes %.2f GB/s, %.2f of it",
                   r, down, up, pull, pull / down, push, push / up
            ucx = poll > sleeping ? poll : sleeping
            if (ucx > 0) printf "; ucx_perftest %.2f (polling) and %.2f GB/s: pulls %.2f, pushes %.2f of the better", poll, sleeping, pull / ucx, push / ucx
            print "" }'
    done
done
