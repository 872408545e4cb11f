#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Split jobs on two hosts (two IPC name spaces of this host, joined by TCP alone), their evaluation, and their checkpoints under other
# plans: all as on one device.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
# 37 test samples: no batch of 16 is full at the end, and none can be cut evenly.
job="--data synth --image-size 16 --synth-train 64 --synth-test 37 --threads 1 --json --log-every 1"
# FILE OTHER N TOLERANCE: N losses, and the evaluation's loss and hits, alike
alike() {
    for f in "$1" "$2"; do
        { grep '"event":"step"' "$f" | sed 's/.*"loss":\([^,]*\).*/\1/'
          grep '"event":"eval"' "$f" | sed 's/.*"loss":\([^,]*\),"top1":\([^,]*\),"top5":\([^,]*\),"samples":\([0-9]*\).*/\1 \2 \3 \4/' | tr ' ' '\n'; } > "$f.numbers"
    done
    paste -d' ' "$1.numbers" "$2.numbers" | awk -v n="$3" -v t="$4" '
        { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > t * ($2 > 1 ? $2 : 1)) bad = 1 }
        END { exit bad || NR != n }' || { fail "$1 and $2 differ"; paste "$1.numbers" "$2.numbers"; tail -2 "$1" | cut -c1-300; }
}
# NAME ARGS: a job into the file NAME
train() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    timeout 100 "$trireme" train "$@" $job > "$name" 2>&1 || { fail "$name"; tail -3 "$name"; }
}
# NAME RANKS ARGS: the same by ranks of two hosts
train_apart() {
    local name=$1 ranks=$2
    shift 2
    # shellcheck disable=SC2086
    two_hosts "$ranks" train "$@" $job > "$name" 2>&1 || { fail "$name"; tail -n 3 "$name" rank*.txt; }
}

cat > classes << 'END'
trireme-plan 1
mesh 2
op fc2.linear2 k pinned   # classes
END
cat > both << 'END'
trireme-plan 1
mesh host=2xlocal=2
op fc0.linear0 nk pinned
op fc2.linear2 .c pinned
END
cat > rows << 'END'
trireme-plan 1
mesh 2
op conv1.conv2d0 h pinned
op fc1.linear0 k pinned
END

# evaluation
train one mlp --classes 12 --batch-size 16 --epochs 2 --eval-every-epochs 1
train split mlp --classes 12 --batch-size 8 --epochs 2 --eval-every-epochs 1 -n 2 --parallel-mode semi_auto_parallel --plan classes
alike split one 16 1e-5
train lenet_one lenet --batch-size 16 --epochs 1
train lenet_split lenet --batch-size 8 --epochs 1 -n 2 --parallel-mode semi_auto_parallel --plan rows
alike lenet_split lenet_one 8 1e-5

# a checkpoint of two ranks under another plan of two, and under a mesh of four
train begun mlp --classes 12 --batch-size 8 --epochs 1 --output job -n 2 --parallel-mode semi_auto_parallel --plan classes
cp -r job other
train more mlp --classes 12 --batch-size 8 --epochs 2 --output job --resume -n 2 --parallel-mode semi_auto_parallel
train four mlp --classes 12 --batch-size 4 --epochs 2 --output other --resume -n 4 --parallel-mode semi_auto_parallel --plan both
grep '"event":"step"' one | tail -4 > rest
grep '"event":"eval"' one | tail -1 >> rest
alike more rest 8 1e-5
alike four rest 8 1e-5

if can_two_hosts; then
    train_apart hosts 4 mlp --classes 12 --batch-size 4 --epochs 2 --eval-every-epochs 1 --parallel-mode semi_auto_parallel --plan both
    alike hosts one 16 1e-5
    grep -q '"engine":"shm"' hosts && fail "the ranks of two hosts share memory"
    train_apart searched 2 mlp --classes 12 --batch-size 8 --epochs 2 --eval-every-epochs 1 --parallel-mode auto_parallel
    alike searched one 16 1e-5
    for how in whole slices; do # of the optimiser: the same to the last digit
        train_apart $how 4 mlp --classes 12 --batch-size 4 --epochs 1 --parallel-mode semi_auto_parallel --plan both --precision mixed \
            $([ $how = whole ] || echo --shard-optimizer)
    done
    alike slices whole 8 0
    # data parallel has the losses of four ranks of one host
    strict="lenet --data synth --synth-train 32 --synth-test 8 --epochs 1 --batch-size 8 --seed 3 --learning-rate 0.02 --deterministic strict --log-every 1 --json"
    # shellcheck disable=SC2086
    two_hosts 4 train $strict > hosts.json 2> err.txt || { fail "train by ranks of two hosts"; tail -5 err.txt; }
    # shellcheck disable=SC2086
    timeout 100 "$trireme" train $strict -n 4 > one.json 2> err.txt || fail "train -n 4"
    losses() { grep '"event":"step"' "$1" | sed 's/.*"loss":\([^,}]*\).*/\1/'; }
    [ -n "$(losses one.json)" ] && [ "$(losses one.json)" = "$(losses hosts.json)" ] || fail "other losses on two hosts"
    for engine in tcp ucx; do
        [ $engine = ucx ] && [ ! -e "${TRIREME_BUILD:?}/plugins/trireme_comm_ucx.so" ] && continue
        two_hosts 4 bench comm --engine $engine --sizes 4,64K --json > comm.json 2> err.txt || { fail "bench comm --engine $engine"; tail -5 err.txt; }
        [ "$(grep -c '"ranks":4.*"wrong":0' comm.json)" = 2 ] || fail "bench comm --engine $engine: $(cat comm.json)"
    done
else
    echo "part skipped: IPC name spaces cannot be made here"
fi
# containers of one pod: they share all but the pids by which memory is opened
host_space=$pid_space
if can_two_hosts; then
    two_hosts 4 bench comm --sizes 4,64K --json > comm.json 2> err.txt || { fail "bench comm in two pid name spaces"; tail -5 err.txt rank*.txt; }
    [ "$(grep -c '"ranks":4.*"wrong":0' comm.json)" = 2 ] || fail "bench comm in two pid name spaces: $(cat comm.json)"
else
    echo "part skipped: pid name spaces cannot be made here"
fi
exit $failed
