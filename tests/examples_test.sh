#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs each example as a user would and checks what it prints.
. "$(dirname "$0")/common.sh"
examples=${TRIREME_BUILD:?}/examples

# ---- custom_operator: the error falls to a hundredth
"$examples/custom_operator" > "$work/out" || fail "custom_operator: exit $?"
awk '/mean squared error/ { if (!n++) first = $NF; last = $NF }
     END { print "custom_operator: " first " -> " last; exit !(n == 7 && last < first / 20) }' "$work/out" ||
    fail "custom_operator: $(cat "$work/out")"

# ---- own_data: arrays, a function, a metric and predictions, in under 80 lines; the metric counts what the predictions show
"$examples/own_data" > "$work/out" || fail "own_data: exit $?"
awk -F'[ ,]+' '{ exit !(NF == 11 && $2 > 0.95 && $4 < 0.1 && $5 > 400 && $5 < 600 && $7 == 1000) }' "$work/out" || fail "own_data: $(cat "$work/out")"
[ "$(wc -l < "$source/examples/own_data.c")" -lt 80 ] || fail "own_data.c has grown beyond 80 lines"

# ---- mlp: three epochs, better than chance by far
"$examples/mlp" > "$work/out" || fail "mlp: exit $?"
tail -1 "$work/out"
# README's first screen is this program and this output, but for the last digits of another machine.
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$source/README.md" | diff - <(tail -n +2 "$source/examples/mlp.c") || fail "README's program is not examples/mlp.c"
shape() { sed -E 's/[0-9]+\.[0-9]+$//'; }
awk '/ it has printed:$/ { wait = 1 } wait && /^```$/ { if (on) exit; on = 1; next } on' "$source/README.md" | shape |
    diff - <(shape < "$work/out") || fail "README's output is not that of examples/mlp"
awk '/accuracy/ { exit !($NF > 0.4) }' "$work/out" || fail "mlp: $(tail -1 "$work/out")"

# ---- resnet50_cifar10: the guide's line, once an epoch
"$trireme" data synth --output "$work/data" --synth-train 160 --synth-test 10 --quiet > /dev/null || fail "data synth"
"$examples/resnet50_cifar10" "$work/data" 32 2 > "$work/out" || fail "resnet50_cifar10: exit $?"
cat "$work/out"
[ "$(grep -cE '^epoch: [12] step: 5, loss is [0-9.]+$' "$work/out")" = 2 ] || fail "resnet50_cifar10: $(cat "$work/out")"
modes="data_parallel semi_auto_parallel" # auto_parallel measures for a minute
sanitized && modes=semi_auto_parallel # it has all that data_parallel has, and takes minutes then
for mode in $modes; do
    (cd "$work" && "$trireme" run -n 2 -- "$examples/resnet50_cifar10" "$work/data" 32 1 $mode) > "$work/out" 2>&1 ||
        fail "resnet50_cifar10 on 2 ranks, $mode: $(tail -n 3 "$work/out")"
    grep -qE '^epoch: 1 step: 2, loss is [0-9.]+$' "$work/out" || fail "resnet50_cifar10 on 2 ranks, $mode: $(tail -n 3 "$work/out")"
done
"$examples/resnet50_cifar10" "$work/nowhere" 2> "$work/err"
[ $? = 3 ] && grep -q nowhere "$work/err" || fail "resnet50_cifar10 without data: $(cat "$work/err")"
exit $failed
