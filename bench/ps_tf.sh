#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares Trireme with guide 000's framework: Wide&Deep of shared/peers/wide_deep_tf.py, one server and two workers (TensorFlow:
# chief and worker), asynchronous, in turns. usage: PEERS=DIR PYTHON=VENV/bin/python [ROUNDS=3] [STEPS=150] bench/ps_tf.sh
# Prints samples/s of each round, the ratio of the medians, and both losses after as many samples.
set -u
trireme=${TRIREME:-$PWD/build/release/trireme}
peers=${PEERS:-$(cd "$(dirname "$0")/../.." && pwd)/shared/peers} python=${PYTHON:-$HOME/.cache/trireme-peers/tf/bin/python}
rounds=${ROUNDS:-3} steps=${STEPS:-150}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cluster='{"ps":["127.0.0.1:23000"],"chief":["127.0.0.1:23001"],"worker":["127.0.0.1:23100"]}'
role() { TF_CONFIG="{\"cluster\":$cluster,\"task\":{\"type\":\"$1\",\"index\":0}}" exec timeout 120 "$python" "$peers/wide_deep_tf.py" "$work/tf$3" "$steps" 1 > "$2" 2>&1; }
for round in $(seq "$rounds"); do
    (role ps ps.log "$round") & ps=$!
    (role worker worker.log "$round") & worker=$!
    (role chief "chief$round.log" "$round")
    kill $ps 2> /dev/null
    wait $worker $ps 2> /dev/null
    "$trireme" bench train widedeep --preset peer -n 2 --ps 1 --ps-shards 1 --repeats $(((steps - 20) / 2)) --json > "ours$round.json"
done
"$python" - "$rounds" << 'END'
import json, re, statistics, sys
ours, theirs, losses = [], [], []
for r in range(1, int(sys.argv[1]) + 1):
    e = json.loads(open(f"ours{r}.json").readline())
    ours.append(e["samples_per_second"])
    log = open(f"chief{r}.log").read()
    rates = [float(x) for x in re.findall(r"global_step/sec: ([0-9.]+)", log)]
    theirs.append(statistics.median(rates[1:] or rates) * 4096)
    losses.append((e["loss"], float(re.findall(r"loss = ([0-9.]+)", log)[-1])))
    print(f"round {r}: trireme {ours[-1]:.0f} samples/s, TensorFlow {theirs[-1]:.0f}; losses {losses[-1][0]:.4f}, {losses[-1][1]:.4f}")
print(f"ratio of medians {statistics.median(ours) / statistics.median(theirs):.2f}")
END
