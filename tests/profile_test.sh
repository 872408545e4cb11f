#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Reads the timeline of train --profile, of one rank and of two, with a parser of its own: each step contains all kernels in order,
# waiting, sending and data loading are there, events of a track do not overlap, and results are the same bits.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
job="train lenet --data synth --synth-train 320 --synth-test 16 --image-size 32 --batch-size 16 --threads 1 --learning-rate 0.01 --log-every 1 --json"

cat > read.py << 'END'
import collections, json, sys
path, ranks, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
events = json.load(open(path))["traceEvents"]
names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
assert names == {r: f"rank {r}" for r in range(ranks)}, names
tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
threads = [tid for _, tid in tracks]
assert len(set(threads)) == len(threads) and not set(threads) & set(names), threads # unique in the file
by_track = collections.defaultdict(list)
for e in events:
    if e["ph"] == "X":
        assert e["dur"] >= 0 and (e["pid"], e["tid"]) in tracks, e
        by_track[e["pid"], e["tid"]].append((round(e["ts"] * 1e3), -round((e["ts"] + e["dur"]) * 1e3), e))
for key, list_ in by_track.items():
    open_ = []
    for begin, end, e in sorted(list_, key=lambda t: t[:2]):
        while open_ and open_[-1] <= begin:
            open_.pop()
        assert not open_ or open_[-1] >= -end, f"{tracks[key]}: {e} cuts another event"
        open_.append(-end)
for rank in range(ranks):
    steps_of, = [key for key in tracks if key[0] == rank and tracks[key] == "steps"]
    main = [e for _, _, e in sorted(by_track[steps_of], key=lambda t: t[:2])]
    rounds = [e for e in main if e["cat"] == "step"]
    assert [e["name"] for e in rounds] == [f"step {i + 1}" for i in range(steps)], [e["name"] for e in rounds]
    kernels = []
    for s in rounds:
        inside = [e for e in main if s["ts"] <= e["ts"] and e["ts"] + e["dur"] <= s["ts"] + s["dur"] + 0.002 and e is not s]
        compute = [e for e in inside if e["cat"] == "compute"]
        kernels.append([e["name"] for e in compute if e["args"].get("phase") in ("forward", "backward")])
        assert sum(e["dur"] for e in compute) <= s["dur"]
        assert any(e["name"] == "optimizer" for e in compute), "no update"
        assert any(e["cat"] == "waiting" and e["name"] == "batch" for e in inside), "no wait for a batch"
        forward = [e["args"]["phase"] for e in compute if "phase" in e["args"] and e["name"] != "optimizer"]
        assert forward == sorted(forward, reverse=True), "backward before forward"
    assert len(kernels[0]) > 20 and all(k == kernels[0] for k in kernels), "kernels differ between steps"
    assert any("conv1" in k for k in kernels[0]) and any("fc3" in k for k in kernels[0]), kernels[0]
    data = [e for key, list_ in by_track.items() if key[0] == rank and tracks[key].startswith("data") for _, _, e in list_]
    assert len(data) >= steps and all(e["cat"] == "data" for e in data), len(data)
    sent = [e for key, list_ in by_track.items() if key[0] == rank for _, _, e in list_ if e["cat"] == "communication"]
    assert (len(sent) >= 2 * steps) == (ranks > 1), f"{len(sent)} messages"
    if ranks > 1:
        assert any(tracks[rank, e["tid"]].startswith("communication") for e in sent), "nothing in the background"
        assert all(e["args"]["bytes"] > 0 for e in sent if "gradient" in e["name"] or "loss" in e["name"])
# Ranks of one host have one clock: their steps lie beside each other.
if ranks > 1:
    first = [next(e for e in events if e["ph"] == "X" and e["cat"] == "step" and e["pid"] == r and e["name"] == f"step {steps}") for r in range(2)]
    a, b = first
    assert a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"], (a, b)
END

losses() { grep -o '"loss":[^,]*' "$1"; }
"$trireme" $job --steps 15 --workers 2 > plain.json || fail "without a profile"
"$trireme" $job --steps 15 --workers 2 --profile one.json > one.out || fail "one rank"
python3 read.py one.json 1 15 || fail "the timeline of one rank"
[ "$(losses plain.json)" = "$(losses one.out)" ] || fail "the profile changes the losses"
"$trireme" $job --steps 8 -n 2 --profile two.json > two.out 2>&1 || fail "two ranks: $(tail -2 two.out)"
python3 read.py two.json 2 8 || fail "the timeline of two ranks"
expect 2 "train has no flag --profil;" train lenet --data synth --profil x
expect 3 "no/such/folder" $job --steps 1 --profile /no/such/folder/x.json
exit $failed
