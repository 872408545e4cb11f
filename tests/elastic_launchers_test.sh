#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Elastic jobs under other launchers than trireme's: a rank is killed, a process with its environment (as a launcher that starts a rank
# again has it) joins, and leaves at SIGTERM with code 0; the weights are the bits of one process. Launchers that are not here are left out.
. "$(dirname "$0")/common.sh"
. "$source/tests/slurm.sh"
export OMP_NUM_THREADS=1
have() { command -v "$1" > /dev/null; }
root=""
[ "$(id -u)" = 0 ] && root=--allow-run-as-root
model="mlp --data synth --image-size 32 --synth-train 1024 --epochs 100000 --learning-rate 0.01 --deterministic strict --eval-every-epochs 0
    --log-every 1 --json"
head -c 32 /dev/urandom > token && chmod 600 token
export TRIREME_TOKEN_FILE=$work/token
tried=0

job="" hand=""
# What a failed test leaves behind ends with it: the launcher ends its ranks.
end_all() {
    local pid code=$?
    for pid in $job $hand $(find_rank "TRIREME_RENDEZVOUS=${TRIREME_RENDEZVOUS:-}"); do
        kill -KILL "$pid" 2> /dev/null
    done
    stop_slurm "$work"
    cd / && rm -rf "$work"
    [ $code = 0 ] && [ "$failed" = 1 ] && exit 1
    exit $code
}
trap end_all EXIT
# Waits until a file has a line with TEXT, while the job runs: FILE TEXT
wait_for() {
    local end=$((SECONDS + 300 * patience))
    until grep -q "$2" "$1" 2> /dev/null; do
        kill -0 $job 2> /dev/null && [ $SECONDS -lt $end ] || { fail "$name: no $2: $(tail -n 3 "$1" err.txt hand.txt)"; exit 1; }
        sleep 0.05
    done
}
# Waits for the end of a process that this script has started, and returns its exit code: PID
wait_end() {
    local end=$((SECONDS + 300 * patience))
    while kill -0 "$1" 2> /dev/null; do
        [ $SECONDS -lt $end ] || { fail "$name: process $1 does not end: $(tail -n 3 out.txt err.txt hand.txt)"; exit 1; }
        sleep 0.05
    done
    wait "$1"
}
# Prints the pids of the ranks of this job whose environment has a line: LINE
find_rank() {
    local file
    for file in /proc/[0-9]*/environ; do
        cat "$file" 2> /dev/null | tr '\0' '\n' > variables.txt
        grep -qx "TRIREME_RENDEZVOUS=$TRIREME_RENDEZVOUS" variables.txt && grep -qx "$1" variables.txt || continue
        file=${file%/environ}
        [ "$(readlink "$file/exe")" = "$trireme" ] && echo "${file#/proc/}"
    done
}
# elastic NAME VARIABLE LAUNCHER...: VARIABLE has the rank of a process
elastic() {
    name=$1
    local variable=$2 victim steps
    shift 2
    tried=1
    rm -rf run one hand.txt
    : > out.txt
    export TRIREME_RENDEZVOUS=127.0.0.1:$(free_ports 1)
    # shellcheck disable=SC2086
    "$@" "$trireme" train $model --batch-size 8 --elastic 1:3 --output run > out.txt 2> err.txt &
    job=$!
    wait_for out.txt '"event":"step"'
    victim=$(find_rank "$variable=1")
    cp "/proc/$victim/environ" environment || { fail "$name: no process of rank 1"; exit 1; }
    kill -KILL "$victim"
    wait_for run/run.jsonl '"event":"membership".*"ranks":2.*"lost":\[1\]'
    # shellcheck disable=SC2086
    (mapfile -d '' -t variables < environment && exec env -i "${variables[@]}" "$trireme" train $model --batch-size 8 --elastic 1:3 \
        --output run > hand.txt 2>&1) &
    hand=$!
    wait_for run/run.jsonl '"event":"membership".*"ranks":3.*"joined":\[3\]'
    kill -TERM $hand
    wait_end $hand || fail "$name: the rank that leaves: exit code $?: $(tail -n 3 hand.txt)"
    wait_for run/run.jsonl '"event":"membership".*"ranks":2.*"left":\[3\],"joined":\[\],"redone_steps":0'
    kill -INT "$(find_rank "$variable=0")"
    wait_end $job
    job="" hand=""
    steps=$(sed -n 's/.*"event":"done".*"global_step":\([0-9]*\).*/\1/p' run/run.jsonl)
    # shellcheck disable=SC2086
    timeout 600 "$trireme" train $model --batch-size 24 --steps "${steps:-1}" --output one > out.txt 2> err.txt || fail "one process: $(cat err.txt)"
    cmp "one/ckpt-$steps/model.safetensors" "run/ckpt-$steps/model.safetensors" || fail "$name: other weights: $(tail -n 5 out.txt err.txt)"
    echo "$name: $(grep -c '"event":"membership"' run/run.jsonl) changes"
}
export OMPI_MCA_rmaps_base_oversubscribe=1
have mpirun.openmpi && elastic "Open MPI" OMPI_COMM_WORLD_RANK mpirun.openmpi $root --enable-recovery -n 3
start_slurm "$work" && elastic "Slurm" SLURM_PROCID srun --overcommit --no-kill --kill-on-bad-exit=0 -n 3
[ $tried = 1 ] || skip "no mpirun.openmpi, and no Slurm"
[ $failed = 0 ] && echo passed
exit $failed
