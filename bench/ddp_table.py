#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares data parallel ResNet-50 on 2 and 8 ranks of one thread with one process of two threads at the same global batch,
and with PyTorch's DistributedDataParallel over gloo, in one run on one machine, as a table of ratios.

    bench/ddp_table.py [--trireme build/release/trireme] [--python PYTHON_WITH_TORCH] [--rounds 3] [--only 32:fp32]
                       [--prefix 'chrt -f 1']

Batch norm takes each rank's own samples, as DistributedDataParallel has it (`--sync-batch-norm off`).
All take turns, round by round; medians over the rounds are compared. Trireme's rate is that of all timed steps together
(overall_images_per_second): with more ranks than cores single steps of a rank are uneven, their sum is not. Targets: 0.95 with 2 ranks,
0.85 with 8, 1.8 times the peer, less than 5 % of the step exposed communication (2 ranks). The table also has all waiting of 2 ranks for
each other, which includes the wait of the rank that arrives first."""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("--trireme", default=os.path.join(here, "..", "build", "release", "trireme"))
parser.add_argument("--python", default="", help="with torch and torchvision; without it there is no peer")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--only", default="", help="SIZE:PRECISION or SIZE:PRECISION:BATCH, some rows")
parser.add_argument("--prefix", default="", help="a command that each measurement runs under")
args = parser.parse_args()
prefix, trireme = shlex.split(args.prefix), os.path.abspath(args.trireme)
work = tempfile.mkdtemp(prefix="ddp_table")

# 128 is the batch of the peer's script; 256 that of guide 002's job on 8 devices, 32 each.
ROWS = [(32, 128, "fp32"), (32, 128, "mixed"), (32, 256, "fp32"), (32, 256, "mixed"), (224, 32, "fp32"), (224, 32, "mixed")]


def run(command):
    done = subprocess.run(prefix + command, capture_output=True, text=True, cwd=work)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def ours(size, batch, precision, ranks, threads):
    return run([trireme, "bench", "train", "resnet50", "--image-size", str(size), "--batch-size", str(batch // ranks),
                "--classes", "10" if size < 64 else "1000", "--precision", precision, "--threads", str(threads),
                "--repeats", "9" if size < 64 else "3", "--json"] + (["-n", str(ranks), "--sync-batch-norm", "off"] if ranks > 1 else []))


def theirs(size, batch, precision):
    return run([args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                os.path.join(here, "peer_torch_ddp.py"), str(size), str(batch), precision])


def median(rows, key="images_per_second"):
    return statistics.median(row.get("overall_" + key, row[key]) for row in rows) if rows else float("nan")


print("| image | global batch | precision | 1 process, 2 threads | 2 ranks | ratio (0.95) | exposed communication (0.05) | waiting in all | 8 ranks | ratio (0.85) "
      "| torch DDP gloo, 2 ranks | ratio (1.8) |")
print("|---|---|---|---|---|---|---|---|---|---|---|---|")
for size, batch, precision in ROWS:
    if args.only not in ("", f"{size}:{precision}", f"{size}:{precision}:{batch}"):
        continue
    one, two, eight, peer = [], [], [], []
    for _ in range(args.rounds):
        one.append(ours(size, batch, precision, 1, 2))
        two.append(ours(size, batch, precision, 2, 1))
        eight.append(ours(size, batch, precision, 8, 1))
        if args.python:
            peer.append(theirs(size, batch, precision))
    a, b, c, d = median(one), median(two), median(eight), median(peer)
    print(f"| {size} | {batch} | {precision} | {a:.1f} | {b:.1f} | **{b / a:.2f}** | {median(two, 'exposed_comm_fraction'):.3f} | {median(two, 'waiting_fraction'):.3f} | "
          f"{c:.1f} | **{c / a:.2f}** | " + (f"{d:.1f} | **{b / d:.2f}** |" if peer else "- | - |"), flush=True)
