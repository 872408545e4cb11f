#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Processes as MindSpore's msrun starts them: a scheduler and workers, all with the same program. The scheduler waits and ends with
# 0; workers with and without MS_NODE_ID train with the losses of one process.
. "$(dirname "$0")/common.sh"
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
train="train mlp --data synth --synth-train 64 --synth-test 16 --steps 3 --log-every 1 --seed 5 --deterministic strict --json"
losses() { grep -h '"event":"step"' "$@" | sed 's/.*"loss":\([^,]*\).*/\1/' | sort; }
# shellcheck disable=SC2086
"$trireme" $train --batch-size 8 > one.json 2> err.txt || fail "one process: $(tail -n 1 err.txt)"
# msrun N [numbered]: msrun --worker_num N --local_worker_num N, as it sets the variables
msrun() {
    local n=$1 r pids=''
    export MS_WORKER_NUM=$n RANK_SIZE=$n MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT
    MS_SCHED_PORT=$(free_ports 1)
    # shellcheck disable=SC2086
    MS_ROLE=MS_SCHED timeout 60 "$trireme" ${train% --json} --batch-size 4 > scheduler.log 2>&1 & scheduler=$!
    for r in $(seq 0 $((n - 1))); do
        # shellcheck disable=SC2086
        env MS_ROLE=MS_WORKER DEVICE_ID="$r" ${2:+MS_NODE_ID="$r" RANK_ID="$r"} \
            timeout 60 "$trireme" $train --batch-size 4 > "worker_$r.log" 2> "worker_$r.err" &
        pids+=" $!"
    done
    for r in $pids; do wait "$r" || fail "a worker ($*): $(tail -qn 1 worker_*.err)"; done
    wait $scheduler || fail "the scheduler ended with $? ($*): $(cat scheduler.log)"
    unset MS_WORKER_NUM RANK_SIZE MS_SCHED_HOST MS_SCHED_PORT
    grep -q "waits until the job of $n workers ends" scheduler.log || fail "the scheduler ($*): $(cat scheduler.log)"
    grep -q "the job of $n ranks at 127.0.0.1:[0-9]* has ended" scheduler.log || fail "the scheduler did not meet the job ($*): $(cat scheduler.log)"
    [ -n "$(losses one.json)" ] && [ "$(losses worker_0.log)" = "$(losses one.json)" ] || fail "other losses ($*)"
}
msrun 2 numbered
msrun 2

# a table in each process's folder: ranks meet by its content (guide 002's script with a copy in each device folder)
"$trireme" cluster make --hosts 127.0.0.1:2 --output table.json || fail "cluster make"
pids=''
for r in 0 1; do
    mkdir "device$r" && cp table.json "device$r"
    # shellcheck disable=SC2086
    (cd "device$r" && RANK_TABLE_FILE=$PWD/table.json RANK_SIZE=2 RANK_ID=$r DEVICE_ID=$r timeout 60 "$trireme" $train --batch-size 4 \
        > "../copy$r.log" 2> "../copy$r.err") &
    pids+=" $!"
done
for r in $pids; do wait "$r" || fail "ranks with copies of a table: $(tail -qn 1 copy*.err)"; done
[ "$(losses copy0.log)" = "$(losses one.json)" ] || fail "other losses with copies of a table"

# HCCL's variables: one warning for those without effect, and the time that ranks wait for each other
HCCL_CONNECT_TIMEOUT=1 HCCL_BUFFSIZE=100 TRIREME_RANK=0 TRIREME_SIZE=2 TRIREME_RENDEZVOUS=unix:$work/meet "$trireme" bench comm --sizes 4 > hccl.txt 2>&1
[ $? = 5 ] && grep -q "HCCL_BUFFSIZE: without effect here" hccl.txt && grep -q "waited 1 s at .* for rank 1 of 2" hccl.txt || fail "HCCL's variables: $(cat hccl.txt)"
exit $failed
