#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed with the backend trireme beside gloo, in turns: all-reduce by size, and DistributedDataParallel steps.

    bench/torch_table.py [--python PYTHON_WITH_TORCH] [--ranks 2] [--rounds 3] [--only allreduce|resnet50|gpt2] [--batch 64] [--ways gloo,trireme,...]

`private` is trireme with TRIREME_SHARE_TENSORS=0: tensors do not move into memory that the ranks share. For steps, `alone` is the step without any
communication (no_sync) in PyTorch's own memory, a way that --ways must name; `paced` is that in trireme's memory, with a barrier after each step, which keeps the ranks in step as
reductions do: the bound, no backend is faster. "CPU" is the least time that a step of rank 0 computed and communicated, which other work disturbs less. Each rank has one thread. Figures
are medians over the rounds, ratios are gloo's time over ours, beside the least that is asked for. The package is taken from PYTHONPATH or site-packages (docs/guides/torch.md).
Needs torchvision for resnet50 (32x32) and transformers for gpt2 (124M, samples of 64 tokens). --batch: samples a rank; without it 64
images (of 2 ranks: GLOBAL_BATCH=128) and 4 samples of text. --rounds: 3 of all-reduce, 1 of steps. --ways: all-reduce gloo,trireme,private; steps
gloo,trireme,paced, with which a model takes less than 300 s on two cores."""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

WAYS = ("gloo", "trireme", "private")
ALONE, PACED = "alone", "paced"
STEPS = {"resnet50": 8, "gpt2": 6}  # the first two are not counted
LEAST = {"allreduce": 4, "resnet50": 1.3, "gpt2": 1.3}  # ratios that are asked for
SIZES = [1 << 10, 16 << 10, 256 << 10, 1 << 20, 8 << 20, 100000000]


def time_allreduce(dist, torch):
    found = {}
    for size in SIZES:
        data = torch.zeros(size // 4)
        times = []
        for _ in range(200 if size < 1 << 20 else 30 if size < 1 << 25 else 8):
            begin = time.perf_counter()
            dist.all_reduce(data)
            times.append(time.perf_counter() - begin)
        found[str(size)] = statistics.median(times[3:])
    return found


def time_steps(model, way, batch, torch):
    import contextlib
    torch.manual_seed(0)
    if model == "resnet50":
        import torchvision
        network = torchvision.models.resnet50(num_classes=10).to(memory_format=torch.channels_last)
        batch = batch or 64
        x, y = torch.randn(batch, 3, 32, 32).to(memory_format=torch.channels_last), torch.randint(10, (batch,))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    else:
        import transformers
        network = transformers.GPT2LMHeadModel(transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
        x = y = torch.randint(50257, (batch or 4, 64))
        optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4, fused=True)
    parallel = torch.nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True, broadcast_buffers=way not in (ALONE, PACED))
    times, computed, losses = [], [], []
    for _ in range(STEPS[model]):
        begin, cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        with parallel.no_sync() if way in (ALONE, PACED) else contextlib.nullcontext():
            loss = torch.nn.functional.cross_entropy(parallel(x), y) if model == "resnet50" else parallel(x, labels=y).loss
            loss.backward()
        optimizer.step()
        if way == PACED:
            torch.distributed.barrier()
        times.append(time.perf_counter() - begin)
        computed.append(time.process_time() - cpu)
        losses.append(loss.item())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {"step": statistics.median(times[2:]), "step, CPU": min(computed[2:]), "peak memory": memory, "loss": losses[-1]}


def run_rank(way, task, batch):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    if way not in ("gloo", ALONE):
        import torch_trireme  # noqa: F401
    dist.init_process_group("gloo" if way in ("gloo", ALONE) else "trireme")
    found = time_allreduce(dist, torch) if task == "allreduce" else time_steps(task, way, batch, torch)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def measure(args, way, task):
    done = subprocess.run([args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.ranks), __file__,
                           "--rank", way, task, str(args.batch)], capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "TRIREME_SHARE_TENSORS": "0" if way == "private" else ""})
    if done.returncode != 0:
        raise SystemExit(f"{way} {task}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def print_row(name, least, values, ratios=()):
    """One line of the table: gloo's value, then each way's with its ratio."""
    ratios = [f"{ratio:.2f}" for ratio in ratios] or [""] * len(values)
    cells = values[:1] + [cell for pair in zip(values[1:], ratios[1:]) for cell in pair]
    print("| " + " | ".join([name, str(least)] + cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=0, help="default: 3 of all-reduce, 1 of steps")
    parser.add_argument("--only", default="")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--ways", default="")
    args = parser.parse_args()
    asked = args.ways.split(",") if args.ways else [*WAYS, PACED]
    if asked[0] != "gloo" or len(asked) < 2 or not set(asked) <= {*WAYS, PACED, ALONE}:
        parser.error(f"--ways: gloo and others of {', '.join(WAYS[1:] + (PACED, ALONE))} expected, found {args.ways}")
    load = os.getloadavg()[0]
    for task in ("allreduce", "resnet50", "gpt2"):
        if args.only not in ("", task):
            continue
        ways = [way for way in asked if way in (WAYS if task == "allreduce" else (*WAYS, PACED, ALONE) if args.ways else ("gloo", "trireme", PACED))]
        print("| measured | at least | gloo | " + " | ".join(f"{way} | ratio" for way in ways[1:]) + " |\n" + "|---" * (1 + 2 * len(ways)) + "|")
        count = args.rounds or (3 if task == "allreduce" else 1)
        rounds = [{way: measure(args, way, task) for way in ways} for _ in range(count)]
        for key in rounds[0]["gloo"]:
            found = {way: statistics.median(r[way][key] for r in rounds) for way in ways}
            name = f"all-reduce {int(key):,} B" if task == "allreduce" else f"{task} {key}"
            if key == "loss":
                print_row(name, "equal", [f"{found[way]:.6f}" for way in ways if way in WAYS])
            elif key == "peak memory":
                print_row(name, "", [f"{value:.0f} MB" for value in found.values()])
            else:
                print_row(name, LEAST[task], [f"{1e3 * value:.3f} ms" for value in found.values()], [found["gloo"] / value for value in found.values()])
    print(f"{args.ranks} ranks, load {load:.1f} before, {os.getloadavg()[0]:.1f} after (with the measurement itself)")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        run_rank(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
