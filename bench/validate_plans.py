#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares predictions with runs: `trireme plan --validate` for several models, batches and numbers of ranks of this machine, and
figures over all plans: mean error, Kendall's tau, regret of the chosen plans, memory. Language models run a plan that cuts products as
Megatron-LM does, too, and plans with stages: those of `trireme plan --stages` for each shape of SHAPES, predicted there and run by
`trireme bench train --plan`, in turns.

    bench/validate_plans.py build/release/trireme [--prefix COMMAND] [--others 8] [--keep] [--quick | --language] [--case "gpt2 ... -n 4"]

--prefix: a command that runs its arguments undisturbed. Costs are measured anew for each case, just before its runs, unless
--keep. Regret: the chosen plan and the plans that seemed nearly as fast run in turns; the turns cannot separate differences below the
column "chance". Plans whose times differ by less than one plan's times differ from turn to turn have no order that a prediction could
have: "tau" counts the pairs that the runs separate (the middle halves of their times do not overlap; "apart" is their part of all
pairs), "of all" counts all pairs. On a machine that other processes use the figures mean little."""
import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

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
    "gpt2 --layers 4 --width 128 --heads 4 --context 64 --vocabulary 1000 --batch-size 8 -n 2",
    "gpt2 --layers 2 --width 256 --heads 4 --context 32 --vocabulary 8000 --batch-size 4 -n 2",
    "gpt2 --layers 8 --width 128 --heads 4 --context 64 --vocabulary 1000 --batch-size 4 -n 4",
    "gpt2 --layers 8 --width 128 --heads 4 --context 32 --vocabulary 1000 --batch-size 4 -n 8",
]

# --quick: 60 plans or more of every kind, without the cases that take longest
QUICK = [CASES[i] for i in (0, 4, 5, 7, 9, 11)]
# --language: the language models, on 2, 4 and 8 ranks
LANGUAGE = [case for case in CASES if case.startswith("gpt2")]

# stages, micro-batches, schedule
SHAPES = [(2, 1, "1f1b"), (2, 4, "1f1b"), (2, 8, "gpipe"), (2, 4, "interleaved"), (4, 4, "1f1b"), (4, 8, "1f1b"), (4, 8, "gpipe"), (8, 8, "1f1b")]
TURNS = 5  # with fewer than 4 the middle half of a plan's runs would be all of them


def are_apart(one, other):
    """Tells whether the runs of two plans separate their times."""
    return one["lower_seconds"] > other["upper_seconds"] or other["lower_seconds"] > one["upper_seconds"]


def find_order(plans):
    """Returns Kendall's tau of the pairs that the runs separate, their part of all pairs, and the tau of all pairs. None: there are no
    such pairs."""
    signs, apart = [], []
    for i, one in enumerate(plans):
        for other in plans[:i]:
            both = (one["predicted_seconds"] - other["predicted_seconds"]) * (one["measured_seconds"] - other["measured_seconds"])
            signs.append((both > 0) - (both < 0))
            if are_apart(one, other):
                apart.append(signs[-1])
    return (statistics.mean(apart) if apart else None, len(apart) / max(1, len(signs)), statistics.mean(signs) if signs else None)


def format_tau(tau):
    return "-" if tau is None else f"{tau:.3f}"


def mean_error(plans):
    return statistics.mean(abs(p["predicted_seconds"] / p["measured_seconds"] - 1) for p in plans)


def call(options, *words):
    done = subprocess.run(shlex.split(options.prefix) + [options.trireme, *words, "--json", "--quiet"], capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return found[-1] if done.returncode == 0 and found else done.stderr.strip().splitlines()[-12:]


def ranks_of(case):
    words = case.split()
    return int(words[words.index("-n") + 1])


def write_tensor_plan(options, case, path):
    """Products cut as Megatron-LM cuts them over all ranks; all other operators as is cheapest beside them."""
    ranks = ranks_of(case)
    report = call(options, "plan", *case.split(), "--no-measure", "--links", "guess", "--mesh", str(ranks))
    with open(path, "w", encoding="utf-8") as file:
        print(f"trireme-plan 1\nmesh {ranks}", file=file)
        for name in (o["name"] for o in report["operators"]):
            letter = "k" if ".c_attn." in name or ".c_fc." in name else "c" if ".c_proj." in name else None
            if letter:
                print(f"op {name} {letter}", file=file)


def run_stages(options, case, folder):
    """Plans with stages: predicted and measured seconds, and by how much rank 0's process grew beside what its program needs."""
    plans = []
    for number, (stages, micros, schedule) in enumerate(SHAPES):
        if ranks_of(case) % stages:
            continue
        path = f"{folder}/stages-{number}.txt"
        found = call(options, "plan", *case.split(), "--stages", str(stages), "--micro-batches", str(micros), "--pipeline-schedule", schedule,
                     "--save", path, "--trial-seconds", "0", *([] if options.keep else ["--refresh"]))
        if isinstance(found, list):
            print(f"  {stages} stages, {micros} micro-batches, {schedule}: {found}", file=sys.stderr)
            continue
        plans.append({"path": path, "words": f"{stages} stages, {micros} x {schedule}", "predicted_seconds": found["pipeline"]["step_seconds"], "seen": []})
    for turn in range(TURNS):
        for plan in plans if turn % 2 == 0 else plans[::-1]:
            ran = call(options, "bench", "train", *case.split(), "--parallel-mode", "semi_auto_parallel", "--plan", plan["path"], "--threads", "1",
                       "--repeats", str(options.repeats))
            if isinstance(ran, list):
                sys.exit(f"{case}, {plan['words']}: {ran}")
            plan["seen"].append(ran["median_seconds"])
            plan["memory_error"] = abs(ran["predicted_peak_bytes"] / ran["peak_bytes"] - 1)
    for plan in plans:
        quarter = len(plan["seen"]) // 4
        plan["measured_seconds"] = statistics.median(plan["seen"])
        plan["lower_seconds"], plan["upper_seconds"] = sorted(plan["seen"])[quarter], sorted(plan["seen"])[-1 - quarter]
    return plans


def show_plan(words, plan, memory):
    print(f"  {words:40} {1e3 * plan['predicted_seconds']:9.2f} ms predicted {1e3 * plan['measured_seconds']:9.2f} ms measured, "
          f"memory {100 * memory:4.1f}% off", flush=True)


def run(options, case, folder):
    command = shlex.split(options.prefix) + [options.trireme, "plan", *case.split(), "--validate", "--json", "--quiet",
                                             "--repeats", str(options.repeats), "--others", str(options.others)]
    command += [] if options.keep else ["--refresh"]
    if case.startswith("gpt2"):
        write_tensor_plan(options, case, f"{folder}/tensor.txt")
        command += ["--plan", f"{folder}/tensor.txt", "--mesh", str(ranks_of(case))]
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
    parser.add_argument("--verbose", action="store_true", help="each plan")
    parser.add_argument("--case", action="append", help="instead of the built-in list")
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--quick", action="store_true", help="six of the cases, at least 60 plans")
    some.add_argument("--language", action="store_true", help="the language models on 2, 4 and 8 ranks, at least 60 plans")
    options = parser.parse_args()
    plans, regrets, memory, begin = [], [], 0, time.monotonic()
    print(f"{'case':50} {'plans':>5} {'mean error':>10} {'tau':>6} {'apart':>6} {'of all':>6} {'regret':>7} {'chance':>7} {'memory':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for case in options.case or (QUICK if options.quick else LANGUAGE if options.language else CASES):
            v = run(options, case, folder)
            stages = run_stages(options, case, folder) if case.startswith("gpt2") else []
            ran = v["runs"] + stages
            plans += ran
            regrets.append(v["regret"])
            for p in v["runs"] if options.verbose else []:
                show_plan(p["name"], p, abs(p["predicted_bytes"] / p["measured_bytes"] - 1))
            for p in stages if options.verbose else []:
                show_plan(p["words"], p, p["memory_error"])
            off = max([v["memory_error"]] + [p["memory_error"] for p in stages])
            memory = max(memory, off)
            order, apart, of_all = find_order(ran)
            print(f"{case:50} {len(ran):5} {100 * mean_error(ran):9.1f}% {format_tau(order):>6} {100 * apart:5.0f}% {format_tau(of_all):>6} "
                  f"{100 * v['regret']:6.1f}% {100 * v['regret_resolution']:6.1f}% {100 * off:6.1f}%", flush=True)
    worst = max(abs(p["predicted_seconds"] / p["measured_seconds"] - 1) for p in plans)
    order, apart, of_all = find_order(plans)
    print(f"{len(plans)} plans: mean error {100 * mean_error(plans):.1f} % (worst {100 * worst:.0f} %), Kendall's tau {format_tau(order)} of the "
          f"{100 * apart:.0f} % of pairs that the runs separate, {format_tau(of_all)} of all; regret "
          f"{100 * sum(regrets) / len(regrets):.1f} % on average, {100 * max(regrets):.1f} % at most; memory at most {100 * memory:.1f} % off; "
          f"{(time.monotonic() - begin) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
