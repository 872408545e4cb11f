#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of GPT-2, Llama, BERT and ViT in Trireme and in PyTorch (gpt_torch.py and resnet_torch.py of the peers), in turns in one
run; GPT-2 on two ranks of one thread beside DistributedDataParallel over gloo; and generation of GPT-2 beside transformers.

usage: gpt_table.py [--trireme build/release/trireme] [--peers ../shared/peers] [--rounds 3] [--threads 2] [--only TEXT] [--no-compile]
                    [--short]
The rate of ViT is images/s. BERT predicts every token (--masking 0.99), as the peer does; ViT is trained by SGD with momentum, as the peer is. Two ranks:
tokens/s of both, memory of both.
PyTorch is the python of ~/.cache/trireme-peers/oracle (tools/readers.sh and README of the peers); without it only Trireme's figures are
printed. A ratio is Trireme's median over the better of PyTorch's medians, eager and torch.compile; memory is Trireme's peak over
PyTorch's smaller one. --only selects rows whose name has TEXT; --short takes 3 steps a round instead of 5.
Generation: one sequence, greedy, from a folder with random weights that transformers writes. Both programs print the tokens a second behind
the first; in float32 their tokens must be equal. The share of the bound is that of `trireme bench generate`. The column "CPU" is the ratio of the
CPU time of a token: with --threads 1 it is the one to read on a machine that is not quiet, because PyTorch's threads wait for each other in
loops.
"""
import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile

# name, Trireme's model and size, PyTorch's model, batch of a rank, tokens (ViT: pixels of a side), bfloat16, wanted ratio of rates, wanted ratio
# of memory, ranks (each of one thread)
ROWS = [
    ("gpt2 T=64 fp32", "gpt2", "gpt2", "gpt2", 4, 64, False, 1.6, 0.7, 1),
    ("gpt2 T=64 bf16", "gpt2", "gpt2", "gpt2", 4, 64, True, 2.0, 0.7, 1),
    ("gpt2 T=256 fp32", "gpt2", "gpt2", "gpt2", 4, 256, False, 1.45, 0.7, 1),
    ("gpt2 T=256 bf16", "gpt2", "gpt2", "gpt2", 4, 256, True, 1.5, 0.7, 1),
    ("gpt2 T=1024 fp32", "gpt2", "gpt2", "gpt2", 4, 1024, False, 1.6, 0.4, 1),
    ("gpt2 T=1024 bf16", "gpt2", "gpt2", "gpt2", 4, 1024, True, 1.6, 0.4, 1),
    ("llama110m T=256 bf16", "llama", "llama110m", "llama110m", 4, 256, True, 1.5, 0.7, 1),
    ("llama15m T=256 fp32", "llama", "llama15m", "llama15m", 8, 256, False, 1.5, 0.7, 1),
    ("llama15m T=256 bf16", "llama", "llama15m", "llama15m", 8, 256, True, 1.6, 0.7, 1),
    ("tiny T=64 fp32", "gpt2", "tiny", "tiny", 12, 64, False, 1.8, 0.7, 1),
    ("bert T=128 bf16", "bert", "base", "bert", 16, 128, True, 1.5, 0.7, 1),
    ("vit 224x224 bf16", "vit", "base", "vit_b_16", 16, 224, True, 1.5, 0.7, 1),
    ("ddp gpt2 T=256 fp32", "gpt2", "gpt2", "gpt2", 2, 256, False, 1.6, 0.7, 2),
    ("ddp gpt2 T=256 bf16", "gpt2", "gpt2", "gpt2", 2, 256, True, 2.0, 0.7, 2),
]
GENERATION = "{:22} {:>9} {:>9} {:>6} {:>7} {:>6} {:>6} {:>7}"
COLUMNS = "{:22} {:>9} {:>9} {:>9} {:>6} {:>7} {:>9} {:>6} {:>7} {:>10} {:>6} {:>7} {:>6} {:>6}"


# Runs gpt_torch.py (argv[1]) as one rank: its model is wrapped in DistributedDataParallel.
ONE_RANK = """
import sys, torch.distributed
from torch.nn.parallel import DistributedDataParallel
path, line = sys.argv[1], "net = torch.compile(model) if a.compile else model"
del sys.argv[0]
text = open(path).read()
assert text.count(line) == 1, f"{path}: the line '{line}' is expected once"
torch.distributed.init_process_group("gloo")
exec(compile(text.replace(line, "net = DistributedDataParallel(model)"), path, "exec"))
torch.distributed.destroy_process_group()
"""


def run_all(lines, environments):
    """Runs the commands at the same time; returns the last line of JSON of each."""
    jobs = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
            for line, environment in zip(lines, environments)]
    events = []
    for job, line in zip(jobs, lines):
        out, error = job.communicate()
        if job.returncode != 0:
            for other in jobs:
                other.kill()
            raise SystemExit(f"{' '.join(line)}: exit {job.returncode}\n{error[-2000:]}")
        events.append(json.loads(out.strip().splitlines()[-1]))
    return events


def run(line):
    return run_all([line], [{}])[0]


def timed(line):
    """Runs one command; returns its event and its CPU time (user)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    event = run(line)
    return event, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def repeats_of(args, row):
    return 3 if args.short else 200 if row[2] == "tiny" else 5


def ours(args, row):
    _, model, size, _, batch, tokens, half, _, _, ranks = row
    line = [args.trireme, "bench", "train", model, "--size", size, "--batch-size", str(batch), "--precision", "mixed" if half else "fp32",
            "--threads", str(1 if ranks > 1 else args.threads), "--repeats", str(repeats_of(args, row)), "--json"]
    if model == "vit":
        event = run(line + ["--image-size", str(tokens), "--classes", "1000", "--optimizer", "momentum", "--momentum", "0.9", "--weight-decay", "0.0001"])
        return {**event, "rate": event["images_per_second"]}
    line += ["--preset", "peer", "--context", str(tokens)] + (["--masking", "0.99"] if model == "bert" else [])
    event = run(line + (["-n", str(ranks)] if ranks > 1 else []))
    return {**event, "rate": event["tokens_per_second"], "peak_bytes": ranks * event["peak_bytes"],
            "predicted_peak_bytes": ranks * event["predicted_peak_bytes"]}


def theirs(args, python, row, compiled):
    _, _, _, model, batch, tokens, half, _, _, ranks = row
    vit = model == "vit_b_16"
    peer = os.path.join(args.peers, "resnet_torch.py" if vit else "gpt_torch.py")
    line = ["--model", model, "--batch-size", str(batch), "--image-size" if vit else "--seq-len", str(tokens), "--threads",
            str(1 if ranks > 1 else args.threads), "--steps", str(repeats_of(args, row))]
    line += (["--bf16"] if half else []) + (["--compile"] if compiled else [])
    if ranks == 1:
        event = run([python, peer] + line)
        return {**event, "rate": event["images_per_second" if vit else "tokens_per_second"]}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    events = run_all([[python, "-c", ONE_RANK, peer] + line] * ranks,
                     [{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "RANK": str(rank)} for rank in range(ranks)])
    return {"rate": sum(e["tokens_per_second"] for e in events), "peak_bytes": sum(e["peak_bytes"] for e in events)}


def median(events, key):
    return statistics.median(e[key] for e in events)


def measure(args, python, row):
    name, wanted, wanted_memory = row[0], row[7], row[8]
    mine, eager, compiled = [], [], []
    for _ in range(args.rounds):
        mine.append(ours(args, row))
        if python:
            eager.append(theirs(args, python, row, False))
        if python and args.compile and row[9] == 1:
            compiled.append(theirs(args, python, row, True))
    rate, peak = median(mine, "rate"), median(mine, "peak_bytes")
    peers = [peer for peer in (eager, compiled) if peer]
    best = max((median(peer, "rate") for peer in peers), default=0)
    least = min((median(peer, "peak_bytes") for peer in peers), default=0)
    predicted = median(mine, "predicted_peak_bytes") / peak
    digits = 0 if best > 20 or rate > 20 else 2
    print(COLUMNS.format(name, f"{rate:.{digits}f}", f"{median(eager, 'rate'):.{digits}f}" if eager else "-",
                         f"{median(compiled, 'rate'):.{digits}f}" if compiled else "-", f"{rate / best:.2f}" if best else "-", f"{wanted:.2f}",
                         f"{peak / 1e6:.0f}", f"{peak / least:.2f}" if least else "-", f"{wanted_memory:.2f}", f"{predicted:.3f}",
                         f"{median(mine, 'first_step_seconds'):.2f}", "1.00", f"{median(mine, 'first_step_done_seconds'):.2f}",
                         f"{median(mine, 'median_seconds'):.2f}"), flush=True)


def generation(args, python):
    """Prints the rows of generation."""
    many, few, prompt = 64 if args.short else 120, 4, "the rank sends a"
    peer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_transformers_generate.py")
    print(GENERATION.format("generation", "Trireme", "transf.", "ratio", "wanted", "CPU", "bound", "wanted"))
    with tempfile.TemporaryDirectory() as folder:
        if python:
            subprocess.run([python, peer, "make", folder, "gpt2"], check=True, capture_output=True)
        for precision in ("fp32", "mixed"):
            mine, theirs, bounds = [], [], []
            for _ in range(args.rounds if python else 0):
                for events, line in ((mine, [args.trireme, "generate", "gpt2", "--checkpoint", folder, "--prompt", prompt, "--precision", precision,
                                             "--threads", str(args.threads), "--json", "--tokens"]),
                                     (theirs, [python, peer, "generate", folder, prompt, str(args.threads), precision])):
                    (short, before), (event, cpu) = timed(line + [str(few)]), timed(line + [str(many)])
                    assert event["token_ids"][:few] == short["token_ids"], f"{' '.join(line)}: other tokens in the second run"
                    events.append({**event, "cpu": (cpu - before) / (many - few)})
                assert precision != "fp32" or mine[-1]["token_ids"] == theirs[-1]["token_ids"], (mine[-1]["token_ids"], theirs[-1]["token_ids"])
            for _ in range(args.rounds):
                bounds.append(run([args.trireme, "bench", "generate", "gpt2", "--size", "gpt2", "--precision", precision, "--threads", str(args.threads),
                                   "--repeats", "40", "--json"]))
            rate = median(mine or bounds, "tokens_per_second")
            ratios = [f"{median(theirs, 'tokens_per_second'):.1f}", f"{rate / median(theirs, 'tokens_per_second'):.2f}"] if python else ["-", "-"]
            print(GENERATION.format(f"gpt2 {precision}", f"{rate:.1f}", *ratios, "3.00",
                                    f"{median(theirs, 'cpu') / median(mine, 'cpu'):.2f}" if python else "-",
                                    f"{median(bounds, 'bound_fraction'):.2f}", "0.70"), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default="build/release/trireme")
    parser.add_argument("--peers", default=os.path.join(os.path.dirname(__file__), "..", "..", "shared", "peers"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--short", action="store_true")
    args = parser.parse_args()
    python = os.path.expanduser("~/.cache/trireme-peers/oracle/bin/python")
    if not (os.path.exists(python) and os.path.exists(os.path.join(args.peers, "gpt_torch.py"))):
        python = None
        print(f"without PyTorch: {os.path.expanduser('~/.cache/trireme-peers/oracle')} or {args.peers} is absent", file=sys.stderr)
    print(f"{args.threads} threads, {args.rounds} rounds in turns, medians; tokens/s, peak MB; seconds from the start to the first step's begin and end, of a step")
    print(COLUMNS.format("model", "Trireme", "eager", "compile", "ratio", "wanted", "peak MB", "ratio", "wanted", "predicted", "begins", "wanted", "ends", "step"))
    for row in ROWS:
        if args.only in row[0]:
            measure(args, python, row)
    if args.only in "generate":
        generation(args, python)


main()
