#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what --elastic costs a step while no rank dies.

    bench/elastic_cost.py [--program build/release/trireme] [--models mlp,resnet18,resnet50,gpt2] [--ranks 4] [--pairs 6] [--measure cpu]
                          [--scale 1]

A pair is four jobs, without and with --elastic LEAST:MOST, each with few steps and with many. The cost of a step is the difference of the long
job and the short one, divided by the steps between them, so that the start and the end of a job do not count. Pairs run in turns: every second
one has the elastic jobs first. A job's cost is that of all its processes, the launcher too: CPU time (cpu, user), or what `perf stat` counts
(instructions:u, page-faults, ...; many virtual machines count no instructions). Absolute figures depend on the load of the machine, ratios of a pair less. Printed for each model: the median
cost of a step without and with --elastic, the median ratio, and its least and its largest value. --scale multiplies the numbers of steps.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

# the arguments of a model, and the steps of the short and of the long job
MODELS = {
    "mlp": (["mlp", "--data", "synth"], 40, 340),
    "resnet18": (["resnet18", "--data", "synth", "--image-size", "32"], 8, 40),
    "resnet50": (["resnet50", "--data", "synth", "--image-size", "32"], 4, 16),
    "gpt2": (["gpt2", "--layers", "4", "--width", "128", "--heads", "4", "--context", "64", "--data", "TEXT", "--tokens", "bytes"], 20, 140),
}


def run(options, words, steps, elastic, folder):
    """Runs a job. Returns its cost: seconds of CPU, or events."""
    command = [options.program, "train", *words, "--steps", str(steps), "--epochs", "1000", "--eval-every-epochs", "0", "--threads", "1",
               "-n", str(options.ranks)]
    command += ["--elastic", f"1:{options.ranks}"] if elastic else []
    counts = pathlib.Path(folder, "counts")
    if options.measure not in ("cpu", "user"):
        command = ["perf", "stat", "-x", ",", "-e", options.measure, "-o", str(counts), "--", *command]
    with open(pathlib.Path(folder, "log"), "wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed:\n{pathlib.Path(folder, 'log').read_text(errors='replace')[-2000:]}")
    if options.measure in ("cpu", "user"):
        return usage.ru_utime + (usage.ru_stime if options.measure == "cpu" else 0)
    for line in counts.read_text().splitlines():
        if options.measure in line and not line.startswith("#"):
            return float(line.split(",")[0])
    sys.exit(f"perf stat has not counted {options.measure}: {counts.read_text()}")


def measure_step(options, model, elastic, folder):
    """Returns the cost of a step of all ranks."""
    words, short, long = MODELS[model]
    words = [str(pathlib.Path(folder, "text.txt")) if word == "TEXT" else word for word in words]
    short, long = (max(1, round(steps * options.scale)) for steps in (short, long))
    begin = run(options, words, short, elastic, folder)
    return (run(options, words, long, elastic, folder) - begin) / (long - short)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/trireme")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--measure", default="cpu", help="cpu, user, or an event of perf stat (default: cpu)")
    parser.add_argument("--scale", type=float, default=1, help="of the numbers of steps")
    options = parser.parse_args()
    options.program = os.path.realpath(options.program)
    unknown = [model for model in options.models.split(",") if model not in MODELS]
    if unknown:
        parser.error(f"--models: no model {', '.join(unknown)} (there are {', '.join(MODELS)})")
    events = options.measure not in ("cpu", "user")
    unit, factor = ("events", 1) if events else ("ms", 1e3)
    print(f"{'model':10}{'without, ' + unit:>16}{'elastic, ' + unit:>16}{'median %':>10}{'least %':>10}{'most %':>10}   "
          f"({options.measure} of a step of {options.ranks} ranks, {options.pairs} pairs)", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "text.txt").write_text(" ".join(str(i * i) for i in range(100000)))
        for model in options.models.split(","):
            costs = []
            for pair in range(options.pairs):
                order = (False, True) if pair % 2 == 0 else (True, False)
                cost = {elastic: measure_step(options, model, elastic, folder) for elastic in order}
                costs.append((cost[False], cost[True]))
            ratios = sorted(100 * (after / before - 1) if before else 0 for before, after in costs)
            without, elastic = (statistics.median(column) * factor for column in zip(*costs))
            print(f"{model:10}{without:16.6g}{elastic:16.6g}{statistics.median(ratios):10.2f}{ratios[0]:10.2f}{ratios[-1]:10.2f}", flush=True)


main()
