#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Opens the event file of a training in TensorBoard's own reader: scalars with their steps, histograms, the graph, and the second file of
# a resumed run. Needs a python with tensorboard: PYTHON, Debian's, TensorFlow's, or the one that tools/readers.sh makes.
peers=${XDG_CACHE_HOME:-$HOME/.cache}/trireme-peers
. "$(dirname "$0")/common.sh"
for python in ${PYTHON:+"$PYTHON"} /usr/bin/python3 "$peers/readers/bin/python" "$peers/tf/bin/python" ''; do
    [ -z "$python" ] && skip "no python with tensorboard (tools/readers.sh makes one)"
    "$python" -c 'import tensorboard.backend.event_processing.event_accumulator' 2> /dev/null && break
done

train() {
    "$trireme" train lenet --data synth --synth-train 96 --synth-test 40 --batch-size 8 --output run --log-every 1 --quiet \
        --tensorboard --histogram-epochs 1 --metrics run/metrics.csv --eval-every-epochs 1 "$@" > /dev/null || fail "train $*"
}
train --epochs 1
sleep 1 # a file's name has its second
train --epochs 2 --resume
cat > read.py << 'END'
import csv, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("run", size_guidance={"scalars": 0, "histograms": 0, "graph": 1})
events.Reload()
tags = events.Tags()
rows = list(csv.reader(open("run/metrics.csv")))
head = next(r for r in rows if "loss" in r)
steps = [dict(zip(head, r)) for r in rows if "step" in r[1:2]]
loss = events.Scalars("train/loss")
assert [e.step for e in loss] == list(range(1, 25)), [e.step for e in loss]
assert len(steps) == 24, rows[:3]
for e, r in zip(loss, steps):
    assert abs(e.value - float(r["loss"])) < 1e-6 * abs(e.value), (e, r)
assert [e.step for e in events.Scalars("eval/top1")] == [12, 24]
weights = [t for t in tags["histograms"] if t.endswith("conv1.weight")]
assert weights, tags["histograms"]
for e in events.Histograms(weights[0]):
    h = e.histogram_value
    assert h.num == sum(h.bucket) > 0 and h.min < 0 < h.max and len(h.bucket) == len(h.bucket_limit), h
    assert h.bucket_limit == sorted(h.bucket_limit) and h.bucket_limit[-1] >= h.max
graph = events.Graph()
names = [n.name for n in graph.node]
assert len(names) == len(set(names)) > 10, names
known = set(names)
for node in graph.node:
    for source in node.input:
        assert source.lstrip("^").split(":")[0] in known, (node.name, source)
print("TensorBoard reads %d scalars, %d histograms, a graph of %d nodes" % (len(tags["scalars"]), len(tags["histograms"]), len(names)))
END
"$python" read.py 2> err.txt || fail "TensorBoard's reader: $(tail -3 err.txt)"

# ---- a parameter that is cut over ranks is whole in its histogram: that of the checkpoint of the same step
printf 'trireme-plan 1\nmesh 2\nop fc1.linear0 k pinned\nop fc2.linear1 c pinned\n' > cut
"$trireme" train lenet --data synth --synth-train 32 --synth-test 8 --batch-size 8 --epochs 1 --output split --quiet -n 2 --plan cut \
    --parallel-mode semi_auto_parallel --tensorboard --histogram-epochs 1 > out.txt 2>&1 || fail "train on 2 ranks: $(cat out.txt)"
cat > whole.py << 'END'
import array, checkpoint, glob
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("split", size_guidance={"histograms": 0})
events.Reload()
tensors = checkpoint.open_safetensors(glob.glob("split/ckpt-*/model.safetensors")[0])
tags = events.Tags()["histograms"]
assert "fc1.weight" in tags and "fc2.weight" in tags, tags
for tag in tags:
    weights = array.array("f", tensors[tag][2])
    h = events.Histograms(tag)[-1].histogram_value
    squares = sum(w * w for w in weights)
    assert h.num == len(weights) and abs(h.sum_squares - squares) <= 1e-6 * squares, (tag, h.num, h.sum_squares, squares)
END
PYTHONPATH=$source/tests/readers:$PYTHONPATH "$python" whole.py 2> err.txt || fail "histograms of cut parameters: $(tail -3 err.txt)"
exit $failed
