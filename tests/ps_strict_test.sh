#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --deterministic strict with synchronous servers: weights, rows and running statistics have the bits of one device, for any number of
# servers and workers, after a resume with other numbers, and after a worker or a server has been killed.
. "$(dirname "$0")/common.sh"
. "$source/tests/roles.sh"
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
train() { # DIR MODEL WORKERS STEPS ARGS...: a global batch of 48
    local output=$1 model=$2 workers=$3 steps=$4
    shift 4
    timeout 120 "$trireme" train "$model" --data synth --synth-train 48000 --synth-test 48 --batch-size $((48 / workers)) --seed 3 --threads 1 \
        --steps "$steps" -n "$workers" --log-every 1 --json --deterministic strict --output "$work/$output" "$@" > "$output.json" 2> "$output.err" ||
        { fail "$output: $model with $workers workers"; tail -n 3 "$output.err"; }
}
weights() { (cd "$1" && sha256sum "$(find ckpt-* -name model.safetensors | sort -V | tail -n 1)" | cut -d ' ' -f 1); }
same() { # DIR DIR...: the last checkpoints hold the same bits
    local like=$1 dir
    shift
    for dir; do [ "$(weights "$dir")" = "$(weights "$like")" ] || fail "weights or rows of $dir are not those of $like"; done
}
click="--fields 4 --dense 3 --table-rows 50 --hidden 16 --embedding-width 8"
images="--image-size 32 --learning-rate 0.02 --weight-decay 1e-3"
sync="--mode sync"
# shellcheck disable=SC2086
{
    # each model, with 2^k workers and with another number, whose blocks are no node of the tree
    train wide widedeep 1 12 $click
    train wide-1 widedeep 1 12 $click --ps 1 $sync
    train wide-4 widedeep 4 12 $click --ps 3 $sync --ps-shards 2
    train wide-3 widedeep 3 12 $click --ps 2 $sync --ps-shards 3
    train wide-hybrid widedeep 3 12 $click --ps 2 $sync --hybrid
    same wide wide-1 wide-4 wide-3 wide-hybrid
    train dlrm dlrm 1 8 --table-rows 100 --schedule cosine --warmup-steps 3
    train dlrm-2 dlrm 2 8 --table-rows 100 --schedule cosine --warmup-steps 3 --ps 2 $sync
    train dlrm-hybrid dlrm 2 8 --table-rows 100 --schedule cosine --warmup-steps 3 --ps 1 $sync --hybrid
    same dlrm dlrm-2 dlrm-hybrid
    train mlp mlp 1 6 $images --optimizer adam
    train mlp-3 mlp 3 6 $images --optimizer adam --ps 2 $sync
    same mlp mlp-3
    train res resnet18 1 2 $images

    # begun by two workers and servers, continued with other numbers
    train res-2 resnet18 2 1 $images --ps 2 $sync
    train res-2 resnet18 3 2 $images --ps 1 $sync --resume
    same res res-2
    for hybrid in "" --hybrid; do
        train "more$hybrid" widedeep 2 5 $click --ps 2 $sync $hybrid
        train "more$hybrid" widedeep 3 12 $click --ps 1 $sync $hybrid --resume
        train "fewer$hybrid" widedeep 3 5 $click --ps 1 $sync $hybrid
        train "fewer$hybrid" widedeep 2 12 $click --ps 2 $sync $hybrid --resume
        same wide "more$hybrid" "fewer$hybrid"
    done

    # one process is killed in the middle of a job and started again
    train long widedeep 1 900 $click
    for victim in "worker 1" "worker 0" "ps 1"; do
        for hybrid in "" --hybrid; do
            rm -rf killed killed.json
            train killed widedeep 2 900 $click --ps 2 $sync $hybrid --restarts 9 --save-every-steps 300 &
            job=$!
            for ((i = 0; i < 6000 * patience; i++)); do
                grep -q '"global_step":[1-8][0-9][0-9],' killed.json 2> /dev/null && break
                kill -0 $job 2> /dev/null || break
                sleep 0.01
            done
            p=$(process "$work/killed" "$victim")
            [ -n "$p" ] && kill -9 "$p" || fail "$victim $hybrid: no process of it: $(tail -n 3 killed.err)"
            grep -q '"global_step":900,' killed.json && fail "the job was over before $victim was killed"
            wait $job || fail "$victim $hybrid: exit code $?"
            same long killed
        done
    done
}
refused() { # WORD ARGS...
    local word=$1
    shift
    timeout 60 "$trireme" train widedeep --data synth --batch-size 24 --synth-train 4800 -n 2 --ps 1 --deterministic strict --output refused "$@" > out.txt 2>&1
    [ $? = 2 ] && grep -q "$word" out.txt || fail "$*: $(cat out.txt)"
    rm -rf refused
}
refused "needs synchronous ones" --mode async
refused "needs synchronous ones" --mode staleness=2
refused "float32" --mode sync --wire bf16
refused "lend samples" --mode sync --lend always
exit $failed
