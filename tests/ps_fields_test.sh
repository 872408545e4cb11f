#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fields with tables of their own: one device, synchronous servers, another number of servers, inspect and export of each table.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
data="--data clicks --fields 6 --dense 3 --table-rows 300 --synth-train 5120 --synth-test 1000 --hidden 32"
fields="--field-tables user=0:8,item=1+3-4:12"
# shellcheck disable=SC2086
train() { "$trireme" train widedeep $data --json --seed 3 "$@" 2> err || fail "$*: $(tail -n 3 err)"; }
loss() { # FILE: of the last evaluation
    python3 -c 'import json, sys
print([json.loads(l) for l in open(sys.argv[1]) if "\"eval\"" in l][-1]["loss"])' "$1"
}
same() { python3 -c 'import sys; sys.exit(abs(float(sys.argv[1]) - float(sys.argv[2])) > 1e-6)' "$1" "$2" || fail "losses $1 and $2 differ"; }

# shellcheck disable=SC2086
train $fields --batch-size 512 --epochs 2 --output one > one.json
# shellcheck disable=SC2086
train $fields --batch-size 256 --epochs 1 -n 2 --ps 2 --mode sync --output two > two.json
# Three servers resume the job of two.
# shellcheck disable=SC2086
train $fields --batch-size 256 --epochs 2 -n 2 --ps 3 --mode sync --output two --resume > three.json
same "$(loss one.json)" "$(loss three.json)"
# shellcheck disable=SC2086
for run in one two; do
    "$trireme" eval widedeep $data --seed 3 --batch-size 512 --checkpoint $run --json > eval.json 2> err || fail "eval $run: $(cat err)"
    same "$(loss one.json)" "$(loss eval.json)"
done

# ---- options of each
# shellcheck disable=SC2086
train $fields --batch-size 256 --steps 12 -n 1 --ps 2 --output own --tables "rows=bf16;wide*:optimizer=ftrl,l1=0.001,rows=fp32;user:admit=count:6,rate=0.1;embedding.item*:optimizer=rowwise_adagrad,init=uniform:0.1,max-rows=40" > own.json
"$trireme" ps inspect own/ps > tables.txt 2> err || fail "inspect: $(cat err)"
for line in "embedding.user.weight .* 8 x bfloat16, adagrad" "embedding.item.weight .* 12 x bfloat16, rowwise_adagrad" \
    "embedding.field2.weight .* 16 x bfloat16, adagrad" "wide.user.weight .* 1 x float32, ftrl"; do
    grep -q "$line" tables.txt || fail "no '$line' in $(cat tables.txt)"
done
for table in $(awk '/weight/ {print $1}' tables.txt | grep -E '^(embedding|wide\.)'); do
    "$trireme" ps export own/ps --table "$table" --output "$table.npz" > /dev/null 2> err || fail "export $table: $(cat err)"
done
python3 - << 'END' || fail "exported tables: $(cat tables.txt)"
import zipfile, io, struct, ast
def shapes(path):
    out = {}
    for name in zipfile.ZipFile(path).namelist():
        raw = zipfile.ZipFile(path).read(name)
        out[name[:-4]] = ast.literal_eval(raw[10:10 + struct.unpack("<H", raw[8:10])[0]].decode())["shape"]
    return out
user, item, wide = (shapes(f"{t}.weight.npz")["values"] for t in ("embedding.user", "embedding.item", "wide.item"))
assert user[1] == 8 and item[1] == 12 and wide[1] == 1, (user, item, wide)
assert 0 < user[0] < 200, user # the others were not there often enough
assert item[0] <= 48, item  # the cap, shared among shards
END

# ---- words that are wrong
# shellcheck disable=SC2086
says() { expect 2 "$1" train widedeep $data --steps 1 "${@:2}"; }
says "one of its fields is in another table" --field-tables user=0,item=0+1
says "a width is 1 to 65536" --field-tables user=0:wide
says "it names a field that the data has not" --field-tables user=6
says "it has no '='" --field-tables user
expect 2 "inner products need rows of one width" train deepfm $data --steps 1 --field-tables user=0:8
# shellcheck disable=SC2086
says "no table is called 'usr'" $fields --ps 1 -n 1 --restarts 0 --output wrong --tables "usr:rows=bf16"
[ $failed = 0 ] && echo "tables of fields: all well"
exit $failed
