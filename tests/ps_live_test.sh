#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ps inspect of running servers: tables, workers, a row with its last writers. The job is not disturbed.
. "$(dirname "$0")/common.sh"
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
read -r p0 p1 w0 <<< "$(free_ports 3)"
servers=127.0.0.1:$p0,127.0.0.1:$p1
job="train widedeep --data synth --synth-train 4000 --synth-test 100 --table-rows 300 --batch-size 64 --steps 100000 --tables wide*:staleness=4
    --ps_hosts=$servers --worker_hosts=127.0.0.1:$w0 --output run"
for task in ps:0 ps:1 worker:0; do
    # shellcheck disable=SC2086
    "$trireme" $job --job_name="${task%:*}" --task_index="${task#*:}" > "$task.out" 2> "$task.err" &
done
works='"worker":0,"incarnation":[0-9]*,"batches":[1-9][0-9]*,"active":true' # its first push may still be under way
for ((i = 0; i < 200; i++)); do
    "$trireme" ps inspect "$servers" --json > tables.txt 2> err.txt && grep -q "$works" tables.txt && break
    [ "$(jobs -rp | wc -l)" = 3 ] || { fail "a role has ended: $(tail -qn 2 ps:0.err ps:1.err worker:0.err)"; exit 1; }
    sleep 0.1
done
grep -q "$works" tables.txt || fail "workers: $(cat tables.txt err.txt)"
grep -q '"table":.*"updates":[1-9]' tables.txt || fail "tables: $(cat tables.txt)"
# The first checkpoint, taken at the first step, lists the rows.
table=$(python3 -c 'import json
t = [json.loads(l) for l in open("tables.txt") if "\"table\"" in l]
print(max(t, key=lambda x: x["rows"])["table"])')
for ((i = 0; i < 100; i++)); do
    "$trireme" ps export run/ps --table "$table" --output rows.safetensors > export.txt 2>&1 && break
    sleep 0.2
done
key=$(python3 -c 'import json, struct
data = open("rows.safetensors", "rb").read()
size, = struct.unpack("<Q", data[:8])
begin, end = json.loads(data[8:8 + size])["keys"]["data_offsets"]
print(*struct.unpack("<Q", data[8 + size + begin:8 + size + begin + 8]))') || fail "no rows: $(cat export.txt)"
"$trireme" ps inspect "$servers" --table "$table" --key "$key" > row.txt 2> err.txt
grep -q "^$table, key $key: [1-9][0-9]* updates" row.txt || fail "row: $(cat row.txt err.txt)"
"$trireme" ps inspect "$servers" --table "$table" --key "$key" --json |
    grep -q '"last_writers":\[{"worker":0,"incarnation":[0-9]*,"sequence":[1-9][0-9]*,"tick":[1-9]' || fail "no last writer"
for ((i = 0; i < 100; i++)); do # the first batch's lag is not known
    "$trireme" ps inspect "$servers" --prometheus > metrics.txt 2> err.txt
    grep -qF "lag_sum{table=\"$table\"}" metrics.txt && ! grep -qF "lag_count{table=\"$table\"} 0" metrics.txt && break
    sleep 0.1
done
python3 - "$table" << 'END' || fail "metrics: $(cat metrics.txt err.txt)"
import re, sys
seen, kinds = {}, {}
for line in open("metrics.txt"):
    if line.startswith("# TYPE "):
        _, _, name, kinds[name] = line.split()
    elif not line.startswith("# HELP "):
        name, labels, value = re.fullmatch(r'([a-z_]+)(\{[a-z]+="[^"]*"(?:,le="[0-9+Inf]+")?\})? (\d+)\n', line).groups()
        assert (name in kinds or kinds[re.sub("_(bucket|sum|count)$", "", name)] == "histogram") and (name, labels) not in seen, line
        seen[name, labels] = int(value)
assert seen["trireme_ps_global_step", None] > 0 and seen["trireme_ps_worker_active", '{worker="0"}'] == 1, seen
assert seen["trireme_ps_table_rows", '{table="%s"}' % sys.argv[1]] > 0 and kinds["trireme_ps_table_updates_total"] == "counter", seen
assert 0 < seen["trireme_ps_table_lag_count", '{table="%s"}' % sys.argv[1]] == seen["trireme_ps_table_lag_bucket", '{table="%s",le="+Inf"}' % sys.argv[1]], seen
END
expect 2 "--prometheus: of running servers" ps inspect run/ps --prometheus
expect 2 "no table 'nothing' among the" ps inspect "$servers" --table nothing
expect 2 "has no row of key 18446744073709551615" ps inspect "$servers" --table "$table" --key 18446744073709551615
expect 2 "is configured as server 0 of 2" ps inspect "127.0.0.1:$p0"
kill -0 %3 2> /dev/null || fail "the worker has ended: $(tail -n 3 worker:0.err)"
exit $failed
