#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains, stops in each way, resumes, evaluates: the bits are those of an undisturbed run.
. "$(dirname "$0")/common.sh"

data="--data synth --synth-train 96 --synth-test 40 --batch-size 8"
recipe="--learning-rate 0.02 --schedule cosine --warmup-steps 5 --weight-decay 1e-4 --seed 7"
# shellcheck disable=SC2086
train() { "$trireme" train lenet $data $recipe --epochs 3 "$@"; }
same() { # DIR DIR: the newest checkpoints have the same bits
    local step=$3
    for part in model optimizer; do
        cmp "$1/ckpt-$step/$part.safetensors" "$2/ckpt-$step/$part.safetensors" || fail "$part of $1 and $2 differ"
    done
}

# ---- an undisturbed run, with events
train --output "$work/a" --json --log-every 1 --eval-every-epochs 1 --metrics "$work/a/metrics.csv" \
    --tensorboard --histogram-epochs 3 > "$work/a.json" || fail "train"
python3 - "$work/a.json" << 'END' || fail "events of train"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
kinds = [e["event"] for e in events]
assert kinds[0] == "start" and kinds[-1] == "done", kinds
assert kinds.count("step") == 36 and kinds.count("epoch") == 3 and kinds.count("eval") == 3 and kinds.count("checkpoint") == 3
steps = [e for e in events if e["event"] == "step"]
assert [e["global_step"] for e in steps] == list(range(1, 37))
assert steps[12]["epoch"] == 2 and steps[12]["step"] == 1
for e in steps:
    assert e["loss"] > 0 and e["images_per_second"] > 0 and e["learning_rate"] > 0
assert events[-1]["global_step"] == 36 and events[-1]["peak_bytes"] > 1e6
END

[ "$(grep -c '^[0-9]*,step,' "$work/a/metrics.csv")" = 36 ] && [ "$(grep -c '^[0-9]*,eval,' "$work/a/metrics.csv")" = 3 ] ||
    fail "metrics: $(cat "$work/a/metrics.csv")"
"$trireme" inspect "$(ls "$work"/a/events.out.tfevents.*)" > "$work/out" || fail "inspect of the event file"
grep -q "train/loss: 36 points" "$work/out" && grep -q "eval/top1: 3 points" "$work/out" &&
    grep -q "conv1.weight: 1 histograms" "$work/out" && grep -q "graph of" "$work/out" || fail "event file: $(cat "$work/out")"
"$trireme" inspect "$work/a" --json > "$work/out" || fail "inspect of the run"
python3 -c 'import json, sys; [json.loads(line) for line in open(sys.argv[1])]' "$work/out" || fail "inspect --json"

# ---- a run shorter than --log-every still shows its first and its last step
# shellcheck disable=SC2086
"$trireme" train lenet $data $recipe --steps 5 --json > "$work/short.json" || fail "train --steps 5"
[ "$(grep -o '"event":"step".*"global_step":[0-9]*' "$work/short.json" | grep -o '[0-9]*$' | tr '\n' ' ')" = "1 5 " ] ||
    fail "steps of a short run: $(cat "$work/short.json")"

# ---- sink mode: one line an epoch, the same bits
train --output "$work/sink" --sink --json --log-every 1 > "$work/sink.json" || fail "train --sink"
[ "$(grep -c '"event":"step"' "$work/sink.json")" = 3 ] || fail "sink mode reports once an epoch"
same "$work/a" "$work/sink" 36
for global_step in 12 24 36; do
    a=$(grep "\"event\":\"step\".*\"global_step\":$global_step," "$work/a.json" | grep -o '"loss":[^,]*')
    b=$(grep "\"event\":\"step\".*\"global_step\":$global_step," "$work/sink.json" | grep -o '"loss":[^,]*')
    [ -n "$a" ] && [ "$a" = "$b" ] || fail "loss of step $global_step: '$a' and '$b' in sink mode"
done

# shellcheck disable=SC2086
"$trireme" train lenet $data $recipe --steps 17 --sink --json > "$work/short.json" || fail "train --sink --steps 17"
[ "$(grep -o '"event":"step".*"global_step":[0-9]*' "$work/short.json" | grep -o '[0-9]*$' | tr '\n' ' ')" = "12 17 " ] ||
    fail "sink mode that ends inside an epoch: $(cat "$work/short.json")"

# ---- killed at random moments, resumed each time
kills=0
for attempt in $(seq 1 40); do
    # shellcheck disable=SC2086
    "$trireme" train lenet $data $recipe --epochs 3 --output "$work/b" --resume --save-every-steps 1 --keep 2 \
        --quiet > /dev/null 2> "$work/b.err" &
    pid=$!
    sleep "0.$((RANDOM % 2))$((RANDOM % 10))"
    [ "$attempt" -gt 12 ] && wait $pid && break # slow machine: let it end
    if kill -9 $pid 2> /dev/null; then
        wait $pid 2> /dev/null
        kills=$((kills + 1))
    else
        wait $pid || { cat "$work/b.err"; fail "resumed run"; break; }
        break
    fi
done
[ $kills -gt 0 ] || echo "note: the run was faster than the first kill"
echo "killed $kills times"
train --output "$work/b" --resume --quiet > /dev/null || fail "the last resume"
same "$work/a" "$work/b" 36

# ---- a resumed run continues its metrics: no step twice, none missing
# shellcheck disable=SC2086
for steps in 7 20; do
    "$trireme" train lenet $data $recipe --epochs 3 --steps $steps --output "$work/m" --resume --quiet --log-every 1 \
        --metrics "$work/m/metrics.csv" --save-every-steps 4 > /dev/null || fail "train --steps $steps"
    rm -rf "$work/m/ckpt-$steps" # as after a crash: the checkpoint before is used
done
train --output "$work/m" --resume --quiet --log-every 1 --metrics "$work/m/metrics.csv" > /dev/null || fail "resume with metrics"
awk -F, '$2 == "step" { print $1 }' "$work/m/metrics.csv" | cmp - <(seq 1 36) || fail "steps in $(cat "$work/m/metrics.csv")"

# ---- SIGTERM, SIGINT, SIGUSR1: finish the step, save, 143, 130 and 138; SIGUSR2 before it prints the state
for signal in TERM INT USR1; do
    dir=$work/$signal
    : > "$work/out" # the background job opens it later: the loop below must not read the steps of the job before
    # INT is ignored in background jobs of a script, so python resets it.
    # shellcheck disable=SC2086
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$trireme" train lenet $data $recipe --epochs 3000 --output "$dir" --json --log-every 1 > "$work/out" 2> "$work/err" &
    pid=$!
    for _ in $(seq 1 200); do grep -q '"event":"step"' "$work/out" && break; sleep 0.05; done
    kill -USR2 $pid
    for _ in $(seq 1 200); do grep -q '"event":"state","epoch":[0-9]*,"step":.*"wait_seconds"' "$work/out" && break; sleep 0.05; done
    grep -q '"event":"state"' "$work/out" || fail "SIGUSR2: no state: $(cat "$work/err")"
    kill -$signal $pid
    [ $signal = USR1 ] && kill -USR1 $pid 2> /dev/null # warned twice: nothing more
    wait $pid
    got=$?
    want=$((128 + $(kill -l $signal)))
    [ $got = $want ] || fail "SIG$signal: exit $got, expected $want: $(cat "$work/err")"
    tail -1 "$work/out" | grep -q '"event":"done"' || fail "SIG$signal: no done event"
    ls -d "$dir"/ckpt-* > /dev/null 2>&1 || fail "SIG$signal: nothing saved"
done

# ---- damaged checkpoint: named, skipped, the one before is used
cp -r "$work/a" "$work/damaged"
printf 'XXXX' | dd of="$work/damaged/ckpt-36/model.safetensors" bs=1 seek=4000 conv=notrunc 2> /dev/null
# shellcheck disable=SC2086
out=$("$trireme" eval lenet $data --checkpoint "$work/damaged" --json 2> "$work/err") || fail "eval beside a damaged checkpoint: $(cat "$work/err")"
[ "$(grep -c "ckpt-36: damaged" "$work/err")" = 1 ] || fail "the damaged checkpoint is not named once: $(cat "$work/err")"
train --output "$work/damaged" --resume --quiet > /dev/null 2>&1 || fail "resume beside a damaged checkpoint"
same "$work/a" "$work/damaged" 36
rm -rf "$work/only" && mkdir "$work/only" && cp -r "$work/a/ckpt-36" "$work/only/"
printf 'XXXX' | dd of="$work/only/ckpt-36/model.safetensors" bs=1 seek=4000 conv=notrunc 2> /dev/null
train --output "$work/only" --resume --quiet > /dev/null 2> "$work/err"
[ $? = 3 ] || fail "only a damaged checkpoint: exit 3 expected: $(cat "$work/err")"
# shellcheck disable=SC2086
"$trireme" eval lenet $data --checkpoint "$work/only" > /dev/null 2> "$work/err"
[ $? = 3 ] && [ "$(wc -l < "$work/err")" = 1 ] || fail "only a damaged checkpoint: exit 3 and one line expected: $(cat "$work/err")"

# ---- an output directory that is in use, or has another run in it
train --output "$work/a" --quiet > /dev/null 2> "$work/err"
[ $? = 2 ] && grep -q -- "--resume" "$work/err" || fail "a second run into one directory: $(cat "$work/err")"
train --output "$work/a" --resume --seed 8 > /dev/null 2> "$work/err" && fail "--seed twice"
# shellcheck disable=SC2086
"$trireme" train lenet $data --epochs 3 --seed 8 --output "$work/a" --resume > /dev/null 2> "$work/err"
[ $? = 2 ] && grep -q "seed 7" "$work/err" || fail "another seed: $(cat "$work/err")"
# shellcheck disable=SC2086
"$trireme" eval mlp $data --checkpoint "$work/a" > /dev/null 2> "$work/err"
[ $? = 2 ] && grep -q "is of lenet" "$work/err" || fail "eval of another model: $(cat "$work/err")"

# ---- kernel choices belong to the run: measurements after its start change none of its bits
tuning=$XDG_CACHE_HOME/trireme/tuning.txt
[ -s "$work/a/choices.txt" ] && [ -s "$tuning" ] || fail "no choices.txt in a run, or no tuning.txt in the cache"
awk -F '\t' -v OFS='\t' '/\tconv / { $3 = $3 == "direct" ? "gemm" : "direct" } { print }' "$tuning" > "$work/other" && cp "$work/other" "$tuning"
mkdir "$work/d" && cp "$work/a/choices.txt" "$work/d"
train --output "$work/d" --steps 5 --quiet > /dev/null || fail "a run with a choices.txt"
train --output "$work/d" --resume --quiet > /dev/null || fail "resume with other measurements"
same "$work/a" "$work/d" 36
train --output "$work/e" --quiet > /dev/null || fail "a run with other measurements"
cmp -s "$work/a/choices.txt" "$work/e/choices.txt" && fail "other measurements make no other choices: the test above proves nothing"

# ---- weights exported and imported again: the same evaluation
# shellcheck disable=SC2086
evaluation() { "$trireme" eval lenet $data --checkpoint "$1" --json 2> "$work/err" | sed 's/,"seconds.*//'; }
want=$(evaluation "$work/a")
grep -q '"top1"' <<< "$want" || fail "eval: $want $(cat "$work/err")"
"$trireme" export lenet --checkpoint "$work/a" --to safetensors --output "$work/w.safetensors" > /dev/null || fail "export"
[ "$(evaluation "$work/w.safetensors")" = "$want" ] || fail "evaluation of the exported file differs"
"$trireme" import lenet --from "$work/w.safetensors" --output "$work/imported" > /dev/null || fail "import"
[ "$(evaluation "$work/imported")" = "$want" ] || fail "evaluation of the imported file differs"
train --output "$work/imported" --resume > /dev/null 2> "$work/err"
[ $? = 2 ] && grep -q "weights only" "$work/err" || fail "resume of an import: $(cat "$work/err")"
train --init "$work/imported" --steps 1 --quiet > /dev/null || fail "--init"

# ---- a full disk: exit 4, what was saved before is intact
mkdir "$work/small"
if mount -t tmpfs -o size=1200k none "$work/small" 2> /dev/null; then
    trap 'umount "$work/small" 2> /dev/null; rm -rf "$work"' EXIT
    train --output "$work/small/run" --save-every-steps 1 --keep 9 --quiet > /dev/null 2> "$work/err"
    [ $? = 4 ] || fail "full disk: exit 4 expected: $(cat "$work/err")"
    [ "$(wc -l < "$work/err")" = 1 ] || fail "full disk: one line expected: $(cat "$work/err")"
    evaluation "$work/small/run" | grep -q top1 || fail "full disk: the earlier checkpoint is lost: $(cat "$work/err")"
else
    echo "skipped: full disk (no right to mount a tmpfs)"
fi
# The same where files may not grow (ulimit -f, a quota), which needs no privileges. TMPDIR: the thread sanitizer maps a file of 512 KB from there
# and dies of a bus error if the file may not grow; without the folder it uses no file.
train --output "$work/limited" --steps 12 --quiet > /dev/null || fail "12 steps"
(export TMPDIR=$work/nowhere; ulimit -f 100 && train --output "$work/limited" --resume --quiet > /dev/null 2> "$work/err")
[ $? = 4 ] && [ "$(wc -l < "$work/err")" = 1 ] || fail "files may not grow: exit 4 and one line expected: $(cat "$work/err")"
evaluation "$work/limited" | grep -q top1 || fail "files may not grow: the earlier checkpoint is lost: $(cat "$work/err")"
ls "$work/limited" | grep -q tmp && fail "files may not grow: something is left: $(ls "$work/limited")"

# ---- the loss becomes NaN: exit 1, the layer is named
# shellcheck disable=SC2086
"$trireme" train lenet $data --learning-rate 900 --epochs 9 --quiet > /dev/null 2> "$work/err"
[ $? = 1 ] || fail "divergence: exit 1 expected: $(cat "$work/err")"
grep -qE "conv|fc|relu|loss|xent" "$work/err" || fail "divergence: no layer is named: $(cat "$work/err")"
exit $failed
