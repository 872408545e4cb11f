#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The chief of a job with parameter servers has no room for its checkpoint: training goes on and a later save tries again; a last
# save without room ends the chief with code 4, and the job goes on from the servers' files when the chief is started again.
# A limit of the size of files (RLIMIT_FSIZE, EFBIG) stands for the full disk.
. "$(dirname "$0")/common.sh"
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
begin() { # FOLDER: other ports for each job
    local p0 p1 w0 c0
    read -r p0 p1 w0 c0 <<< "$(free_ports 4)"
    folder=$1 hosts="--ps_hosts 127.0.0.1:$p0,127.0.0.1:$p1 --chief_hosts 127.0.0.1:$c0 --worker_hosts 127.0.0.1:$w0"
}
role() { # LOG ROLE INDEX STEPS
    # shellcheck disable=SC2086
    exec "$trireme" train lenet --data synth --synth-train 400 --synth-test 40 --batch-size 10 --steps "$4" --epochs 1000 --seed 3 --mode sync \
        --save-every-steps 10 --keep 2 $hosts --job_name "$2" --task_index "$3" --output "$folder" > "$1" 2>&1
}
limited() { # ...: the same with files of at most 64 KB; the signal that would come with it is ignored
    trap '' XFSZ
    ulimit -S -f 64
    role "$@"
}
until_says() { # TEXT LOG
    local _
    for _ in $(seq $((600 * patience))); do grep -q "$1" "$2" 2> /dev/null && return; sleep 0.05; done
    fail "$2 does not say '$1': $(tail -n 3 "$2")"
}

# ---- room comes back while the job trains
begin room
(role ps0.txt ps 0 300) & (role ps1.txt ps 1 300) & (role worker.txt worker 0 300) &
(limited chief.txt chief 0 300) & chief=$!
until_says "is not saved: .*training goes on, the next save tries again" chief.txt
[ -z "$(ls -d room/ckpt-*[0-9] 2> /dev/null)" ] || fail "a checkpoint in spite of the limit: $(ls room)"
prlimit --pid $chief --fsize=unlimited:
wait $chief || fail "the chief, after there was room again: $(tail -n 3 chief.txt)"
wait
grep -q 'model_checkpoint_path: "ckpt-300"' room/checkpoint || fail "no last checkpoint: $(cat room/checkpoint)"
"$trireme" inspect room/ckpt-300 > inspect.txt || fail "the last checkpoint: $(cat inspect.txt)"
grep -q '"state": "done"' room/job.json || fail "room: $(cat room/job.json)"

# ---- it does not, until the chief is started again
begin full
(role ps0.txt ps 0 40) & (role ps1.txt ps 1 40) & (role worker.txt worker 0 40) &
(limited chief.txt chief 0 40) & chief=$!
wait $chief
code=$?
[ $code = 4 ] && tail -n 1 chief.txt | grep -q "saving\|saved\|too large" || fail "a last save without room: code $code, $(tail -n 3 chief.txt)"
grep -q '"state": "running"' full/job.json || fail "full: $(cat full/job.json)"
(role again.txt chief 0 40) || fail "the chief, started again: $(tail -n 3 again.txt)"
wait
grep -q 'model_checkpoint_path: "ckpt-40"' full/checkpoint || fail "no checkpoint of the chief that was started again: $(ls full)"
grep -q '"state": "done"' full/job.json || fail "full, in the end: $(cat full/job.json)"
for log in ps0.txt ps1.txt worker.txt; do ! grep -qi "error" $log || fail "$log: $(grep -i error $log | head -n 2)"; done
exit $failed
