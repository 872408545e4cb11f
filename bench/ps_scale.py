#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Samples a second of Wide&Deep through one parameter server with 1, 2, 4 and 8 workers on this machine, compared with the bound of its cores.

usage: ps_scale.py [--trireme build/release/trireme] [--workers 1,2,4,8] [--batches 60] [--rounds 1] [--mode async]
With t the CPU seconds of one worker and its server for a sample, n workers and the server on C cores do at most min(C, n + 1) / t samples a
second. Prints samples/s, CPU time a sample, and the fraction of the bound with t measured at one worker (target: 85 %). The time of
all processes counts, start-up does not.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile

BATCH = 4096


def run(args, workers, batches):
    """Trains on `batches` batches in all, at least 10 of each worker. Returns samples a second, CPU seconds of all processes, samples."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([args.trireme, "bench", "train", "widedeep", "--preset", "peer", "-n", str(workers), "--ps", "1",
                               "--ps-shards", "1", "--threads", "1", "--mode", args.mode, "--repeats", str(max(10, batches // workers)),
                               "--json"], cwd=folder, check=True, capture_output=True, text=True,
                              env=dict(os.environ, OMP_NUM_THREADS="1"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    e = json.loads([line for line in done.stdout.splitlines() if '"bench"' in line][-1])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return e["samples_per_second"], cpu, e["samples"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default="build/release/trireme")
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--mode", default="async")
    args = parser.parse_args()
    args.trireme = os.path.realpath(args.trireme)
    cores = len(os.sched_getaffinity(0))
    # The CPU time of a sample at one worker: a long run less a short one, so that start-up does not count.
    short, long = [], []
    for _ in range(args.rounds):
        long.append(run(args, 1, args.batches))
        short.append(run(args, 1, args.batches // 3))
    cost = statistics.median((a[1] - b[1]) / (a[2] - b[2]) for a, b in zip(long, short))
    print(f"Wide&Deep (preset peer), {args.mode}, 1 server, {cores} cores: a sample costs {cost * 1e6:.2f} us of CPU time at one worker")
    for workers in (int(n) for n in args.workers.split(",")):
        rates = [run(args, workers, args.batches)[0] for _ in range(args.rounds)] if workers > 1 else [a[0] for a in long]
        bound = min(cores, workers + 1) / cost
        rate = statistics.median(rates)
        print(f"{workers} workers: {rate:9.0f} samples/s; the cores allow {bound:9.0f}: {rate / bound:4.2f}", flush=True)


main()
