#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains recommendation models from the command line, compares them with the best possible AUC, stops and resumes them,
# reads their files.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1

small="--data synth --fields 5 --dense 3 --table-rows 30 --synth-train 2560 --synth-test 1000 --batch-size 256 --hidden 32,16 --bottom 16 --embedding-width 8"
for model in widedeep deepfm dcnv2 dlrm; do
    # shellcheck disable=SC2086
    "$trireme" train $model $small --epochs 4 --seed 3 --output "$work/$model" --json --log-every 5 > "$work/$model.json" ||
        fail "train $model"
    # shellcheck disable=SC2086
    "$trireme" train $model $small --epochs 4 --steps 13 --seed 3 --output "$work/$model.2" --quiet > "$work/out" 2>&1 &&
        "$trireme" train $model $small --epochs 4 --seed 3 --output "$work/$model.2" --resume --quiet > "$work/out" 2>&1 ||
        fail "resume of $model: $(cat "$work/out")"
    for part in model optimizer; do
        cmp "$work/$model/ckpt-40/$part.safetensors" "$work/$model.2/ckpt-40/$part.safetensors" || fail "$part of the resumed $model"
    done
    # shellcheck disable=SC2086
    "$trireme" eval $model --checkpoint "$work/$model" --data synth --synth-train 2560 --synth-test 1000 --seed 3 --json > "$work/eval.json" ||
        fail "eval $model"
    "$trireme" export $model --checkpoint "$work/$model" --to safetensors --output "$work/$model.safetensors" > "$work/out" 2>&1 &&
        "$trireme" import $model --from "$work/$model.safetensors" --fields 5 --dense 3 --table-rows 30 --hidden 32,16 --bottom 16 \
            --embedding-width 8 --output "$work/$model.imported" > "$work/out" 2>&1 &&
        cmp "$work/$model/ckpt-40/model.safetensors" "$work/$model.imported/ckpt-0/model.safetensors" ||
        fail "export and import of $model: $(cat "$work/out")"
    python3 - "$work/$model.json" "$work/eval.json" << 'END' || fail "events of $model"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
by = lambda kind: [e for e in events if e["event"] == kind]
start, last, done = by("start")[0], by("eval")[-1], by("done")[0]
assert start["fields"] == 5 and start["dense"] == 3 and start["table_rows"] == 150, start
assert all(e["samples_per_second"] > 0 for e in by("step")) and done["samples_per_second"] > 0
assert 0.5 < last["auc"] <= last["bayes_auc"] + 0.02 and last["bayes_auc"] > 0.7, last
assert last["bayes_logloss"] < last["logloss"] and 0.5 < last["calibration"] < 2, last
again = json.loads(open(sys.argv[2]).readline())
assert again["auc"] == last["auc"] and again["logloss"] == last["logloss"] and again["bayes_auc"] == last["bayes_auc"], again
END
done
"$trireme" inspect "$work/dlrm" > "$work/out" && "$trireme" inspect "$work/dlrm/ckpt-40/model.safetensors" >> "$work/out" || fail "inspect"
grep -q "embedding.weight" "$work/out" && grep -q "bottom.0.weight" "$work/out" || fail "inspect: $(cat "$work/out")"
"$trireme" plan widedeep --table-rows 1000 --batch-size 512 --explain > "$work/out" && grep -q "embedding" "$work/out" || fail "plan --explain"

"$trireme" export widedeep --checkpoint "$work/widedeep" --to onnx --output "$work/widedeep.onnx" > "$work/out" 2>&1 &&
    "$trireme" inspect "$work/widedeep.onnx" > "$work/out" && grep -q Gather "$work/out" || fail "ONNX of widedeep: $(cat "$work/out")"
"$trireme" export dlrm --checkpoint "$work/dlrm" --to onnx --output "$work/dlrm.onnx" > "$work/out" 2>&1 &&
    "$trireme" inspect "$work/dlrm.onnx" > "$work/out" && grep -q MatMul "$work/out" && grep -q Gather "$work/out" || fail "ONNX of dlrm: $(cat "$work/out")"

# ---- measuring
"$trireme" bench train widedeep --preset peer --repeats 3 --threads 1 --json > "$work/out" || fail "bench train --preset peer"
grep -q '"preset":"peer","samples":20480,' "$work/out" && grep -q '"samples_per_second":' "$work/out" || fail "bench: $(cat "$work/out")"

# ---- wrong use has messages
says() { # SENTENCE COMMAND...
    local sentence=$1
    shift
    "$@" > "$work/out" 2>&1
    local code=$?
    [ $code = 2 ] && grep -q -- "$sentence" "$work/out" || fail "$*: exit code $code, $(cat "$work/out")"
}
says "the nearest is widedeep" "$trireme" train widdeep --data synth
awk 'BEGIN { for (i = 0; i < 400; i++) print i % 7 "," i % 11 "," (i % 7 > 3) }' > "$work/dots.csv"
"$trireme" train dlrm --data "$work/dots.csv" --dataset csv --columns a:key,b:key,liked:label --batch-size 100 > "$work/out" 2>&1 ||
    fail "dlrm without dense inputs: $(cat "$work/out")"
[ "$(grep -c "nothing but inner products" "$work/out")" = 1 ] || fail "dlrm without dense inputs says $(cat "$work/out")"
says "at most 16 widths" "$trireme" train widedeep --data synth --hidden 12,x
says "a role is label" "$trireme" train widedeep --data synth --columns user:user
says "is of widedeep" "$trireme" bench train dlrm --preset peer
says "the network asks for 'image'" "$trireme" train mlp --data clicks
exit $failed
