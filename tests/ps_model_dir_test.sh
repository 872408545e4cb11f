#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Roles of one job with different folders (model_dir): the role that comes to servers with another folder ends at once with
# code 2 and names both roles and folders. One folder that roles reach by different paths is no difference.
. "$(dirname "$0")/common.sh"
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
read -r p0 p1 w0 c0 e0 <<< "$(free_ports 5)"
hosts="--ps_hosts 127.0.0.1:$p0,127.0.0.1:$p1 --chief_hosts 127.0.0.1:$c0 --worker_hosts 127.0.0.1:$w0 --evaluator_hosts 127.0.0.1:$e0"
role() { # ROLE INDEX [FOLDER]
    # shellcheck disable=SC2086
    "$trireme" train lenet --data synth --synth-train 200 --synth-test 40 --batch-size 20 --steps 4 --seed 3 --mode sync \
        $hosts --job_name "$1" --task_index "$2" ${3:+--output "$3"} > "$1$2.txt" 2>&1
}
# Its own folder and the servers', as the message names them: the role ends with code 2, soon.
refused() { # TEXT_MINE TEXT_THEIRS ROLE INDEX [FOLDER]
    local mine=$1 theirs=$2 begun=$SECONDS got=0
    shift 2
    role "$@" || got=$?
    [ $got = 2 ] && grep -qF "$mine" "$1$2.txt" && grep -qF "$theirs" "$1$2.txt" && grep -q "same model_dir" "$1$2.txt" &&
        [ $((SECONDS - begun)) -lt $((30 * patience)) ] || fail "$1 $2 of another folder: code $got after $((SECONDS - begun)) s: $(tail -n 3 "$1$2.txt")"
}
role ps 0 run & role ps 1 run &
here=$(readlink -f .)
for _ in $(seq 400); do grep -q "ps 1 of 2 serves" ps1.txt && grep -q "ps 0 of 2 serves" ps0.txt && break; sleep 0.05; done
refused "chief 0 has model_dir $here/other" "ps 0 has model_dir $here/run" chief 0 other
refused "worker 0 has model_dir $here/other" "ps 0 has model_dir $here/run" worker 0 other
refused "evaluator 0 has model_dir $here/third" "ps 0 has model_dir $here/run" evaluator 0 third
refused "worker 0 has no model_dir" "ps 0 has model_dir $here/run" worker 0
# the same folder by another path; the job goes on, and all end with 0
ln -s run link
role evaluator 0 "$here/run" & evaluator=$!
role worker 0 ./link & worker=$!
role chief 0 run || fail "the chief: $(tail -n 3 chief0.txt)"
wait $worker || fail "the worker, by a link: $(tail -n 3 worker0.txt)"
wait $evaluator || fail "the evaluator: $(tail -n 3 evaluator0.txt)"
wait
exit $failed
