#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes faults in real jobs: kills, stops, dead launchers, cut networks, connections of unknown processes, wrong input. Prints a
# line for each: fault, expected, seen, seconds. Exit code 1 if one was not as expected.
# Wrong input lies in bench/faults/. Usage: bench/faults.sh [--short] [ID...]        TRIREME, TRIREME_BUILD: the program and its build folder
#   --short: only the faults that take seconds (tests/faults*_test.sh). Networks need root, ip and nft, and are skipped otherwise.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(realpath "${TRIREME_BUILD:-$root/build/release}") && trireme=$(realpath "${TRIREME:-$build/trireme}") || exit 2
for test in flip_test tcp_flip_test net_test side_test side_fuzz; do
    [ -x "$build/tests/$test" ] || { echo "faults.sh: $build/tests/$test, which N07, S03 and S04 run, is not there: make test builds it" >&2; exit 2; }
done
short=0; [ "${1:-}" = --short ] && short=1 && shift
only=" $* "
ahead=() # a command that runs the jobs
work=$(mktemp -d /tmp/faultsXXXXXX)
a=trmfa$$ b=trmfb$$ spaces=0 failed=0
export XDG_CACHE_HOME=$work/cache
cleanup() {
    local pids; pids=$(jobs -p); [ -n "$pids" ] && kill -9 $pids 2> /dev/null
    [ -d "${quota:-}" ] && rmdir "$quota"
    [ $spaces = 1 ] && { ip netns del $a; ip netns del $b; } 2> /dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap "exit 143" TERM INT HUP
before_tmp=$(ls -d /tmp/trireme-"$(id -u)"/* 2> /dev/null | sort) before_shm=$(ls /dev/shm | sort)

# --- tools ------------------------------------------------------------------------------------------------------------
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.2f", b - a }'; }
patience=${TRIREME_PATIENCE:-1} # the factor of all time limits
grep -qaE '__(a|t)san_init' "$trireme" && patience=$((patience * 6))
timeout() { local seconds=$1; shift; command timeout $((seconds * patience)) "$@"; }
below() { awk -v a="$1" -v b="$2" -v p="$patience" 'BEGIN { exit !(a < b * p) }'; }
wanted() { [ "$only" = "  " ] || [[ "$only" == *" $1 "* ]]; }
long() { [ $short = 0 ]; }
row() { # ID FAULT EXPECTED SEEN SECONDS OK(0 good)
    [ "$6" = 0 ] && local mark=ok || { mark=FAILED; failed=1; }
    printf '%-4s %-44s | %-46s | %-60.60s | %6s | %s\n' "$1" "$2" "$3" "${4//$'\n'/ }" "$5" $mark
    [ "$6" = 0 ] || { echo "--- console"; tail -n 12 out.txt 2> /dev/null; for log in device*/train.log*; do echo "--- $log"; tail -n 4 "$log"; done; } >&2
}
fresh() { rm -rf "$work/job"; mkdir -p "$work/job"; cd "$work/job" || exit 1; }
train="train mlp --data synth --synth-train 4000 --synth-test 40 --batch-size 8 --epochs 2000 --learning-rate 0.01 --seed 5 --log-every 1"
wait_for() { # TEXT FILE SECONDS
    for _ in $(seq $(($3 * 20 * patience))); do grep -qsF -- "$1" "$2" && return 0; sleep 0.05; done
    return 1
}
# begin N ARGS...: a job in the background that has done steps; $launcher
begin() {
    local n=$1; shift
    fresh
    # shellcheck disable=SC2086
    "${ahead[@]}" "$trireme" $train -n "$n" "$@" > out.txt 2>&1 &
    launcher=$!
    wait_for "step: 3," out.txt 60 || echo "the job does not start" >&2
}
rank_pid() { # RANK: of the job of $launcher
    local p
    for p in $(pgrep -f -- "$work/cache|train mlp|bench comm"); do
        { tr '\0' '\n' < /proc/"$p"/environ | grep -qx "XDG_CACHE_HOME=$XDG_CACHE_HOME" &&
            tr '\0' '\n' < /proc/"$p"/environ | grep -qx "TRIREME_RANK=$1" && echo "$p" && return; } 2> /dev/null
    done
}
ended() { # SECONDS: of $launcher; sets $code
    for _ in $(seq $(($1 * 20 * patience))); do
        kill -0 "$launcher" 2> /dev/null || break
        sleep 0.05
    done
    kill -0 "$launcher" 2> /dev/null && { code=none; kill -9 "$launcher"; wait "$launcher" 2> /dev/null; return 1; }
    wait "$launcher" 2> /dev/null; code=$?
}
said() { grep -hoF -m1 -- "$1" "${@:2}" 2> /dev/null | head -1; }
ours_left() { for p in $(pgrep -x trireme); do
    tr '\0' '\n' 2> /dev/null < /proc/"$p"/environ | grep -qx "XDG_CACHE_HOME=$XDG_CACHE_HOME" && echo "$p"; done; }

# --- processes ----------------------------------------------------------------------------------------------------------
kill_rank() { # ID WHAT ARGS...
    begin 3 "${@:3}"
    local victim begun took=9
    victim=$(rank_pid 1); begun=$(now)
    kill -9 "$victim"
    for _ in $(seq 100); do
        grep -q "rank 1 " device0/train.log0 && grep -q "rank 1 " device2/train.log2 && { took=$(since "$begun"); break; }
        sleep 0.02
    done
    ended 15
    local once; once=$(grep -c "rank 1 died of signal 9" out.txt)
    [ "$code" = 137 ] && [ "$once" = 1 ] && below "$took" "${bound:-1}"
    r=$?; row "$1" "$2" "named on the others < ${bound:-1} s, once at the end, 137" "$(grep -h "rank 1 (" device2/train.log2 | tail -1 | cut -c1-90) code $code" "$took" $r
}
if wanted F01; then
    # the bound holds on a machine that has a CPU for each rank; the short run is for crowded ones
    [ $short = 1 ] && bound=3 || bound=1
    kill_rank F01 "kill -9 rank 1 of 3 in a step"
    long && kill_rank F01 "kill -9 rank 1 of 3 while saves are written" --output run --save-every-steps 1
    fresh; begun=$(now)
    # shellcheck disable=SC2086
    timeout 60 "$trireme" run -n 3 -- sh -c "[ \$TRIREME_RANK = 2 ] && kill -9 \$\$; exec $trireme $train" > out.txt 2>&1
    code=$?; took=$(since "$begun")
    [ $code = 137 ] && [ "$(grep -c "rank 2 died of signal 9" out.txt)" = 1 ] && below "$took" 6
    r=$?; row F01 "kill -9 rank 2 before it meets the others" "job ends, rank 2 named, 137" "$(said "rank 2 died of signal 9" out.txt) code $code" "$took" $r
fi
if wanted F05; then
    begin 3; begun=$(now); kill -9 "$launcher"; wait "$launcher" 2> /dev/null
    for _ in $(seq 100); do [ -z "$(ours_left)" ] && break; sleep 0.05; done
    left=$(ours_left | wc -l); [ "$left" = 0 ]
    r=$?; row F05 "kill -9 the launcher" "0 orphans after 5 s" "$left orphans" "$(since "$begun")" $r
fi
if wanted F06; then
    begin 3; victim=$(rank_pid 1); begun=$(now); kill -STOP "$victim"; sleep 3; kill -CONT "$victim"
    steps=$(grep -c step: out.txt); sleep 1.5; more=$(grep -c step: out.txt); bad=$(grep -ci "error" out.txt)
    kill -TERM "$launcher"; ended 20
    [ "$more" -gt "$steps" ] && [ "$bad" = 0 ] && [ "$code" = 143 ]
    r=$?; row F06 "SIGSTOP rank 1 for 3 s" "goes on" "$((more - steps)) steps in 1.5 s afterwards, $bad errors" "$(since "$begun")" $r
    if long; then
        begin 3; victim=$(rank_pid 1); begun=$(now); kill -STOP "$victim"
        wait_for "has waited 30 s for rank 1 in" out.txt 40; took=$(since "$begun")
        line=$(grep -h "has waited" out.txt | head -1 | sed 's/.*has waited/waited/')
        kill -CONT "$victim"; sleep 1.5; steps=$(grep -c step: out.txt); sleep 1; more=$(grep -c step: out.txt)
        kill -TERM "$launcher"; ended 20
        [[ "$line" == *"rank 1 in "*" #"*"' of '"* ]] && below "$took" 35 && [ "$more" -gt "$steps" ]
        r=$?; row F06 "SIGSTOP rank 1 for more than 30 s, then SIGCONT" "operation, tensor, ranks at 30 s; goes on" "$line" "$took" $r
        begin 3 --engine tcp; victim=$(rank_pid 1); begun=$(now); kill -STOP "$victim"; sleep 12; kill -CONT "$victim"
        steps=$(grep -c step: out.txt); sleep 3; more=$(grep -c step: out.txt); bad=$(grep -ci "error" out.txt)
        kill -TERM "$launcher"; ended 20
        [ "$more" -gt "$steps" ] && [ "$bad" = 0 ]
        r=$?; row F06 "SIGSTOP rank 1 for 12 s, sockets between ranks" "goes on" "$((more - steps)) steps in 3 s afterwards, $bad errors" "$(since "$begun")" $r
        begin 3; victim=$(rank_pid 1); begun=$(now); kill -STOP "$victim"; ended 150; took=$(since "$begun")
        grep -qE "waited 120.0 s for rank 1 in|rank 1 .*stopped or hung" out.txt && [ "$code" = 2 ] && below "$took" 140
        r=$?; row F06 "SIGSTOP rank 1 for ever" "rank 1 named, job fails at 120 s" "$(grep -h "rank 1 (" out.txt | tail -1 | cut -c1-90) code $code" "$took" $r
    fi
fi
if wanted F07; then
    for to in one launcher; do
        begin 3 --output run --save-every-steps 1000000; begun=$(now)
        [ $to = one ] && kill -TERM "$(rank_pid 1)" || kill -TERM "$launcher"
        ended 20; took=$(since "$begun")
        saved=$(ls -d run/ckpt-* 2> /dev/null | wc -l)
        "$trireme" eval mlp --checkpoint run --data synth --synth-test 40 > eval.txt 2>&1; verified=$?
        [ "$code" = 143 ] && [ "$saved" = 1 ] && [ $verified = 0 ]
        r=$?; row F07 "SIGTERM to $to$([ $to = one ] && echo " rank")" "step finished, one checkpoint, 143" "code $code, $saved checkpoints, eval of it $verified" "$took" $r
    done
fi
if wanted F08; then
    begin 2 --output run --save-every-steps 1; begun=$(now); kill -TERM "$launcher"; sleep 0.02; kill -TERM "$launcher"; ended 20
    took=$(since "$begun")
    "$trireme" eval mlp --checkpoint run --data synth --synth-test 40 > eval.txt 2>&1; verified=$?
    [ $verified = 0 ] && [ "$code" = 143 ]
    r=$?; row F08 "second SIGTERM during saves" "newest complete save loads" "code $code, eval of it $verified" "$took" $r
fi

# Slows a rank down: by the quota of a cgroup (version 1 or 2), or, where none can be made or has no effect (real-time), by stops of 70 ms in every 100.
slow_down() { # PID: 30 % of a CPU
    quota=
    if chrt -p "$1" | grep -q "SCHED_\(FIFO\|RR\)"; then :
    elif [ -d /sys/fs/cgroup/cpu ] && mkdir /sys/fs/cgroup/cpu/$a 2> /dev/null; then
        quota=/sys/fs/cgroup/cpu/$a
        echo 100000 > $quota/cpu.cfs_period_us && echo 30000 > $quota/cpu.cfs_quota_us && echo "$1" > $quota/cgroup.procs && return
    elif [ -f /sys/fs/cgroup/cgroup.controllers ] && mkdir /sys/fs/cgroup/$a 2> /dev/null; then
        quota=/sys/fs/cgroup/$a
        echo "30000 100000" > $quota/cpu.max && echo "$1" > $quota/cgroup.procs && return
    fi 2> /dev/null
    "${ahead[@]}" bash -c 'while kill -STOP "$1" && sleep 0.07 && kill -CONT "$1"; do sleep 0.03; done' - "$1" 2> /dev/null &
}
# On an overloaded machine all ranks are slow and no straggler is reported. So this job gets a higher priority, if that is allowed.
before_others() { chrt -r 2 true 2> /dev/null && ahead=(chrt -r 2); }
overloaded() { [ ${#ahead[@]} = 0 ] && awk -v n="$(nproc)" '{ split($4, now, "/"); exit !($1 > 2 * n || now[1] > 3 * n) }' /proc/loadavg; }
wanted F09 && before_others
if wanted F09 && overloaded; then
    echo "F09: skipped, load $(cut -d' ' -f1 /proc/loadavg) on $(nproc) CPUs, and no right to go before others"
elif wanted F09; then
    begin 2; victim=$(rank_pid 1); begun=$(now); slow_down "$victim"
    wait_for "rank 1 (" out.txt 25; took=$(since "$begun")
    line=$(grep -h "is slow and the others wait for it" out.txt | head -1 | sed 's/.*: rank/rank/')
    first=$(grep -c "is slow and the others wait for it" out.txt)
    kill -TERM "$launcher"; ended 30
    [[ "$line" == *"rank 1 "*"cause: cpu"* ]] && [ "$first" = 1 ] && [ "$code" = 143 ]
    r=$?; row F09 "rank 1 gets 30 % of a CPU" "named with cause cpu within 3 windows" "${line##*;} ${line%%:*}" "$took" $r
    [ -n "$quota" ] && rmdir "$quota" 2> /dev/null
    quiet=$([ $short = 1 ] && echo 2 || echo 60)
    begin 2; begun=$(now); sleep "$quiet"; line=$(grep -c "is slow and" out.txt); steps=$(grep -c step: out.txt)
    busy=0; [ "$line" != 0 ] && overloaded && busy=1
    kill -TERM "$launcher"; ended 30
    if [ $busy = 1 ]; then
        echo "F09: no rank is slow: not judged, load $(cut -d' ' -f1,4 /proc/loadavg) on $(nproc) CPUs"
    else
        [ "$line" = 0 ]; r=$?; row F09 "no rank is slow" "no such line" "$line lines in $steps steps" "$(since "$begun")" $r
    fi
    ahead=()
fi

# --- networks -------------------------------------------------------------------------------------------------------------
make_spaces() {
    [ $spaces = 1 ] && return 0
    command -v nft > /dev/null && ip netns add $a 2> /dev/null && ip netns add $b 2> /dev/null || return 1
    spaces=1
    ip link add f$$ netns $a type veth peer name f$$ netns $b
    ip -n $a addr add 10.80.0.1/24 dev f$$; ip -n $b addr add 10.80.0.2/24 dev f$$
    for n in $a $b; do ip -n $n link set lo up; ip -n $n link set f$$ up; done
    for _ in $(seq 50); do ip -n $b link show f$$ | grep -q "state UP" && return 0; sleep 0.1; done
}
sever() { # SPACE RULE: what arrives from the other space
    ip netns exec "$1" nft -f - <<< "table inet cut { chain in { type filter hook input priority 0; iifname f$$ $2 ; }; }"
}
mend() { for n in $a $b; do ip netns exec $n nft delete table inet cut 2> /dev/null; done; }
# OUT ARGS...: runs trireme ARGS as four ranks, two in each name space. Rank 0 prints into OUT, and all ranks into deviceR/train.logR.
# Returns the first exit code that is not 0.
run_hosts() {
    local out=$1 r space pids='' code=0
    shift
    for r in 0 1 2 3; do
        space=$a; [ $r -ge 2 ] && space=$b
        rm -rf device$r; mkdir device$r
        [ $r = 0 ] && { : > "$out"; ln -s "../$out" device0/train.log0; }
        ip netns exec $space env TRIREME_RANK=$r TRIREME_SIZE=4 TRIREME_RENDEZVOUS=10.80.0.1:29400 TRIREME_TOKEN_FILE="$work/job.token" \
            "$trireme" "$@" > device$r/train.log$r 2>&1 &
        pids+=" $!"
    done
    # shellcheck disable=SC2086
    trap "kill $pids 2> /dev/null" TERM
    for r in $pids; do wait "$r" || { r=$?; [ $code = 0 ] && code=$r; }; done
    return $code
}
begin_hosts() { # ARGS...: as begin
    fresh
    # shellcheck disable=SC2086
    run_hosts out.txt $train "$@" & launcher=$!
    wait_for "step: 3," out.txt 60 || echo "the job does not start" >&2
}
network_fault() { # ID WHAT EXPECTED-TEXT SPACES RULE
    begin_hosts
    local begun n took others line; begun=$(now)
    for n in $4; do sever "$n" "$5"; done
    for _ in $(seq 400); do
        grep -qsE "error: $3" out.txt && break
        sleep 0.05
    done
    took=$(since "$begun"); ended 40
    line=$(grep -hE "error: $3" out.txt | head -1 | cut -c1-110)
    others=$(grep -lE "rank [0-9] .*(no answer|lost|connection)" device*/train.log* | wc -l)
    mend
    [ -n "$line" ] && below "$took" "${bound_net:-6}" && [ "$others" = 4 ] && [ "$code" != 0 ] && [ "$code" != none ]
    r=$?; row "$1" "$2" "$6" "${line#*error: }; $others of 4 ranks" "$took" $r
}
# Each connection is reset in the middle of a job that saves. The job fails and names the rank, is resumed, and ends with the bits of an
# undisturbed job: no damaged data were summed.
reset_fault() {
    local steps=$([ $short = 1 ] && echo 60 || echo 800) line took code r
    local job="${train/--epochs 2000/--steps $steps} --deterministic true --save-every-steps $((steps / 10))"
    fresh; local begun; begun=$(now)
    # shellcheck disable=SC2086
    run_hosts clean.txt $job --output clean || { row N03 "a job over two hosts" "runs" "$(tail -1 clean.txt)" "$(since "$begun")" 1; return; }
    # shellcheck disable=SC2086
    run_hosts out.txt $job --output run & launcher=$!
    local at=$((steps / 4 - 1)) # 4 ranks of 8 of 4000 samples: epochs of 125 steps
    wait_for "epoch: $((at / 125 + 1)) step: $((at % 125 + 1))," out.txt 60; begun=$(now)
    for n in $a $b; do sever "$n" "ip protocol tcp reject with tcp reset"; done
    ended 30; took=$(since "$begun"); mend
    line=$(grep -hE "rank [0-9] .*(reset|lost|no answer|connection)" device0/train.log0 device1/train.log1 out.txt | head -1 | cut -c1-100)
    local broke=$code
    # shellcheck disable=SC2086
    run_hosts again.txt $job --output run --resume; code=$?
    for one in clean run; do "$trireme" export mlp --checkpoint $one --to npz --output $one.npz > $one.log 2>&1; done
    cp again.txt out.txt
    [ -n "$line" ] && [ "$broke" != 0 ] && [ "$broke" != none ] && [ "$code" = 0 ] && cmp -s clean.npz run.npz
    r=$?; row N03 "all connections reset (nft) in a job over 2 hosts" "named; after a restart equal bits" "restart $code, $(cmp clean.npz run.npz 2>&1 && echo equal bits); $line" "$took" $r
}
if wanted N01 || wanted N02 || wanted N03 || wanted N06; then
    if make_spaces; then
        head -c 32 /dev/urandom > "$work/job.token"; chmod 600 "$work/job.token"
        unset bound_net; [ $short = 1 ] && bound_net=9
        rule="drop"; text="rank [0-9] .*(no answer|lost its connection)"
        wanted N01 && network_fault N01 "host b cut off (nft drop, both ways)" "$text" "$a $b" "$rule" "named < 6 s"
        long && wanted N02 && network_fault N02 "one-way partition (drop from b to a)" "$text" "$a" "$rule" "named < 6 s"
        long && wanted N02 && network_fault N02 "one-way partition (drop from a to b)" "rank [0-9] .*(no answer|lost|connection)" "$b" "$rule" "named < 6 s"
        wanted N03 && reset_fault
        if long && wanted N06; then
            begin_hosts
            begun=$(now); sever "$a" drop; for r in 2 3; do kill -9 "$(rank_pid $r)"; done
            ended 40; took=$(since "$begun"); mend
            line=$(grep -hE "rank [23] .*(no answer|lost|died)|lost its connection to rank [23]" device0/train.log0 | head -1)
            [ -n "$line" ]; r=$?; row N06 "half-open: b dies behind a cut wire" "noticed by heartbeat < 6 s" "$line" "$took" $r
        fi
    else
        echo "N01 N02 N03 N06: skipped, no network name spaces or no nft here"
    fi
fi
pair() { # PORT TOKEN0 TOKEN1 SECONDS: two ranks that meet over a port of this host; their codes in c0, c1
    fresh
    for r in 0 1; do
        local token=TRIREME_TOKEN_FILE=$2; [ $r = 1 ] && token=TRIREME_TOKEN_FILE=$3
        env TRIREME_RANK=$r TRIREME_SIZE=2 TRIREME_RENDEZVOUS="127.0.0.1:$1" "$token" "$trireme" bench comm --sizes 4 --engine tcp \
            --start-timeout "$4" > rank$r.txt 2>&1 &
        eval "p$r=$!"
    done
}
port=$((20000 + RANDOM % 9000))
head -c 32 /dev/urandom > "$work/t1"; head -c 32 /dev/urandom > "$work/t2"; chmod 600 "$work/t1" "$work/t2"
if wanted N07; then
    fresh; begun=$(now)
    python3 - $port << 'P' > proxy.txt 2>&1 &
import random, socket, sys, threading
port = int(sys.argv[1]); random.seed(1)
server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", port + 1)); server.listen(); server.settimeout(40)
def move(a, b, flip):
    seen = 0
    try:
        while data := a.recv(65536):
            data = bytearray(data)
            if flip and seen < 20000 <= seen + len(data):
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            elif flip and seen > 600 and random.random() < 0.3:
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            seen += len(data); b.sendall(data)
    except OSError: pass
    for s in (a, b):
        try: s.shutdown(2)
        except OSError: pass
while True:
    a, _ = server.accept()
    for _ in range(100):
        try: b = socket.create_connection(("127.0.0.1", port)); break
        except OSError: threading.Event().wait(0.1)
    threading.Thread(target=move, args=(a, b, False), daemon=True).start()
    threading.Thread(target=move, args=(b, a, True), daemon=True).start()
P
    proxy=$!
    for r in 0 1; do
        env TRIREME_RANK=$r TRIREME_SIZE=2 TRIREME_RENDEZVOUS="127.0.0.1:$((port + r))" TRIREME_TOKEN_FILE="$work/t1" timeout 40 \
            "$trireme" bench comm --sizes 4,64,256,1K,4K,16K,64K,256K,1M,4M,8M,16M,32M,4,8,16,32,64,128,256,512,1K,2K,4K,8K,16K,32K,64K,128K,1M,8M --engine tcp --start-timeout 10 > rank$r.txt 2>&1 &
        eval "p$r=$!"
    done
    wait "$p0"; c0=$?; wait "$p1"; c1=$?; kill $proxy 2> /dev/null; wait $proxy 2> /dev/null
    line=$(grep -hE "control channel to rank [01] .*frame [0-9]+ (was changed|has another magic|expected|has unknown|claims)" rank0.txt rank1.txt | head -1)
    [ -n "$line" ] && [ $c0 != 0 ] && [ $c1 != 0 ]
    r=$?; row N07 "flipped bits on the control channel (proxy)" "link and frame named, connection dropped" "${line#*error: } codes $c0 $c1" "$(since "$begun")" $r
    flips=$([ $short = 1 ] && echo 5000 || echo 1000000)
    for test in flip_test tcp_flip_test; do
        begun=$(now); "$build"/tests/$test "$flips" > out.txt 2>&1; code=$?
        [ $code = 0 ] && [ "$(grep -c " $flips flips in\|^$flips flips in" out.txt)" -ge 1 ] && ! grep "flips in" out.txt | grep -qv " 0 undetected"
        r=$?; row N07 "$flips flipped bits in each kind of frame, $test" "0 undetected, link and place named" "$(grep "flips in" out.txt | sed 's/flips in frames //' | tr '\n' ';')" "$(since "$begun")" $r
    done
    long && { begun=$(now); "$build"/tests/net_test > net.txt 2>&1; grep -q "OK ] faults_are_named" net.txt
    r=$?; row N07 "flipped bits in vectors (simulated network)" "refused, link named, never summed" "$(grep -o "OK ] faults_are_named" net.txt)" "$(since "$begun")" $r; }
fi
if wanted N09; then
    fresh; begun=$(now); port=$((20000 + RANDOM % 9000))
    python3 -c "import socket,time; s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('127.0.0.1', $((port + 3)))); s.listen(); print('ready', flush=True); time.sleep(20)" > held.txt & holder=$!
    wait_for ready held.txt 20
    for case in "127.0.0.1:$((port + 3))|is taken by" "no-such-host.invalid:29400|is not known" "203.0.113.7:29400|is to listen on"; do
        where=${case%|*}
        env TRIREME_RANK=0 TRIREME_SIZE=2 TRIREME_RENDEZVOUS="$where" timeout 20 "$trireme" bench comm --sizes 4 --start-timeout 2 > out.txt 2>&1
        code=$?; [ $code != 0 ] && [ $code != 124 ] && grep -qF "${where%:*}" out.txt && grep -qF "${case#*|}" out.txt
        r=$?; row N09 "rank 0 at $where" "clear text in time" "$(grep -h error out.txt | head -1 | cut -c1-130)" "$(since "$begun")" $r
        begun=$(now)
    done
    kill $holder; wait $holder 2> /dev/null
fi
if wanted N10; then
    for how in "--sizes 1K --op allreduce|--sizes 1K --op broadcast" "--sizes 1K --dtype fp32|--sizes 1K --dtype int64" "--sizes 4K|--sizes 8K"; do
        fresh; begun=$(now)
        "$trireme" run -n 2 -- sh -c "if [ \$TRIREME_RANK = 0 ]; then exec $trireme bench comm ${how%|*}; else exec $trireme bench comm ${how#*|}; fi" > out.txt 2>&1
        code=$?
        line=$(grep -h "ranks disagree" out.txt device*/train.log* | head -1 | sed 's/.*ranks disagree/ranks disagree/')
        [[ "$line" == *"rank 0 calls"* ]] && [[ "$line" == *"rank 1 calls"* ]] && [ $code != 0 ]
        r=$?; row N10 "rank 0 ${how%|*}, rank 1 ${how#*|}" "error shows both sides before any sum" "$line" "$(since "$begun")" $r
    done
fi
if wanted N11; then
    good=0 begun=$(now) tries=$([ $short = 1 ] && echo 1 || echo 20)
    for _ in $(seq "$tries"); do
        port=$((port + 5)); pair $port "$work/t1" "$work/t2" 2; wait "$p0"; c0=$?; wait "$p1"; c1=$?
        [ $c0 != 0 ] && [ $c1 != 0 ] && good=$((good + 1))
    done
    [ $good = "$tries" ]; r=$?; row N11 "ranks of two jobs at one port, tokens differ" "never mix" "$good of $tries refused: $(grep -h error rank1.txt | head -1 | cut -c1-80)" "$(since "$begun")" $r
fi
if wanted N12; then
    limit=$([ $short = 1 ] && echo 2 || echo 12)
    fresh; begun=$(now)
    env TRIREME_RANK=0 TRIREME_SIZE=3 TRIREME_RENDEZVOUS=unix:"$work/meet" "$trireme" bench comm --sizes 4 --start-timeout "$limit" > out.txt 2>&1
    code=$?; took=$(since "$begun")
    awk -v t="$took" -v l="$limit" 'BEGIN { exit !(t > l - 1 && t < l + 1.5) }' && [ $code = 5 ] && grep -q "rank.* 1.*2" out.txt && { [ $short = 1 ] || [ "$(grep -c "waited 10 s" out.txt)" = 1 ]; }
    r=$?; row N12 "ranks 1 and 2 of 3 never come (limit $limit s)" "listed$(long && echo " every 10 s"), fails at the limit" "$(grep -c "waited 10 s" out.txt) lines; $(tail -1 out.txt | cut -c1-100)" "$took" $r
fi

# --- unknown processes and wrong input ---------------------------------------------------------------------------------------------
if wanted S01 || wanted S02; then
    fresh; begun=$(now); port=$((port + 5))
    env TRIREME_RANK=0 TRIREME_SIZE=2 TRIREME_RENDEZVOUS="127.0.0.1:$port" TRIREME_TOKEN_FILE="$work/t1" "$trireme" bench comm --sizes 4,1K \
        --engine tcp --start-timeout 60 > rank0.txt 2>&1 & p0=$!
    for _ in $(seq 100); do (: < /dev/tcp/127.0.0.1/$port) 2> /dev/null && break; sleep 0.05; done
    env TRIREME_RANK=1 TRIREME_SIZE=2 TRIREME_RENDEZVOUS="127.0.0.1:$port" TRIREME_TOKEN_FILE="$work/t2" timeout 20 "$trireme" bench comm --sizes 4 \
        --engine tcp --start-timeout "$([ $short = 1 ] && echo 1 || echo 5)" > wrong.txt 2>&1; wrong=$?
    rss=$(awk '/VmRSS/ { print $2 }' /proc/$p0/status)
    python3 - $port "$([ $short = 1 ] && echo 300 || echo 10000)" << 'P' > strangers.txt 2>&1
import os, socket, sys, time
port, many = int(sys.argv[1]), int(sys.argv[2])
def try_(data, wait=0.0):
    try:
        s = socket.create_connection(("127.0.0.1", port), timeout=5); s.sendall(data); time.sleep(wait); s.close()
    except OSError: pass
for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500), b"", b"\x00" * 4096):
    try_(data, 0.05)
for i in range(many): try_(os.urandom(i % 700))
held = []
for i in range(200):
    try: held.append(socket.create_connection(("127.0.0.1", port), timeout=2))
    except OSError: break
for i in range(10):
    for s in held[:20]:
        try: s.send(b"x")
        except OSError: pass
    time.sleep(0.1)
print(len(held))
P
    growth=$(($(awk '/VmRSS/ { print $2 }' /proc/$p0/status) - rss))
    env TRIREME_RANK=1 TRIREME_SIZE=2 TRIREME_RENDEZVOUS="127.0.0.1:$port" TRIREME_TOKEN_FILE="$work/t1" timeout 60 "$trireme" bench comm --sizes 4,1K \
        --engine tcp --start-timeout 40 > rank1.txt 2>&1; c1=$?
    wait $p0; c0=$?
    [ $wrong != 0 ] && [ $c0 = 0 ] && [ $c1 = 0 ] && ! grep -q "$(od -An -tx1 -N8 "$work/t1" | tr -d ' ')" rank0.txt
    r=$?; row S01 "a rank with another job's token" "refused; the job goes on" "code $wrong; job $c0 $c1: $(grep -h error wrong.txt | head -1 | cut -c1-70)" "$(since "$begun")" $r
    [ $growth -lt 1024 ] && [ $c0 = 0 ] && [ $c1 = 0 ]
    r=$?; row S02 "HTTP, TLS, noise, slow bytes at the port" "job goes on, < 1 MiB more memory" "job $c0 $c1, $growth KiB more" "$(since "$begun")" $r
fi
if wanted S03 || wanted S04; then
    begun=$(now); fresh; "$build"/tests/side_fuzz "$([ $short = 1 ] && echo 2000 || echo 200000)" > out.txt 2>&1; code=$?
    [ $code = 0 ]; r=$?; row S04 "lying peers: fuzzed hellos, welcomes, frames" "refused, no crash" "side_fuzz code $code" "$(since "$begun")" $r
    if long; then
        begun=$(now); "$build"/tests/side_test > out.txt 2>&1
        grep -q "OK ] strangers_do_not_disturb" out.txt && grep -q "OK ] tokens_decide" out.txt
        r=$?; row S03 "other protocol versions, magic, replayed hellos" "refused, both versions named" "side_test: $(grep -c " OK " out.txt) tests good" "$(since "$begun")" $r
    fi
fi
if wanted S05; then
    begun=$(now); fresh; good=0 total=0
    # Each line of the file is a value of TF_CONFIG that must be refused, also its first line and blank ones.
    { cat "$root/bench/faults/tf_config.txt"; printf '{"cluster": {"worker": ["a:1"%s]}, "task": {"type": "worker", "index": -1}}\n' \
        "$(seq -f ', "b:%.0f"' 1 9000 | tr -d '\n')"; } > configs.txt # the last one: 100 KB, what one variable may have
    while IFS= read -r text; do
        total=$((total + 1))
        TF_CONFIG=$text timeout 10 "$trireme" cluster check > one.txt 2>&1; code=$?
        # one message with line and column, or with the path of the field; the whole object has no path
        [ $code = 2 ] && [ "$(wc -l < one.txt)" = 1 ] &&
            grep -qE 'TF_CONFIG: (line [0-9]+, column [0-9]+: |(cluster|task|model_dir)[].a-z0-9["-]*[: ]|.*a JSON object expected)' one.txt &&
            good=$((good + 1)) || { echo "TF_CONFIG ${text:0:200}: $code"; cat one.txt; } >> out.txt
    done < configs.txt
    [ $good = $total ] && [ $total -ge 40 ]; r=$?; row S05 "TF_CONFIG: $total wrong ones" "code 2, one sentence with path or column" "$good of $total" "$(since "$begun")" $r
fi
if wanted S06; then
    begun=$(now); fresh; good=0 total=0
    "$trireme" cluster make --hosts 10.0.0.1:2,10.0.0.2:2 --to v1 --output v1.json > /dev/null; "$trireme" cluster make --hosts 10.0.0.1:2,10.0.0.2:2 --output lab.json > /dev/null
    python3 "$root/bench/faults/tables.py" v1.json lab.json > count.txt 2>> out.txt
    for file in bad*.json; do
        total=$((total + 1)); timeout 10 "$trireme" cluster check "$file" > one.txt 2>&1; code=$?
        [ $code = 2 ] && [ "$(wc -l < one.txt)" = 1 ] && grep -qE "error: $file: (line [0-9]+|[a-z_]+|empty)" one.txt && good=$((good + 1)) ||
            { echo "$file: $code"; cat "$file" one.txt; } >> out.txt
    done
    [ $good = $total ] && [ $total = "$(cat count.txt)" ] && [ $total -ge 40 ]
    r=$?; row S06 "rank tables of three shapes: $total wrong ones" "code 2, one sentence with file and field" "$good of $total" "$(since "$begun")" $r
    begun=$(now); sed 's/"completed"/"initializing"/' v1.json > filling.json
    RANK_TABLE_FILE=filling.json RANK_ID=1 DEVICE_ID=1 RANK_SIZE=4 timeout 20 "$trireme" cluster show --any-address > out.txt 2>&1 & show=$!
    sleep 1; cp v1.json filled.json; mv filled.json filling.json; wait $show; code=$?
    [ $code = 0 ] && grep -q "initializing.*waiting for the program that writes it" out.txt && grep -q "1 of 4" out.txt
    r=$?; row S06 "a table that is being written" "waiting, then goes on" "$(grep -o "waiting for.*it," out.txt) code $code" "$(since "$begun")" $r
fi
if wanted S09; then
    fresh; begun=$(now); cp "$work/t1" open; chmod 644 open
    env TRIREME_RANK=0 TRIREME_SIZE=2 TRIREME_RENDEZVOUS=127.0.0.1:$((port + 9)) TRIREME_TOKEN_FILE="$PWD/open" timeout 10 "$trireme" bench comm --sizes 4 --start-timeout 2 > out.txt 2>&1
    code=$?; [ $code = 2 ] && grep -q "chmod 600" out.txt
    r=$?; row S09 "token file of mode 0644" "refused, chmod shown" "$(grep -h error out.txt | cut -c1-110)" "$(since "$begun")" $r
fi
if wanted S10; then
    fresh; hosts=$(for i in $(seq 0 63); do printf '10.1.%d.1:1024,' "$i"; done); "$trireme" cluster make --hosts "${hosts%,}" --to v1 --output huge.json > out.txt 2>&1
    begun=$(now); /usr/bin/env python3 -c 'import resource,subprocess,sys; c=subprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL).returncode; print(c, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' "$trireme" cluster check huge.json > seen.txt 2>> out.txt
    took=$(since "$begun"); read -r code kilobytes < seen.txt
    [ "$code" = 0 ] && [ "$kilobytes" -lt 204800 ] && below "$took" "$([ $short = 1 ] && echo 6 || echo 2)"
    r=$?; row S10 "a table of 65,536 ranks" "< 2 s, < 200 MB" "code $code, $((kilobytes / 1024)) MB" "$took" $r
fi

# --- afterwards ---------------------------------------------------------------------------------------------------------------
sleep 0.3
left=$(ours_left | wc -l)
# other jobs of this user may run at the same time, with their own sockets; only parameter servers, which no job here has, use /dev/shm
tmp=$(comm -13 <(echo "$before_tmp") <(ls -d /tmp/trireme-"$(id -u)"/* 2> /dev/null | sort) | while read -r f; do
    case $f in
    *run-*) p=${f##*/run-}; kill -0 "${p%%-*}" 2> /dev/null || echo "$f" ;;
    esac; done)
shm=$(comm -13 <(echo "$before_shm") <(ls /dev/shm | sort) | grep -i trireme | grep -vE 'trireme[-_](ps|fault)')
[ "$left" = 0 ] && [ -z "$tmp" ] && [ -z "$shm" ]
r=$?; row all "what is left behind" "no process, socket, shared memory" "$left processes; ${tmp:-no files in /tmp}; ${shm:-/dev/shm as before}" 0 $r
exit $failed
