#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The pages of trireme plan --html and simulate --html, opened in headless Chromium: no message in the console, and what they show is what
# --json prints.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
model="resnet18 --batch-size 2 --image-size 32 --classes 100000 --no-measure"
# shellcheck disable=SC2086 # words
"$trireme" plan $model -n 4 --mesh 2x2 --links guess --memory 200MB --html plan.html --json > plan.json 2> err || fail "plan --html: $(tail -1 err)"
# shellcheck disable=SC2086
"$trireme" simulate $model --mesh 8x4 --largest 64 --html sim.html --json > sim.json 2> err || fail "simulate --html: $(tail -1 err)"
# shellcheck disable=SC2086
"$trireme" simulate $model --mesh 8x4 --largest 64 --html text.html > text 2> err || fail "simulate --html as text: $(tail -1 err)"
"$trireme" plan gpt2 --size tiny --context 64 --batch-size 8 -n 4 --stages 2 --links guess --no-measure --html stages.html --json > stages.json 2> err ||
    fail "plan --stages --html: $(tail -1 err)"
"$trireme" plan llama --preset 70b --mesh 64x8 --hardware "$source/examples/hardware/h100.json" --html cluster.html --json > cluster.json 2> err || fail "plan --hardware --html: $(tail -1 err)"
"$trireme" plan llama --preset 8b --mesh 8x4 --hardware "$source/examples/hardware/a100.json" --plan tp=4,pp=4,micro-batch=1,recompute=full --html given.html --json > given.json 2> err ||
    fail "plan --hardware --plan --html: $(tail -1 err)"
"$trireme" simulate llama --preset 8b --mesh 8x8 --hardware "$source/examples/hardware/h100.json" --largest 256 --html scaled.html > scaled 2> err || fail "simulate --hardware --html: $(tail -1 err)"
expect 3 "nowhere" plan resnet18 --batch-size 2 --image-size 32 -n 2 --links guess --no-measure --html nowhere/x.html
[ $failed -eq 0 ] || exit 1
python3 - << 'END' || fail "the reports in the pages"
import json, pages
plan = json.load(open("plan.json"))
assert pages.report_in("plan.html")["plan"] == plan and pages.report_in("plan.html")["simulation"] is None
assert pages.report_in("stages.html")["plan"] == json.load(open("stages.json"))
assert pages.report_in("sim.html")["simulation"] == json.load(open("sim.json"))
weak = pages.report_in("text.html")["simulation"]["weak"] # the machine's rates are measured anew by each process
printed = [l.split() for l in open("text").read().split("weak scaling")[1].split("strong scaling")[0].splitlines()[2:] if l]
assert [[p["ranks"], "%.3f" % (1e3 * p["step_seconds"])] for p in weak] == [[int(l[0]), l[3]] for l in printed], (weak, printed)
# the timeline is a whole step: operators and messages one behind the other, then the optimiser
steps = [e for e in plan["timeline"] if not e["hidden"]]
assert len(plan["timeline"]) == plan["timeline_events"] and {e["kind"] for e in steps} == {"operator", "message", "optimiser"}
assert abs(max(e["end"] for e in steps) - plan["step_seconds"]) < 1e-6, (max(e["end"] for e in steps), plan["step_seconds"])
compute = sum(e["end"] - e["begin"] for e in steps if e["kind"] == "operator")
assert abs(compute - plan["operator_seconds"]) < 1e-6, (compute, plan["operator_seconds"])
END
[ $failed -eq 0 ] || exit 1
python3 "$source/tests/pages.py" || skip "no Chromium to open the pages with (apt-get install chromium); the reports are right"
python3 - << 'END' || fail "a page"
import json, pages
pages.check_noise(".")
for name, width, scheme in (("plan", 1600, "#light"), ("plan", 500, "#dark"), ("sim", 1600, "#dark"), ("text", 500, ""), ("stages", 1600, "")):
    shown, messages = pages.show(name + ".html", width, "document.body.dataset.wide = document.documentElement.scrollWidth", scheme)
    assert not messages, (name, messages)
    report = pages.report_in(name + ".html")
    plan, pipe = report["plan"], report["plan"].get("pipeline")
    for member in ("step_seconds", "memory_bytes"):
        pages.close(shown.value(member)[0], (pipe or plan)[member], member)
    for member in ("samples_per_second", "data_parallel_seconds"):
        pages.close(shown.value(member)[0], plan[member], member)
    pages.close(shown.value("gap")[0], plan["certificate"]["gap"], "gap")
    proof = shown.find("p", data_proof=None)[0][2]
    assert "no plan of its space takes less than" in proof and plan["certificate"]["assumptions"][0] in "".join(e[2] for e in shown.find("li"))
    operators = shown.find("section", data_table="operators")[0]
    assert operators[1]["data-rows"] == str(len(plan["operators"])) and plan["operators"][0]["name"] in operators[2]
    drawn = {e[1]["data-figure"] for e in shown.find("figure")}
    assert {"step", "parts", "memory", "frontier", "others"} <= drawn or name in ("sim", "text"), drawn
    kinds = [e[1]["data-kind"] for e in shown.find("rect", data_kind=None)]
    if pipe:
        micros = pipe["stages"] * pipe["chunks"] * pipe["micro_batches"]
        assert kinds.count("forward") == micros and kinds.count("backward") == micros and "timeline" not in plan, (micros, kinds)
        assert kinds.count("update") >= sum(s["update_seconds"] > 0 for s in pipe["stage_list"])
        assert kinds.count("meeting") >= len(pipe["meetings"]) * pipe["stages"] > 0 and "meeting_seconds" in kinds, kinds
        assert shown.find("section", data_table="pipelines")[0][1]["data-rows"] == str(len(plan["pipelines"]))
    else:
        assert kinds.count("forward") == sum(e["kind"] == "operator" and e["phase"] == "forward" and e["end"] > e["begin"] for e in plan["timeline"])
        raw = {e[1]["data-series"]: e[2] for e in shown.find("span", data_series=None)}
        assert {"parameter_bytes", "gradient_bytes", "slot_bytes", "operator_seconds", "update_seconds"} <= set(raw), raw
        values = [float(e[1]["data-raw"]) for e in shown.find("b", data_raw=None)]
        for member in ("parameter_bytes", "slot_bytes", "kept_bytes"):
            assert any(abs(v - plan["memory"][member]) < 1 for v in values), member
    if report["simulation"]:
        rows = shown.find("section", data_table="scaling")[0][1]["data-rows"]
        assert rows == str(len(report["simulation"]["weak"]) + len(report["simulation"]["strong"])) and {"weak", "strong"} <= drawn
    assert int(shown.find("body")[0][1]["data-wide"]) <= width, "wider than the window"
# Clusters: the schedule that the page plays takes as long as the report says.
for name, width, scheme in (("cluster", 1600, "#light"), ("cluster", 500, "#dark"), ("given", 1600, "#dark")):
    shown, messages = pages.show(name + ".html", width, "document.body.dataset.wide = document.documentElement.scrollWidth", scheme)
    assert not messages and int(shown.find("body")[0][1]["data-wide"]) <= width, (name, messages)
    report = json.load(open(name + ".json"))
    assert report == pages.report_in(name + ".html")
    for member in ("step_seconds", "tokens_per_second_per_device", "mfu", "memory_bytes", "devices"):
        pages.close(shown.value(member)[0], report[member], member)
    plans = 1 + len(report["runners_up"]) + sum(k in report for k in ("given", "without_memory_limit", "least_memory"))
    assert shown.find("section", data_table="plans")[0][1]["data-rows"] == str(plans) and report["described"] in "".join(e[2] for e in shown.find("h3"))
    step = shown.find("figure", data_figure="step")
    if step:
        assert abs(float(step[0][1]["data-end"]) / report["played_seconds"] - 1) < 0.1, (step[0][1], report["played_seconds"])
    curve = [(f["step_seconds"], f["memory_bytes"]) for f in report["frontier"]]
    assert len(curve) > 1 and all(a[0] <= b[0] and a[1] > b[1] for a, b in zip(curve, curve[1:])) and shown.find("figure", data_figure="frontier"), curve
    assert curve[0] == (report["step_seconds"], report["memory_bytes"]) and curve[-1][1] <= report["least_memory"]["memory_bytes"] * 1.001, curve
    assert step or report["plan"]["pp"] * report["plan"]["micro_batches"] * report["plan"]["vp"] > 50000, report["plan"]
shown, messages = pages.show("scaled.html", 500)
scaled = [l.split() for l in open("scaled") if " devices " in l and "tokens/s a device" in l]
assert not messages and shown.find("figure", data_figure="scaling") and len(scaled) == 6, (messages, scaled)
assert [str(x["devices"]) for x in pages.report_in("scaled.html")["scaling"]] == [l[0] for l in scaled]
assert shown.find("section", data_table="scaling")[0][1]["data-rows"] == "6"
END
[ $failed -eq 0 ] && echo "pages of plan and simulate agree with their reports"
exit $failed
