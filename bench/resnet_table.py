#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ResNet-50 training steps of Trireme and PyTorch in one run on one machine, as a table of ratios.

    bench/resnet_table.py [--trireme build/release/trireme] [--python PYTHON_WITH_TORCH] [--threads 2]
                          [--rounds 3] [--compile] [--mindspore PYTHON_WITH_MINDSPORE] [--prefix 'chrt -f 1']

The two take turns, round by round; medians over the rounds are compared. PyTorch: channels-last, eager (or
torch.compile), from a venv such as `python3 -m venv v && v/bin/pip install torch torchvision`. With --mindspore
a second table compares with guide 002's own framework on CPU, at its image size of CIFAR-10."""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("--trireme", default=os.path.join(here, "..", "build", "release", "trireme"))
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--compile", action="store_true")
parser.add_argument("--mindspore", default="")
parser.add_argument("--prefix", default="", help="a command that both run under")
args = parser.parse_args()
prefix = shlex.split(args.prefix)

SETTINGS = [(224, 32, "fp32", 1.6), (224, 32, "mixed", 1.4), (32, 128, "fp32", 1.6), (32, 128, "mixed", 1.6)]


def run(command):
    done = subprocess.run(prefix + command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def ours_at(size, batch, precision):
    return run([args.trireme, "bench", "train", "resnet50", "--image-size", str(size), "--batch-size", str(batch),
                "--classes", "10" if size == 32 else "1000", "--precision", precision,
                "--threads", str(args.threads), "--json"])


print("| image | batch | precision | Trireme images/s | PyTorch images/s | ratio | wanted | peak memory, ratio | first step, Trireme / PyTorch |")
print("|---|---|---|---|---|---|---|---|---|")
for size, batch, precision, wanted in SETTINGS:
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(ours_at(size, batch, precision))
        theirs.append(run([args.python, os.path.join(here, "peer_torch_resnet.py"), "resnet50", str(size), str(batch),
                           str(args.threads), precision] + (["compile"] if args.compile else [])))
    a, b = median(ours, "images_per_second"), median(theirs, "images_per_second")
    memory = median(ours, "peak_bytes") / median(theirs, "peak_bytes")
    print(f"| {size} | {batch} | {precision} | {a:.1f} | {b:.1f} | **{a / b:.2f}** | {wanted} | {memory:.2f} | "
          f"{median(ours, 'first_step_done_seconds'):.2f} / {median(theirs, 'first_step_seconds'):.2f} s |", flush=True)

if args.mindspore:
    print("\n| image | batch | Trireme images/s | MindSpore images/s | ratio | wanted | first step, Trireme / MindSpore |")
    print("|---|---|---|---|---|---|---|")
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(ours_at(32, 128, "fp32"))
        theirs.append(run([args.mindspore, os.path.join(here, "peer_mindspore_resnet.py"), "32", "128", str(args.threads), "2"]))
    a, b = median(ours, "images_per_second"), median(theirs, "images_per_second")
    print(f"| 32 | 128 | {a:.1f} | {b:.2f} | **{a / b:.1f}** | 25 | "
          f"{median(ours, 'first_step_done_seconds'):.2f} / {median(theirs, 'first_step_seconds'):.1f} s |")
