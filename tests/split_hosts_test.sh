#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Split jobs on several hosts (this one under two names; with root two network name spaces, joined by TCP alone), their
# evaluation, and their checkpoints under other plans: all as one device has it.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
# 37 test samples: no batch of 16 is full at the end, and none can be cut evenly.
job="--data synth --image-size 16 --synth-train 64 --synth-test 37 --threads 1 --json --log-every 1"
a=trsa$$ b=trsb$$ made=0
cleanup() {
    [ $made = 1 ] && ip netns del $a 2> /dev/null && ip netns del $b 2> /dev/null
    rm -rf "$work"
}
trap cleanup EXIT

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

# two names of this host
train hosts mlp --classes 12 --batch-size 4 --epochs 2 --eval-every-epochs 1 --hosts "a@127.0.0.1:2,b:2" \
    --remote-shell "env HOST={}" --parallel-mode semi_auto_parallel --plan both
alike hosts one 16 1e-5

# two hosts, as far as name spaces are
if ip netns add $a 2> /dev/null && ip netns add $b 2> /dev/null; then
    made=1
    ip link add s$$ netns $a type veth peer name s$$ netns $b
    ip -n $a addr add 10.81.0.1/24 dev s$$; ip -n $b addr add 10.81.0.2/24 dev s$$
    for n in $a $b; do ip -n $n link set lo up; ip -n $n link set s$$ up; done
    for _ in $(seq 50); do ip -n $b link show s$$ | grep -q "state UP" && break; sleep 0.1; done
    train spaces mlp --classes 12 --batch-size 4 --epochs 2 --eval-every-epochs 1 --hosts "$a@10.81.0.1:2,$b:2" \
        --remote-shell "ip netns exec" --parallel-mode semi_auto_parallel --plan both
    alike spaces one 16 1e-5
    train searched mlp --classes 12 --batch-size 8 --epochs 2 --eval-every-epochs 1 --hosts "$a@10.81.0.1:1,$b:1" \
        --remote-shell "ip netns exec" --parallel-mode auto_parallel
    alike searched one 16 1e-5
    for how in whole slices; do # of the optimiser: the same to the last digit
        train $how mlp --classes 12 --batch-size 4 --epochs 1 --hosts "$a@10.81.0.1:2,$b:2" --remote-shell "ip netns exec" \
            --parallel-mode semi_auto_parallel --precision mixed $([ $how = whole ] || echo --shard-optimizer)
    done
    alike slices whole 8 0
else
    echo "part skipped: network name spaces cannot be made here"
fi
exit $failed
