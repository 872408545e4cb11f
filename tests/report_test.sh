#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# trireme report and top: the record of a run, its text, its JSON and its page; runs that are damaged, empty, resumed or go on; names
# that look like HTML. Pages are opened in headless Chromium; what they show is compared with the JSON.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
small="mlp --data synth --synth-train 640 --synth-test 64 --batch-size 32 --log-every 1"
train() { # NAME ARGS
    # shellcheck disable=SC2086 # words
    timeout 120 "$trireme" train $small --output "$@" --quiet > /dev/null 2> err || fail "train --output $*: $(tail -1 err)"
}
record() { python3 -c 'import json,sys; [json.loads(l) for l in open(sys.argv[1])]' "$1" || fail "$1 is not JSON lines"; }

# ---- the record: all steps once, the options, the end
train one --epochs 2 --eval-every-epochs 1
train two --epochs 1 --learning-rate 0.02 -n 2
record one/run.jsonl
"$trireme" report one two --json > both.json 2> err || fail "report: $(tail -1 err)"
python3 - << 'END' || fail "the report is not what was trained"
import json
r = json.load(open("both.json"))
one, two = r["runs"]
assert one["state"] == "done" and one["curves"]["step"] == list(range(1, 41)), one["curves"]["step"]
lines = [json.loads(l) for l in open("one/run.jsonl")]
assert one["curves"]["loss"] == [l["loss"] for l in lines if l["event"] == "step"]
assert [e["top1"] for e in one["evaluations"]] == [l["top1"] for l in lines if l["event"] == "eval"] and len(one["evaluations"]) == 2
assert [c["global_step"] for c in one["checkpoints"]] == [20, 40] and one["checkpoints"][1]["bytes"] > 1e6
assert one["peak_bytes"] == [l for l in lines if l["event"] == "done"][0]["peak_bytes"]
assert "rank_wait_seconds" not in one["curves"] and max(two["curves"]["rank_wait_seconds"]) > 0 and two["ranks"] == 2
assert [p["who"] for p in one["roles"]] == ["rank 0"] and [p["who"] for p in two["roles"]] == ["rank 0", "rank 1"], two["roles"]
for rank, p in enumerate(two["roles"]): # shares of the time of a step, from the means that the rank has written
    lines = [json.loads(l) for l in open("two/run-rank-1.jsonl" if rank else "two/run.jsonl")]
    steps = [l for l in lines if l["event"] == "step"]
    whole = sum(l["step_seconds"] + l["data_wait_seconds"] for l in steps)
    for key in ("data_wait", "rank_wait"):
        share = sum(l[key + "_seconds"] for l in steps) / whole
        assert abs(p[key + "_fraction"] - share) < 1e-4, (p, key, share)
    assert len(steps) == 10 and p["rank_wait_fraction"] > 0 and p["state"] == "done", p
assert len(two["curves"]["step"]) == 10 and len(two["evaluations"]) == len(one["evaluations"]) - 1 and len(two["checkpoints"]) == 1
assert all(e["who"] != "rank 1" for e in two["events"]), two["events"]
differ = {d["option"]: d["values"] for d in r["differences"]}
assert differ["learning-rate"] == [0.01, 0.02] and differ["epochs"] == [2, 1] and "seed" not in differ and "output" not in differ, differ
END

expect 0 "    rank 1: data " report two
expect 0 "waiting: data" top two --once

# ---- a killed run that is resumed: steps that are computed again count once
train killed --steps 30 --save-every-steps 20
rm -rf killed/ckpt-30
printf '{"time":1,"event":"step","global_st' >> killed/run.jsonl # as a killed process leaves it
"$trireme" report killed > out 2> err && grep -q 'last line is not whole' out || fail "half a line is not mentioned: $(cat out err)"
train killed --steps 40 --resume
"$trireme" report killed --json > killed.json || fail "report killed"
python3 - << 'END' || fail "a resumed run"
import json
r = json.load(open("killed.json"))["runs"][0]
assert r["curves"]["step"] == list(range(1, 41)), r["curves"]["step"]
assert any(e["text"] == "resumed after step 20" for e in r["events"]), r["events"]
assert len(r["problems"]) == 1 and "1 damaged lines are left out" in r["problems"][0], r["problems"]
END

# ---- an event that has no form of its own: as text, at its step
cp -r one changed
printf '{"time":2000000000.5,"event":"membership","epoch":2,"ranks":3,"lost":[1],"redone_steps":1,"global_step":30}\n' >> changed/run.jsonl
"$trireme" report changed --json > changed.json || fail "report changed"
python3 - << 'END' || fail "a change of members"
import json
event = json.load(open("changed.json"))["runs"][0]["events"][-1]
assert event["text"] == "membership: epoch 2, ranks 3, lost [1], redone_steps 1, global_step 30" and event["global_step"] == 30, event
END
# a rank that has a record, and a number that the ranks of now do not have, is not training
for rank in 2 3; do sed '/"event":"done"/d' two/run-rank-1.jsonl > changed/run-rank-$rank.jsonl; done
"$trireme" report changed --json > changed.json || fail "report changed ranks"
python3 - << 'END' || fail "the state of a rank that has left"
import json
states = {p["who"]: p["state"] for p in json.load(open("changed.json"))["runs"][0]["roles"]}
assert states["rank 3"] == "left" and states["rank 2"] in ("training", "silent"), states
END
rm changed/run-rank-*.jsonl

# ---- nothing there, nothing recorded, a record that is no record
mkdir empty noise
head -c 3000 /dev/urandom > noise/run.jsonl
expect 2 "there is no such folder" report nowhere
expect 0 "there is no run.jsonl" report empty
expect 0 "no step is recorded yet" report noise
expect 2 "trireme report needs RUN" report
expect 0 "step 40 of 40" top one
expect 0 "there is no run.jsonl" top empty --once
mkdir lost
printf '{"time":1,"event":"%s","global_step":%s,"path":%s}\n' checkpoint 20 3 checkpoint 30 '"lost/ckpt-30"' > lost/run.jsonl # of the first no name is left
expect 0 "1 checkpoint, the newest lost/ckpt-30" report lost
expect 0 "checkpoint at step 30: lost/ckpt-30" top lost --once

# ---- damage that is JSON: members of other kinds, numbers beyond all sense, texts that control a terminal, names that are not UTF-8
mkdir -p pipe "$(printf 'odd\377\033[2J')"
mkfifo pipe/run.jsonl
expect 2 "pipe/run.jsonl is no file; a record of JSON lines is expected" report pipe
expect 2 "it is the record of the run, and would be lost" report two --html two/run-rank-1.jsonl
record two/run-rank-1.jsonl
python3 - << 'END' || fail "damaged runs could not be made"
import json, os
lines = [json.loads(l) for l in open("one/run.jsonl")]
def damage(name, change, more=()):
    os.makedirs(name, exist_ok=True)
    with open(name + "/run.jsonl", "w") as out:
        for l in [change(dict(l)) or l for l in lines] + list(more):
            out.write(json.dumps(l) + "\n")
numbers = lambda l: {k: v for k, v in l.items() if type(v) in (int, float) and k != "time"}
everything = lambda value: lambda l: dict(l, **{k: value for k in l if k not in ("event", "time")})
damage("nulls", everything(None))
damage("lists", everything([1]))
damage("objects", everything({"a": {}}))
damage("huge", lambda l: dict(l, **{k: 1e308 for k in numbers(l)}), [{"time": 1e300, "event": "eval", "global_step": 1e300, "loss": 1e300}])
damage("tiny", lambda l: dict(l, **{k: 5e-324 for k in numbers(l)}))
damage("mixed", lambda l: dict(l, options=[1], given=3, host={"a": 1}, unit=7) if l["event"] == "options" else l,
       [{"time": 2e9, "event": "membership", "ranks": 1e300}, {"time": 2e9, "event": "checkpoint", "path": "x", "global_step": 1e300}])
damage("control", lambda l: dict(l, **{k: "\033[31m\u009b2J\n\a" for k, v in l.items() if type(v) is str and k not in ("event", "level")}),
       [{"time": 2e9, "event": "eval", "global_step": 41, "\033[2Jx": 0.5}, {"time": 2e9, "event": "checkpoint", "path": "\033[2J", "global_step": 41}])
damage(b"odd\xff\033[2J".decode("utf-8", "surrogateescape"), lambda l: l)
damage("short", lambda l: {"time": l["time"], "event": "step", "global_step": 1, "loss": 3})
END
for r in nulls lists objects huge tiny mixed control odd* short; do
    for way in report "top --once"; do
        # shellcheck disable=SC2086 # words
        "$trireme" $way "$r" > out 2> err || fail "$way of the damaged run $r: $(tail -1 err)"
        ! LC_ALL=C grep -aqP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\(null\)|\bnan\b|\binf\b' out || fail "$way of the damaged run $r shows $(cat -v out)"
    done
    "$trireme" report "$r" --html "damaged-${r%%[^a-z]*}.html" --json > out || fail "report --html of the damaged run $r"
    python3 -c 'import json; json.load(open("out"))' || fail "report --json of the damaged run $r is not JSON"
done
"$trireme" report odd* --json | grep -q "$(printf '"name":"odd\357\277\275')"'.u001B\[2J"' || fail "a name that is not UTF-8"
expect 0 "loss 3 (least 3)" top short --once

# ---- a signal ends a run as stopped; while it trains, report and top say so
# shellcheck disable=SC2086
"$trireme" train $small --epochs 100000 --output live --quiet > /dev/null 2>&1 &
pid=$!
for _ in $(seq 1 400); do grep -q '"event":"step"' live/run.jsonl 2> /dev/null && break; sleep 0.05; done
expect 0 "mlp, training" report live --html live.html
expect 0 "left" top live --once
python3 - "$trireme" << 'END' || fail "top on a terminal"
import os, pty, select, sys, termios, time
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execv(sys.argv[1], [sys.argv[1], "top", "live"])
before, text, end = termios.tcgetattr(fd), b"", time.time() + 60
while time.time() < end and text.count(b"images/s") < 3: # three screens
    if select.select([fd], [], [], 1)[0]:
        text += os.read(fd, 65536)
assert text.count(b"images/s") >= 3, text[-500:]
assert "\u2588".encode() in text and b"\033[?1049h" in text
os.write(fd, b"q")
while True:
    try:
        more = os.read(fd, 65536)
    except OSError: # the other side is closed
        break
    if not more:
        break
    text += more
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert text.rstrip().endswith(b"\033[?1049l") and b"\033[?25h" in text, text[-80:]
END
kill -TERM $pid
wait $pid
expect 0 "mlp, stopped" report live

# ---- parameter servers: each role has a record
timeout 200 "$trireme" train widedeep --data clicks --synth-train 4000 --synth-test 500 --table-rows 1000 --batch-size 500 --log-every 1 -n 2 --ps 2 --lend never --output servers \
    --quiet > /dev/null 2> err || fail "servers: $(tail -1 err)"
"$trireme" report servers --json > servers.json || fail "report servers"
python3 - << 'END' || fail "the roles of a job"
import json
r = json.load(open("servers.json"))["runs"][0]
assert sorted(p["who"] for p in r["roles"]) == ["chief", "ps-0", "ps-1", "worker-1"], r["roles"]
assert all(p["state"] == "done" for p in r["roles"]) and len(r["curves"]["loss"]) > 0
assert any(e["who"] == "ps-0" and "serves at" in e["text"] for e in r["events"]), r["events"]
END

# ---- pages
mkdir -p 'evil<'
cp -r one 'evil</script>alert(1)<!--'
"$trireme" report 'evil</script>alert(1)<!--' --html evil.html --quiet > /dev/null || fail "report of a name like HTML"
"$trireme" report one two --html both.html > /dev/null || fail "report --html"
for r in empty noise killed servers changed; do "$trireme" report $r --html $r.html > /dev/null || fail "report $r --html"; done
expect 3 "nowhere" report one --html nowhere/else.html
[ $failed -eq 0 ] || exit 1
python3 "$source/tests/pages.py" || skip "no Chromium to open the pages with (apt-get install chromium); the records are right"
python3 - << 'END' || fail "a page"
import json, pages
pages.check_noise(".")
for name in ("both", "live", "empty", "noise", "killed", "servers", "changed", "evil"):
    shown, messages = pages.show(name + ".html")
    assert not messages, (name, messages)
    report = pages.report_in(name + ".html")
    if name == "both":
        assert report == json.load(open("both.json")), "the page has another report than --json prints"
    for member in ("global_step", "loss", "rate", "peak_bytes", "learning_rate", "parameters", "data_wait_fraction"):
        true = [r[member] for r in report["runs"] if r[member] is not None]
        values = shown.value(member)
        assert len(values) == len(true), (name, member, values, true)
        for v, t in zip(values, true):
            pages.close(v, t, name + " " + member)
    for run in report["runs"]:
        assert any(e[2] == run["name"] for e in shown.find("h3")), (name, run["name"])
        for problem in run["problems"]:
            assert any(problem in e[2] for e in shown.find("p", **{"class": "problem"})), problem
        if "loss" in run["curves"] and name != "servers":
            key = [e for e in shown.find("button", data_series=run["name"])]
            assert any(e[1]["data-points"] == str(len(run["curves"]["loss"])) for e in key), (name, key)
    rows = [e for e in shown.find("section", data_table="checkpoints")]
    assert sum(int(e[1]["data-rows"]) for e in rows) == sum(len(r["checkpoints"]) for r in report["runs"])
    drawn = {e[1]["data-figure"] for e in shown.find("figure")}
    if name == "both":
        assert {"loss", "eval_loss", "eval_top1", "learning_rate", "rate", "waiting", "step_seconds", "peak_bytes"} <= drawn, drawn
        assert [e[1]["data-rows"] for e in shown.find("section", data_table="differences")] == [str(len(report["differences"]))]
    if name == "changed":
        assert any(e[2].startswith("membership: epoch 2") for e in shown.find("title")), "the change is not marked on the curve"
    if name == "evil":
        assert len(shown.find("script")) == 2 and any("</script>" in e[2] for e in shown.find("p")), "a name became HTML"
for name in ("nulls", "lists", "objects", "huge", "tiny", "mixed", "control", "odd", "short"):
    shown, messages = pages.show("damaged-" + name + ".html")
    assert not messages, (name, messages)
    assert not any(word in e[2] for e in shown.find("body") for word in ("NaN", "undefined", "Infinity", "[object")), name
# A click sorts, hides, changes the axis; a pointer shows values; nothing is wider than a phone. Both schemes.
act = """
const out = {}, by = (q, n = 0) => document.querySelectorAll(q)[n];
const losses = () => [...document.querySelectorAll('[data-table=evaluations] tbody tr')].map(r => r.children[3].dataset.raw);
(() => {
  by('[data-table=evaluations] th button', 3).click();
  out.sorted = losses();
  const svg = by('[data-figure=loss] svg'), at = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove', {clientX: at.left + 0.2 * at.width, clientY: at.top + 60}));
  out.tip = by('[data-figure=loss] .tip').textContent;
  const before = by('[data-figure=loss] path').getAttribute('d');
  by('.choice button', 1).click();
  out.moved = by('[data-figure=loss] path').getAttribute('d') !== before;
  by('[data-figure=loss] .legend button', 0).click();
  out.paths = document.querySelectorAll('[data-figure=loss] path').length;
  out.wide = document.documentElement.scrollWidth;
  out.back = getComputedStyle(document.body).backgroundColor;
  document.body.dataset.out = JSON.stringify(out);
})();
"""
for width, scheme in ((1600, "#light"), (500, "#dark")):
    shown, messages = pages.show("both.html", width, act, scheme)
    assert not messages, messages
    out = json.loads(shown.find("body")[0][1]["data-out"])
    losses = [e["loss"] for r in pages.report_in("both.html")["runs"] for e in r["evaluations"]]
    assert [float(x) for x in out["sorted"]] == sorted(losses, reverse=True), out
    assert out["moved"] and out["paths"] == 1 and "one" in out["tip"] and "two" in out["tip"], out
    assert out["wide"] <= width, "%d pixels wide in a window of %d" % (out["wide"], width)
    assert out["back"] == ("rgb(245, 246, 248)" if scheme == "#light" else "rgb(16, 19, 23)"), out
END
[ $failed -eq 0 ] && echo "report: records, text, pages and top agree"
exit $failed
