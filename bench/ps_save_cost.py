#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much checkpoints slow down a job with parameter servers: Wide&Deep, 26 fields, one server, with and without checkpoints.

usage: ps_save_cost.py [--trireme build/release/trireme] [--table-rows 100000] [--width 16] [--workers 2] [--every 6] [--seconds 20] [--mode async]
Two runs of the same number of batches: one saves only at its beginning and end, one at a fixed interval. Prints the cost of a checkpoint, and
which part of the time that is at the interval, and at one checkpoint a minute (target: 3.5 %). Start-up and the last checkpoint are not counted.
"""
import argparse
import glob
import json
import os
import subprocess
import tempfile
import time

WARM = 30


def run(args, steps, every):
    """Samples a second between the first batches and the last, checkpoints in between, bytes of the newest."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        line = [args.trireme, "train", "widedeep", "--data", "clicks", "--fields", "26", "--dense", "13", "--table-rows", str(args.table_rows),
                "--embedding-width", str(args.width), "--synth-train", str(steps * 4096), "--synth-test", "4096", "--eval-every-epochs", "0",
                "--batch-size", "4096", "--epochs", "1", "--optimizer", "adagrad", "-n", str(args.workers), "--ps", "1", "--mode", args.mode,
                "--threads", "1", "--output", "run", "--log-every", "1", "--save-every-seconds", str(every), "--json"]
        job = subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env=dict(os.environ, OMP_NUM_THREADS="1"))
        first, last, saved = None, None, 0
        for text in job.stdout:
            event = json.loads(text) if text.startswith("{") else {}
            if event.get("event") == "step":
                now = (time.time(), event["global_step"])
                first = now if first is None and event["global_step"] > WARM else first
                last = now
            elif event.get("event") == "checkpoint" and first is not None:
                saved += 1
        assert job.wait() == 0
        saved -= 1 # the last, when no worker trains any more
        newest = max(glob.glob(folder + "/run/ps/snapshot-*"))
        size = sum(os.path.getsize(f) for f in glob.glob(newest + "/*"))
        return (last[1] - first[1]) * 4096 / (last[0] - first[0]), last[0] - first[0], saved, size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default="build/release/trireme")
    parser.add_argument("--table-rows", type=int, default=100000)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=float, default=6)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--mode", default="async")
    parser.add_argument("--folder", help="of the job's files; on the disk that is meant")
    args = parser.parse_args()
    args.trireme = os.path.realpath(args.trireme)
    rate = run(args, 10 * WARM, 1e6)[0] # enough that step lines of several moments come
    steps = WARM + int(args.seconds * rate / 4096)
    calm, calm_seconds, _, _ = run(args, steps, 1e6)
    busy, seconds, saved, size = run(args, steps, args.every)
    cost = (seconds - calm_seconds) / max(saved, 1)
    print(f"{args.mode}, {args.workers} workers: {calm:.0f} samples/s without checkpoints, {busy:.0f} with {saved} in {seconds:.1f} s "
          f"(the newest {size * 1e-6:.0f} MB on the server): each cost {cost:.2f} s: {100 * cost / args.every:.1f} % at one in {args.every:g} s, "
          f"{100 * cost / 60:.1f} % at one a minute")


main()
