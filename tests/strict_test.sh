#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --deterministic strict: the same bits on any number of ranks and threads, over a resume too.
. "$(dirname "$0")/common.sh"
train() { # MODEL RANKS THREADS EPOCHS DIR MORE: a global batch of 24
    local model=$1 ranks=$2 threads=$3 epochs=$4 output=$5
    shift 5
    "$trireme" train "$model" --data synth --synth-train 48 --image-size 32 --batch-size $((24 / ranks)) -n "$ranks" \
        --threads "$threads" --epochs "$epochs" --eval-every-epochs 0 --learning-rate 0.02 --weight-decay 1e-3 --seed 7 \
        --log-every 1 --json --deterministic strict --output "$output" "$@" > "$output.json" 2> err.txt ||
        { fail "$model on $ranks ranks"; cat err.txt; }
}
losses() { python3 -c 'import json,sys; print(*[json.loads(l)["loss"] for l in open(sys.argv[1]) if "\"step\"," in l])' "$1.json"; }
state() { (cd "$1" && sha256sum ckpt-*/*.safetensors); }
same() { # DIR DIR
    [ -n "$(losses "$1")" ] && [ "$(losses "$1")" = "$(losses "$2")" ] || fail "losses: $1 $(losses "$1"), $2 $(losses "$2")"
    [ "$(state "$1")" = "$(state "$2")" ] || fail "weights, statistics or momentum of $1 and $2 differ"
}

train mlp 1 1 1 mlp1
for n in 2 3 4; do train mlp $n 1 1 mlp$n; same mlp1 mlp$n; done
train mlp 8 1 1 mlp8 --deterministic-block 1
train mlp 1 1 1 mlp8of1 --deterministic-block 1
same mlp8of1 mlp8
[ "$(losses mlp1)" != "$(losses mlp8)" ] || echo "note: blocks of 1 and 2 samples happen to agree"

train resnet18 1 2 1 res1
for n in 2 4; do train resnet18 $n 1 1 res$n --shard-optimizer; same res1 res$n; done

# ---- begun by two ranks, continued by one
train mlp 1 1 2 straight
train mlp 2 1 1 begun
losses begun > first.txt
train mlp 1 1 2 begun --resume
[ "$(cat first.txt) $(losses begun)" = "$(losses straight)" ] || fail "a resume on fewer ranks has other losses"
[ "$(state begun | tail -2)" = "$(state straight | tail -2)" ] || fail "a resume on fewer ranks has other weights"

"$trireme" train mlp --data synth --batch-size 6 --deterministic strict --deterministic-block 4 > out.txt 2>&1
[ $? = 2 ] && grep -q "blocks of 4 samples" out.txt || fail "a block that does not divide: $(cat out.txt)"
"$trireme" train mlp --data synth --batch-size 6 --deterministic-block 4 > out.txt 2>&1
[ $? = 2 ] && grep -q "deterministic strict" out.txt || fail "a block without strict: $(cat out.txt)"
"$trireme" train mlp --data synth --batch-size 8 --deterministic strict --wire bf16 > out.txt 2>&1
[ $? = 2 ] && grep -q "float32" out.txt || fail "strict with a narrow wire: $(cat out.txt)"
exit $failed
