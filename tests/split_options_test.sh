#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Context options of the split modes: full_batch both ways, strategy files saved, edited and loaded, the three searches, the mesh of
# hosts; and a batch of one image, which only a spatial split can share out.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
job="--data synth --synth-train 96 --synth-test 16 --image-size 16 --steps 3 --log-every 1 --eval-every-epochs 0 --json --seed 4
     --threads 1 --learning-rate 0.02"
losses() { grep '"event":"step"' "$1" | grep -o '"loss":[-0-9.e+]*' | cut -d: -f2; }
same() {
    paste -d' ' <(losses "$1") <(losses "$2") | awk '
        { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 2e-5 * ($2 > 1 ? $2 : 1)) bad = 1 }
        END { exit bad || NR != 3 }' || fail "$1 and $2 differ: $(losses "$1" | tr '\n' ' ')/ $(losses "$2" | tr '\n' ' ')"
}
go() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    XDG_CACHE_HOME=$work/cache "$trireme" train lenet $job "$@" >"$name" 2>"$name.err" || { fail "$name: $*"; tail -2 "$name.err"; }
}
semi="parallel_mode=semi_auto_parallel"
go one --batch-size 8
go each -n 2 --batch-size 4 --context "$semi"
same each one
go full -n 2 --batch-size 8 --context "$semi;full_batch=true"
same full one
go flag -n 2 --batch-size 8 --full-batch --parallel-mode semi_auto_parallel
same flag one
go own -n 2 --batch-size 4 --context "$semi;full_batch=false"
same own one
go dealt -n 2 --batch-size 4 --context "$semi;dataset_strategy=data_parallel"
same dealt one
# Tuples: the parts of each dimension that a rank reads of each input.
go cut -n 2 --batch-size 4 --context "$semi;dataset_strategy=((1,1,1,2),(2,))"
same cut one
go samples -n 2 --batch-size 4 --context "$semi;dataset_strategy=((2,1,1,1),(2,))"
same samples one

go saved -n 2 --batch-size 4 --context "$semi;strategy_ckpt_save_file=$work/strategy"
same saved one
grep -q '^graph [0-9a-f]*' strategy && grep -q '^op conv1.conv2d0 n' strategy || fail "the strategy file: $(head -5 strategy)"
sed -i 's/^op conv2.conv2d1 .*/op conv2.conv2d1 h/' strategy

# Groups of ranks with the same parameters: all ranks where only samples are cut, the ranks along the other axis where a layer's outputs are cut.
go groups -n 4 --batch-size 2 --context "$semi;group_ckpt_save_file=$work/all"
[ "$(paste -sd/ all)" = "trireme-groups 1/mesh 4/0 1 2 3" ] || fail "groups of a split by samples: $(cat all)"
printf 'trireme-plan 1\nmesh 2x2\nop conv1.conv2d0 nn\nop conv2.conv2d1 nn\nop fc1.linear0 nn\nop fc2.linear1 nn\nop fc3.linear2 nk\n' > columns
go groups -n 4 --batch-size 2 --plan columns --context "$semi;group_ckpt_save_file=$work/half"
same groups one
[ "$(paste -sd/ half)" = "trireme-groups 1/mesh 2x2/0 2/1 3" ] || fail "groups of a split by outputs: $(cat half)"
go_refused() { # shellcheck disable=SC2086
    "$trireme" train lenet $job -n 2 --batch-size 4 --context "$semi;$1" > out 2>&1
    [ $? = 2 ] && grep -q "$2" out || fail "--context $1: $(tail -1 out)"
}
go_refused enable_alltoall=false "cheapest route"
go_refused "dataset_strategy=((1,1,1,3),(1,))" "cannot be cut into 3 parts"
go_refused "dataset_strategy=((1,1,2,2),(1,))" "at most one is cut"
go loaded -n 2 --batch-size 4 --context "$semi;strategy_ckpt_load_file=$work/strategy"
same loaded one
sed -i 's/^graph .*/graph 0000000000000001/' strategy
# shellcheck disable=SC2086
"$trireme" train lenet $job -n 2 --batch-size 4 --context "$semi;strategy_ckpt_load_file=$work/strategy" >out 2>&1 &&
    fail "a strategy of another graph was taken"
grep -q "another graph\|graph" out || fail "no sentence about the graph: $(tail -2 out)"

for mode in optimal dynamic_programming recursive_programming sharding_propagation; do
    go "$mode" -n 2 --batch-size 4 --context "parallel_mode=auto_parallel;search_mode=$mode"
    same "$mode" one
    grep -q '"event":"plan","plan":"[a-z].*"predicted_step_seconds":[0-9.e-]*,"data_parallel_step_seconds":[0-9]' "$mode" ||
        fail "$mode: no event for the plan: $(head -c 400 "$mode")"
    grep -q 'trireme: plan: .*mesh 2: .*predicted .* ms a step.*, data parallel .* ms' "$mode.err" ||
        fail "$mode: no line for the plan: $(cat "$mode.err")"
done

# One image for two ranks: its rows are cut.
go image --batch-size 1
printf 'trireme-plan 1\nmesh 2\nop conv1.conv2d0 h\nop conv2.conv2d1 h\n' >rows
go shared -n 2 --batch-size 1 --full-batch --parallel-mode semi_auto_parallel --plan rows
same shared image
exit $failed
