#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --deterministic strict in split modes: the same losses, digit for digit, under every plan and on 1 to 6 ranks, those of
# data parallel ranks too; a
# run that goes on with another number of ranks, and verify --bitwise.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
job="--data synth --synth-train 240 --synth-test 24 --image-size 16 --steps 4 --log-every 1 --eval-every-epochs 0 --json --seed 9
     --deterministic strict --clip-norm 0.5 --learning-rate 0.05 --threads 1"
losses() { grep '"event":"step"' "$1" | grep -o '"loss":[-0-9.e+]*' | tr '\n' ' '; }
# go NAME RANKS BATCH FLAGS...
go() {
    local name=$1 ranks=$2 batch=$3
    shift 3
    # shellcheck disable=SC2086
    "$trireme" train lenet $job -n "$ranks" --batch-size "$batch" "$@" >"$name" 2>"$name.err" || { fail "$name"; tail -2 "$name.err"; }
}
cat >plan <<'END'
trireme-plan 1
mesh 3x2
op conv1.conv2d0 hk
op conv2.conv2d1 cn
END
go one 1 12 --parallel-mode semi_auto_parallel
[ "$(losses one | wc -w)" -eq 4 ] || fail "four losses are expected: $(losses one)"
go two 2 6 --parallel-mode semi_auto_parallel
go three 3 4 --parallel-mode auto_parallel --trial-seconds 1
go four 4 3 --parallel-mode semi_auto_parallel --mesh 2x2
go planned 6 2 --parallel-mode semi_auto_parallel --plan plan
go data 2 6 --parallel-mode data_parallel
go alone 1 12
for name in two three four planned data alone; do
    [ "$(losses $name)" = "$(losses one)" ] || fail "$name: $(losses $name)instead of $(losses one)"
done

# Two steps on three ranks, the rest on two.
job=${job/--steps 4/}
go half 3 4 --parallel-mode semi_auto_parallel --steps 2 --output run
go rest 2 6 --parallel-mode semi_auto_parallel --steps 4 --output run --resume
[ "$(losses half)$(losses rest)" = "$(losses one)" ] || fail "resumed on two: $(losses half)$(losses rest)instead of $(losses one)"

"$trireme" verify lenet -n 2 --batch-size 3 --image-size 16 --threads 1 --deterministic strict --bitwise >out 2>err ||
    { fail "verify --bitwise"; tail -3 out err; }
grep -q "bit for bit" out || fail "no verdict"
exit $failed
