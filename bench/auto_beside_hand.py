#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a language model on ranks of this machine by AUTO_PARALLEL and by hand-made plans, in turns: data parallel, Megatron-LM's cut of
products, and a pipeline with one stage on each rank. For each number of ranks it prints the step of each plan and AUTO's over the best
hand-made one, the median over the turns (AUTO should not be above 1.02).

    bench/auto_beside_hand.py build/release/trireme [--ranks 2,4] [--minutes 8] [--case "gpt2 --context 64"]

A first run of AUTO, which is not counted, measures; later ones search with the costs that it has kept. Turns go on until the time is up, at
least two. On a machine that other processes use the figures mean little."""
import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from validate_plans import write_tensor_plan

LEAST_TURNS = 2


def run(options, case, words):
    """Returns the result of one `bench train`; ends the program if it fails."""
    command = [options.trireme, "bench", "train", *shlex.split(case), *words, "--threads", "1", "--repeats", str(options.repeats), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
    return found[-1]


def list_plans(options, case, ranks, samples, folder):
    """Returns the flags of AUTO and of each hand-made plan by name."""
    options.prefix = ""
    path = f"{folder}/tensor-{ranks}.txt"
    own = ["--batch-size", str(samples)]
    write_tensor_plan(options, f"{case} --batch-size {samples}", path)
    return {
        "auto": [*own, "--parallel-mode", "auto_parallel"],
        "data": [*own, "--parallel-mode", "data_parallel"],
        "tensor": [*own, "--parallel-mode", "semi_auto_parallel", "--plan", path],
        # each stage is one rank, which reads the whole batch
        "pipeline": ["--stages", str(ranks), "--micro-batches", str(2 * ranks), "--batch-size", str(samples * ranks)],
    }


def compare(options, ranks, seconds, folder):
    """Runs all plans in turns for about `seconds`; returns AUTO's step over that of the best hand-made plan."""
    end = time.monotonic() + seconds  # with the search
    samples = max(1, options.samples // ranks)
    case = f"{options.case} -n {ranks}"
    plans = list_plans(options, case, ranks, samples, folder)
    run(options, case, plans["auto"])
    seen = {name: [] for name in plans}
    turns = 0
    while turns < LEAST_TURNS or time.monotonic() < end:
        for name in plans if turns % 2 == 0 else list(plans)[::-1]:
            seen[name].append(run(options, case, plans[name])["median_seconds"])
        turns += 1
    best = min((statistics.median(seen[name]), name) for name in plans if name != "auto")[1]
    ratio = statistics.median(a / b for a, b in zip(seen["auto"], seen[best]))
    steps = ", ".join(f"{name} {1e3 * statistics.median(times):.1f} ms" for name, times in seen.items())
    print(f"{ranks} ranks, {samples} samples each, {turns} turns: {steps}; AUTO over {best}: {ratio:.3f}", flush=True)
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--case", default="gpt2 --context 64", help="model and its flags (GPT-2 of 124 million parameters)")
    parser.add_argument("--samples", type=int, default=8, help="of all ranks together")
    parser.add_argument("--repeats", type=int, default=3, help="steps of a run that are timed")
    options = parser.parse_args()
    counts = [int(word) for word in options.ranks.split(",")]
    part = 60 * options.minutes / len(counts)
    with tempfile.TemporaryDirectory() as folder:
        ratios = [compare(options, ranks, part, folder) for ranks in counts]
    print(f"AUTO over the best hand-made plan: at most {max(ratios):.3f}")


if __name__ == "__main__":
    main()
