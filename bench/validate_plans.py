#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares predictions with runs: the plans of `trireme plan --validate` for several models, batches and numbers of ranks of this machine,
and figures over all of them: mean error, Kendall's tau, regret of the chosen plans, memory. Language models also run a plan that cuts
products as Megatron-LM does, and plans with stages: those of `trireme plan --stages` for each shape of SHAPES.

    bench/validate_plans.py build/release/trireme [--prefix COMMAND] [--others 8] [--keep] [--quick | --language] [--case "gpt2 ... -n 4"]

--prefix: a command that runs its arguments undisturbed. Costs are measured anew for each case, just before its runs, in a cache of its own;
with --keep those of the user's cache count.

Turns. The speed of a shared machine drifts by more than plans differ, so all plans of a case, with and without stages, run in TURNS turns,
forth and back: `trireme bench train --plan`, one after the other. A plan's time is the median of its turns; --verbose shows the quartiles.

Order. Two plans are compared within each turn, where they met the machine in nearly the same state. The runs separate two plans if all
turns order them alike; of two plans that are equally fast 1 pair in 2^(TURNS - 1) is taken for separated. Other pairs have no order that a
prediction could have. "tau": Kendall's tau of the pairs that the runs separate ("apart": their part of all pairs); "of all": of all pairs.
Pairs are always of one case: those of two cases are easy.

Regret. The chosen plan is what a job in the mode auto_parallel chooses: the best plan without stages, or that with the least prediction if
it is faster by STAGES_GAIN. Its regret is by how much the fastest plan that the runs separate from it is faster (the median of the ratios
of the turns; 0 if there is none); "chance" is the same for plans that they do not separate. On a machine that other processes use all these
figures mean little."""
import argparse
import json
import os
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
TURNS = 5
# what a plan with stages must be faster by (APP_LEAST_GAIN in src/app/commands/planning.h)
STAGES_GAIN = 0.15


def compare_turns(one, other):
    """Returns the median over turns of the time of one plan over that of the other, and whether all turns order the two alike."""
    ratios = [a / b for a, b in zip(one["seen"], other["seen"])]
    return statistics.median(ratios), all(r > 1 for r in ratios) or all(r < 1 for r in ratios)


def find_signs(plans):
    """Returns for each pair of plans whether prediction and runs order it alike (1, -1; 0: no order), and whether the runs separate it."""
    signs = []
    for i, one in enumerate(plans):
        for other in plans[:i]:
            ratio, apart = compare_turns(one, other)
            both = (one["predicted_seconds"] - other["predicted_seconds"]) * (ratio - 1)
            signs.append(((both > 0) - (both < 0), apart))
    return signs


def find_order(signs):
    """Returns Kendall's tau of the pairs that the runs separate, their part of all pairs, and the tau of all pairs. None: there are no
    such pairs."""
    apart = [sign for sign, separated in signs if separated]
    return (statistics.mean(apart) if apart else None, len(apart) / max(1, len(signs)), statistics.mean(s for s, _ in signs) if signs else None)


def find_regret(plans):
    """Returns by how much the fastest plan is faster than the chosen one, of those that the runs separate from it, and of the others."""
    chosen, least = plans[0], min(plans, key=lambda p: p["predicted_seconds"])
    chosen = least if least["predicted_seconds"] < chosen["predicted_seconds"] * (1 - STAGES_GAIN) else chosen
    found = [compare_turns(chosen, p) for p in plans if p is not chosen]
    return max([0] + [r - 1 for r, apart in found if apart]), max([0] + [r - 1 for r, apart in found if not apart])


def format_tau(tau):
    return "-" if tau is None else f"{tau:.3f}"


def mean_error(plans):
    return statistics.mean(abs(p["predicted_seconds"] / p["measured_seconds"] - 1) for p in plans)


def call(options, *words):
    done = subprocess.run(shlex.split(options.prefix) + [options.trireme, *words, "--json", "--quiet"], capture_output=True, text=True, check=False)
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


def list_stages(options, case, folder):
    """Plans with stages, in the costs that the validation of the case has just measured and with those of their own operators."""
    plans = []
    for number, (stages, micros, schedule) in enumerate(SHAPES):
        if ranks_of(case) % stages:
            continue
        path = f"{folder}/stages-{number}.txt"
        found = call(options, "plan", *case.split(), "--stages", str(stages), "--micro-batches", str(micros), "--pipeline-schedule", schedule,
                     "--save", path, "--trial-seconds", "0")
        if isinstance(found, list):
            print(f"  {stages} stages, {micros} micro-batches, {schedule}: {found}", file=sys.stderr)
            continue
        plans.append({"path": path, "name": f"{stages} stages, {micros} x {schedule}", "predicted_seconds": found["pipeline"]["step_seconds"]})
    return plans


def list_others(validated, folder):
    """Plans without stages, the chosen one first, with their text in a file."""
    plans = []
    for number, run in enumerate(validated["runs"]):
        path = f"{folder}/plan-{number}.txt"
        with open(path, "w", encoding="utf-8") as file:
            file.write(run["plan"])
        plans.append({"path": path, "name": run["name"], "predicted_seconds": run["predicted_seconds"],
                      "memory_error": abs(run["predicted_bytes"] / run["measured_bytes"] - 1)})
    return plans


def take_turns(options, case, plans):
    """Runs all plans in turns, forth and back. memory_error of a plan with stages: by how much rank 0's process grew beside what its program
    needs."""
    for plan in plans:
        plan["seen"] = []
    for turn in range(TURNS):
        for plan in plans if turn % 2 == 0 else plans[::-1]:
            ran = call(options, "bench", "train", *case.split(), "--parallel-mode", "semi_auto_parallel", "--plan", plan["path"], "--threads", "1",
                       "--repeats", str(options.repeats))
            if isinstance(ran, list):
                sys.exit(f"{case}, {plan['name']}: {ran}")
            plan["seen"].append(ran["median_seconds"])
            plan.setdefault("memory_error", abs(ran["predicted_peak_bytes"] / ran["peak_bytes"] - 1))
    for plan in plans:
        seen, quarter = sorted(plan["seen"]), len(plan["seen"]) // 4
        plan["measured_seconds"], plan["lower_seconds"], plan["upper_seconds"] = statistics.median(seen), seen[quarter], seen[-1 - quarter]


def show_plan(plan):
    print(f"  {plan['name']:36} {1e3 * plan['predicted_seconds']:8.2f} ms predicted {1e3 * plan['measured_seconds']:8.2f} ms measured "
          f"({1e3 * plan['lower_seconds']:.1f} to {1e3 * plan['upper_seconds']:.1f}), memory {100 * plan['memory_error']:4.1f}% off", flush=True)


def validate(options, case, folder):
    """Returns the report of `trireme plan --validate`: plans, what was predicted, their memory."""
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
    plans, signs, regrets, memory, begin = [], [], [], 0, time.monotonic()
    print(f"{'case':50} {'plans':>5} {'mean error':>10} {'tau':>6} {'apart':>6} {'of all':>6} {'regret':>7} {'chance':>7} {'memory':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(options.case or (QUICK if options.quick else LANGUAGE if options.language else CASES)):
            if not options.keep:
                os.environ["XDG_CACHE_HOME"] = f"{folder}/cache-{number}"
            ran = list_others(validate(options, case, folder), folder) + (list_stages(options, case, folder) if case.startswith("gpt2") else [])
            take_turns(options, case, ran)
            for p in ran if options.verbose else []:
                show_plan(p)
            plans += ran
            own = find_signs(ran)
            signs += own
            regrets.append(find_regret(ran))
            off = max(p["memory_error"] for p in ran)
            memory = max(memory, off)
            order, apart, of_all = find_order(own)
            print(f"{case:50} {len(ran):5} {100 * mean_error(ran):9.1f}% {format_tau(order):>6} {100 * apart:5.0f}% {format_tau(of_all):>6} "
                  f"{100 * regrets[-1][0]:6.1f}% {100 * regrets[-1][1]:6.1f}% {100 * off:6.1f}%", flush=True)
    worst = max(abs(p["predicted_seconds"] / p["measured_seconds"] - 1) for p in plans)
    spread = statistics.mean(p["upper_seconds"] / p["lower_seconds"] - 1 for p in plans)
    order, apart, of_all = find_order(signs)
    print(f"{len(plans)} plans: mean error {100 * mean_error(plans):.1f} % (worst {100 * worst:.0f} %; a plan's turns spread by {100 * spread:.1f} %), "
          f"Kendall's tau {format_tau(order)} of the {100 * apart:.0f} % of pairs that the runs separate, {format_tau(of_all)} of all; regret "
          f"{100 * statistics.mean(r for r, _ in regrets):.1f} % on average, {100 * max(r for r, _ in regrets):.1f} % at most; memory at most "
          f"{100 * memory:.1f} % off; {(time.monotonic() - begin) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
