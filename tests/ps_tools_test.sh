#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench ps prints its measurements; its checkpoint is inspected and exported.
. "$(dirname "$0")/common.sh"

"$trireme" bench ps --rows 110000 --repeats 3 --batch-size 16384 --output ps > bench.txt 2> bench.err || fail "bench ps: $(tail -n 3 bench.err)"
for name in read.of_sum update.rowwise_adagrad.of_sum gather.sum read.of_gather update.rowwise_adagrad.of_gather criteo.pull.of_gather criteo.push.of_update \
    wire.pull checkpoint.rate checkpoint.disk restart.beyond_read; do
    grep -q "^$name " bench.txt || fail "bench ps does not say $name"
done
"$trireme" ps inspect ps > inspect.txt || fail "ps inspect"
grep -q "snapshot 2 of 1 servers with 1 shards each" inspect.txt || fail "inspect: $(head -n 1 inspect.txt)"
grep -q "field-25 .* 4230 rows of 16 x float32, rowwise_adagrad, 1 slots" inspect.txt || fail "inspect: field-25"
for path in ps ps/snapshot-*/server-0-shard-0.*; do # the tables, or one shard's file: what they are part of
    "$trireme" inspect "$path" | grep -q "field-25 .* 4230 rows of 16" || fail "inspect $path: $("$trireme" inspect "$path" 2>&1 | head -n 2)"
done
"$trireme" ps inspect ps --table field-3 --key 77 > row.txt || fail "ps inspect --key"
grep -q "^field-3, key 77: [1-9][0-9]* updates" row.txt || fail "row: $(head -n 1 row.txt)"
"$trireme" ps inspect ps --table field-3 --key 77 --json | grep -q '"key":77,.*"last_writers":\[' || fail "row as JSON"
"$trireme" ps inspect ps --table field-3 --top 3 > top.txt || fail "ps inspect --top"
{ [ "$(grep -c "^field-3, key" top.txt)" = 3 ] && grep -qE "^field-3: 4230 rows, [0-9]+ updates" top.txt; } || fail "the hottest: $(cat top.txt)"
expect 2 "of one table (--table) in a folder" ps inspect ps --top 3
"$trireme" ps inspect ps --table nothing 2> err.txt && fail "a table that is not there"
grep -q "has no table 'nothing': there are field-0, " err.txt || fail "wrong table: $(cat err.txt)"
"$trireme" ps inspect ps --key 1 2> err.txt && fail "a key without a table"
grep -q -- "--key needs --table" err.txt || fail "key alone: $(cat err.txt)"
"$trireme" ps inspect ps --table field-3 --key 12x 2> err.txt && fail "a key that is no number"
grep -q "a number from 0 to 2^64 - 1" err.txt || fail "no number: $(cat err.txt)"
for file in t.npz t.safetensors; do
    "$trireme" ps export ps --table field-3 --output $file || fail "export $file"
    "$trireme" inspect $file | grep -q "4230" || fail "$file holds no 4230 rows: $("$trireme" inspect $file)"
done
if python3 -c 'import numpy' 2> /dev/null; then
    python3 - << 'END' || fail "numpy reads something else"
import numpy
t = numpy.load("t.npz")
assert sorted(t["keys"]) == list(range(4230)), t["keys"]
assert t["values"].shape == (4230, 16) and numpy.isfinite(t["values"]).all() and (t["values"] != 0).any()
assert t["slots"].shape == (4230, 1) and (t["slots"] > 0).all() and (t["updates"] > 0).all()
END
fi
"$trireme" ps export ps --table field-3 --output t.txt 2> err.txt && fail "export to .txt"
grep -q "ends in .npz or .safetensors" err.txt || fail "export to .txt: $(cat err.txt)"

# ---- a table within its budget
"$trireme" bench ps --table-bytes 40MB > budget.txt 2> budget.err || fail "budget: $(tail -n 3 budget.err)"
grep -q "^budget.forecast" budget.txt || fail "no forecast"
# ---- and beyond it: the rest is in a file
mkdir spill
# Servers that must spill rows: the folder is made, and a line at the end of the job reports it.
"$trireme" train deepfm --data synth --fields 8 --table-rows 20000 --zipf 0.3 --synth-train 8000 --synth-test 500 --batch-size 500 --epochs 1 \
    --hidden 4 --embedding-width 32 --ps 1 --ps-memory 8MB --ps-spill spilt/here --output little > little.txt 2> little.err ||
    fail "a job beyond its servers' memory ended with $?: $(tail -n 2 little.err)"
grep -q "ps 0 has warned.*budget of .* spilled to the file" little.err || fail "the budget is not told of: $(cat little.err)"
[ -d spilt/here ] || fail "no folder for spilled rows"
expect 2 "min_score 0.5 has no effect" train deepfm --data synth --fields 2 --table-rows 100 --steps 2 --ps 1 --tables min-score=0.5 --output none
"$trireme" bench ps --table-bytes 80MB --ps-memory 40MB --output spill > budget.txt 2> budget.err ||
    fail "spill: $(tail -n 3 budget.err)"
awk '$1 == "budget.spilled" && $2 > 1000 {found = 1} END {exit !found}' budget.txt || fail "nothing was spilled"
awk '$1 == "budget.table" && $2 <= 0.04 {found = 1} END {exit !found}' budget.txt || fail "the budget was exceeded"
# ---- the tables of a job
says() { # OPTIONS WORDS
    "$trireme" train widedeep --data synth --ps 1 --output tables --tables "$1" > tables.txt 2>&1 && fail "--tables $1 went through"
    grep -qF -- "$2" tables.txt || fail "--tables $1: $(tail -n 1 tables.txt)"
}
says rows=fp8 "one of fp32, bf16, fp16 expected"
says admit=never "count:N, bloom:N or probability:P expected"
says max-rows=many "a number from 0"
says cap "name=value,name=value expected"
says colour=red "'colour' is unknown"
"$trireme" train widedeep --data synth --synth-train 4000 --synth-test 500 --table-rows 500 --steps 30 --batch-size 64 --ps 1 -n 1 \
    --wire bf16 --tables rows=bf16,admit=count:2,expire-steps=1000,optimizer=rowwise_adagrad --output tables \
    > tables.txt 2>&1 || fail "tables: $(tail -n 3 tables.txt)"
"$trireme" ps inspect tables/ps > tables.txt 2>&1 && grep -q "bfloat16, rowwise_adagrad" tables.txt || fail "rows are not bf16: $(cat tables.txt)"
[ $failed = 0 ] && echo "ps tools: all well"
exit $failed
