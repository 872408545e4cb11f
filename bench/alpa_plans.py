#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Alpa's published plans for GPT (alpa-projects/alpa, benchmark/alpa/suite_auto_gpt.py, perf_test_suite) priced by
`trireme plan --hardware examples/hardware/v100.json`, beside the optimum of our space at the same costs.

    bench/alpa_plans.py [--trireme build/release/trireme]

Ends with 1 if a plan of Alpa's is faster than our optimum. Its plan for 2.6B has stages on 2, 2 and 4 devices, which our space does not
have: it is priced as two equal stages of 4 devices, which has no more work on its busiest device."""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH, CONTEXT, VOCABULARY = 1024, 1024, 51200
# name, devices, width, blocks, heads, plan: blocks recomputed, weight updates in parts (prefer_reduce_scatter)
ROWS = [
    ("350M", 1, 1024, 24, 16, "micro-batch=2"),
    ("760M", 2, 1536, 24, 16, "pp=2,micro-batch=8"),
    ("1.3B", 4, 2048, 24, 32, "pp=2,dp=2,micro-batch=4,zero=1"),
    ("2.6B", 8, 2560, 32, 32, "pp=2,dp=4,micro-batch=2,zero=1"),
    ("6.7B", 16, 4096, 32, 32, "pp=2,dp=2,tp=4,micro-batch=8,zero=1"),
    ("15B", 32, 5120, 48, 40, "pp=4,dp=2,tp=4,micro-batch=4,zero=1"),
    ("39B", 64, 8192, 48, 64, "pp=16,tp=4,micro-batch=1"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=os.path.join(HERE, "..", "build", "release", "trireme"))
    args = parser.parse_args()
    worst = 0
    for name, devices, width, blocks, heads, plan in ROWS:
        done = subprocess.run([args.trireme, "plan", "gpt2", "-n", str(devices), "--layers", str(blocks), "--width", str(width), "--heads",
                               str(heads), "--vocabulary", str(VOCABULARY), "--context", str(CONTEXT), "--full-batch", "--batch-size",
                               str(BATCH), "--products", "fp16", "--hardware", os.path.join(HERE, "..", "examples", "hardware", "v100.json"),
                               "--plan", plan + ",recompute=full", "--json"], capture_output=True, text=True)
        if not done.stdout:
            sys.exit(f"alpa_plans: {name}: {done.stderr.strip()}")
        d = json.loads(done.stdout.splitlines()[0])
        own, given = d["seconds"]["step"], d["given"]["seconds"]["step"]
        worst = max(worst, own / given) if d["given_fits"] else worst
        print(f"| {name} | {devices} | {plan} | {given:.1f} s{'' if d['given_fits'] else ', over memory'} | {own:.1f} s | {given / own:.2f} "
              f"| {d['described']}{'' if not d['infeasible'] else ', over memory'} |")
    return 1 if worst > 1 + 1e-9 else 0


if __name__ == "__main__":
    sys.exit(main())
