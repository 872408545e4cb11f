#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Guide 000's job with the guide's own lines, flags and addresses: two servers, eight workers each, an evaluator. Once as processes of
# this host, and as root as two hosts with the guide's addresses: network name spaces that only TCP connects and that share only
# model_dir, which holds the job's token.
. "$(dirname "$0")/common.sh"
a=trmpa$$ b=trmpb$$
cleanup() {
    # shellcheck disable=SC2046
    kill $(jobs -p) 2> /dev/null
    wait 2> /dev/null
    for space in $a $b; do ip netns del $space 2> /dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive # nineteen roles on few CPUs: none spins
batches=96

# job NAME ADDRESS PREFIX-A PREFIX-B: the hosts are ADDRESS.100 and ADDRESS.200
job() {
    local name=$1 prefix=("$3" "$4") pids='' tasks=() where=() i code=0
    # the guide's addresses and the settings of its NPURunConfig
    local said=(--ps_hosts "$2.100:2222,$2.200:2222" --evaluator_hosts "$2.100:2231" --worker_hosts
        "$2.100:2223, $2.100:2224, $2.100:2225, $2.100:2226, $2.100:2227, $2.100:2228, $2.100:2229, $2.100:2230, \
$2.200:2223, $2.200:2224, $2.200:2225, $2.200:2226, $2.200:2227, $2.200:2228, $2.200:2229, $2.200:2230"
        --model_dir "$work/$name" --keep 2 --summary-every 4 --log-every 3 --save-every-steps 40 --precision must_keep_origin_dtype)
    for i in 0 1; do
        tasks+=("ps --task_index=$i")
        where+=("$i")
    done
    for i in $(seq 0 15); do
        tasks+=("worker --task_index=$i")
        where+=($((i / 8)))
    done
    tasks+=("evaluator --task_index=0")
    where+=(0)
    for i in "${!tasks[@]}"; do
        # shellcheck disable=SC2086
        ${prefix[where[i]]} timeout $((150 * patience)) "$trireme" train widedeep "${said[@]}" --job_name=${tasks[i]} --data clicks --table-rows 200 \
            --synth-train $((batches * 50)) --synth-test 400 --batch-size 50 --threads 1 --json > "$name$i.json" 2> "$name$i.err" &
        pids+=" $!"
    done
    for i in $pids; do
        wait "$i" || code=$?
    done
    [ $code = 0 ] || { fail "$name: exit code $code: $(tail -qn 1 "$name"*.err)"; return; }
    python3 - "$name" $batches << 'END' || fail "$name: what it did"
import glob, json, sys
name, batches = sys.argv[1], int(sys.argv[2])
events = [[json.loads(line) for line in open(f"{name}{i}.json")] for i in range(19)]
done = [e[-1] for e in events]
assert [d["role"] for d in done] == 2 * ["ps"] + 16 * ["worker"] + ["evaluator"], done
chief, evaluations = done[2], [e for e in events[18] if e["event"] == "eval"]
# Each batch is used once by one of the sixteen workers; settings of NPURunConfig.
assert chief["global_step"] == batches and chief["least_updates"] == chief["most_updates"] == batches, chief
assert done[18]["global_step"] == batches and evaluations, events[18]
saved = [e["global_step"] for e in events[2] if e["event"] == "checkpoint"]
# At its first batch and at the end. A chief that came late may have had the last batch alone: it logs each third one of its own.
late = not any(e["event"] == "step" for e in events[2])
kept = glob.glob(f"{name}/ckpt-*") # the newest two, and one that the evaluator was reading as the last was saved
assert saved[-1] == batches and len(saved) >= 2 - late and min(2, len(saved)) <= len(kept) <= min(3, len(saved)), (saved, kept, events[2])
print(name, "auc", evaluations[-1]["auc"], f"{chief['seconds']:.1f} s, checkpoints {saved}")
END
}

job processes 127.$((RANDOM % 200 + 20)).$((RANDOM % 250 + 1)) "" ""
[ ! -e processes/job.token ] || fail "a token for one host"

# An unprivileged container may refuse any of these, to root too.
two_spaces() {
    [ "$(id -u)" = 0 ] || { echo "this is user $(id -u)"; return 1; }
    ip netns add $a && ip netns add $b && ip link add pa$$ netns $a type veth peer name pb$$ netns $b &&
        ip -n $a addr add 192.168.1.100/24 dev pa$$ && ip -n $b addr add 192.168.1.200/24 dev pb$$ &&
        ip -n $a link set pa$$ up && ip -n $b link set pb$$ up && ip -n $a link set lo up && ip -n $b link set lo up &&
        ip netns exec $a true && ip netns exec $b true
}
if ! two_spaces > spaces 2>&1; then
    echo "part skipped: two hosts need root and network name spaces: $(tail -1 spaces)"
    exit $failed
fi
sleep 0.5
job hosts 192.168.1 "ip netns exec $a" "ip netns exec $b"
[ "$(stat -c %a-%s hosts/job.token)" = 600-32 ] || fail "the job's secret: $(ls -l hosts)"
exit $failed
