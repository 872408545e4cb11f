#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Limits of memory of transformers: the compiled program of the plan keeps each limit, with parameters that are gathered again in backward
# (ZeRO-3), at their place or ahead, and with stages; and what the search counts is near what the program takes. So does that of a strict job.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
net="gpt2 --layers 4 --width 256 --heads 4 --vocabulary 1024 --context 64 --batch-size 4 --optimizer adam -n 4 --no-measure --json"
printf 'level network 4 20 10\noverlap 1\n' > ahead.links # each rank on a host of its own: no slices
printf 'level network 4 20 10\noverlap 0\n' > place.links

# plans NAME FLAGS: without a limit, then within falling shares of what that plan takes, until nothing fits
plans() {
    local name=$1 whole limit code
    shift
    # shellcheck disable=SC2086 # words
    "$trireme" plan $net "$@" > "$name.whole.json" 2> err || fail "$name: $(tail -n 1 err)"
    whole=$(python3 -c "import json, sys; print(int(json.load(open(sys.argv[1]))['compiled_bytes']))" "$name.whole.json") || fail "$name: no compiled_bytes"
    for share in 80 68 62 50; do
        limit=$((whole * share / 100))
        # shellcheck disable=SC2086 # words
        "$trireme" plan $net "$@" --memory "$limit" > "$name.$share.json" 2> err
        code=$?
        [ $code = 4 ] && { grep -q "no plan fits" err || fail "$name, $share %: $(tail -n 1 err)"; rm "$name.$share.json"; break; }
        [ $code = 0 ] || fail "$name, $share %: exit code $code: $(tail -n 1 err)"
        echo "$limit" > "$name.$share.limit"
    done
}
plans place --mesh 4 --host-count 4 --links place.links
plans ahead --mesh 4 --host-count 4 --links ahead.links
plans stages --stages 2 --mesh 2 --links guess
[ $failed = 0 ] || exit 1

# One process: `plan -n 1` predicts the job's program to the byte, in mixed precision without casts of weights that kernels round. A limit of so
# many bytes changes nothing; with one byte less the job has to make activations again, or nothing fits.
one="gpt2 --layers 4 --width 128 --heads 4 --vocabulary 512 --batch-size 4 --optimizer adam --threads 1 --json"
steps_of() { # FLAGS: steps of the job's program
    # shellcheck disable=SC2086 # words
    "$trireme" plan $one "$@" 2> err | python3 -c "import json, sys; print(json.load(sys.stdin)['steps'])" 2> /dev/null
}
for precision in "fp32 --context 32" "mixed --context 32" "fp32 --context 256"; do # of 256 tokens the sums before norms are made again
    # shellcheck disable=SC2086 # words
    "$trireme" plan $one --precision $precision -n 1 --no-measure > one.json 2> err || fail "plan -n 1: $(tail -n 1 err)"
    bytes=$(python3 -c "import json; print(int(json.load(open('one.json'))['compiled_bytes']))")
    # shellcheck disable=SC2086 # words
    free=$(steps_of --precision $precision)
    # shellcheck disable=SC2086 # words
    [ -n "$free" ] && [ "$(steps_of --precision $precision --memory "$bytes")" = "$free" ] || fail "$precision: a job of $free steps takes more than the $bytes bytes that plan -n 1 predicts"
    # shellcheck disable=SC2086 # words
    [ "$(steps_of --precision $precision --memory $((bytes - 1)))" != "$free" ] || fail "$precision: a job takes less than the $bytes bytes that plan -n 1 predicts"
    echo "one process, $precision: $bytes bytes, $free steps"
done

# A job that sums in a fixed order stages whole sums: `plan --deterministic true` counts them to the byte, without ranks that are there.
printf 'trireme-plan 1\nmesh 2\n' > columns.txt
for layer in 0 1; do
    printf "op h.$layer.%s pinned\n" "attn.c_attn.linear$((4 * layer)) k" "attn.c_proj.linear$((4 * layer + 1)) c" "mlp.c_fc.linear$((4 * layer + 2)) k" "mlp.c_proj.linear$((4 * layer + 3)) c"
done >> columns.txt
counted=()
columns="gpt2 --layers 2 --width 128 --heads 4 --vocabulary 1024 --context 64 --batch-size 4 --threads 1 -n 2"
# shellcheck disable=SC2086 # words
for order in false true; do
    "$trireme" plan $columns --plan columns.txt --mesh 2 --links guess --no-measure --deterministic $order --save columns-$order.txt --json > columns.json 2> err || fail "plan --deterministic $order: $(tail -n 1 err)"
    counted[${#counted[@]}]=$(python3 -c "import json; print(int(json.load(open('columns.json'))['compiled_bytes']))")
done
[ "${counted[1]}" -gt "${counted[0]}" ] || fail "a fixed order takes no memory: ${counted[*]} bytes"
for bytes in "${counted[1]}" $((counted[1] - 1)); do
    # shellcheck disable=SC2086 # words
    "$trireme" bench train $columns --parallel-mode semi_auto_parallel --plan columns-true.txt --deterministic true --memory "$bytes" --repeats 3 > out 2>&1
    code=$?
    [ $((code == 0)) = $((bytes == counted[1])) ] || fail "a job in a fixed order within $bytes of ${counted[1]} bytes: exit code $code: $(tail -n 2 out)"
done

# A strict job's search counts the program that the job runs, of which each block of samples has its own sums: it trains within the limit, or the
# search has said that no plan fits.
strict="mlp --data synth --image-size 32 --synth-train 64 --epochs 1 --steps 1 --optimizer adam --eval-every-epochs 0 --backend ref --batch-size 8"
for limit in 19 30; do
    # shellcheck disable=SC2086 # words
    "$trireme" train $strict --deterministic strict -n 4 --parallel-mode auto_parallel --memory "${limit}M" --output "strict-$limit" > out 2> err
    code=$?
    [ $((code > 0)) = $(($limit < 24)) ] || fail "strict within $limit MB: exit code $code: $(tail -n 3 err)"
    [ $code = 0 ] || grep -q "no plan fits" err || fail "strict within $limit MB: a plan was found, and its program does not fit: $(tail -n 3 err)"
done

python3 - << 'END' || fail "limits of memory"
import glob, json
again, rows = {}, 0
for path in sorted(glob.glob("*.limit")):
    plan, limit = json.load(open(path[:-5] + "json")), int(open(path).read())
    pipe, name = plan.get("pipeline"), path.split(".")[0]
    parts = sum(bool(o.get("gathered_again")) for o in plan["operators"])
    compiled = pipe["compiled_bytes"] if pipe else plan["compiled_bytes"]
    counted = pipe["memory_bytes"] if pipe else plan["memory_bytes"]
    print(f"{path}: limit {limit}, compiled {compiled}, counted {counted:.0f}, {parts} operators gather again")
    assert 0 < compiled <= limit, (path, compiled, limit)
    assert counted <= compiled < 1.7 * counted, (path, counted, compiled)
    assert (pipe is not None) == (name == "stages") and plan["certificate"]["lower_bound"] <= plan["certificate"]["objective"]
    assert (plan["certificate"]["gap"] <= 1e-6) == (plan["certificate"]["gap_reason"] == ""), plan["certificate"]
    again[name] = max(again.get(name, 0), parts)
    assert 0 <= plan["waited_seconds"] <= plan["ahead_seconds"], plan["ahead_seconds"]
    rows += 1
assert rows >= 5 and again["place"] and again["ahead"] and "stages" in again, (rows, again)
END
exit $failed
