#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks docs/guides/from-guide-002.md: runs its blocks marked sh one after the other in one shell, and finds each line of its
# blocks marked c in the guide's program.
. "$(dirname "$0")/common.sh"
data=$TRIREME_DATA
mkdir -p bin "$XDG_CACHE_HOME" && ln -s "$trireme" bin/trireme && PATH=$work/bin:$PATH

awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' "$source/docs/guides/from-guide-002.md" > script
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$source/docs/guides/from-guide-002.md" > lines.c
[ "$(grep -c '^trireme\|^    trireme' script)" -ge 5 ] || fail "only $(grep -c trireme script) commands found"
[ "$(wc -l < lines.c)" -ge 10 ] || fail "the document has only $(wc -l < lines.c) lines of C"
while IFS= read -r line; do
    grep -qxF -- "$line" "$source/examples/resnet50_cifar10.c" || fail "not in the guide's program: $line"
done < lines.c

# Names in its tables exist: functions are declared, options of the context and their values are
# accepted.
grep -oE '`?trm_[a-z0-9_]+' "$source/docs/guides/from-guide-002.md" | tr -d '`' | sort -u > functions
[ "$(wc -l < functions)" -ge 15 ] || fail "only $(wc -l < functions) functions are named"
while IFS= read -r function; do
    grep -rqE "\b$function\b" "$source"/include/trireme || fail "no header declares $function"
done < functions
grep -oE -- '--context ("[^"]*"|[a-z_=]+)' "$source/docs/guides/from-guide-002.md" | sed 's/--context //; s/"//g' > contexts
[ "$(wc -l < contexts)" -ge 2 ] || fail "only $(wc -l < contexts) contexts are named"
while IFS= read -r words; do
    expect 0 "nothing was" train lenet --data synth --dry-run --context "$words"
done < contexts
for file in $(grep -oE '(tests|docs|examples|trireme)/[a-z_0-9/-]+\.(sh|md|c|h)' "$source/docs/guides/from-guide-002.md" | sort -u); do
    [ -f "$source/$file" ] || [ -f "$source/include/$file" ] || fail "no $file"
done

if [ ! -d "$data/cifar-10-batches-bin" ]; then
    echo "skipped: no $data/cifar-10-batches-bin for the commands"
    exit $failed
fi
DATA_PATH=$data/cifar-10-batches-bin MODEL=lenet LIMIT="--steps 2 --eval-every-epochs 0 --log-every 1" timeout 200 bash -eu script > out 2>&1 ||
    fail "the commands: $(tail -n 5 out) $(tail -qn 2 device*/train.log* 2> /dev/null)"
[ "$(grep -c "^training success" out)" -ge 1 ] || fail "the script of step 8 did not end well"
[ "$(ls -d device? | wc -l)" = 8 ] && grep -q "^RANK_ID=7" device7/env7.log || fail "eight directories"
grep -q "loss" device0/train.log0 || fail "no loss is told: $(cat device0/train.log0)"
grep -q "^mesh" plan.txt || fail "no plan was written"
exit $failed
