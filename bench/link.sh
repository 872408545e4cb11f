#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the bandwidth of Trireme's engines ucx and tcp between two network name spaces joined by a veth pair, and that of UCX's own
# bandwidth test (polling, its default, and sleeping, -E sleep), in turns in one run. Prints each measurement and then medians, with
# the CPU time of both sides for a gigabyte, which compares the programs on a loaded machine too.
# Needs root, ip, ucx_perftest. Usage: bench/link.sh [BUILD_DIR] [ROUNDS]
# UCX_TLS=tcp: otherwise ucx_perftest finds shared memory between the name spaces and does not use the link.
# Not under real-time priority: the kernel thread that delivers packets would starve.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release} rounds=${2:-5}
work=$(mktemp -d)
a=trireme-a-$$ b=trireme-b-$$
cleanup() { ip netns del "$a" 2>/dev/null; ip netns del "$b" 2>/dev/null; rm -rf "$work"; }
trap cleanup EXIT
trap "exit 143" TERM INT HUP
ip netns add "$a" && ip netns add "$b" || { echo "link.sh: no network namespaces here" >&2; exit 77; }
ip link add ta$$ netns "$a" type veth peer name tb$$ netns "$b" || exit 77
ip -n "$a" addr add 10.99.0.1/24 dev ta$$ && ip -n "$b" addr add 10.99.0.2/24 dev tb$$
ip -n "$a" link set ta$$ up; ip -n "$b" link set tb$$ up; ip -n "$a" link set lo up; ip -n "$b" link set lo up
cc -O2 -I"$root/include" "$root/bench/link.c" -L"$build" -ltrireme -Wl,-rpath,"$(realpath "$build")" -o "$work/link" || exit 1
(umask 077 && head -c 32 /dev/urandom >"$work/token")
sleep 1 # both ends are up
export UCX_TLS=tcp
TIMEFORMAT='%U %S'
bytes=8388608 messages=80

perftest() { # MODE
    { time ip netns exec "$a" ucx_perftest -t tag_bw -s $bytes -n $messages -w 1 -p 13400 -E "$1" >/dev/null 2>&1; } 2>"$work/server" &
    local server=$!
    sleep 0.7
    { time ip netns exec "$b" timeout 30 ucx_perftest 10.99.0.1 -t tag_bw -s $bytes -n $messages -w 1 -p 13400 -E "$1" >"$work/out" 2>/dev/null; } 2>"$work/client"
    wait $server
    awk -v mode="$1" -v bytes=$bytes -v n=$messages '
        FILENAME ~ /out$/ { if (/^Final/) mb = $6; next }
        { cpu += $1 + $2 }
        END { printf "{\"engine\":\"ucx_perftest tag_bw %s\",\"bytes\":%d,\"message_gb_s\":%.3f,\"cpu_s_per_gb\":%.3f}\n", mode, bytes, mb * 1048576e-9, cpu / (n * bytes * 1e-9) }' \
        "$work/out" "$work/server" "$work/client"
}
ranks() { # ENGINE
    ip netns exec "$a" "$work/link" "$1" "$build/plugins" 0 10.99.0.1:13500 "$work/token" &
    local first=$!
    ip netns exec "$b" "$work/link" "$1" "$build/plugins" 1 10.99.0.1:13500 "$work/token"
    wait $first
}
for ((round = 0; round < rounds; round++)); do
    if command -v ucx_perftest >/dev/null; then
        perftest poll
        perftest sleep
    fi
    ranks ucx
    ranks tcp
done | tee "$work/all"
awk -F'"' '
function median(list,   n, x, i, j, t) {
    n = split(list, x, " ")
    for (i = 2; i <= n; i++) { t = x[i] + 0; for (j = i - 1; j >= 1 && x[j] + 0 > t; j--) x[j+1] = x[j]; x[j+1] = t }
    return x[int((n + 1) / 2)]
}
function number(name,   at) { at = index($0, "\"" name "\":"); return at ? substr($0, at + length(name) + 3) + 0 : "" }
{ if (!($4 in speed)) order[++count] = $4
  speed[$4] = speed[$4] " " number("message_gb_s"); cpu[$4] = cpu[$4] " " number("cpu_s_per_gb"); sums[$4] = sums[$4] " " number("allreduce_gb_s") }
END {
    printf "%-30s %14s %14s %16s\n", "medians", "message GB/s", "CPU s per GB", "all-reduce GB/s"
    for (i = 1; i <= count; i++) { e = order[i]
        printf "%-30s %14.3f %14.3f %16s\n", e, median(speed[e]), median(cpu[e]), e ~ /perftest/ ? "-" : sprintf("%.3f", median(sums[e]))
        if (e ~ /perftest/ && median(speed[e]) > best) best = median(speed[e]) }
    if (best > 0) for (i = 1; i <= count; i++) if (order[i] !~ /perftest/)
        printf "%s: %.2f of the better perftest\n", order[i], median(speed[order[i]]) / best
}' "$work/all" >&2
