#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks plan -n and simulate: the output is complete, bounds hold, bad input gives a message and the right exit code.
. "$(dirname "$0")/common.sh"
dir=$work T=$trireme

# number KEY FILE: the first value of a key
number() { grep -o "\"$1\":[-0-9.e+]*" "$2" | head -1 | cut -d: -f2; }
holds() { awk "BEGIN { exit !($1) }" || fail "$2: $1"; }
expect() { # STATUS TEXT ARGS...
    local status=$1 text=$2
    shift 2
    "$T" "$@" >"$dir/out" 2>"$dir/err"
    local got=$?
    [ $got -eq "$status" ] || fail "$*: exit $got, $status expected: $(tail -1 "$dir/err")"
    grep -q -- "$text" "$dir/out" "$dir/err" || fail "$*: no '$text' in: $(tail -2 "$dir/err")"
}

cat >"$dir/links" <<'END'
# eight devices a host
level host 8 5 100
level network 65536 15 12.5 shared
flops 50e12
bytes 800e9
END

# Messages about plan files name file and line.
printf 'trireme-plan 1\n# mine\nmesh 2\nop fc0.linear0 n\nop fc1.linear1 q\n' >"$dir/letter.txt"
expect 2 'letter.txt: line 5: the plan cuts' plan mlp --batch-size 4 --plan "$dir/letter.txt" --links guess --no-measure
expect 2 'letter.txt: line 5: the plan cuts' train mlp --data synth --batch-size 4 -n 2 --steps 1 --parallel-mode semi_auto_parallel --plan "$dir/letter.txt"
expect 2 'letter.txt: mesh 2 has 2 ranks, -n or ranks is 4' plan mlp --batch-size 4 -n 4 --plan "$dir/letter.txt" --links guess --no-measure
rm -rf device0
expect 2 'letter.txt: mesh 2 has 2 ranks; -n says 4' train mlp --data synth --batch-size 4 -n 4 --steps 1 --parallel-mode auto_parallel --plan "$dir/letter.txt"
expect 2 'mesh 2x2 has 4 ranks; -n says 2' train mlp --data synth --batch-size 4 -n 2 --steps 1 --parallel-mode auto_parallel --mesh 2x2
[ ! -e device0 ] || fail "ranks were started for a mesh of another size"
printf 'trireme-plan 1\nmesh 2\nstore fc9.weight S0\n' >"$dir/letter.txt"
expect 2 'letter.txt: line 3: the plan stores' plan mlp --batch-size 4 --plan "$dir/letter.txt" --links guess --no-measure

# Many classes: the head is cut by classes and is faster.
expect 0 '"certificate"' plan mlp --classes 100000 --batch-size 4 -n 4 --links guess --no-measure --json \
    --save "$dir/plan" --svg "$dir/plan.svg"
head -1 "$dir/out" >"$dir/json"
objective=$(number objective "$dir/json") bound=$(number lower_bound "$dir/json") data=$(number data_parallel_seconds "$dir/json")
pays=1.25 # of data parallel that updates slices of one copy; more where the machine's rates are not those of a busy hour
sanitized && pays=1 # operators are slow then, and messages are not
holds "$bound > 0 && $bound <= $objective && $objective * $pays < $data" "a head of 100,000 classes"
holds "$(number gap "$dir/json") < 0.01" "its proof"
for key in assumptions operators baselines communication frontier flips meshes memory buckets; do
    grep -q "\"$key\":" "$dir/json" || fail "plan --json has no $key"
done
grep -q "^op fc2" "$dir/plan" || fail "the plan file has no line for the classifier"
grep -q "</svg>" "$dir/plan.svg" || fail "no picture"
expect 0 "the given plan" plan mlp --classes 100000 --batch-size 4 --plan "$dir/plan" --links guess --no-measure
# Parameters stored as they are read, in parts, and in a form that runs without a price.
for way in "n R 0" "n S0 0" "k R 2"; do
    read -r letter spread status <<<"$way"
    printf 'trireme-plan 1\nmesh 2\nop fc2.linear2 %s\nstore fc2.weight %s\n' "$letter" "$spread" >"$dir/store"
    [ "$status" -eq 0 ] && text="the given plan" || text="stores fc2.weight as R, fc2.linear2 reads it as S0: such a plan runs"
    expect "$status" "$text" plan mlp --classes 5000 --batch-size 4 --plan "$dir/store" --links guess --no-measure
    grep "^the given plan" "$dir/out" | grep -o "[0-9.]* MB" >"$dir/store.$letter$spread"
done
[ "$(cat "$dir/store.nR")" != "$(cat "$dir/store.nS0")" ] || fail "a parameter stored whole is priced as one in parts"

# With norms of each rank's own samples no statistics travel; gradients in 16 bits are half the bytes. The report names both, and the model's
# part of the machine's FLOP/s. The plan is pinned, because the best one depends on the machine.
cut="resnet18 --batch-size 8 --image-size 32 -n 2 --links guess --no-measure"
# shellcheck disable=SC2086 # words
"$T" plan $cut --save "$dir/samples" --quiet > /dev/null && sed -i 's/^\(op [^ ]*\) .*/\1 n pinned/; /^store/d' "$dir/samples"
pinned="$cut --plan $dir/samples"
# shellcheck disable=SC2086
{
    expect 0 "norms  *over the samples of all ranks.*--sync-batch-norm off" plan $pinned
    grep -q "^utilisation   [0-9.]* %" "$dir/out" || fail "no utilisation"
    expect 0 '"norms":"joined"' plan $pinned --json && cp "$dir/out" "$dir/joined"
    expect 0 '"norms":"local"' plan $pinned --sync-batch-norm off --json && cp "$dir/out" "$dir/local"
    expect 0 "norms  *over each rank's own samples" plan $pinned --sync-batch-norm off
    expect 2 "sync-batch-norm" plan $pinned --sync-batch-norm 2
}
# The bytes of the chosen plan cannot be compared: with cheaper gradients parameters may lie elsewhere. Packing takes memory time, so the rates
# come from a file, not from this machine.
for wire in fp32 bf16; do
    expect 0 '"certificate"' plan mlp --classes 100000 --batch-size 4 -n 4 --links "$dir/links" --wire $wire --json
    number data_parallel_seconds "$dir/out" >"$dir/wire.$wire"
done
holds "$(cat "$dir/wire.bf16") < 0.95 * $(cat "$dir/wire.fp32")" "gradients in 16 bits"
holds "$(number norm_seconds "$dir/joined") > 0 && $(number norm_seconds "$dir/local") == 0" "statistics of norms"
holds "$(number data_parallel_seconds "$dir/local") < $(number data_parallel_seconds "$dir/joined")" "local norms are cheaper"
holds "$(number utilisation "$dir/joined") > 0 && $(number utilisation "$dir/joined") < 1 && $(number model_flops "$dir/joined") > 1e9" "utilisation"
for wire in fp32 bf16; do
    expect 0 '"seconds"' bench split resnet18 --batch-size 8 --image-size 32 -n 2 --plans "$dir/samples" --repeats 3 --wire $wire --sync-batch-norm off --json
    number loss "$dir/out" > "$dir/loss.$wire"
done
a=$(cat "$dir/loss.fp32") b=$(cat "$dir/loss.bf16")
holds "$a != $b && ($a - $b) ^ 2 < 0.01 * $a ^ 2" "losses with packed gradients"

# The other searches are worse or equal, and never slower than data parallel.
for search in recursive propagation; do
    expect 0 '"search"' plan mlp --classes 100000 --batch-size 4 -n 4 --links guess --no-measure --search $search --json
    own=$(number step_seconds "$dir/out")
    holds "$own >= $objective * 0.99 && $own <= $data * 1.01" "search $search"
done

expect 0 "operators by this machine's rates, none measured; operators x .*: ranks share cores; links guessed; searched 1 time$" \
    plan lenet -n 8 --links guess --no-measure
grep -q "^bandwidth  not up to x 1024" "$dir/out" && grep -q "n samples, k outputs" "$dir/out" || fail "plan of lenet: $(cat "$dir/out")"

# Memory: less is slower; too little names what does not fit and exits with 4.
expect 0 memory plan mlp --classes 100000 --batch-size 4 -n 4 --links guess --no-measure --memory 100MB --json
holds "$(number memory_bytes "$dir/out") <= 100e6" "memory limit"
expect 4 "cheapest way out: .*ranks.*a limit of" plan mlp --classes 100000 --batch-size 4 -n 4 --links guess --no-measure --memory 20MB

# Under a limit parameters are gathered again and outputs recomputed in backward, the program keeps the limit, the proof is exact; the plan
# has `again` and runs. The rates come from a file: which plan is the fastest within the limit depends on them.
printf 'level host 2 5 10\nflops 5e10\nbytes 1e10\noverlap 0\n' > "$dir/rates"
net="resnet18 --batch-size 128 --image-size 32"
expect 0 '"frontier_exact":' plan $net -n 2 --links "$dir/rates" --memory 100GB --json # (under a limit nothing is made jointly)
free=$(number compiled_bytes "$dir/out")
limit=$(awk "BEGIN { printf \"%d\", $free * 0.94 }")
expect 0 '"limit_exact":true' plan $net -n 2 --links "$dir/rates" --memory "$limit" --save "$dir/tight" --json
holds "$(number compiled_bytes "$dir/out") <= $limit && $(number again_seconds "$dir/out") > 0" "made again to fit"
grep -q '"gathered_again":true' "$dir/out" || fail "nothing is gathered again to fit"
{ grep -q "^op .* again" "$dir/tight" && grep -q "^store .* again" "$dir/tight"; } || fail "the plan file makes nothing again: $(cat "$dir/tight")"
expect 0 "" bench split $net -n 2 --plans "$dir/tight" --repeats 3 --json
holds "$(number activation_bytes "$dir/out") < $limit" "a plan that makes outputs again runs"

# ResNet-50 with the expanded loss: solved in milliseconds.
expect 0 certificate plan resnet50 --batch-size 32 -n 8 --mesh 8 --loss expand --image-size 224 --classes 1000 --stem imagenet \
    --links "$dir/links" --json
holds "$(number solve_seconds "$dir/out") < 1 && $(number gap "$dir/out") >= 0" "resnet50 on 8"

expect 0 "data parallel is as good as optimal" plan resnet50 --batch-size 32 -n 8 --mesh 8 --loss expand --image-size 224 --stem imagenet \
    --links "$dir/links"
expect 0 "^classes " plan mlp --classes 20000 --batch-size 4 -n 2 --links guess --no-measure

# The guide's setting on this machine: data parallel, with proof.
expect 0 "data parallel is as good as optimal" plan resnet50 --batch-size 32 -n 8 --mesh 8 --loss expand --image-size 224 --links guess --no-measure

# Thousands of ranks, from a file of links.
expect 0 '"weak"' simulate mlp --classes 1000 --batch-size 4096 --mesh 16x8 --links "$dir/links" --largest 1024 --json \
    --trace "$dir/trace.json"
grep -q '"ranks":1024' "$dir/out" || fail "no point of 1024 ranks"
grep -q '"traceEvents"' "$dir/trace.json" || fail "no trace"
slow=$(number step_seconds "$dir/out")
expect 0 "half the bandwidth" simulate mlp --classes 1000 --batch-size 4096 --mesh 16x8 --links "$dir/links" --largest 64
sed -i 's/15 12.5/15 3/' "$dir/links"
expect 0 '"weak"' simulate mlp --classes 1000 --batch-size 4096 --mesh 16x8 --links "$dir/links" --largest 64 --json
holds "$(number step_seconds "$dir/out") > $slow" "a slower network"

# Plans with nearly equal predictions run, if the machine is quiet enough to separate them; --trial-seconds 0 turns that off.
expect 0 '"chosen_by":"\(measurement\|prediction\)"' plan mlp --classes 2000 --batch-size 8 -n 2 --json --trial-seconds 2
expect 0 '"chosen_by":"prediction","tried_turns":0,"tried":\[\]' plan mlp --classes 2000 --batch-size 8 -n 2 --json --trial-seconds 0
expect 2 "trial-seconds" plan mlp --batch-size 8 -n 2 --trial-seconds -1

# Pins hold on the plan's mesh and are ignored on other meshes; a plan that fits no mesh is an error.
printf 'trireme-plan 1\nmesh 4\nop fc2.linear2 k pinned\n' >"$dir/pinned"
expect 0 '"weak"' simulate mlp --classes 100000 --batch-size 4 --mesh 4 --plan "$dir/pinned" --links "$dir/links" --largest 8 --json
expect 4 "does not fit" simulate mlp --classes 100000 --batch-size 4 --mesh 8 --links "$dir/links" --largest 8 --memory 1MB

# Slices of the optimiser between hosts are in the plan, with the cost of gathering, only if --shard-optimizer is given.
for asked in "" --shard-optimizer; do
    # shellcheck disable=SC2086
    expect 0 '"certificate"' plan resnet18 --image-size 32 --batch-size 8 -n 4 --mesh 4 --host-count 2 --links "$dir/links" --json $asked
    grep -o '"name":"data parallel","step_seconds":[0-9.e-]*,"memory_bytes":[0-9.e+]*' "$dir/out" | head -1 >"$dir/hosts$asked"
done
holds "$(number memory_bytes "$dir/hosts--shard-optimizer") < 0.9 * $(number memory_bytes "$dir/hosts")" "slices between hosts"

# Without links ranks are machines of their own: one rank takes what eight ranks take with the same batch each, except for messages.
expect 0 'messages are guessed' simulate mlp --classes 1000 --batch-size 32 --mesh 64x8 --largest 1
expect 0 '"links":"guessed"' simulate mlp --classes 1000 --batch-size 32 --mesh 64x8 --no-measure --largest 1 --json
grep -o '"weak".*' "$dir/out" >"$dir/many"
expect 0 '"links":"guessed"' simulate mlp --classes 1000 --batch-size 32 -n 2 --no-measure --largest 1 --json
grep -o '"weak".*' "$dir/out" >"$dir/few"
holds "$(number step_seconds "$dir/many") < 1.1 * $(number step_seconds "$dir/few")" "a device as one of 512 and as one of two"

# --validate: each plan runs, and the figures are printed. Costs are guessed here, so measuring again between the runs changes nothing
# (train/planner_remeasure_test has measured costs).
expect 0 '"kendall_tau"' plan mlp --classes 100 --batch-size 4 -n 2 --links guess --no-measure --refresh --validate --repeats 3 --json
grep '"event":"validate"' "$dir/out" >"$dir/json"
holds "$(number plans "$dir/json") >= 4 && $(number measured_seconds "$dir/json") > 0 && $(number regret "$dir/json") >= 0 && $(number regret_resolution "$dir/json") >= 0" validate
holds "$(number looks "$dir/json") == 1 && $(number predicted_seconds "$dir/json") == $(number first_predicted_seconds "$dir/json")" "guessed costs"

# Wrong input.
expect 2 "--save has no effect here: it is for a plan of many ranks" plan mlp --batch-size 4 --save "$dir/none"
expect 2 "--explain has no effect here" plan mlp --batch-size 4 -n 2 --explain
expect 2 "--plans FILE" bench split mlp -n 2
expect 3 "no-such-plan" bench split mlp -n 2 --plans "$dir/no-such-plan"
expect 3 "no-such-plan" verify mlp -n 2 --plan "$dir/no-such-plan"
echo "no plan" >"$dir/bad"
expect 3 "bad:1\|line 1\|trireme-plan" bench split mlp -n 2 --plans "$dir/bad"
expect 2 "validate" simulate mlp --mesh 4 --validate # plan's
expect 2 "sizes with x" plan mlp --batch-size 4 --mesh 2y4
expect 2 "simulate: --mesh" simulate mlp
expect 3 "no-such-file" plan mlp --batch-size 4 -n 2 --links "$dir/no-such-file"
echo "level host 8 5" >"$dir/bad"
expect 2 "line 1" plan mlp --batch-size 4 -n 2 --links "$dir/bad"
printf 'level host 8 5 10\npoints allreduce 2 100:5 50:9\n' >"$dir/bad"
expect 2 "line 2" plan mlp --batch-size 4 -n 2 --links "$dir/bad"
printf 'level host \1\377 5 10\n' >"$dir/bad"
expect 2 "bad: links, line 1: 'level host ?? 5 10' found" plan mlp --batch-size 4 -n 2 --links "$dir/bad"
for line in 'level host 8 5 nan' 'level host 8 -5 100' 'level host 8 5 100 sharde' 'level host 8 5 1e400'; do
    echo "$line" >"$dir/bad"
    expect 2 "bad: links, line 1: '$line' found, level NAME RANKS ALPHA_US GB_S" plan mlp --batch-size 4 -n 2 --links "$dir/bad"
done
for line in 'flops -1' 'overlap 2' 'cores 0' 'points foo 4 4096:9' 'points allreduce 4 4096:-1' 'foo 1'; do
    printf 'level host 8 5 100\n%s\n' "$line" >"$dir/bad"
    expect 2 "bad: links, line 2: " plan mlp --batch-size 4 -n 2 --links "$dir/bad"
done
# jobs whose sums have an order: what train --deterministic refuses, plan does, too
expect 2 "deterministic_block is for deterministic strict" plan mlp --batch-size 4 -n 2 --links guess --no-measure --deterministic true --deterministic-block 2
expect 2 "which do not divide a batch of 8" plan mlp --batch-size 4 -n 2 --links guess --no-measure --deterministic strict --deterministic-block 3
expect 0 "n 100%" plan mlp --batch-size 4 -n 2 --links guess --no-measure --deterministic strict
echo "no plan" >"$dir/bad"
expect 3 "$dir/bad: line 1: found 'no plan', expected trireme-plan 1" plan mlp --batch-size 4 -n 2 --plan "$dir/bad" --links guess
# a damaged plan has one exit code, whether ranks of this machine measure, train or compare, or nothing runs
for command in "plan mlp --batch-size 4 -n 2" "plan mlp --batch-size 4 -n 2 --dry-run" "verify mlp -n 2" \
    "train mlp --data synth --batch-size 4 -n 2 --steps 1 --parallel-mode semi_auto_parallel"; do
    expect 3 "$dir/bad: line 1: found 'no plan'" $command --plan "$dir/bad"
done
printf 'trireme-plan 1\nmesh 2\nop nobody n\n' >"$dir/bad"
expect 2 "'nobody', which this graph does not have" plan mlp --batch-size 4 -n 2 --plan "$dir/bad" --links guess --no-measure
expect 2 "the plan was made for graph" plan mlp --classes 1000 --batch-size 4 --plan "$dir/plan" --links guess --no-measure
printf 'trireme-plan 1\nmesh 4\n' >"$dir/four"
expect 2 "the plan is for mesh 4" plan mlp --batch-size 4 --mesh 2x2 --plan "$dir/four" --links guess --no-measure
expect 2 "3 ranks\|has 4 ranks" plan mlp --batch-size 4 -n 3 --mesh 2x2 --links guess
[ $failed -eq 0 ] && echo "planner: all as expected"
exit $failed
