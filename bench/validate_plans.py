#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares predictions with runs: `trireme plan --validate` for several models, batches and numbers of ranks of this machine, and
figures over all plans: mean error, Kendall's tau, regret of the chosen plans, memory.

    bench/validate_plans.py build/release/trireme [--prefix COMMAND] [--others 8] [--keep]

--prefix: a command that runs its arguments undisturbed. Costs are measured anew for each case, just before its runs, unless
--keep. Regret: the chosen plan and the plans that seemed nearly as fast run in turns; the turns cannot separate differences below the
column "chance". On a machine that other processes use the figures mean little."""
import argparse
import json
import shlex
import subprocess
import sys

CASES = [
    "lenet --batch-size 64 -n 2",
    "mlp --classes 20000 --batch-size 4 -n 2",
    "mlp --classes 100000 --batch-size 4 -n 2",
    "mlp --classes 2000 --batch-size 64 -n 2",
    "mlp --classes 5000 --batch-size 16 -n 2",
    "resnet18 --image-size 32 --batch-size 16 -n 2",
    "resnet18 --image-size 64 --batch-size 4 -n 2",
    "mlp --classes 20000 --batch-size 4 -n 4",
    "resnet50 --image-size 32 --batch-size 32 -n 2",
]


def tau(pairs):
    agree = total = 0
    for i, (p, m) in enumerate(pairs):
        for q, n in pairs[:i]:
            sign = (p - q) * (m - n)
            agree += (sign > 0) - (sign < 0)
            total += 1
    return agree / total if total else 1.0


def run(options, case):
    command = shlex.split(options.prefix) + [options.trireme, "plan", *case.split(), "--validate", "--json", "--quiet",
                                             "--repeats", str(options.repeats), "--others", str(options.others)]
    command += [] if options.keep else ["--refresh"]
    done = subprocess.run(command, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if '"event":"validate"' in line:
            return json.loads(line)
    sys.exit(f"{case}: {done.stderr.strip().splitlines()[-1:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("--prefix", default="")
    parser.add_argument("--others", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--case", action="append", help="instead of the built-in list")
    options = parser.parse_args()
    plans, regrets, memory = [], [], 0
    print(f"{'case':50} {'plans':>5} {'mean error':>10} {'tau':>6} {'regret':>7} {'chance':>7} {'memory':>7}")
    for case in options.case or CASES:
        v = run(options, case)
        plans += [(r["predicted_seconds"], r["measured_seconds"]) for r in v["runs"]]
        regrets.append(v["regret"])
        memory = max(memory, v["memory_error"])
        print(f"{case:50} {v['plans']:5} {100 * v['mape']:9.1f}% {v['kendall_tau']:6.3f} {100 * v['regret']:6.1f}% "
              f"{100 * v['regret_resolution']:6.1f}% {100 * v['memory_error']:6.1f}%", flush=True)
    error = sum(abs(p / m - 1) for p, m in plans) / len(plans)
    worst = max(abs(p / m - 1) for p, m in plans)
    print(f"{len(plans)} plans: mean error {100 * error:.1f} % (worst {100 * worst:.0f} %), Kendall's tau {tau(plans):.3f}, regret "
          f"{100 * sum(regrets) / len(regrets):.1f} % on average, {100 * max(regrets):.1f} % at most; memory at most {100 * memory:.1f} % off")


if __name__ == "__main__":
    main()
