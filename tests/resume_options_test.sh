#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A resume with another value of any option that changes training is refused or told. The test takes the options from
# `trireme train --help`: one that is neither changed below nor listed with a reason fails it.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
"$trireme" train --help > help.txt 2>&1 || fail "train --help"
for part in train test; do
    for i in $(seq 1 400); do echo "$((i * 7919 % 100)),$((i % 2)),c$((i % 10)),d$((i % 3))|e$((i % 7))|f$i|g"; done > rows.txt
    mkdir -p csv && { echo "age,liked,city,land"; cat rows.txt; } > csv/$part.csv
done
for i in $(seq 1 60); do echo "{\"text\": \"line $i of a text that is long enough\", \"other\": \"another text, number $i, is long enough\"}"; done > lines.jsonl
sed 's/"[a-z]*": "//g; s/[{}",]//g' lines.jsonl > text.txt
"$trireme" tokenizer train text.txt --vocabulary 280 --special-tokens '<|endoftext|>,[CLS],[SEP]' --output tokenizer > out.txt 2>&1 || fail "tokenizer: $(cat out.txt)"

# ---- the jobs whose options are changed
declare -A job
job[lenet]="lenet --data synth --synth-train 320 --batch-size 32 --classes 10"
job[ranks]="resnet18 --data synth --synth-train 320 --batch-size 4 --classes 10 --stem cifar --image-size 8 -n 2"
job[csv]="widedeep --data csv --columns age:dense,liked:label,city:key,land:key --table-rows 50 --batch-size 32 --hidden 8"
job[clicks]="widedeep --data synth --dataset clicks --synth-train 320 --fields 3 --dense 2 --table-rows 50 --batch-size 32 --hidden 8"
job[bags]="widedeep --data csv --columns age:dense,liked:label,city:key,land:bag --table-rows 50 --batch-size 32 --hidden 8"
job[dcnv2]="dcnv2 --data synth --dataset clicks --synth-train 320 --fields 3 --dense 2 --table-rows 50 --batch-size 32 --hidden 8"
job[dlrm]="dlrm --data synth --dataset clicks --synth-train 320 --fields 3 --dense 2 --table-rows 50 --batch-size 32 --hidden 8 --bottom 8,4 --embedding-width 4"
small="--layers 1 --width 16 --heads 2 --hidden 32 --context 16 --batch-size 2"
job[gpt2]="gpt2 --data text.txt --tokens bytes $small --dropout 0.1"
job[sized]="gpt2 --data text.txt --tokens bytes --size tiny --layers 1 --context 16 --batch-size 2"
job[untied]="llama --data text.txt --tokens bytes $small"
job[llama]="llama --data text.txt --tokens bytes $small --untied"
job[moe]="moe --data text.txt --tokens bytes $small --experts 4"
job[bert]="bert --data text.txt --tokenizer tokenizer $small"
job[jsonl]="gpt2 --data lines.jsonl --dataset jsonl --tokenizer tokenizer $small"
job[vit]="vit --data synth --synth-train 64 --classes 10 --layers 1 --width 16 --heads 2 --hidden 32 --batch-size 4 --image-size 16 --patch 4"
job[servers]="widedeep --data synth --dataset clicks --synth-train 3200 --fields 3 --dense 2 --table-rows 50 --batch-size 32 --hidden 8 -n 1 --ps 1 --mode sync"

# ---- job | change | what the resume says
cases="
lenet|--synth-train 330|dataset had 320 samples
lenet|--batch-size 16|batch size
lenet|--image-size 28|conv2d.pad
lenet|--classes 12|network differs
lenet|--precision mixed|precision differs
lenet|--backend ref|backend differs
lenet|--seed 2|seed
lenet|--optimizer nesterov|optimizer differs
lenet|--learning-rate 0.02|learning_rate 0.01 -> 0.02
lenet|--momentum 0.8|momentum 0.9 -> 0.8
lenet|--weight-decay 0.1|weight_decay 0 -> 0.1
lenet|--optimizer adam|optimiser slots
gpt2|--betas 0.8,0.9|beta1 0.9 -> 0.8, beta2 0.999 -> 0.9
lenet|--schedule cosine|schedule constant -> cosine
lenet|--warmup-steps 9|warmup_steps 0 -> 9
lenet|--warmup-steps 9 --warmup-start 0.001|warmup_start 0 -> 0.001
lenet|--schedule cosine --end-learning-rate 0.001|end_learning_rate 0 -> 0.001
lenet|--schedule step --decay-steps 2|decay_steps 0 -> 2
lenet|--schedule step --gamma 0.2|gamma 0.1 -> 0.2
lenet|--schedule polynomial --power 2|power 1 -> 2
lenet|--loss expand|network differs
lenet|--label-smoothing 0.1|label_smoothing 0 -> 0.1
lenet|--clip-norm 1|clip_norm 0 -> 1
lenet|--loss-scale fixed:4|loss_scale off -> fixed
lenet|--accumulate 2|batches a step
lenet|--epochs 5|epochs
lenet|--steps 4|steps 2 -> 4
lenet|--deterministic strict|strict_block 0 -> -1
lenet|--deterministic strict --deterministic-block 4|strict_block 0 -> 4
lenet|--usage test|dataset had 320 samples
lenet|--exact-guide|differs
ranks|-n 1|ranks
ranks|--stem imagenet|network differs
ranks|--global-batch 16|give one of them
ranks|--reduce sum|reduce mean -> sum
ranks|--elastic 1:2 --elastic-batch rank|elastic_batch global -> rank
ranks|--wire bf16|wire float32 -> bfloat16
ranks|--sync-batch-norm off|batch_norm over all ranks' samples -> over each rank's own samples
ranks|--parallel-mode semi_auto_parallel --full-batch|batch size
csv|--columns age:skip,liked:label,city:key,land:key|optimiser slots
csv|--separator semicolon|dataset had 400 samples
csv|--header no|dataset had 400 samples
csv|--table-rows 60|differs
csv|--dense-form log|data differs
csv|--columns age:label,liked:dense,city:key,land:key --label-threshold 50|data differs
csv|--field-tables separate|another network
csv|--embedding-width 8|network differs
csv|--hidden 9|network differs
csv|--no-wide-dense|optimiser slots
csv|--dataset libsvm|no libsvm file
bags|--pooling mean|bag_pool.pooling 0 -> 1
bags|--bag-max 3|differs
clicks|--fields 4|differs
clicks|--dense 3|differs
clicks|--zipf 1.3|data differs
clicks|--click-rate 0.5|data differs
clicks|--key-scale 2|data differs
clicks|--dense-scale 2|data differs
clicks|--pair-scale 2|data differs
clicks|--optimizer ftrl|optimiser slots
dcnv2|--cross-layers 2|optimiser slots
dcnv2|--cross-rank 2|another network
dcnv2|--stacked|network differs
dlrm|--bottom 9,4|network differs
gpt2|--dropout 0.2|dropout.rate 0.1 -> 0.2
gpt2|--heads 4|attention.heads 2 -> 4
gpt2|--layers 2|another network
gpt2|--width 32|network differs
gpt2|--hidden 16|network differs
gpt2|--context 8|differs
gpt2|--stride 8|dataset had
gpt2|--tokens characters|differs
gpt2|--vocabulary 300|network differs
gpt2|--lora r=2|another network
sized|--size small|network differs
untied|--untied|another network
llama|--kv-heads 1|network differs
llama|--rotary-theta 500|rotary.theta 10000 -> 500
llama|--lazy-embedding|parameters.all_rows 1 -> 0
moe|--experts 5|network differs
moe|--top-experts 3|top_k.k 2 -> 3
moe|--balance 0.1|scale.factor
bert|--masking 0.3|differs
bert|--mask-token 5|differs
bert|--boundary-tokens off|dataset had
bert|--documents|dataset had
jsonl|--text-field other|data differs
vit|--patch 8|network differs
vit|--lora r=2|another network
servers|--mode async|servers synchronous -> asynchronous
servers|--mode staleness=2|servers synchronous -> staleness 2
servers|--hybrid|servers synchronous -> synchronous, tables only
servers|--tables optimizer=ftrl|optimizer ftrl declared; server 0 has it with adagrad
servers|--tables max-rows=20|expiry.max_rows 20 declared; server 0 has it with 0
servers|--learning-rate 0.5|learning_rate 0.5 declared; server 0 has it with
servers|--mode async --staleness-aware|servers synchronous -> asynchronous, rate by staleness
servers|-n 2 --batch-size 16 --backup-workers 1|servers synchronous -> synchronous, 1 needed
"
# ---- options that change no result of a resumed job, and why
same="
dry-run json quiet verbose color help check: print
workers tuning-file threads no-fusion recompute sink: the same bits, or kernels of another speed
output resume accept-changes init save-every-steps save-every-seconds keep keep-every-hours eval-every-epochs early-stop: saving and ends
log-every tensorboard histogram-epochs metrics profile summary-every: records
export-latest export-best export-final export-bytes: files of servers' jobs
synth-test evaluator: evaluation only
plan mesh memory trial-seconds stages micro-batches pipeline-schedule chunks stage-begins bucket shard-optimizer layerwise: how ranks share the work; sums in another order
elastic-deadline elastic-restarts: the same samples and batch on fewer ranks
engine algorithm rank-table start-timeout launch-dir timeout: transport
ps restarts role-timeout ps-shards ps-memory ps-spill placement no-ps-log token-file: where rows lie; state is kept
lend hot-rows hot-age: of asynchronous servers, whose order is that of time
job_name task_index ps_hosts worker_hosts chief_hosts evaluator_hosts model_dir: roles
"
named=" $(grep -o -E -- '(^|[| ])--?[a-z_]+[a-z0-9_-]*' <<< "$cases" | tr -d '| ' | sed 's/^-*//' | tr '\n' ' ') $(sed 's/:.*//' <<< "$same" | tr '\n' ' ') "
for flag in $(grep -o -E '^  (-n|--[a-z0-9_-]+)' help.txt | sed 's/^ *-*//' | sort -u); do
    [[ $named == *" $flag "* ]] || case $flag in
        dataset | data | columns | tokenizer) ;; # in the jobs
        *) fail "--$flag: changed by no case, and not listed as changing nothing" ;;
    esac
done
# Runs a job with ARGS into FOLDER; a flag that is given twice counts once, with its last values.
run() { # FOLDER ARGS...
    local folder=$1
    shift
    python3 - "$@" > args.txt << 'END'
import sys
groups = [[sys.argv[1]]]
for word in sys.argv[2:]:
    groups.append([word]) if word.startswith("-") else groups[-1].append(word)
last = {g[0]: g for g in groups}
print("\n".join(w for g in last.values() for w in g))
END
    mapfile -t args < args.txt
    timeout 120 "$trireme" train "${args[@]}" --eval-every-epochs 0 --output "$folder" > out.txt 2>&1
}
while IFS='|' read -r name change says; do
    [ -n "$name" ] || continue
    # shellcheck disable=SC2086
    if [ ! -d "base-$name" ]; then
        run "base-$name" ${job[$name]} --steps 2 || fail "$name: $(tail -n 2 out.txt)"
    fi
    rm -rf changed && cp -r "base-$name" changed
    # shellcheck disable=SC2086
    run changed ${job[$name]} --steps 3 --resume $change
    grep -E "resumed with changes|error" out.txt | grep -qF -- "$says" ||
        fail "$name $change: silent, or without '$says': $(grep -vE "^epoch|^step" out.txt | head -n 4)"
done <<< "$cases"
exit $failed
