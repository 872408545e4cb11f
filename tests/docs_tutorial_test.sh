#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks docs/start/tutorial.md: applies its changes to examples/mlp.c one after the other, compiles and runs the program after
# each, and runs its commands, with smaller data and fewer steps.
. "$(dirname "$0")/common.sh"
sanitized && skip "programs outside are not built with a sanitizer"
export OMP_NUM_THREADS=1
page=$source/docs/start/tutorial.md
mkdir bin && ln -s "$trireme" bin/trireme && PATH=$work/bin:$PATH
build=${TRIREME_BUILD:-$(dirname "$trireme")}

# ---- the program
small() { # 320 images and two epochs instead of 50,000 and three; a checkpoint every 3 steps; what the search predicts is taken
    sed -e 's/\.path = "synth"/&, .shapes = \&(trm_shapes_options){.train_count = 320, .test_count = 50}/; s/\.until_epoch = 3/.until_epoch = 2/' \
        -e 's/\.every_steps = 100/.every_steps = 3/; s/\.save_plan = /.trials = TRM_OFF, &/' program.c > small.c
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror small.c -I"$source/include" -L"$build" -ltrireme -Wl,-rpath,"$build" -o program ||
        fail "step $1: the program does not compile"
}
change() { # FILE: applies one hunk of a diff to program.c; its old lines must stand there exactly once
    python3 - "$1" << 'END'
import sys
lines = open(sys.argv[1]).read().split("\n")[1:-1]
old, new = ("\n".join(line[1:] for line in lines if line[:1] in (" ", mark)) for mark in "-+")
program = open("program.c").read()
assert program.count(old) == 1, old
open("program.c", "w").write(program.replace(old, new))
END
}
awk '/^```diff$/ { n++; on = 1; next } /^```$/ { on = 0 } on { print > ("change" n) }' "$page"
[ -f change3 ] && [ ! -f change4 ] || fail "three changes expected: $(ls change*)"
cp "$source/examples/mlp.c" program.c
small 1
./program > out.txt || fail "step 1: $?"
grep -q "accuracy on 50 new images" out.txt || fail "step 1: $(cat out.txt)"

change change1 || fail "step 2: the change does not apply"
small 2
./program > whole.txt || fail "step 2: $?"
rm -r run/ckpt-10 run/ckpt-9
./program > resumed.txt || fail "step 2, resumed: $?"
grep -qx "resumed at step 6" resumed.txt || fail "step 2: not resumed: $(cat resumed.txt)"
[ "$(grep accuracy whole.txt)" = "$(grep accuracy resumed.txt)" ] && [ "$(tail -n 2 whole.txt)" = "$(tail -n 2 resumed.txt)" ] ||
    fail "step 2: the resumed run ends otherwise: $(cat whole.txt resumed.txt)"

change change2 || fail "step 3: the change does not apply"
small 3
rm -r run
./program > one.txt && diff <(grep -v resumed one.txt) whole.txt || fail "step 3: one rank computes otherwise"
rm -r run
trireme run -n 2 -- ./program > out.txt 2>&1 || fail "step 3, two ranks: $(tail -n 3 out.txt)"
grep -q "epoch: 2 step: 2" out.txt && [ -d run ] || fail "step 3: two ranks share 5 batches: $(cat out.txt)"

change change3 || fail "step 4: the change does not apply"
small 4
rm -r run
trireme run -n 2 -- ./program > out.txt 2>&1 || fail "step 4, two ranks: $(tail -n 3 out.txt)"
grep -qx "mesh 2" plan.txt && grep -q "^op fc0" plan.txt || fail "step 4: no plan"

# ---- the commands
awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' "$page" | grep -v ' \./program' > commands
[ "$(grep -c '^trireme ' commands)" -ge 9 ] || fail "only $(grep -c '^trireme ' commands) commands found"
few="--synth-train 640 --synth-test 64"
sed -E "s/^trireme (train|eval).* --data synth/& $few/; s/ --epochs 3/ --epochs 1/; s/ --steps 20/ --steps 2 --trial-seconds 0 --eval-every-epochs 0/
        s/^trireme train widedeep.*/& --batch-size 64 --table-rows 100 --steps 4/
        s/^trireme plan .*/& --links guess --no-measure/; s/100000/1000/" commands > smaller
while IFS= read -r line; do
    bash -c "$line" > out.txt 2>&1 || fail "$line: $? $(tail -n 2 out.txt)"
done < smaller
[ -s mlp.onnx ] && [ -s mlp.safetensors ] || fail "nothing exported"
exit $failed
