#!/usr/bin/env bash
# Two network namespaces joined by a veth pair: what trireme moves over tcp and ucx beside UCX's own
# bandwidth test, in turn, in one run. Needs root, ip, ucx_perftest. Usage: bench/link.sh [BUILD_DIR] [ROUNDS]
# UCX_TLS=tcp: left alone ucx_perftest finds shared memory between the name spaces and never uses the link.
# Not under real-time priority: the kernel thread that delivers packets would starve.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release} rounds=${2:-3}
work=$(mktemp -d)
a=trireme-a-$$ b=trireme-b-$$
cleanup() { ip netns del "$a" 2>/dev/null; ip netns del "$b" 2>/dev/null; rm -rf "$work"; }
trap cleanup EXIT
trap "exit 143" TERM INT HUP
ip netns add "$a" && ip netns add "$b" || { echo "link.sh: no network namespaces here" >&2; exit 77; }
ip link add ta$$ netns "$a" type veth peer name tb$$ netns "$b" || exit 77
ip -n "$a" addr add 10.99.0.1/24 dev ta$$ && ip -n "$b" addr add 10.99.0.2/24 dev tb$$
ip -n "$a" link set ta$$ up; ip -n "$b" link set tb$$ up; ip -n "$a" link set lo up; ip -n "$b" link set lo up
cc -O2 -I"$root/src" -I"$root/include" "$root/bench/link.c" "$build/libtrireme.a" \
    -lcrypto -lpthread -lm -ldl -o "$work/link" || exit 1
sleep 0.5 # both ends are up
for ((round = 0; round < rounds; round++)); do
    if command -v ucx_perftest >/dev/null; then
        UCX_TLS=tcp ip netns exec "$a" ucx_perftest -t tag_bw -s 8388608 -n 60 -p 13400 >/dev/null 2>&1 &
        server=$!
        sleep 1
        UCX_TLS=tcp ip netns exec "$b" ucx_perftest 10.99.0.1 -t tag_bw -s 8388608 -n 60 -w 3 -p 13400 2>/dev/null |
            awk '/^Final|\[thread 0\]/ { mb = $(NF-2); if ($1 == "Final:") mb = $6 } END { printf "{\"engine\":\"ucx_perftest tag_bw\",\"bytes\":8388608,\"message_gb_s\":%.3f}\n", mb * 1048576 / 1e9 }'
        wait $server
    fi
    "$work/link" ucx "$build/plugins" "$a" 10.99.0.1 "$b" 10.99.0.2
    "$work/link" tcp "$build/plugins" "$a" 10.99.0.1 "$b" 10.99.0.2
done
