#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wide&Deep of peers/wide_deep_tf.py in Trireme and in TensorFlow's Estimator, in turns in one run, and DLRM per core.

usage: click_table.py [--trireme build/release/trireme] [--peer ../shared/peers/wide_deep_tf.py] [--rounds 3] [--threads 2] [--steps 300]
TensorFlow comes from ~/.cache/trireme-peers/tf (python3 -m venv it; pip install 'tensorflow==2.15.*' 'numpy<2'); without it only
Trireme's lines are printed. Both rates are medians over windows of ten steps, including the time between steps. The loss is the mean of the reports over the last 40
steps of both programs, after the same number of samples.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile

BATCH = 4096


def trireme(args, model, threads, repeats, *more):
    """Runs `trireme bench train` of a model; returns its JSON line."""
    line = [args.trireme, "bench", "train", model, "--threads", str(threads), "--repeats", str(repeats), "--json", *more]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def tensorflow(args, python):
    """Runs the peer. Returns samples per second (the median of its reports but the first two, which include its start), and the mean of
    its last losses."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([python, args.peer, folder, str(args.steps), str(args.threads)], capture_output=True, text=True)
    log = done.stdout + done.stderr
    rates = [float(v) for v in re.findall(r"global_step/sec: ([0-9.]+)", log)]
    losses = [(int(s), float(v)) for v, s in re.findall(r"loss = ([0-9.]+), step = ([0-9]+)", log)]
    if len(rates) < 5:
        raise SystemExit(f"TensorFlow's run gave no rates:\n{log[-2000:]}")
    last = [v for s, v in losses if s >= args.steps - 40]
    return statistics.median(rates[2:]) * BATCH, statistics.mean(last)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default="build/release/trireme")
    parser.add_argument("--peer", default=os.path.join(os.path.dirname(__file__), "..", "..", "shared", "peers", "wide_deep_tf.py"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    python = os.path.expanduser("~/.cache/trireme-peers/tf/bin/python")
    peer = os.path.exists(python) and os.path.exists(args.peer)
    ours, theirs, our_loss, their_loss = [], [], [], []
    for _ in range(args.rounds):
        e = trireme(args, "widedeep", args.threads, args.steps - 2, "--preset", "peer")
        ours.append(e["window_samples_per_second"])
        our_loss.append(e["mean_loss"])
        if peer:
            rate, loss = tensorflow(args, python)
            theirs.append(rate)
            their_loss.append(loss)
    print(f"Wide&Deep, 26 tables of 100,000 x 16, MLP 256-128-1, Adagrad, batch {BATCH}, {args.threads} threads, {args.rounds} rounds in turns, {args.steps} steps")
    print(f"  Trireme                    {statistics.median(ours):9.0f} samples/s   loss {statistics.mean(our_loss):.4f}   ({min(ours):.0f} to {max(ours):.0f})")
    if peer:
        print(f"  TensorFlow 2.15 Estimator  {statistics.median(theirs):9.0f} samples/s   loss {statistics.mean(their_loss):.4f}   ({min(theirs):.0f} to {max(theirs):.0f})")
        print(f"  ratio                      {statistics.median(a / b for a, b in zip(ours, theirs)):9.2f}")
    else:
        print(f"  TensorFlow                 no {python} or no {args.peer}")
    dlrm = [trireme(args, "dlrm", 1, 20) for _ in range(args.rounds)]
    rates = [e["window_samples_per_second"] for e in dlrm]
    print(f"DLRM, 26 tables of 100,000 x 16, bottom 13-512-256-64-16, top 367-512-256-1, Adagrad, batch {BATCH}, 1 thread")
    print(f"  Trireme                    {statistics.median(rates):9.0f} samples/s/core   ({min(rates):.0f} to {max(rates):.0f})")


main()
