#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Reads the files of docs/reference/ a second time: tests/readers/*.py, written from the pages with Python's standard library
# alone, read what the program wrote; the result must be what the program reports.
. "$(dirname "$0")/common.sh"
job=
trap '[ -z "$job" ] || kill -9 "$job" 2> /dev/null; wait 2> /dev/null; rm -rf "$work"' EXIT
export PYTHONPATH=$source/tests/readers:$PYTHONPATH OMP_NUM_THREADS=1
run() { "$trireme" "$@" > out.txt 2>&1 || fail "trireme $*: $? $(tail -n 3 out.txt)"; }
check() { python3 - "$@" > check.txt 2>&1 || fail "$(tail -n 5 check.txt)"; }

# ---- a checkpoint: two saves, the newest is read, damage is found and located
run train lenet --data synth --synth-train 32 --synth-test 8 --batch-size 8 --steps 3 --save-every-steps 2 --output one --quiet
run export lenet --checkpoint one --to safetensors --output one.safetensors
run inspect one/ckpt-3 --json
grep -q '"global_step":3' out.txt || fail "inspect: $(cat out.txt)"
check << 'END'
import checkpoint, os
assert sorted(n for n in os.listdir("one") if n.startswith("ckpt-")) == ["ckpt-2", "ckpt-3"]
path = checkpoint.newest("one")
assert path == "one/ckpt-3", path
manifest, parts = checkpoint.read(path)
assert manifest["global_step"] == 3 and manifest["data_position"] == 24 and manifest["config"]["model"] == "lenet", manifest
exported, _ = checkpoint.read_safetensors(open("one.safetensors", "rb").read())
assert parts["model"] == exported and parts["model"]["fc3.bias"][:2] == ("F32", [10]), parts["model"].keys()
assert sorted(parts["optimizer"]) == sorted(name + "/momentum" for name in exported), parts["optimizer"].keys()
for file, offset, words in (("model.safetensors", 1000, "block 0 at offset 0"), ("manifest.json", 60, "the checksum of bytes 0 to")):
    name = os.path.join(path, file)
    data = bytearray(open(name, "rb").read())
    data[offset] ^= 1
    open(name, "wb").write(data)
    try:
        checkpoint.read(path)
        raise SystemExit(f"{file}: damage is not found")
    except ValueError as e:
        assert words in str(e), e
    data[offset] ^= 1
    open(name, "wb").write(data)
END

# ---- a snapshot of two servers with two shards each, full and differential, compared with ps export and ps inspect
run train widedeep --data synth --synth-train 400 --synth-test 100 --fields 4 --batch-size 16 --table-rows 60 --hidden 8 -n 2 --ps 2 --mode sync \
    --steps 10 --save-every-steps 4 --output ps --quiet
run ps export ps --table embedding.weight --output rows.safetensors
"$trireme" ps inspect ps --json --quiet > tables.json 2> out.txt || fail "ps inspect: $(cat out.txt)"
check << 'END'
import checkpoint, glob, json, server_snapshot, struct
manifest, tables = server_snapshot.read("ps/ps")
assert manifest["differential"] and manifest["servers"] == 2 and manifest["snapshot"] >= 3, manifest
said = [json.loads(line) for line in open("tables.json")]
assert len(said) == len(tables) > 4
for s in said:
    t = tables[s["table"]]
    assert (len(t.rows), t.width, t.dtype, t.rule, t.slots) == (s["rows"], s["width"], s["dtype"], s["rule"], s["slots"]), s
exported, _ = checkpoint.read_safetensors(open("rows.safetensors", "rb").read())
rows = tables["embedding.weight"]
keys = struct.unpack(f"<{len(rows.rows)}q", exported["keys"][2])
updates = struct.unpack(f"<{len(keys)}q", exported["updates"][2])
assert sorted(keys) == sorted(rows.rows)
assert b"".join(rows.values(k) for k in keys) == exported["values"][2], "values"
assert b"".join(struct.pack(f"<{rows.slots}f", *rows.slot_values(k)) for k in keys) == exported["slots"][2], "slots"
assert [rows.row_header(k)[3] for k in keys] == list(updates), "updates"
# A shard holds the keys of its range of the hash.
for server in (0, 1):
    for shard in (0, 1):
        some = {}
        data = open(f"ps/ps/snapshot-000001/server-{server}-shard-{shard}.full", "rb").read()
        server_snapshot.read_shard(f"ps/ps/snapshot-000001/server-{server}-shard-{shard}.full", server_snapshot.xxh3.hash64(data), some)
        mine = some["embedding.weight"].rows
        assert mine and all(server_snapshot.shard_of(k, 4) == 2 * server + shard for k in mine), (server, shard)
# The logs of the last two snapshots stay; the newer one begins with the tables.
logs = sorted(glob.glob("ps/ps/log/server-*.log"))
assert len(logs) == 8, logs
for log in logs:
    records = server_snapshot.read_log(log)
    assert [r[3][0][0] for r in records if r[0] == "table"] == [s["table"] for s in said], log
older = server_snapshot.read_log(logs[0])
assert [r[2] for r in older if r[0] == "push"][-1] == [(0, 1, 10), (1, 1, 10)], older[-1]
# Damage is found and located.
path = "ps/ps/snapshot-000001/server-0-shard-0.full"
data = bytearray(open(path, "rb").read())
data[700] ^= 1
open(path, "wb").write(data)
try:
    server_snapshot.read("ps/ps")
    raise SystemExit("damage is not found")
except ValueError as e:
    assert "server-0-shard-0.full: block" in str(e) and "the digest is wrong" in str(e), e
END

# ---- the small logs of a job that lends samples, killed while it runs
"$trireme" train widedeep --data synth --synth-train 4000 --synth-test 100 --fields 4 --batch-size 16 --table-rows 60 --hidden 8 -n 2 --ps 2 --mode sync \
    --lend always --epochs 1000 --save-every-steps 20 --output lent --quiet > lent.txt 2>&1 &
job=$!
for _ in $(seq $((600 * patience))); do
    [ ! -f lent/ps/MANIFEST-000002.json ] || break
    sleep 0.1
done
kill -9 $job
wait $job 2> /dev/null
job=
[ -f lent/ps/MANIFEST-000002.json ] || fail "no second snapshot within a minute: $(tail -n 3 lent.txt)"
sleep 1
check << 'END'
import glob, server_snapshot
leases = server_snapshot.read_leases("lent/ps/leases.log")
kinds = [lease[0] for lease in leases]
assert kinds[0] == 1 and 2 in kinds and 3 in kinds and 5 in kinds, kinds[:10]
for lease in leases:
    if lease[0] == 2:
        assert 0 <= lease[4] < lease[5] <= 4000, lease
steps = server_snapshot.read_steps("lent/ps/log/steps-server-0.log")
assert [s[0] for s in steps] == list(range(steps[0][0], steps[0][0] + len(steps))) and len(steps) > 2, steps[:3]
assert all({worker for worker, _, _ in ids} <= {0, 1} for _, ids, _ in steps), steps[-1]
workers = server_snapshot.read_workers("lent/ps/log/away-server-0.log")
assert {(w, what) for w, _, what in workers} >= {(0, "incarnation"), (1, "incarnation")} and "chief" in {r[2] for r in workers}, workers
staged = [r for log in glob.glob("lent/ps/log/server-0-*.log") for r in server_snapshot.read_log(log) if r[0] in ("staged", "step")]
assert staged, "no staged push in the logs"
END

# ---- a plan, and what was measured
run plan lenet -n 4 --mesh 2x2 --batch-size 4 --links guess --no-measure --save plan.txt
run inspect plan.txt --json
check << 'END'
import json, plan
said = json.loads([line for line in open("out.txt") if line.startswith("{")][0])
read = plan.read("plan.txt")
assert read.axes == [("a", 2), ("b", 2)] and read.graph == int(said["graph"], 16), read
assert (len(read.operators), len(read.stores)) == (said["operators"], said["stores"]) and len(read.operators) > 5, said
open("broken.txt", "w").write("trireme-plan 1\nmesh 2x2\nop fc n\n")
try:
    plan.read("broken.txt")
    raise SystemExit("a letter that is missing is not found")
except ValueError as e:
    assert "line 3" in str(e), e
END
expect 3 "line 3" inspect broken.txt
if grep -q onednn <("$trireme" doctor 2>&1); then
    check << 'END'
import os, tuning
cache = tuning.read(os.environ["XDG_CACHE_HOME"] + "/trireme/tuning.txt")
choices = tuning.read("one/choices.txt")
assert choices and all(cache[key][0] == value[0] for key, value in choices.items()), (cache, choices)
assert any(problem.startswith("conv fwd ") for _, problem in choices), choices
END
fi

# ---- a vocabulary: values that come twice, in the order in which they appear
mkdir clicks
printf 'user,item,label\na,x,1\nb,x,0\na,a longer name,1\nc,a longer name,0\n' > clicks/train.csv
run data vocabulary clicks --dataset csv --columns user:key,item:key,label:label --output clicks.vocabulary --json
check << 'END'
import vocabulary
v = vocabulary.Vocabulary("clicks.vocabulary")
assert v.rows == 5 and f'"rows":{v.rows}' in open("out.txt").read().replace(" ", ""), (v.rows, open("out.txt").read())
assert [v.row(0, b) for b in (b"a", b"b", b"c")] == [1, 0, 0] and [v.row(1, b) for b in (b"x", b"a longer name", b"y")] == [3, 4, 2], v.ids
END

# ---- rank tables: each form that is read has the rows that the program finds, and equal tables have equal digests
run cluster make --hosts 10.0.0.1:2,10.0.0.2:2 --output lab.json
run cluster make --hosts 10.0.0.1:2,10.0.0.2:2 --to v1 --output v1.json
check << 'END'
import json
devices = lambda server: [{"device_id": str(d), "device_ip": ""} for d in (0, 1)]
container = {"status": "completed", "group_count": "1", "group_list": [
    {"group_name": "g", "device_count": "4", "instance_count": "2", "instance_list": [
        {"pod_name": f"pod{s}", "server_id": f"10.0.0.{s}", "devices": devices(s)} for s in (1, 2)]}]}
v2 = {"version": "2.0", "rank_count": 4, "rank_list": [
    {"rank_id": r, "local_id": r % 2, "level_list": [{"net_layer": 0, "net_instance_id": f"10.0.0.{1 + r // 2}"}]} for r in range(4)]}
json.dump(container, open("container.json", "w"))
json.dump(v2, open("v2.json", "w"))
END
for form in lab v1 container v2; do
    "$trireme" cluster check $form.json --json > $form.txt 2> out.txt || fail "cluster check $form.json: $(cat out.txt)"
    check $form << 'END'
import json, rank_table, sys
form = sys.argv[1]
said = [json.loads(line) for line in open(form + ".txt")][-1]
name, rows = rank_table.read(form + ".json")
assert rank_table.digest(rows) == said["digest"], (name, rows, said)
assert [row.server for row in rows] == [s["server_id"] for s in said["servers"] for _ in range(s["ranks"])], (rows, said)
print(said["digest"])
END
    cat check.txt >> digests.txt
done
[ "$(sort -u digests.txt | wc -l)" = 1 ] || fail "equal tables have other digests: $(cat digests.txt)"
# ---- token files and tokenizers: ids of the reader's naive merges, samples of files that the reader wrote, and damage
check << 'END'
import random
random.seed(4)
words = "the cat's sat; they'll rest, that thing tested 12 the other 1234 hats...".split(" ")
text = "".join(random.choice(words) + random.choice([" ", " ", " ", "  ", "\n", "\n\n", "\t", "<|endoftext|>"]) for _ in range(3000))
open("words.txt", "w").write(text)
END
run tokenizer train words.txt --vocabulary 300 --special-tokens '<|endoftext|>' --output words
run tokenizer encode words.txt --tokenizer words --output words.bin
check << 'END'
import struct, tokens
text = open("words.txt").read()
reader, ids = tokens.Tokenizer("words"), tokens.read_ids("words.bin")
assert len(reader.ranks) == 43 and max(ids) > 280, (len(reader.ranks), max(ids))
assert reader.encode(text) == ids
assert reader.decode(ids) == text.encode()
header = struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253)
open("with_header.bin", "wb").write(header + struct.pack(f"<{len(ids)}H", *ids))
assert tokens.read_ids("with_header.bin") == ids
END
for stride in 16 5; do
    for file in words.bin with_header.bin words.txt; do
        run data info $file --tokenizer words --context 16 --stride $stride --batch-size 1 --read --json
        grep '"data_info"' out.txt > info.txt
        check $stride << 'END'
import json, sys, tokens
text, stride = open("words.txt").read(), int(sys.argv[1])
reader, ids = tokens.Tokenizer("words"), tokens.read_ids("words.bin")
for event in map(json.loads, open("info.txt")):
    usage, source = event["part"], event["pipeline"]["source"]
    part = reader.encode(tokens.part(text, usage)) if source["kind"] == "text" else tokens.part(ids, usage)
    expected = tokens.sample_count(len(part), 16, stride, usage)
    assert (event["samples"], event["classes"], source["tokens"]) == (expected, 300, len(part)), (event, expected)
END
    done
done
printf '\377\377' | dd of=words.bin bs=1 seek=100 conv=notrunc status=none
expect 3 "words.bin: byte 100: token id 65535, below 300 (the vocabulary) expected" data info words.bin --tokenizer words --context 16 --read
truncate -s 1001 words.bin
expect 3 "words.bin: 1001 bytes" data info words.bin
truncate -s 1026 with_header.bin
expect 3 "with_header.bin: byte 8" data info with_header.bin
truncate -s 20 words.bin
expect 2 "words.bin: 10 tokens, 65 (the context and one more) expected" data info words.bin --usage all --context 64
exit $failed
