#!/usr/bin/env bash
# Guide 000's job, two servers of one PS and four workers each, by its command lines: as processes of this host, and as root as
# two hosts: network name spaces joined by a link, where nothing but TCP connects them.
set -u
trireme=${TRIREME:?}
work=$(mktemp -d)
a=trmpa$$ b=trmpb$$ made=0 failed=0
cleanup() {
    # shellcheck disable=SC2046
    kill $(jobs -p) 2> /dev/null
    wait 2> /dev/null
    [ $made = 1 ] && ip netns del $a 2> /dev/null && ip netns del $b 2> /dev/null
    rm -rf "$work"
}
trap cleanup EXIT
export XDG_CACHE_HOME=$work/cache OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive # ten roles on few CPUs: none spins
cd "$work" || exit 1
fail() { echo "FAIL: $*"; failed=1; }
head -c 32 /dev/urandom > job.token && chmod 600 job.token
batches=40 # of both epochs together

# job NAME HOST-A HOST-B PORTS-A PORTS-B PREFIX-A PREFIX-B: ports: of the ps, then of four workers
job() {
    local name=$1 host=("$2" "$3") ports prefix=("$6" "$7") ps= workers= pids= tasks=() where=() i k code=0
    for k in 0 1; do
        read -ra ports <<< "$([ $k = 0 ] && echo "$4" || echo "$5")"
        ps+="${ps:+,}${host[k]}:${ports[0]}"
        tasks+=("ps --task_index=$k")
        where+=("$k")
        for i in 1 2 3 4; do
            workers+="${workers:+, }${host[k]}:${ports[i]}"
            tasks+=("worker --task_index=$((4 * k + i - 1))")
            where+=("$k")
        done
    done
    for i in "${!tasks[@]}"; do
        # shellcheck disable=SC2086
        ${prefix[where[i]]} timeout 100 "$trireme" widedeep_ps_strategy.py --ps_hosts="$ps" --worker_hosts="$workers" --job_name=${tasks[i]} \
            --model_dir="$work/$name" --token-file job.token --data clicks --table-rows 200 --synth-train 2000 --synth-test 400 \
            --batch-size 100 --epochs 2 --threads 1 --log-every 10 --json > "$name$i.json" 2> "$name$i.err" &
        pids+=" $!"
    done
    for i in $pids; do
        wait "$i" || code=$?
    done
    [ $code = 0 ] || { fail "$name: exit code $code: $(tail -qn 1 "$name"*.err)"; return; }
    python3 - "$name" $batches << 'END' || fail "$name: what it did"
import json, sys
name, batches = sys.argv[1], int(sys.argv[2])
done = [[json.loads(l) for l in open(f"{name}{i}.json") if '"done"' in l][-1] for i in range(10)]
assert [d["role"] for d in done] == ["ps"] + 4 * ["worker"] + ["ps"] + 4 * ["worker"], done
chief = done[1]
# Each batch once, whoever of the eight took it.
assert chief["global_step"] == batches and chief["least_updates"] == chief["most_updates"] == batches, chief
print(name, "auc", [json.loads(l) for l in open(f"{name}1.json") if '"eval"' in l][-1]["auc"], f"{chief['seconds']:.1f} s")
END
}

: > widedeep_ps_strategy.py
free() { python3 -c 'import socket
s = [socket.socket() for _ in range(5)]
[x.bind(("127.0.0.1", 0)) for x in s]
print(*[x.getsockname()[1] for x in s])'; }
job processes 127.0.0.1 127.0.0.1 "$(free)" "$(free)" "" ""

if ! { [ "$(id -u)" = 0 ] && ip netns add $a && ip netns add $b; } 2> /dev/null; then
    echo "part skipped: two hosts need root and network name spaces"
    exit $failed
fi
made=1
ip link add pa$$ netns $a type veth peer name pb$$ netns $b || exit 1
ip -n $a addr add 10.98.0.1/24 dev pa$$ && ip -n $b addr add 10.98.0.2/24 dev pb$$
for end in "$a pa$$" "$b pb$$"; do
    ip -n "${end% *}" link set "${end#* }" up
    ip -n "${end% *}" link set lo up
done
sleep 0.5
job hosts 10.98.0.1 10.98.0.2 "2222 2223 2224 2225 2226" "2222 2223 2224 2225 2226" "ip netns exec $a" "ip netns exec $b"
exit $failed
