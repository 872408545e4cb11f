#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Opens the pictures of trireme plan in other programs: the SVG in Python's XML parser, the graph in Graphviz' dot, which must draw each
# operator and each value between two of them, messages in red.
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
model="resnet18 --batch-size 2 --image-size 32 --classes 100000 -n 4 --mesh 2x2 --links guess --no-measure"
# shellcheck disable=SC2086 # words
"$trireme" plan $model --svg plan.dot --json > out 2> err || fail "plan --svg plan.dot: $(tail -1 err)"
# shellcheck disable=SC2086
"$trireme" plan $model --svg plan.svg --quiet > /dev/null 2> err || fail "plan --svg plan.svg: $(tail -1 err)"
operators=$(grep -o '"repeats":' out | wc -l)
[ "$operators" -gt 40 ] || fail "$operators operators in the report"
python3 - "$operators" << 'END' || fail "the SVG is not what it should be"
import sys, xml.etree.ElementTree as tree
svg = "{http://www.w3.org/2000/svg}"
root = tree.parse("plan.svg").getroot()
rects = root.findall(".//" + svg + "rect")
assert root.tag == svg + "svg", root.tag
assert len(rects) >= 2 * int(sys.argv[1]), "%d rectangles, two axes of %s operators" % (len(rects), sys.argv[1])
words = " ".join("".join(t.itertext()) for t in root.iter(svg + "text"))
assert all(w in words for w in ("Plan for mesh 2x2, batch 8", "no plan below", "4 ranks", "n: samples", "bars: forward", " ms")), words[:400]
assert all(float(r.get("x") or 0) + float(r.get("width")) <= float(root.get("width")) for r in rects), "a rectangle leaves the picture"
assert all(float(r.get("width")) > 0 and r.find(svg + "title").text for r in rects if r.find(svg + "title") is not None)
END
# plans with stages, here and on a cluster: a cell for each copy of a stage, and each action of the played schedule
"$trireme" plan gpt2 --size tiny --context 64 --batch-size 8 -n 4 --stages 2 --micro-batches 4 --links guess --no-measure --svg stages.svg --json > stages.json 2> err || fail "plan --stages --svg: $(tail -1 err)"
"$trireme" plan llama --preset 70b --mesh 8x8 --hardware "$source/examples/hardware/h100.json" --plan tp=4,pp=4,micro-batch=1 --svg cluster.svg > /dev/null 2> err || fail "plan --hardware --svg: $(tail -1 err)"
expect 2 "file.svg expected" plan llama --preset 70b --mesh 8x8 --hardware "$source/examples/hardware/h100.json" --svg plan.dot
python3 - << 'END' || fail "the pictures of stages"
import json, xml.etree.ElementTree as tree
svg = "{http://www.w3.org/2000/svg}"
pipe = json.load(open("stages.json"))["pipeline"]
for name, stages, actions, words in (("stages.svg", 2, 2 * 2 * pipe["chunks"] * 4, ("Plan of 2 stages for 4 ranks", "no plan below", "kept for backward")),
                                     ("cluster.svg", 4, 2 * 4 * 16, ("Llama", "TP 4, PP 4", "MFU", "reserved"))):
    root = tree.parse(name).getroot()
    rects = root.findall(".//" + svg + "rect")
    titles = [r.find(svg + "title").text for r in rects if r.find(svg + "title") is not None]
    text = " ".join("".join(t.itertext()) for t in root.iter(svg + "text"))
    assert all(w in text for w in words + ("Stages and meshes", "One step", "Memory", "stage %d" % (stages - 1))), text[:600]
    assert sum("of micro-batch" in t for t in titles) == actions, (name, actions, len(titles))
    assert all(0 <= float(r.get("x") or 0) and float(r.get("x") or 0) + float(r.get("width")) <= float(root.get("width")) + 0.2 for r in rects), "a rectangle leaves the picture"
END
command -v dot > dot || skip "no Graphviz to draw the graph with (apt-get install graphviz)"
dot -Tplain plan.dot > plain 2> err || fail "dot: $(tail -1 err)"
[ -s err ] && fail "dot says: $(head -1 err)"
[ "$(grep -c '^node ' plain)" = "$operators" ] || fail "$(grep -c '^node ' plain) nodes drawn, $operators operators planned"
edges=$(grep -c ' -> ' plan.dot)
[ "$(grep -c '^edge ' plain)" = "$edges" ] && [ "$edges" -ge "$((operators - 1))" ] || fail "$(grep -c '^edge ' plain) edges drawn of $edges"
red=$(grep -c 'color=red' plan.dot)
[ "$(grep -c '^edge .* red$' plain)" = "$red" ] || fail "$(grep -c '^edge .* red$' plain) red edges drawn, $red values travel"
dot -Tsvg plan.dot > drawn.svg 2> err && grep -q '</svg>' drawn.svg || fail "dot -Tsvg: $(tail -1 err)"
[ "$red" -gt 0 ] || fail "a head cut by classes, and no edge is red"
[ $failed -eq 0 ] && echo "pictures: $operators operators, $edges edges, $red of them travel"
exit $failed
