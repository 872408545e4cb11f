# SPDX-License-Identifier: Apache-2.0
# Sourced by tests of launchers: a Slurm of one node, made for the test. Needs root and Debian's slurm-wlm; no munge.

# Starts it, its files in FOLDER, and exports SLURM_CONF. Returns 1 and prints why, where it cannot be: FOLDER
start_slurm() {
    local folder=$1 port=$((30000 + RANDOM % 10000)) program
    for program in slurmctld slurmd srun sinfo; do
        command -v $program > /dev/null || { echo "skipped: a Slurm of one node needs slurm-wlm and root"; return 1; }
    done
    ls /usr/lib/*/slurm-wlm/auth_none.so > /dev/null 2>&1 && [ "$(id -u)" = 0 ] || { echo "skipped: a Slurm of one node needs slurm-wlm and root"; return 1; }
    mkdir -p "$folder/state" "$folder/spool"
    cat > "$folder/slurm.conf" << CONF
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
NodeName=$(hostname) NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
CONF
    export SLURM_CONF=$folder/slurm.conf
    slurmctld && slurmd
    for _ in $(seq 40); do
        sinfo -h 2> /dev/null | grep -q idle && return 0
        sleep 0.25
    done
    echo "skipped: the Slurm of one node did not come up: $(tail -qn 3 "$folder"/slurm*.log)"
    return 1
}
# Ends it: FOLDER
stop_slurm() {
    local file
    for file in "$1/slurmd.pid" "$1/slurmctld.pid"; do
        [ -s "$file" ] && kill "$(cat "$file")" 2> /dev/null
    done
    sleep 0.2
}
