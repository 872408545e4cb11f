#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks docs/guides/auto-parallel.md and docs/internals/planner.md: runs the guide's commands in one folder (those that train with
# a small model and few steps), reads its file of links, finds the words of the report, and checks that the files, tests and
# flags that both pages name exist.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
page=$source/docs/guides/auto-parallel.md
internals=$source/docs/internals/planner.md

# The file of links, as the page has it.
awk '/^## A file of links/ { here = 1 } here && /^```$/ { on = !on; if (!on) exit; next } on' "$page" > cluster.links
grep -q '^level host' cluster.links || fail "no file of links in the page"

# Commands: lines of blocks, fenced or indented.
grep -E '^(    )?trireme [a-z]+ ' "$page" | sed -E 's/^ +//; s/ +#.*$//' > commands
[ "$(wc -l < commands)" -ge 13 ] || fail "only $(wc -l < commands) commands found"
# plan: costs are guessed instead of measured; what trains or verifies: a small network, few steps.
small="--image-size 16 --batch-size 2"
few="--data synth --synth-train 64 --synth-test 16 --steps 2 --eval-every-epochs 0 --log-every 1 --threads 1"
ln -s "$source/examples" examples # machines
sed -E "/^trireme plan/ { /--links|--hardware/! s/\$/ --links guess --no-measure/ }
        /-n 4 --save plan.txt/ { /--classes/! s/resnet50(.*)/lenet\1 $small/ }
        /^trireme train/ { s/ --data synth//; s/resnet50/lenet/; s/\$/ $small $few/ }
        /^trireme verify/ { s/resnet50/lenet/; s/ --batch-size 2//; s/ --image-size 32//; s/\$/ $small --threads 1/ }
        s/--image-size 448/--image-size 64/; /^trireme bench/ s/\$/ --repeats 3/" commands > smaller
while IFS= read -r line; do
    # shellcheck disable=SC2086 # the page's words
    "$trireme" ${line#trireme } > out 2>&1 || fail "$line: exit $?: $(tail -n 2 out)"
    case $line in
    *--svg*) grep -q "</svg>" plan.svg && grep -q "^op fc2" plan.txt || fail "no picture, or no plan: $line" ;;
    *--json*) grep -q '"certificate":' out || fail "no certificate: $line" ;;
    "trireme plan"*--plan*) grep -q "the given plan" out || fail "nothing of the given plan: $line" ;;
    *--trace*) grep -q '"traceEvents"' step.json || fail "no trace: $line" ;;
    "trireme train"*) grep -q "training success" out || fail "no success: $line: $(tail -n 2 out)" ;;
    esac
done < smaller

# Files and tests that it names.
grep -ohE '`(plan|exec|train|bench|tests|house)/[a-z_0-9*./]+`' "$page" "$internals" | tr -d '`' | sort -u > files
while IFS= read -r file; do
    # shellcheck disable=SC2086 # a pattern
    ls "$source"/$file "$source"/src/$file 2> /dev/null | grep -q . ||
        find "$source/src/${file%%/*}" -name "${file##*/}.c" 2> /dev/null | grep -q . || fail "no file $file"
done < files
[ "$(wc -l < files)" -ge 10 ] || fail "only $(wc -l < files) files are named"

# Flags that it names exist.
for command in plan simulate train verify bench; do "$trireme" help $command; done > help 2>&1
for bench in train plan split; do "$trireme" help bench $bench; done >> help 2>&1
grep -ohE '(^|[ `(])--[a-z][-a-z]+' "$page" "$internals" | grep -oE -- '--[-a-z]+' | sort -u > flags
while IFS= read -r flag; do
    [ "$flag" = --prefix ] && continue # of bench/validate_plans.py
    grep -qE -- "$flag( |,|\$)" help || fail "no flag $flag"
done < flags

# Words of reports that it explains.
expect 0 "runner-up" plan mlp --classes 20000 --batch-size 4 -n 2 --links guess --no-measure --memory 60MB
for words in "when another plan is better" "memory against time" "assuming" "proof" "limit" "compiled"; do
    grep -qi -- "$words" out.txt || fail "the report has no '$words'"
done
exit $failed
