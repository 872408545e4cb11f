#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that torchrun starts find each other: Debian's torch, or a newer one in $HOME/.cache/trireme-peers/torch (TORCH_PYTHON), with the
# commands of docs/guides/launchers.md. Without torch the test is skipped with a line.
set -u
rank="$TRIREME_BUILD/tests/launch_test"
work=$(mktemp -d /tmp/torchrunXXXXXX)
bad=0
trap 'rm -rf "$work"' EXIT

# expect SOURCE N NAME: the output file has one line per rank 0 .. N-1
expect() {
    for r in $(seq 0 $(($2 - 1))); do
        if ! grep -q "$1: rank $r of $2\$" "$work/out"; then
            echo "FAILED $3: no \"$1: rank $r of $2\" in:"; cat "$work/out"; bad=1; return
        fi
    done
    echo "ok $3"
}

getent hosts localhost > /dev/null || { echo "skipped: torchrun needs a localhost in /etc/hosts"; exit 77; }
python=
for candidate in "${TORCH_PYTHON:-$HOME/.cache/trireme-peers/torch/bin/python3}" /usr/bin/python3 python3; do
    "$candidate" -c 'import torch.distributed.run' 2> /dev/null && python=$candidate && break
done
[ -n "$python" ] || { echo "skipped: no Python with torch"; exit 77; }
# Debian's torch 1.13 cannot read its own defaults under Python 3.11, and writes options with underscores
old=; "$python" -c 'import sys, torch; sys.exit(torch.__version__.startswith("1."))' || old="-r 1 -t 1 --log_dir $work/torch"
torchrun() {
    local words=("$@")
    if [ -n "$old" ]; then
        local i; for i in "${!words[@]}"; do [[ "${words[i]}" == /* ]] && break; [[ "${words[i]}" == --* ]] && words[i]=--$(printf %s "${words[i]#--}" | tr - _); done
    fi
    # shellcheck disable=SC2086
    timeout 120 "$python" -m torch.distributed.run $old "${words[@]}"
}
torchrun --no-python --standalone --nproc-per-node 2 "$rank" rank > "$work/out" 2>&1
expect "torchrun" 2 "torchrun --no-python --standalone --nproc-per-node 2"
# two agents, both on this host
port=$((20000 + RANDOM % 10000))
for node in 1 0; do
    torchrun --no-python --nnodes 2 --node-rank $node --master-addr 127.0.0.1 --master-port $port --nproc-per-node 2 "$rank" rank > "$work/out$node" 2>&1 &
done
wait
cat "$work/out0" "$work/out1" > "$work/out"
expect "torchrun" 4 "torchrun --no-python --nnodes 2 --node-rank 0 and 1"
# a training: only rank 0 prints on the console that torchrun shows
train="$TRIREME_BUILD/trireme train mlp --data synth --synth-train 64 --synth-test 16 --batch-size 4 --steps 3 --log-every 1 --seed 5 --json"
# shellcheck disable=SC2086
(cd "$work" && torchrun --no-python --standalone --nproc-per-node 2 $train > "$work/out" 2> "$work/err")
if [ "$(cat "$work/out" "$work"/torch/*/*/0/stdout.log 2> /dev/null | grep -o '"event":"step".*' | sort -u | wc -l)" = 3 ]; then # Debian's torch keeps it in a file
    echo "ok torchrun trireme train"
else
    echo "FAILED torchrun trireme train:"; cat "$work/out" "$work/err"; bad=1
fi
exit $bad
