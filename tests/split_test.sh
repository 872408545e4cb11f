#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# semi_auto_parallel and auto_parallel: the losses are those of one device on the whole batch, plans come from files, sharded parameters are
# saved whole and resumed on another number of ranks, bad plans are refused with a message.
. "$(dirname "$0")/common.sh"
dir=$work T=$trireme
export OMP_NUM_THREADS=1
model="mlp --data synth --image-size 16 --classes 12 --threads 1 --json --log-every 1"

losses() { grep '"event":"step"' "$1" | grep -o '"loss":[-0-9.e+]*' | cut -d: -f2; }
# same A B: losses within 1e-5 of each other, and as many
same() {
    paste -d' ' <(losses "$1") <(losses "$2") | awk -v n="$3" '
        { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 1e-5 * ($2 > 1 ? $2 : 1)) bad = 1 }
        END { exit bad || NR != n }' || { fail "$1 and $2 differ"; cat "$1" "$2" | grep -E '"step"|rror' | cut -c1-160; }
}

"$T" train $model --batch-size 16 --steps 3 >"$dir/one" 2>&1 || fail "one device"
for mode in semi_auto_parallel auto_parallel; do
    "$T" train $model --batch-size 8 --steps 3 -n 2 --parallel-mode $mode >"$dir/$mode" 2>&1 || fail "$mode"
    same "$dir/$mode" "$dir/one" 3
done

# Parameters that a plan leaves whole exist once on a host, and the optimiser works in slices: the bits are those of whole parameters, which are saved whole.
"$T" train $model --batch-size 8 --steps 3 -n 2 --parallel-mode semi_auto_parallel --context enable_parallel_optimizer=false \
    >"$dir/whole" 2>&1 || fail "whole optimisers"
[ "$(losses "$dir/whole")" = "$(losses "$dir/semi_auto_parallel")" ] || fail "slices have other bits"
"$T" train $model --batch-size 8 --steps 2 -n 2 --parallel-mode semi_auto_parallel --output "$dir/slices" >"$dir/out" 2>&1 || fail "slices"
"$T" train $model --batch-size 16 --steps 3 --output "$dir/slices" --resume >"$dir/out" 2>&1 || { fail "resume of slices"; tail -2 "$dir/out"; }
same "$dir/out" <(grep '"step"' "$dir/one" | tail -1) 1

# Searches other than the exact one, and plans written and read, by context options. What was measured is kept.
for search in recursive_programming sharding_propagation; do
    "$T" train $model --batch-size 8 --steps 2 -n 2 --parallel-mode auto_parallel \
        --context "search_mode=$search;strategy_ckpt_save_file=$dir/$search.txt" >"$dir/$search" 2>&1 || { fail $search; tail -2 "$dir/$search"; }
    same "$dir/$search" <(grep '"step"' "$dir/one" | head -2) 2
    grep -q "^op fc2" "$dir/$search.txt" || fail "$search wrote no plan"
done
"$T" train $model --batch-size 8 --steps 2 -n 2 --parallel-mode semi_auto_parallel \
    --context strategy_ckpt_load_file="$dir/recursive_programming.txt" >"$dir/loaded" 2>&1 || { fail "a plan read"; tail -2 "$dir/loaded"; }
same "$dir/loaded" <(grep '"step"' "$dir/one" | head -2) 2
grep -q "spread" "$dir/cache/trireme/operators.txt" && ls "$dir"/cache/trireme/links-* >/dev/null || fail "nothing measured is kept"

# A strict job measures the kernels that it runs, and keeps their times apart from those of the fast kernels.
! grep -q " strict" "$dir/cache/trireme/operators.txt" || fail "a fast job measured strict kernels"
"$T" train $model --batch-size 8 --steps 2 -n 2 --parallel-mode auto_parallel --deterministic strict >"$dir/strict" 2>&1 || { fail "strict"; tail -2 "$dir/strict"; }
same "$dir/strict" <(grep '"step"' "$dir/one" | head -2) 2
grep -q " strict" "$dir/cache/trireme/operators.txt" || fail "a strict job measured fast kernels"

# A plan by hand: the last layer by classes, so that its weights lie in parts.
cat >"$dir/plan" <<'END'
trireme-plan 1
mesh 2
op fc2.linear2 k pinned   # classes
END
"$T" train $model --batch-size 8 --steps 2 -n 2 --parallel-mode semi_auto_parallel --plan "$dir/plan" \
    --output "$dir/job" --save-every-steps 2 >"$dir/planned" 2>&1 || { fail "a plan by hand"; tail -2 "$dir/planned"; }
same "$dir/planned" <(grep '"step"' "$dir/one" | head -2) 2
"$T" train $model --batch-size 16 --steps 3 --output "$dir/job" --resume >"$dir/resumed" 2>&1 || { fail "resume on one"; tail -2 "$dir/resumed"; }
same "$dir/resumed" <(grep '"step"' "$dir/one" | tail -1) 1

sed 's/fc2.linear2 k/fc2.linear2 q/' "$dir/plan" >"$dir/bad"
"$T" train $model --batch-size 8 --steps 1 -n 2 --parallel-mode semi_auto_parallel --plan "$dir/bad" >"$dir/out" 2>&1 &&
    fail "a plan with unknown letters was taken"
grep -q "by 'q'" "$dir/out" || fail "no sentence about letter q: $(tail -2 "$dir/out")"
printf 'trireme-plan 1\nmesh 3\n' >"$dir/bad"
"$T" train $model --batch-size 8 --steps 1 -n 2 --parallel-mode semi_auto_parallel --plan "$dir/bad" >"$dir/out" 2>&1 &&
    fail "a mesh of 3 was taken for 2 ranks"
grep -q "has 3 ranks" "$dir/out" || fail "no sentence about the mesh: $(tail -2 "$dir/out")"
exit $failed
