#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The chief dies by SIGKILL and is not started again: another worker saves, writes summaries and ends the job. The former chief comes
# back to a job that has a chief, and is a worker. A worker that waits for servers ends on SIGTERM.
. "$(dirname "$0")/common.sh"
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
read -r p0 w0 w1 w2 none <<< "$(free_ports 5)"
role() { # FOLDER NAME INDEX STEPS
    exec "$trireme" train lenet --data synth --synth-train 4000 --synth-test 100 --batch-size 20 --steps "$4" --seed 3 --role-timeout 6 \
        --save-every-steps 50 --log-every 20 --summary-every 20 --ps_hosts="127.0.0.1:$p0" \
        --worker_hosts="127.0.0.1:$w0,127.0.0.1:$w1,127.0.0.1:$w2" --output "$1" --job_name="$2" --task_index="$3"
}
saved() { find "$1" -maxdepth 1 -name 'ckpt-*' 2> /dev/null | sed 's/.*ckpt-//' | grep -E '^[0-9]+$' | sort -n | tail -n 1; }
until_saved() { # FOLDER STEP: the newest checkpoint is later
    for ((i = 0; i < 600 * patience; i++)); do
        [ "$(saved "$1")" -gt "$2" ] 2> /dev/null && return 0
        sleep 0.1
    done
    fail "no checkpoint after step $2 in $1: $(ls "$1") $(tail -qn 2 ./*.out ./*.err)"
    return 1
}

# ---- the chief does not come back
steps=1000000
role run ps 0 $steps > ps.out 2> ps.err & ps=$!
role run worker 1 $steps > w1.out 2> w1.err & one=$!
role run worker 2 $steps > w2.out 2> w2.err & two=$!
role run worker 0 $steps > w0.out 2> w0.err & chief=$!
until_saved run 0 || exit 1
kill -9 $chief
wait $chief 2> /dev/null
last=$(saved run)
until_saved run "$last" || exit 1
said() { grep -qE "$1" "$2.out" "$2.err"; } # TEXT NAME
stands_in="trainer [12] is the chief now: the one before is silent"
said "$stands_in" w1 || said "$stands_in" w2 || fail "no worker says that it stands in: $(tail -qn 3 w[12].*)"
# ---- it comes back: the job has a chief, which is not disturbed
role run worker 0 $steps > again.out 2> again.err & again=$!
last=$(saved run)
until_saved run "$((last + 200))" || exit 1
kill -0 $again 2> /dev/null || fail "the former chief: $(tail -n 3 again.err)"
said "is the chief now" again && fail "the former chief took over: $(cat again.out again.err)"
# ---- the second chief dies too: the first is the chief again, or the third worker is
said "is the chief now" w1 && stands=$one || stands=$two
kill -9 $stands
wait $stands 2> /dev/null
last=$(saved run)
until_saved run "$last" || exit 1
# ---- SIGTERM: the present chief ends the servers; the other worker ends
kill -TERM $again $one $two 2> /dev/null
wait $ps
[ $? = 0 ] || fail "the server: $(tail -n 3 ps.err)"
for p in $again $one $two; do
    [ "$p" = $stands ] && continue
    wait "$p"
    code=$?
    [ $code = 143 ] || fail "a worker that was told to stop: exit code $code: $(tail -qn 2 again.err w1.err w2.err)"
done
"$trireme" inspect run > inspect.txt || fail "the last checkpoint: $(cat inspect.txt)"
[ "$(find run -maxdepth 1 -name 'events.out.tfevents.*' | grep -c .)" -ge 3 ] || fail "summaries of three chiefs: $(ls run)"

# ---- the chief dies after all other workers have done their part: they end the job
role end ps 0 400 > ps.out 2> ps.err & ps=$!
role end worker 0 400 > w0.out 2> w0.err & chief=$!
until_saved end 0 || exit 1
kill -STOP $chief # so that it cannot end it first
role end worker 1 400 > w1.out 2> w1.err & one=$!
role end worker 2 400 > w2.out 2> w2.err & two=$!
sleep 1
kill -9 $chief
wait $one || fail "worker 1: $(tail -n 3 w1.err)"
wait $two || fail "worker 2: $(tail -n 3 w2.err)"
wait $ps || fail "the server: $(tail -n 3 ps.err)"
grep -q '"state": "done"' end/job.json || fail "job.json: $(cat end/job.json)"
[ "$(saved end)" -ge 400 ] || fail "the last checkpoint: $(ls end)"

# ---- no servers: a worker that waits for them ends on SIGTERM
p0=$none
role none worker 1 10 > alone.out 2> alone.err & alone=$!
sleep 1
kill -TERM $alone
wait $alone
[ $? = 143 ] || fail "a worker without servers: $(cat alone.err)"
exit $failed
