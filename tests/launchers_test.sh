#!/usr/bin/env bash
# Ranks started by other people's launchers find each other: Open MPI, MPICH, torchrun, a Slurm of
# one node made for this test. Each that is not installed is skipped with a line. The rank program
# is tests/launch_test in its role "rank": resolve, join, print, leave.
set -u
rank="$TRIREME_BUILD/tests/launch_test"
work=$(mktemp -d /tmp/launchersXXXXXX)
bad=0 tried=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cleanup() {
    for file in "$work"/slurmd.pid "$work"/slurmctld.pid; do
        [ -s "$file" ] && kill "$(cat "$file")" 2>/dev/null
    done
    sleep 0.2
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
have() { command -v "$1" > /dev/null || { echo "skipped: $1 is not installed"; return 1; }; }

if have mpirun.openmpi; then
    timeout 60 mpirun.openmpi --oversubscribe -n 4 "$rank" rank > "$work/out" 2>&1
    expect "Open MPI" 4 "mpirun (Open MPI)"
fi
if have mpirun.mpich; then
    timeout 60 mpirun.mpich -n 4 "$rank" rank > "$work/out" 2>&1
    expect "MPICH (PMI_RANK, PMI_SIZE)" 4 "mpirun (MPICH)"
fi

# -r 1 -t 1: Debian's torch 1.13 cannot read its own default of these under Python 3.11
python=""
for candidate in /usr/bin/python3 python3; do
    "$candidate" -c 'import torch.distributed.run' 2> /dev/null && python=$candidate && break
done
if [ -n "$python" ] && ! getent hosts localhost > /dev/null; then
    echo "skipped: torchrun needs a localhost in /etc/hosts"
elif [ -n "$python" ]; then
    timeout 120 "$python" -m torch.distributed.run --standalone --nproc_per_node 2 --no_python \
        -r 1 -t 1 --log_dir "$work/torch" "$rank" rank > "$work/out" 2>&1
    expect "torchrun" 2 "torchrun --standalone"
    timeout 120 "$python" -m torch.distributed.run --nnodes 1 --nproc_per_node 3 --no_python \
        --master_addr 127.0.0.1 --master_port $((20000 + RANDOM % 10000)) \
        -r 1 -t 1 --log_dir "$work/torch" "$rank" rank > "$work/out" 2>&1
    expect "torchrun" 3 "torchrun, the agent's store on MASTER_PORT"
else
    echo "skipped: no Python with torch"
fi

slurm_plugin=$(ls /usr/lib/*/slurm-wlm/auth_none.so 2> /dev/null | head -1)
if have slurmctld && have slurmd && have srun && [ -n "$slurm_plugin" ] && [ "$(id -u)" = 0 ]; then
    port=$((30000 + RANDOM % 10000))
    mkdir -p "$work/state" "$work/spool"
    cat > "$work/slurm.conf" << CONF
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
NodeName=$(hostname) NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
CONF
    export SLURM_CONF="$work/slurm.conf"
    slurmctld && slurmd
    for _ in $(seq 40); do sinfo -h 2> /dev/null | grep -q idle && break; sleep 0.25; done
    if sinfo -h 2> /dev/null | grep -q idle; then
        timeout 60 srun --overcommit -n 4 "$rank" rank > "$work/out" 2>&1
        expect "Slurm step" 4 "srun"
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
    else
        echo "skipped: the one-node Slurm did not come up"; tail -n 3 "$work"/slurm*.log
    fi
else
    echo "skipped: a Slurm of one node needs slurm-wlm and root"
fi

[ "$tried" = 0 ] && exit 77
exit $bad
