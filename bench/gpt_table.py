#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of GPT-2 and Llama in Trireme and in PyTorch (peers/gpt_torch.py), in turns in one run, and generation of GPT-2.

usage: gpt_table.py [--trireme build/release/trireme] [--peer ../shared/peers/gpt_torch.py] [--rounds 3] [--threads 2] [--only TEXT]
                    [--no-compile] [--short]
PyTorch is the python of ~/.cache/trireme-peers/oracle (tools/readers.sh and README of the peers); without it only Trireme's figures are
printed. A ratio is Trireme's median over the better of PyTorch's medians, eager and torch.compile; memory is Trireme's peak over
PyTorch's smaller one. --only selects rows whose name has TEXT; --short takes 3 steps a round instead of 5.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

# name, Trireme's model and size, PyTorch's model, batch, tokens, bfloat16, wanted ratio of rates, wanted ratio of memory
ROWS = [
    ("gpt2 T=64 fp32", "gpt2", "gpt2", "gpt2", 4, 64, False, 1.6, 0.7),
    ("gpt2 T=64 bf16", "gpt2", "gpt2", "gpt2", 4, 64, True, 2.0, 0.7),
    ("gpt2 T=256 fp32", "gpt2", "gpt2", "gpt2", 4, 256, False, 1.45, 0.7),
    ("gpt2 T=256 bf16", "gpt2", "gpt2", "gpt2", 4, 256, True, 1.5, 0.7),
    ("gpt2 T=1024 fp32", "gpt2", "gpt2", "gpt2", 4, 1024, False, 1.6, 0.4),
    ("gpt2 T=1024 bf16", "gpt2", "gpt2", "gpt2", 4, 1024, True, 1.6, 0.4),
    ("llama110m T=256 bf16", "llama", "llama110m", "llama110m", 4, 256, True, 1.5, 0.7),
    ("llama15m T=256 fp32", "llama", "llama15m", "llama15m", 8, 256, False, 1.5, 0.7),
    ("llama15m T=256 bf16", "llama", "llama15m", "llama15m", 8, 256, True, 1.6, 0.7),
    ("tiny T=64 fp32", "gpt2", "tiny", "tiny", 12, 64, False, 1.8, 0.7),
]
COLUMNS = "{:22} {:>9} {:>9} {:>9} {:>6} {:>7} {:>9} {:>6} {:>7} {:>10} {:>6}"


def run(line):
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(line)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def ours(args, row):
    _, model, size, _, batch, tokens, half, _, _ = row
    repeats = 3 if args.short else 200 if size == "tiny" else 5
    return run([args.trireme, "bench", "train", model, "--preset", "peer", "--size", size, "--batch-size", str(batch), "--context", str(tokens),
                "--precision", "mixed" if half else "fp32", "--threads", str(args.threads), "--repeats", str(repeats), "--json"])


def theirs(args, python, row, compiled):
    _, _, size, model, batch, tokens, half, _, _ = row
    steps = 3 if args.short else 200 if size == "tiny" else 5
    return run([python, args.peer, "--model", model, "--batch-size", str(batch), "--seq-len", str(tokens), "--threads", str(args.threads),
                "--steps", str(steps)] + (["--bf16"] if half else []) + (["--compile"] if compiled else []))


def median(events, key):
    return statistics.median(e[key] for e in events)


def measure(args, python, row):
    name, wanted, wanted_memory = row[0], row[7], row[8]
    mine, eager, compiled = [], [], []
    for _ in range(args.rounds):
        mine.append(ours(args, row))
        if python:
            eager.append(theirs(args, python, row, False))
        if python and args.compile:
            compiled.append(theirs(args, python, row, True))
    rate, peak = median(mine, "tokens_per_second"), median(mine, "peak_bytes")
    peers = [peer for peer in (eager, compiled) if peer]
    best = max((median(peer, "tokens_per_second") for peer in peers), default=0)
    least = min((median(peer, "peak_bytes") for peer in peers), default=0)
    predicted = median(mine, "predicted_peak_bytes") / peak
    print(COLUMNS.format(name, f"{rate:.0f}", f"{median(eager, 'tokens_per_second'):.0f}" if eager else "-",
                         f"{median(compiled, 'tokens_per_second'):.0f}" if compiled else "-", f"{rate / best:.2f}" if best else "-", f"{wanted:.2f}",
                         f"{peak / 1e6:.0f}", f"{peak / least:.2f}" if least else "-", f"{wanted_memory:.2f}", f"{predicted:.3f}",
                         f"{median(mine, 'first_step_done_seconds'):.2f}"), flush=True)


def generation(args):
    for precision in ("fp32", "mixed"):
        events = [run([args.trireme, "bench", "generate", "gpt2", "--size", "gpt2", "--precision", precision, "--threads", str(args.threads),
                       "--repeats", "40", "--json"]) for _ in range(args.rounds)]
        print(f"generate gpt2 {precision:8} {median(events, 'tokens_per_second'):9.1f} tokens/s   {median(events, 'bound_fraction'):.2f} of the "
              f"bound by the weights' bytes (wanted: 0.70)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default="build/release/trireme")
    parser.add_argument("--peer", default=os.path.join(os.path.dirname(__file__), "..", "..", "shared", "peers", "gpt_torch.py"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--short", action="store_true")
    args = parser.parse_args()
    python = os.path.expanduser("~/.cache/trireme-peers/oracle/bin/python")
    if not (os.path.exists(python) and os.path.exists(args.peer)):
        python = None
        print(f"without PyTorch: {os.path.expanduser('~/.cache/trireme-peers/oracle')} or {args.peer} is absent", file=sys.stderr)
    print(f"{args.threads} threads, {args.rounds} rounds in turns, medians; tokens/s, peak MB, seconds to the end of the first step")
    print(COLUMNS.format("model", "Trireme", "eager", "compile", "ratio", "wanted", "peak MB", "ratio", "wanted", "predicted", "first"))
    for row in ROWS:
        if args.only in row[0]:
            measure(args, python, row)
    if args.only in "generate":
        generation(args)


main()
