#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plans for machines that are not here: presets, report, a plan in Megatron's words, impossible plans, damaged hardware files, exports;
# the module for PyTorch trains a small Llama on 4 processes with one process's losses.
. "$(dirname "$0")/common.sh"
machines=$source/examples/hardware
h100=$machines/h100.json

# every machine and every large model; no weights: at most 200 MB
for machine in "$machines"/*.json; do
    "$trireme" plan llama --preset 70b --mesh 64x8 --hardware "$machine" --json > out.json || fail "$machine"
    python3 - << 'END' || fail "$machine: report"
import json
d = json.load(open("out.json"))
p, s, c = d["plan"], d["seconds"], d["certificate"]
assert p["tp"] * p["pp"] * p["cp"] * p["dp"] == 512 == d["devices"], p
assert abs(sum(v for k, v in s.items() if k != "step") - s["step"]) < 1e-9 * s["step"], s
assert abs(sum(d["memory"].values()) - d["memory_bytes"]) < 1 and d["memory_bytes"] <= d["memory_limit_bytes"], d["memory"]
assert c["objective"] == s["step"] and c["plans"] > 1000, c
# plans whose blocks differ are in the bound
assert 0 <= c["gap"] < 0.25 and abs(1 - c["lower_bound"] / s["step"] - c["gap"]) < 1e-9 and (c["gap_reason"] != "") == (c["gap"] > 1e-9), c
assert 0.9 < d["played_seconds"] / s["step"] < 1.02, d["played_seconds"]  # messages may hide behind work there
assert 0.1 < d["mfu"] < 0.9 and all(r["slower"] >= 0 for r in d["runners_up"]) and len(d["runners_up"]) >= 6
rate = d["global_batch"] * d["model"]["context"] / s["step"] / d["devices"]
assert abs(d["tokens_per_second_per_device"] / rate - 1) < 1e-9
END
done
large() { # MODEL PRESET MESH; the search has one thread, and the machine may be busy: CPU seconds count
    /usr/bin/time -f '%M %U' -o memory "$trireme" plan "$1" --preset "$2" --mesh "$3" --hardware "$h100" --json > out.json || fail "$*"
    sanitized && return
    tail -n 1 memory | awk '{ exit !($1 < 200000 && $2 < 1) }' || fail "$*: KB and seconds: $(cat memory), 200000 and 1 expected"
}
large llama 8b 8x8
python3 -c "import json; c = json.load(open('out.json'))['certificate']; assert c['gap'] < 1e-3, c" || fail "the memory does not bind, and plans whose blocks differ are no faster"
large llama 405b 2048x8
large gpt2 175b 128x8
large moe deepseek-v3-shape 2048x8

# a given plan is priced, and the report says where the best one saves time
expect 0 "than the given plan" plan llama --preset 405b --mesh 64x8 --hardware "$h100" --plan tp=8,pp=16,cp=1,micro-batch=1,recompute=full,zero=1
grep -q 'recompute .* less' out.txt || fail "the reason is missing"
expect 0 "does not fit" plan llama --preset 405b --mesh 64x8 --hardware "$h100" --plan tp=8,pp=4
expect 0 "MFU" simulate llama --preset 8b --mesh 8x8 --hardware "$h100" --largest 128
# plans that cannot be
expect 2 "the 512 devices of the mesh expected" plan llama --preset 70b --mesh 64x8 --hardware "$h100" --plan tp=8,pp=7
expect 2 "heads 128 found, a multiple of tp=3 expected" plan llama --preset 405b --mesh 96x1 --hardware "$h100" --plan tp=3
expect 2 "at most the 32 blocks" plan llama --preset 8b --mesh 64x1 --hardware "$h100" --plan pp=64
expect 2 "expected" plan llama --preset 8b --mesh 8x8 --hardware "$h100" --plan tp=8,tp=8
expect 2 "a multiple of the heads expected" plan llama --layers 4 --width 30 --heads 7 --mesh 8 --hardware "$h100"
expect 2 "gpt2, llama or moe expected" plan resnet50 --preset 8b --mesh 8x8 --hardware "$h100"
expect 2 "gpt2, llama or moe expected" plan bert --preset base --mesh 8x8 --hardware "$h100"
expect 2 "gpt2, llama or moe expected" simulate resnet50 --preset 8b --mesh 8x8 --hardware "$h100"
expect 2 "has no experts" plan llama --preset 8b --mesh 8x8 --hardware "$h100" --plan ep=8
expect 2 "there are" plan llama --preset 9b --mesh 8x8 --hardware "$h100"
expect 2 "--mesh AxB" plan llama --preset 8b --hardware "$h100"
expect 2 "--save found" plan llama --preset 8b --mesh 8x8 --hardware "$h100" --save cluster.plan
expect 2 "one of them expected" plan llama --preset 8b --mesh 8x8 --hardware "$h100" --links guess
expect 2 "one of them expected" plan resnet50 --mesh 8x8 --hardware "$h100" --links guess
expect 4 "no plan fits" plan llama --preset 405b --mesh 8 --hardware "$h100"
# words of a plan that are not whole, and options that such plans do not read: nothing is planned as if they were not there
words() { # WORDS TEXT
    expect 2 "$2" plan llama --preset 8b --mesh 8x8 --hardware "$h100" --plan "$1"
}
for value in 0 -1 +8 8.5 0x8 "" 99999999999999999999 "8 pp=4"; do words "tp=$value" "a number from 1 to 1048576 expected"; done
for value in tp=8, ,tp=8 tp=8,,pp=2; do words "$value" "words NAME=VALUE separated by commas expected"; done
for value in tp TP=8 foo=3 " "; do words "$value" "NAME=VALUE with a name of tp, pp"; done
for value in half full: full:-1 full:3+full:2 ""; do words "recompute=$value" "by-stage expected"; done
words recompute=full:999 "999 blocks of a stage found, at most 32 expected"
words recompute=selective:33 "33 blocks of a stage found, at most 32 expected"
words micro-batch=3 "a multiple of dp x micro-batch = 192 expected"
words zero=4 "0 to 3 expected"
words tp=1048576,pp=1048576,cp=1048576,dp=1048576 "the 64 devices of the mesh expected"
words vp=2 "interleaved expects 2 or more stages"
for flag in "--stages 4" "--micro-batches 8" "--recompute block" "--optimizer sgd" "--accumulate 4" "--search recursive" "--host-count 4" --no-measure --validate --refresh \
    "--threads 4" "--precision mixed" "--pipeline-schedule gpipe" "--trial-seconds 3" "--lora r=4" "--deterministic true"; do
    # shellcheck disable=SC2086 # words
    expect 2 "${flag%% *} has no effect on the plan of a language model for --hardware" plan llama --preset 8b --mesh 8x8 --hardware "$h100" $flag
done
for flag in "--straggler 3" "--trace trace.json"; do
    # shellcheck disable=SC2086 # words
    expect 2 "has no effect on the plan of a language model" simulate llama --preset 8b --mesh 8x8 --hardware "$h100" $flag
done
expect 2 "has the sizes of Llama 3 8B; other sizes found" plan llama --preset 8b --layers 3 --mesh 8x8 --hardware "$h100"
expect 2 "--preset and --size found" plan llama --preset 8b --size 8b --mesh 8x8 --hardware "$h100"
expect 2 "more than 1048576 ranks found" plan llama --preset 8b --mesh 99999x99999 --hardware "$h100"
expect 2 "--largest 3 found, at least 8 expected" simulate llama --preset 8b --mesh 8x8 --hardware "$h100" --largest 3
expect 2 "--export torch, megatron or mindspore expected" plan llama --preset 8b --mesh 8x8 --hardware "$h100" --output nowhere
for flag in "--preset 8b" "--products fp8" "--export torch --output nowhere"; do
    # shellcheck disable=SC2086 # words
    expect 2 "--hardware FILE expected" plan llama --size llama15m --mesh 2 --links guess --no-measure $flag
done
# a plan that was searched and does not fit is not exported
for engine in torch megatron mindspore; do
    expect 4 "no plan fits" plan llama --preset 405b --mesh 8 --hardware "$h100" --export $engine --output "large.$engine"
    [ ! -e "large.$engine" ] || fail "--export $engine wrote a plan that does not fit"
done
expect 3 "cannot make the directory" plan llama --preset 8b --mesh 8x8 --hardware "$h100" --export megatron --output out.txt/folder
# damaged hardware files: line, found, expected
damage() { # SED TEXT
    sed "$1" "$h100" > bad.json
    expect 2 "$2" plan llama --preset 8b --mesh 8x8 --hardware bad.json
}
damage 's/"memory_bytes": [^,]*/"memory_bytes": "80 GB"/' 'line'
grep -qF '"memory_bytes": found "80 GB", expected a number' out.txt || fail "found and expected: $(cat out.txt)"
damage 's/"efficiency": \[\[/"efficiency": [[-/' 'pairs'
damage '$d' 'JSON expected'
damage 's/"devices": 65536/"devices": 12/' 'whole multiple'
damage 's/"bf16"/"bf15"/' 'bf16 among them'
damage 's/"overlap"/"overlop"/' 'found a member "overlop", expected name|sources|device'
damage 's/"memory_bytes"/"memori_bytes"/' 'attention_backward|operator_seconds'
damage 's/"memory_bytes": [^,]*/"memory_bytes": 1e400/' 'JSON expected: real number overflow'
damage 's/"name": "NVLink"/"name": "a name that is much too long for a level"/' 'found "a name that is'
# the line is that of the object with the wrong member, and not of another one with such a member
line=$(grep -n '"name": "NVLink"' "$h100" | cut -d: -f1)
damage '/NVLink/s/"bytes_per_second": [^,]*/"bytes_per_second": 0/' "line $line: \"bytes_per_second\": found 0"
damage '/NVLink/s/"name": "NVLink"/"name": ""/' "line $line: \"name\""
damage '/InfiniBand/s/, "latency_seconds": [^}]*//' "line $((line + 1)): \"latency_seconds\": found nothing"
damage 's/"devices": 65536/"devices": 16/' '16 devices in "InfiniBand", the outermost of the links, found, at least the 64'
: > bad.json
expect 2 "line 1: JSON expected" plan llama --preset 8b --mesh 8x8 --hardware bad.json
printf '{"name": "a", "name": "b"}' > bad.json
expect 2 "duplicate object key" plan llama --preset 8b --mesh 8x8 --hardware bad.json
expect 3 "cannot be read" plan llama --preset 8b --mesh 8x8 --hardware .
expect 2 "bad.json: hardware, line 1" plan mlp --mesh 8x8 --hardware bad.json
expect 2 "fp8" plan llama --preset 8b --mesh 8x8 --hardware "$machines/a100.json" --products fp8
# other models: operator by operator, by the same file
expect 0 "ranks         64" plan resnet50 --mesh 8x8 --hardware "$h100"

# published throughputs and Alpa's plans
python3 "$source/bench/published_plans.py" --trireme "$trireme" --json > published.txt || fail "published throughputs"
python3 -c "
import json
*rows, last = map(json.loads, open('published.txt'))
assert last['rows'] == 'all' and last['count'] >= 40 and last['mean_error'] < 0.15 and last['tau'] > 0.8, last" || fail "published throughputs"
python3 "$source/bench/alpa_plans.py" --trireme "$trireme" > alpa.txt && [ "$(grep -c '^|' alpa.txt)" = 7 ] || { cat alpa.txt; fail "Alpa's plans"; }

# exports
"$trireme" plan llama --preset 405b --mesh 64x8 --hardware "$h100" --plan tp=8,pp=16,cp=1,vp=4,zero=1,recompute=selective --full-batch --batch-size 512 --export megatron --output megatron > /dev/null || fail "megatron"
for flag in "--tensor-model-parallel-size 8" "--pipeline-model-parallel-size 16" "--num-layers-per-virtual-pipeline-stage 2" \
    "--account-for-loss-in-pipeline-split" "--sequence-parallel" "--use-distributed-optimizer" "--recompute-granularity selective"; do
    grep -qF -- "$flag" megatron/flags.txt || fail "megatron: no $flag"
done
"$trireme" plan moe --preset mixtral-8x7b --mesh 8x8 --hardware "$h100" --plan tp=2,ep=8,zero=1 --export mindspore --output mindspore > /dev/null || fail "mindspore"
python3 -c "
import json
s, c = json.load(open('mindspore/strategy.json')), json.load(open('mindspore/context.json'))
items = s['parallel_strategy_item'] # as MindSpore's StrategyCheckpointInfo::from_json reads it
assert isinstance(s['current_stage'], int) and s['parallel_layout_item'] == {} and len(items) == 2 + 32 * (2 + 3 + 1 + 3), len(items)
assert all(isinstance(i['stage'], int) and all(isinstance(n, int) for cuts in i['parallel_strategy'] for n in cuts) for i in items.values())
assert items['MatMul_model.layers.31.attention.wq.weight']['parallel_strategy'] == [[32, 1], [2, 1]], items
assert items['BatchMatMul_model.layers.0.feed_forward.routed_experts.ffn.w1.weight']['parallel_strategy'][0][0] == 8, items
assert c['context']['strategy_ckpt_config']['load_file'] == 'strategy.json' and c['FlashAttentionScore'][0] == [32, 2, 1, 1], c" || fail "mindspore"
"$trireme" plan gpt2 --preset 175b --mesh 64x8 --hardware "$h100" --plan tp=8,pp=8,vp=2,zero=1 --full-batch --batch-size 512 --export mindspore --output gpt > /dev/null || fail "mindspore: gpt2"
python3 -c "
import json
items = json.load(open('gpt/strategy.json'))['parallel_strategy_item']
assert [items[f'MatMul_backbone.blocks.{n}.attention.dense1.weight']['stage'] for n in (0, 5, 6, 47, 48, 95)] == [0, 0, 1, 7, 0, 7], items
assert items['MatMul_backbone.blocks.0.output.projection.weight']['parallel_strategy'] == [[8, 8], [8, 1]], items" || fail "mindspore: gpt2"
expect 2 "cp=2" plan llama --preset 8b --mesh 8x8 --hardware "$h100" --plan cp=2 --export torch --output torch
expect 2 "--output DIR expected" plan llama --preset 8b --mesh 8x8 --hardware "$h100" --export torch
[ "$(wc -l < "$source/src/train/planner/torch_plan.py")" -le 150 ] || fail "torch_plan.py has more than 150 lines"

# PyTorch runs the plan: tensor x data, pipeline x data, tensor x pipeline interleaved
sanitized && exit $failed
python=
for candidate in "$HOME/.cache/trireme-peers/oracle/bin/python" python3; do
    "$candidate" -c 'import torch, transformers, sys; sys.exit([int(x) for x in torch.__version__.split(".")[:2]] < [2, 6])' 2> /dev/null && python=$candidate && break
done
if [ -z "$python" ]; then
    [ $failed = 0 ] || exit 1
    skip "the torch export does not run: no PyTorch of version 2.6 or later with transformers"
fi
for words in tp=2,zero=3,recompute=full pp=2,zero=1 tp=2,pp=2,vp=2; do
    "$trireme" plan llama --layers 4 --width 32 --heads 4 --kv-heads 2 --hidden 64 --vocabulary 96 --untied --context 16 -n 4 --batch-size 2 \
        --hardware "$h100" --plan $words --export torch --output "torch.$words" > /dev/null || fail "export of $words"
    OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore timeout 280 "$python" -m torch.distributed.run --nproc-per-node 4 --master-port "$(free_ports 1)" \
        "$source/tests/hardware_torch.py" "torch.$words" > log 2>&1 || { tail -n 30 log; fail "PyTorch with $words"; }
    grep '^losses' log
done
exit $failed
