#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the commands of docs/start/text.md, examples/gpt.c and examples/gpt_loop.c on a small text, with fewer steps.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
page=$source/docs/start/text.md
mkdir bin && ln -s "$trireme" bin/trireme && PATH=$work/bin:$PATH
for i in $(seq 300); do printf 'ROMEO:\nthe rank sends row %d.\n\nJULIET:\nThe server keeps the row.\n\n' "$i"; done > input.txt

awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' "$page" > commands
[ "$(wc -l < commands)" = 3 ] || fail "three commands expected in $page: $(cat commands)"
number=0
while IFS= read -r command; do
    number=$((number + 1))
    timeout 120 bash -c "${command//--steps 2000/--steps 120}" > out$number.txt 2> err$number.txt < /dev/null || { fail "$command"; cat err$number.txt; }
done < commands
grep -q "perplexity" out2.txt || fail "eval: $(cat out2.txt)"
[ "$(head -c 6 out3.txt)" = "ROMEO:" ] && [ "$(wc -c < out3.txt)" = 307 ] || fail "generate: $(cat out3.txt)"
grep -qE "the|row|JULIET" out3.txt || fail "nothing was learned: $(cat out3.txt)"

program=${TRIREME_BUILD:?}/examples/gpt
[ "$(wc -l < "$source/examples/gpt.c")" -le 60 ] || fail "gpt.c has grown beyond 60 lines"
timeout 120 "$program" input.txt 100 "ROMEO:" > program.txt || fail "gpt: $?"
awk '/, loss is / { last = $NF } END { exit !(last > 0 && last < 2) }' program.txt || fail "gpt: losses $(grep loss program.txt)"
grep -v ", loss is " program.txt > text.txt
[ "$(head -c 6 text.txt)" = "ROMEO:" ] && [ "$(wc -c < text.txt)" = 307 ] || fail "gpt has generated $(cat text.txt)"
"$program" nowhere.txt 2> err.txt && fail "gpt reads a text that is not there"
grep -q "nowhere.txt" err.txt || fail "the text that is missing: $(cat err.txt)"

# The same network in a loop of its own: on 1, 2 and 3 ranks the losses of one device, over several epochs.
program=${TRIREME_BUILD:?}/examples/gpt_loop
[ "$(wc -l < "$source/examples/gpt_loop.c")" -le 60 ] || fail "gpt_loop.c has grown beyond 60 lines"
for ranks in 1 2 3; do
    # shellcheck disable=SC2086 # words
    timeout 300 $([ $ranks = 1 ] || echo "$trireme" run -n $ranks --) "$program" input.txt 100 > loop$ranks.txt 2> err.txt || fail "gpt_loop on $ranks ranks: $(tail -3 err.txt)"
    grep -E '^step 100, loss is [0-9.]+$' loop$ranks.txt > loss$ranks || fail "gpt_loop on $ranks ranks: $(cat loop$ranks.txt)"
    paste -d ' ' loss1 loss$ranks | awk '{ exit !($5 < 2 && ($5 - $NF) ^ 2 < 1e-6) }' || fail "gpt_loop: $(cat loss1) on 1 rank, $(cat loss$ranks) on $ranks"
done
exit $failed
