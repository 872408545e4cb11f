#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Many ranks from the command line: -n, run, cluster, bench comm, bench train. No process or file stays behind.
. "$(dirname "$0")/common.sh"

data="--data synth --synth-train 96 --synth-test 40"
recipe="--learning-rate 0.02 --seed 7 --log-every 1 --json"
# shellcheck disable=SC2086
train() { "$trireme" train lenet $data $recipe --epochs "${epochs:-2}" "$@"; }
losses() { python3 -c 'import json,sys; print(*[json.loads(l)["loss"] for l in open(sys.argv[1]) if "\"step\"," in l])' "$1"; }
close() { # FILE FILE: losses agree to 1e-5
    python3 - "$1" "$2" << 'END' || fail "losses of $1 and $2 differ"
import json, sys
a, b = ([json.loads(l) for l in open(f)] for f in sys.argv[1:])
for kind in ("step", "eval"):
    x, y = ([e["loss"] for e in f if e["event"] == kind] for f in (a, b))
    assert len(x) == len(y) and len(x) > 0, (kind, len(x), len(y))
    assert all(abs(p - q) < 1e-5 * max(1, q) for p, q in zip(x, y)), (kind, x, y)
END
}

# ---- 2 ranks with 8 samples each are one with 16 (no augmentation is lost: it depends on the sample)
train --batch-size 16 > one.json || fail "one rank"
train --batch-size 8 -n 2 > two.json || fail "two ranks"
close one.json two.json
[ -s device0/train.log0 ] && [ -s device1/train.log1 ] || fail "no logs of the ranks"
rm -rf device0 device1
train --batch-size 8 -n 2 --steps 1 --output with_logs > /dev/null || fail "two ranks with --output"
[ -s with_logs/logs/device0/train.log0 ] && [ ! -e device0 ] || fail "logs of a job with --output: $(ls . with_logs)"
( ulimit -n 8; expect 4 "Too many open files (at most 8; ulimit -n sets the limit)" run -n 2 -- true; exit $failed ) || failed=1
python3 - two.json << 'END' || fail "events of two ranks"
import json, sys
events = [json.loads(l) for l in open(sys.argv[1])]
start, done = events[0], events[-1]
assert start["event"] == "start" and start["rank"] == 0 and start["ranks"] == 2, start
assert start["epoch_steps"] == 6, start
assert done["event"] == "done" and done["ranks"] == 2 and done["parallel_mode"] == "data_parallel", done
assert 0 <= done["exposed_comm_fraction"] <= done["waiting_fraction"] < 1 and done["waiting_fraction"] > 0, done
assert abs(done["exposed_comm_fraction"] + done["imbalance_fraction"] - done["waiting_fraction"]) < 1e-6, done
assert done["buckets"] >= 1 and done["reduced_bytes"] > 0, done
END

# ---- the ways to reduce give the same bits
for way in "--shard-optimizer" "--bucket off" "--bucket 0.05" "--bucket 2,4,"; do
    # shellcheck disable=SC2086
    train --batch-size 8 -n 2 $way > way.json || fail "$way"
    [ "$(losses way.json)" = "$(losses two.json)" ] || fail "$way gives other losses"
done
for wire in bf16 fp16; do
    train --batch-size 8 -n 2 --wire $wire > wire.json || fail "--wire $wire"
    [ "$(losses wire.json)" != "$(losses two.json)" ] || fail "--wire $wire changes nothing"
done
train --batch-size 8 -n 2 --precision mixed > one_copy.json || fail "--precision mixed"
train --batch-size 8 -n 2 --precision mixed --context enable_parallel_optimizer=false > copies.json || fail "copies"
[ -n "$(losses copies.json)" ] && [ "$(losses one_copy.json)" = "$(losses copies.json)" ] ||
    fail "one copy of parameters and casts has other losses than one a rank"
train --batch-size 8 -n 2 --reduce sum > sum.json || fail "--reduce sum"
[ "$(losses sum.json)" != "$(losses two.json)" ] || fail "--reduce sum changes nothing"
# Threads are given, because outside of strict mode a step's bits depend on their number (sums over samples are cut by threads) and
# -n 2 gives each rank its share of the CPUs. Weights of lenet after an epoch differ between 1, 2, 3 and 4 threads.
train --batch-size 16 --threads 1 > one_thread.json || fail "one thread"
train --batch-size 16 -n 2 --threads 1 --parallel-mode stand_alone > alone.json || fail "stand_alone"
[ "$(losses alone.json)" = "$(losses one_thread.json)" ] || fail "stand_alone ranks should train as one"

# ---- rank 0 saves, all resume, one rank reads it
epochs=1 train --batch-size 8 -n 2 --shard-optimizer --output run > a.json || fail "saving"
train --batch-size 8 -n 2 --shard-optimizer --output run --resume > b.json || fail "resuming"
[ "$(losses a.json) $(losses b.json)" = "$(losses two.json)" ] || fail "a resumed job has other losses"
"$trireme" eval lenet --checkpoint run --data synth --synth-test 40 > /dev/null || fail "eval of a job's checkpoint"
expect 2 "each of 2 ranks sees its part" eval lenet --checkpoint run --data synth --synth-test 40 -n 2 --predictions p.npz

# ---- a scheduler's early warning reaches all ranks: they finish the step, save and end with 138; no rank is killed
# shellcheck disable=SC2086
"$trireme" train lenet $data $recipe --epochs 3000 --batch-size 8 -n 2 --output warned > warned.json 2> warned.err &
pid=$!
for _ in $(seq 1 400); do grep -q '"event":"step"' warned.json && break; sleep 0.05; done
kill -USR1 $pid
wait $pid
got=$?
[ $got = 138 ] || fail "SIGUSR1 to two ranks: exit $got, expected 138: $(cat warned.err)"
ls -d warned/ckpt-* > /dev/null 2>&1 || fail "SIGUSR1 to two ranks: nothing saved: $(cat warned.err)"
grep -qi "failed\|signal" warned.err && fail "SIGUSR1 to two ranks: not as told: $(cat warned.err)"

# ---- wrong use starts no rank
expect 2 "--bucket" train lenet --data synth --bucket wide
expect 2 "a cut before gradient 500, but there are 10: 1 to 10 expected" train lenet --data synth -n 2 --bucket 3,500
expect 2 "--sync-batch-norm" train lenet --data synth --sync-batch-norm 1
expect 2 "hybrid_parallel" train lenet --data synth --layerwise fc
expect 2 "after --" run -n 2
expect 2 "--sizes" bench comm -n 2 --sizes 4,oops
for wrong in "--engine fpga" "--engine tcp --algorithm level1:rung"; do # before a rank is started
    # shellcheck disable=SC2086
    expect 2 "'${wrong##*[ :]}'" bench comm -n 2 --sizes 4 $wrong
    grep -q "start training" out.txt && fail "$wrong costs a job"
done
expect 0 "dry run" train mlp --data synth --dry-run

# ---- run: any program; its exit code; a failing rank
expect 0 "training success" run -n 3 -- sh -c 'echo I am $TRIREME_RANK of $TRIREME_SIZE'
grep -q "I am 0 of 3" out.txt || fail "rank 0 is not shown"
grep -q "I am 2 of 3" device2/train.log2 || fail "rank 2 has no log"
expect 2 "training failed" run -n 2 -- sh -c 'exit $TRIREME_RANK'
# --json and --quiet report a failed rank and its exit code too
for quietly in --json --quiet; do
    expect 2 "| no good" run -n 2 $quietly -- sh -c '[ $TRIREME_RANK = 0 ] && exec sleep 20; echo no good >&2; exit 3'
    grep -q "^rank 1 ended with exit code 3$" out.txt && grep -q "^training failed$" out.txt && ! grep -q "^start" out.txt || fail "run $quietly: $(cat out.txt)"
done
expect 2 "one of 2 ranks already" run -n 2 -- "$trireme" train mlp --data synth -n 3

# ---- a program with its own loop and three added lines: the same weights on 1, 2 and 4 ranks
own=${TRIREME_BUILD:?}/examples/own_loop
"$own" > own1.txt || fail "own_loop"
for n in 2 4; do
    "$trireme" run -n $n --quiet -- "$own" > out.txt || fail "own_loop on $n ranks"
    [ "$(sed 's/.*weights//' out.txt)" = "$(sed 's/.*weights//' own1.txt)" ] || fail "own_loop: $(cat own1.txt out.txt)"
done

# ---- cluster
"$trireme" cluster make --hosts 127.0.0.1:2 --output table.json || fail "cluster make"
expect 0 "2 ranks" cluster check table.json
expect 0 "" cluster check
expect 3 "table.json is there already" cluster make --hosts 127.0.0.1:2 --output table.json
sed 's/127.0.0.1/127.0.0.2/' table.json > other.json
"$trireme" cluster merge table.json other.json --output four.json || fail "cluster merge"
expect 0 "4 ranks" cluster check four.json
RANK_TABLE_FILE=$work/table.json RANK_ID=1 DEVICE_ID=1 RANK_SIZE=2 "$trireme" cluster show --any-address > show.txt || fail "cluster show"
grep -q "1 of 2" show.txt || { fail "cluster show: rank 1 of 2"; cat show.txt; }

# SIGUSR2 at a rank that still waits for other ranks: it has no state to print and continues to wait
RANK_TABLE_FILE=$work/table.json RANK_ID=0 RANK_SIZE=2 "$trireme" train mlp --data synth --start-timeout 1 --steps 1 > alone.txt 2>&1 &
alone=$!
caught() { echo $((0x$(sed -n 's/^SigCgt:\s*//p' /proc/$alone/status) & 1 << 11)); }
for _ in $(seq 500); do [ "$(caught 2> /dev/null || echo 0)" != 0 ] && break; sleep 0.01; done
kill -USR2 $alone
wait $alone
[ $? = 5 ] && grep -q "rank 1" alone.txt || fail "a lonely rank that was asked for its state: $(cat alone.txt)"

# all ranks must have the same table: two ranks with other tables that meet at a given place report it
sed 's/"device_id": "1"/"device_id": "2"/' table.json > another.json
cmp -s table.json another.json && fail "another table: nothing was changed"
for r in 0 1; do
    file=table.json; [ $r = 1 ] && file=another.json
    RANK_TABLE_FILE=$work/$file RANK_ID=$r RANK_SIZE=2 TRIREME_RENDEZVOUS=unix:$work/meet timeout 60 "$trireme" bench comm --sizes 4 > same$r.txt 2>&1 &
    eval "p$r=$!"
done
for r in 0 1; do
    eval "wait \$p$r"; code=$?
    { [ $code = 2 ] && grep -q "has another rank table" same$r.txt; } || { fail "rank $r of two tables: $code"; cat same$r.txt; }
done

# ---- measuring
"$trireme" bench train lenet -n 2 --image-size 32 --batch-size 8 --repeats 5 --sync-batch-norm on --json > bench.json || fail "bench train"
python3 - bench.json << 'END' || fail "bench train -n 2 says nothing of ranks"
import json, sys
e = json.loads(open(sys.argv[1]).read().splitlines()[-1])
assert e["ranks"] == 2, e
assert all(0 <= e[k] < 1 for k in ("exposed_comm_fraction", "imbalance_fraction", "waiting_fraction")), e
END

exit $failed
