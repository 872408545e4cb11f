#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the command line: help, flags, exit codes, JSON. No job trains for long.
. "$(dirname "$0")/common.sh"

# expect CODE TEXT ARGS...: the exit code, and TEXT in what it prints.
expect() {
    local code=$1 text=$2
    shift 2
    local out got
    out=$("$trireme" "$@" 2>&1 < /dev/null)
    got=$?
    [ $got = "$code" ] || fail "trireme $*: exit $got, expected $code: $out"
    grep -qF -- "$text" <<< "$out" || fail "trireme $*: '$text' is not in: $out"
}
# json ARGS...: stdout is JSON objects, one a line.
json() {
    "$trireme" "$@" --json > "$work/out" 2> "$work/err" || fail "trireme $* --json: exit $?: $(cat "$work/err")"
    [ -s "$work/out" ] || fail "trireme $* --json: no output"
    python3 -c 'import json, sys
for line in open(sys.argv[1]):
    assert isinstance(json.loads(line), dict)' "$work/out" || fail "trireme $* --json: not JSON: $(head -3 "$work/out")"
}

# ---- help: each command of the overview has one, with an example that starts with its name
"$trireme" > "$work/out" 2>&1
[ $? = 2 ] || fail "without a command: exit 2 expected"
expect 0 "Usage: trireme COMMAND" --help
expect 0 "Usage: trireme COMMAND" help
commands=$("$trireme" help | sed -n 's/^  \([a-z][a-z]*\( [a-z][a-z]*\)\{0,1\}\) .*/\1/p')
[ "$(wc -l <<< "$commands")" -ge 13 ] || fail "few commands in the overview: $commands"
while read -r command; do
    # shellcheck disable=SC2086
    expect 0 "Example: trireme $command" $command --help
    expect 0 "Example: trireme $command" help $command
    expect 2 "has no flag --no-such-flag" $command --no-such-flag
    if "$trireme" $command --help | grep -E '^  -.* $'; then fail "trireme $command --help says nothing of this flag"; fi
    grep -qE "(^\.B[IR]* |, )\"?$command" "$source/docs/man/trireme.1" || fail "the man page does not tell of trireme $command"
done <<< "$commands"
expect 0 "128+n" help exit-codes
for event in start step epoch eval checkpoint membership left done error; do expect 0 "\"$event\"" help events; done
for topic in data resume events; do expect 0 "    " help $topic; done
expect 2 "nearest is exit-codes" help exit-code

# ---- wrong use
expect 2 "the nearest is train" trian
expect 2 "needs one of: synth" data
expect 2 "trireme bench: no 'foo'; it needs one of: " bench foo
expect 2 "the nearest is 'data synth'" data sinth
expect 2 "the nearest is --learning-rate" train mlp --learning-rat 1
expect 2 "--seed is given twice" train mlp --seed 1 --seed=2
expect 2 "--epochs needs a value" train mlp --epochs
expect 2 "--sink takes no value" train mlp --sink=yes
expect 2 "an integer from 1" train mlp --epochs 0
expect 2 "onednn|ref" train mlp --backend cuda
expect 2 "trireme train needs MODEL" train
expect 2 "'lenet' is one argument too many; expected MODEL" train mlp lenet
expect 2 "'somewhere' is one argument too many; expected MODEL" train mlp --data synth --resume somewhere
expect 2 "--data is needed" train mlp
expect 2 "no model 'resnet51'; the nearest is resnet" train resnet51
expect 2 "there are: resnet18" train perceptron --data synth
expect 2 "--resume needs --output" train mlp --data synth --resume
expect 2 "--keep-every-hours needs --output" train mlp --data synth --keep-every-hours 1
expect 2 "--early-stop needs evaluations" train mlp --data synth --early-stop 2 --eval-every-epochs 0
expect 2 "10 samples" train mlp --data synth --synth-train 10 --batch-size 16
expect 2 "the data has 10 classes, the network 5" train mlp --data synth --classes 5
expect 2 "eval needs --checkpoint" eval mlp --data synth
expect 2 "export needs" export mlp
expect 2 "'maybe' is one argument too many; after --deterministic may stand false|true|strict" train mlp --deterministic maybe
expect 2 "import needs" import mlp
expect 2 "no dataset 'mnist'" data fetch mnist
expect 2 "the nearest is --learning-rate" train mlp --data synth --lr 0.1
for idle in "sgd --momentum 0.9|--optimizer momentum" "adam --gamma 0.5|--schedule step" "sgd --zipf 2|recommendation models" \
    "sgd --stem cifar|resnets" "sgd --warmup-start 1|--warmup-steps"; do # told, not refused
    # shellcheck disable=SC2086
    expect 0 "has no effect here: it is for ${idle#*|}" train lenet --data synth --dry-run --optimizer ${idle%|*}
done
for line in "plan --epochs 3|train" "plan --learning-rate 1|commands that train" "bench ops --sink|train" \
    "train --data synth --sink --log-every 3|training without --sink" "train --data synth --launch-dir x|several ranks"; do
    words=${line%|*} command=${line%% --*}
    # shellcheck disable=SC2086
    expect 0 "has no effect here: it is for ${line#*|}" $command lenet ${words#"$command"} --dry-run
done
# a command refuses the flags of other commands
for line in "cluster show|--hosts a:2" "cluster check|--output x" "cluster merge x|--to v1" "cluster make|--rank-table x" "ps inspect x|--output y" \
    "ps export x|--key 1" "bench data|--preset peer"; do
    # shellcheck disable=SC2086
    expect 2 "has no flag" ${line%|*} ${line#*|}
done
# flags that have an effect in jobs with servers only
for flag in "--tables rows=bf16" "--restarts 1" "--worker_hosts a:1" "--mode sync"; do
    # shellcheck disable=SC2086
    expect 2 "of jobs with parameter servers: give --ps N too" train lenet --data synth $flag
    # shellcheck disable=SC2086
    expect 2 "of jobs with parameter servers: give --ps N too" bench train lenet $flag
done
expect 2 "--preset peer is of widedeep" bench ops lenet --preset peer --dry-run
expect 2 "takes --repeats, not --epochs" bench train lenet --epochs 3 --dry-run
expect 2 "ends in .csv or .jsonl" train lenet --data synth --metrics m.txt --dry-run
expect 0 "resnet50 resnet101" train --help
expect 0 "deepfm dcnv2 dlrm" help
expect 2 "-n '0': an integer from 1" train mlp --data synth -n 0
expect 2 "follows --, as in: trireme run -n 8 -- ./" run -n 2 echo hi
expect 2 "3 bytes are less than one element of fp32" bench comm -n 2 --sizes 3
for wrong in "--context foo=1|no context option 'foo'" "--bucket 0|--bucket '0': auto, off, megabytes" "--plan nowhere --parallel-mode auto_parallel|nowhere: cannot open: No such file"; do
    # shellcheck disable=SC2086
    expect "$([[ $wrong = *nowhere* ]] && echo 3 || echo 2)" "${wrong#*|}" train mlp --data synth -n 2 ${wrong%|*}
    [ ! -e device0 ] || fail "ranks were started for ${wrong%|*}"
done

# before ranks and roles start, the model is checked; on a dry run the data and the checkpoint too
for line in "2|no model 'perceptron'|train perceptron --data synth -n 2" "2|no model 'perceptron'|train perceptron --data synth --ps 1" \
    "2|no model 'perceptron'|verify perceptron -n 2" "3|no such data|train lenet --data $work/nowhere -n 2 --dry-run" \
    "3|no such data|train lenet --data $work/nowhere --ps 1 --dry-run" "2|--data is needed|train lenet -n 2 --dry-run" \
    "3|no checkpoint there|eval lenet --data synth --checkpoint $work/nowhere -n 2 --dry-run" "2|train has no flag --hosts|train lenet --data synth --hosts a:2"; do
    IFS='|' read -r code text command <<< "$line"
    # shellcheck disable=SC2086
    expect "$code" "$text" $command
    [ ! -e device0 ] || fail "processes were started for $command"
done

# a Python script is refused with the command to use instead; DATA_PATH names the data; a line says that data are generated
printf 'model.train(10, dataset)\n' > resnet50_distributed_training.py
expect 2 "trireme train resnet50 --data DIR --exact-guide -n 8 (docs/guides/from-guide-002.md)" resnet50_distributed_training.py
expect 2 "--ps_hosts=A --worker_hosts=B (docs/guides/from-guide-000.md)" resnet50_ps_strategy.py --job_name=ps --task_index=0
for name in resnet50_distributed_training resnet50_ps_strategy; do [ ! -e $name ] || fail "$name.py left something"; done
"$trireme" data synth --output shapes --synth-train 64 --synth-test 16 > out.txt 2>&1 || fail "data synth: $(cat out.txt)"
DATA_PATH=$PWD/shapes expect 0 "shapes (DATA_PATH)" train mlp --steps 1 --batch-size 8
DATA_PATH=$PWD/nowhere expect 0 "\"generated\":true" train mlp --data synth --synth-train 64 --synth-test 16 --steps 1 --batch-size 8 --json
expect 0 "the data are generated (--data synth), not read" train mlp --data synth --synth-train 64 --synth-test 16 --steps 1 --batch-size 8
DATA_PATH=$PWD/shapes expect 0 "\"generated\":false" train mlp --steps 1 --batch-size 8 --json

# ---- bad data and files
expect 3 "no such data" train mlp --data "$work/nowhere"
mkdir "$work/empty"
expect 2 "unknown kind of data" train mlp --data "$work/empty"
expect 3 "no checkpoint there" eval mlp --data synth --checkpoint "$work/empty"
mkdir "$work/cut" && head -c 5000 /dev/zero > "$work/cut/data_batch_1.bin" && cp "$work/cut/data_batch_1.bin" "$work/cut/test_batch.bin"
expect 3 "data_batch_1.bin" train mlp --data "$work/cut"
"$trireme" data synth --output "$work/shapes" --synth-train 100 --synth-test 20 --quiet > /dev/null || fail "data synth"
printf '\x0b' | dd of="$work/shapes/data_batch_2.bin" bs=1 seek=3073 conv=notrunc 2> /dev/null
expect 3 "label 11" data info --data "$work/shapes" --batch-size 10
mkfifo "$work/pipe" # no process writes there: to open it would wait for ever
expect 2 "neither a file nor a directory" inspect "$work/pipe"
expect 2 "unknown kind of data" train mlp --data "$work/pipe"
expect 3 "not a regular file" train mlp --data "$work/pipe" --dataset csv
cp -r "$work/shapes" "$work/piped" && rm "$work/piped/data_batch_1.bin" && mkfifo "$work/piped/data_batch_1.bin"
expect 3 "data_batch_1.bin: not a regular file" train mlp --data "$work/piped" --batch-size 10
echo "not tensors" > "$work/bad.safetensors"
expect 3 "bad.safetensors" import lenet --from "$work/bad.safetensors" --output "$work/imported"
[ -e "$work/imported" ] && fail "import of a bad file left something behind"

expect 0 "trireme run [--flag VALUE] -- PROGRAM" run --help

# ---- too little memory: a message with numbers, before memory is taken
expect 4 "GB" plan resnet50 --batch-size 4096 --image-size 224 --backend ref
expect 4 "no plan fits 1 B; the smallest plan" train mlp --data synth --memory 1
expect 4 "no plan fits 2.00 MB a rank" plan mlp -n 2 --links guess --no-measure --memory 2MB

# ---- memory ends at different moments: exit code 4 and one line, no crash in a library (127: the libraries did not fit)
if ! sanitized; then
    enough=0
    for kilobytes in $(seq 56000 13000 250000); do
        rm -rf "$work/tight"
        (ulimit -v "$kilobytes" && exec "$trireme" train lenet --data synth --synth-train 32 --synth-test 16 --batch-size 16 --threads 2 \
            --output "$work/tight" --quiet) > /dev/null 2> "$work/err"
        got=$?
        [ $got = 0 ] && enough=1 && break
        [ $got = 127 ] && continue
        [ $got = 4 ] && [ "$(wc -l < "$work/err")" = 1 ] || fail "with $kilobytes KB of memory: exit $got, expected 4: $(cat "$work/err")"
    done
    [ $enough = 1 ] || fail "lenet does not train in 250 MB: $(cat "$work/err")"
fi

# ---- the guide's own numbers: 224x224, batches of 32 from all files, its rate and loss, ten epochs in sink mode
"$trireme" data synth --output "$work/sound" --synth-train 100 --synth-test 20 --quiet > /dev/null || fail "data synth"
"$trireme" train lenet --data "$work/sound" --exact-guide --dry-run --json > "$work/out" 2> "$work/err" || fail "--exact-guide: $(cat "$work/err")"
grep -q '"samples":120,.*"batch_size":32,"image_size":224,.*"epochs":10,"epoch_steps":3,' "$work/out" || fail "--exact-guide: $(cat "$work/out")"
grep -q "test set is trained on" "$work/err" || fail "--exact-guide without a warning"
"$trireme" train lenet --data "$work/sound" --exact-guide --image-size 32 --epochs 1 --output "$work/guide" --log-every 1 --json --eval-every-epochs 0 > "$work/out" 2>&1 || fail "--exact-guide: $(cat "$work/out")"
[ "$(grep -c '"event":"step"' "$work/out")" = 1 ] && grep -q '"learning_rate":0.01[,}]' "$work/out" || fail "--exact-guide, sink mode: $(cat "$work/out")"
grep -q '"optimizer":"momentum","learning_rate":0.01,"momentum":0.9[0-9]*,"weight_decay":0,"schedule":"constant",.*"loss":"expand"' \
    "$work"/guide/ckpt-3/manifest.json || fail "--exact-guide: $(cat "$work"/guide/ckpt-3/manifest.json)"

# ---- dry runs change nothing; each long-running command has one
for command in train eval plan simulate verify export import "data synth" "data vocabulary" "data fetch" "tokenizer train" "tokenizer encode" "tokenizer decode" run "bench plan" \
    "bench split" "bench comm" "bench train" "bench ops" "bench data" "bench ps"; do
    # shellcheck disable=SC2086
    expect 0 "--dry-run" $command --help
done
for line in "plan lenet" "plan lenet -n 2" "simulate lenet -n 8" "bench plan lenet" "bench train lenet" "bench ops lenet" \
    "bench data --data synth" "bench ps"; do
    # shellcheck disable=SC2086
    expect 0 "dry run: nothing was" $line --dry-run
done
printf 'trireme-plan 1\nmesh 2\n' > "$work/p"
for line in "verify lenet -n 2" "bench train lenet -n 2" "bench comm -n 2" "bench split lenet -n 2 --plans $work/p"; do
    # shellcheck disable=SC2086
    expect 0 "RANK_ID=1" $line --dry-run
done
expect 2 "the nearest is lenet" bench ops lenett --dry-run
json bench train lenet --dry-run
expect 0 "nothing was trained" train lenet --data synth --output "$work/dry" --dry-run
expect 0 "would be written" data synth --output "$work/dry" --dry-run
expect 0 "would fetch" data fetch cifar10 --dry-run
[ -e "$work/dry" ] && fail "a dry run made its output directory"

# ---- JSON everywhere, and errors in it
json version
json cluster make --hosts a:2,b:2
json doctor
json plan lenet --batch-size 2
json plan lenet --batch-size 2 --explain
json data info --data synth
json bench data --data synth --synth-train 2000 --repeats 3
json bench ps --rows 20000 --batch-size 1000 --repeats 3
json bench ops lenet --batch-size 2 --repeats 3
json train lenet --data synth --dry-run
json train lenet --data synth --check --output "$work/checked"
[ ! -e "$work/checked" ] || fail "train --check without roles has trained"
json train lenet --data synth --synth-train 20 --synth-test 10 --batch-size 10 --output "$work/run"
json eval lenet --checkpoint "$work/run" --data synth --synth-test 10
json eval lenet --checkpoint "$work/run" --data synth --dry-run
json export lenet --checkpoint "$work/run" --to safetensors --output "$work/w.safetensors"
for format in safetensors onnx npz; do
    expect 3 "nowhere/w.$format: cannot create, its folder must be there" export lenet --checkpoint "$work/run" --to $format --output nowhere/w.$format
done
for file in export:--to:npz:--output eval:--data:synth:--predictions; do # a rename would put a file in a device's or pipe's place
    # shellcheck disable=SC2086
    expect 3 "pipe: a device or pipe, a file would take its place" ${file%%:*} lenet --checkpoint "$work/run" $(tr : ' ' <<< "${file#*:}") "$work/pipe"
done
# places of results are looked at before the work
touch "$work/file"
for flags in "plan lenet -n 2 --html" "plan lenet -n 2 --save" "plan lenet -n 2 --svg" "simulate lenet -n 2 --html" "simulate lenet -n 2 --trace" "report $work/run --html" \
    "eval lenet --checkpoint $work/run --data synth --predictions" "tokenizer encode $work/file --tokenizer $work/none --output" \
    "ps export $work/none --table t --output"; do
    for place in "nowhere/file: cannot create, its folder must be there" "$work/file/x: cannot create" "$work: a directory, a file would take its place"; do
        # shellcheck disable=SC2086
        out=$("$trireme" $flags "${place%%: *}" 2>&1 < /dev/null)
        got=$?
        [ $got = 3 ] && grep -qF -- "$place" <<< "$out" || fail "trireme $flags ${place%%: *}: exit $got, expected 3 with '$place': $out"
        [ "$(wc -l <<< "$out")" -le 2 ] || fail "trireme $flags ${place%%: *}: worked before it looked at the place: $out"
    done
done
expect 3 "nowhere/file: cannot create, its folder must be there" train lenet --data synth --steps 1 --log-every 1 --profile nowhere/file
grep -q "loss" <<< "$("$trireme" train lenet --data synth --steps 1 --log-every 1 --profile nowhere/file 2>&1)" && fail "trained before it looked at the place of the timeline"
for flags in "data synth --output" "bench ps --rows 20000 --batch-size 1000 --repeats 3 --output" "tokenizer train $work/file --vocabulary 300 --output" "import lenet --from $work/w.safetensors --output"; do
    # shellcheck disable=SC2086
    expect 3 "$work/file/x/y: cannot make the directory" $flags "$work/file/x/y"
done
json import lenet --from "$work/w.safetensors" --output "$work/imported"
json inspect "$work/w.safetensors"
json data fetch cifar10 --dry-run
printf 'trireme-plan 1\nmesh 2x2\ngraph 0123456789abcdef\nop fc0.linear0 cc pinned\nop relu0 ..\nstore fc0.weight S0,R\n' > "$work/plan.txt"
expect 0 "plan: mesh 2x2 (4 ranks), made for graph 0123456789abcdef; 2 operators, 1 of them cut, 1 pinned; 1 stores" inspect "$work/plan.txt"
json inspect "$work/plan.txt"
sed -i 's/^op relu0/opp relu0/' "$work/plan.txt"
expect 3 "plan.txt" inspect "$work/plan.txt"
# a damaged rank table is a bad file to inspect, and wrong configuration to a job (cluster check)
"$trireme" cluster make --hosts 127.0.0.1:2 --output "$work/table.json" || fail "cluster make"
expect 0 "2 ranks" inspect "$work/table.json"
"$trireme" cluster check "$work/table.json" 2>&1 | grep warning && fail "our own table is warned about"
sed 's/"cpu"/"950"/' "$work/table.json" > "$work/odd.json"
[ "$("$trireme" cluster check "$work/odd.json" 2>&1 | grep -c 'warning: .*chip_info is "950"')" = 1 ] || fail "an odd table is to be warned about once"
sed 's/completed/initializing/' "$work/table.json" > "$work/early.json" && head -c 300 "$work/table.json" > "$work/cut.json"
for table in early cut; do
    expect 3 "$table.json" inspect "$work/$table.json"
    expect 2 "$table.json" cluster check "$work/$table.json"
done
echo '{"version":"2.0","rank_count":1,"rank_list":[{"rank_id":0,"local_id":0,"device_id":0,"level_list":[{"net_layer":0,"net_instance_id":"az0"}]}]}' > "$work/v2.json"
expect 0 "2.0" inspect "$work/v2.json"
json bench train lenet --batch-size 2 --repeats 3
python3 - "$work/out" << 'END' || fail "bench train: fields"
import json, sys
line = json.loads(open(sys.argv[1]).readline())
for field in ("images_per_second", "peak_bytes", "predicted_peak_bytes", "first_step_seconds", "median_seconds",
              "minimum_seconds", "maximum_seconds", "repeats", "machine"):
    assert field in line, field
assert line["images_per_second"] > 0 and line["minimum_seconds"] <= line["median_seconds"] <= line["maximum_seconds"]
END
out=$("$trireme" train mlp --data "$work/nowhere" --json 2> /dev/null)
python3 -c 'import json, sys; e = json.loads(sys.argv[1]); assert e["event"] == "error" and e["exit_code"] == 3' "$out" ||
    fail "an error with --json: $out"

# ---- closed standard streams: no file or socket of the program takes their place
"$trireme" train lenet --data synth --synth-train 16 --synth-test 16 --batch-size 8 --steps 1 --output "$work/closed" <&- >&- 2>&-
[ $? = 4 ] || fail "training without standard streams: exit 4 expected"
expect 0 "ckpt-1: verified" inspect "$work/closed"
(cd "$work" && "$trireme" train lenet --data synth --synth-train 32 --synth-test 16 --batch-size 8 --steps 1 -n 2 --log-every 1 <&- 2>&-) > "$work/out" ||
    fail "two ranks without standard error and input: $(cat "$work/out")"

# ---- a full standard output is not success
if [ -w /dev/full ]; then
    "$trireme" version > /dev/full 2> "$work/err"
    [ $? = 4 ] || fail "a full standard output: exit 4 expected"
fi
exit $failed
