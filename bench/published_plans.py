#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published training throughputs beside those that `trireme plan --hardware` predicts for the same plans.

    bench/published_plans.py [--trireme build/release/trireme] [--json]

Each device has one hardware file with one efficiency curve; no row has a parameter of its own. Prints predicted and published
tokens/s a device, the error, the mean error and Kendall's tau, for each machine and for all. Sources of the rows:
  nemo      NVIDIA/NeMo docs/source/performance/performance_summary.md, container 24.07, DGX H100, FP8
  titan     pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md and asyncTP_llama3_h100_2025-06_torchtitan.md (500 W)
  trainy    pytorch/torchtitan benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md
  selene    Korthikanti et al. 2022, table 5, with sequence parallel: selective, and full recompute"""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# source, machine, model, preset, devices, samples of a step, tokens of a sample, products, plan, published tokens/s a device
ROWS = [
    ("nemo", "h100", "gpt2", "5b", 64, 2048, 2048, "fp8", "tp=1,pp=1,micro-batch=4,zero=1", 22521),
    ("nemo", "h100", "gpt2", "20b", 64, 256, 2048, "fp8", "tp=2,pp=1,micro-batch=2,zero=1", 5851),
    ("nemo", "h100", "gpt2", "175b", 128, 256, 2048, "fp8", "tp=4,pp=8,vp=6,micro-batch=1,zero=1", 726),
    ("nemo", "h100", "gpt2", "175b", 512, 2048, 2048, "fp8", "tp=4,pp=8,vp=6,micro-batch=2,zero=1", 782),
    ("nemo", "h100", "llama", "2-7b", 8, 128, 4096, "fp8", "tp=1,pp=1,micro-batch=1,zero=1", 16847),
    ("nemo", "h100", "llama", "2-13b", 16, 128, 4096, "fp8", "tp=1,pp=4,vp=10,micro-batch=1,zero=1", 8646),
    ("nemo", "h100", "llama", "2-70b", 64, 128, 4096, "fp8", "tp=4,pp=4,vp=20,micro-batch=1,zero=1", 1707),
    ("nemo", "h100", "gpt2", "nemotron-8b", 64, 256, 4096, "fp8", "tp=2,pp=1,micro-batch=4,zero=1", 12701),
    ("nemo", "h100", "gpt2", "nemotron-22b", 64, 256, 4096, "fp8", "tp=2,pp=4,vp=10,micro-batch=2,zero=1", 4256),
    ("nemo", "h100", "gpt2", "nemotron-340b", 128, 32, 4096, "fp8", "tp=8,pp=8,vp=12,micro-batch=1,zero=1", 322),
    ("nemo", "h100", "llama", "8b", 8, 128, 8192, "fp8", "tp=1,pp=1,cp=2,micro-batch=1,zero=1", 12036),
    ("nemo", "h100", "llama", "70b", 64, 128, 8192, "fp8", "tp=4,pp=4,cp=2,vp=5,micro-batch=1,zero=1", 1533),
    ("titan", "h100-500w", "llama", "8b", 8, 16, 8192, "bf16", "micro-batch=2,zero=3,recompute=selective", 6667),
    ("titan", "h100-500w", "llama", "8b", 8, 16, 8192, "fp8", "micro-batch=2,zero=3,recompute=selective", 8532),
    ("titan", "h100-500w", "llama", "8b", 128, 256, 8192, "bf16", "micro-batch=2,zero=3,recompute=selective", 6514),
    ("titan", "h100-500w", "llama", "8b", 128, 256, 8192, "fp8", "micro-batch=2,zero=3,recompute=selective", 8380),
    ("titan", "h100-500w", "llama", "8b", 8, 8, 32768, "fp8", "cp=1,zero=3,recompute=full", 3890),
    ("titan", "h100-500w", "llama", "8b", 8, 4, 65536, "fp8", "cp=2,zero=3,recompute=full", 2540),
    ("titan", "h100-500w", "llama", "8b", 8, 2, 131072, "fp8", "cp=4,zero=3,recompute=full", 1071),
    ("titan", "h100-500w", "llama", "8b", 8, 1, 262144, "fp8", "cp=8,zero=3,recompute=full", 548),
    ("titan", "h100-500w", "llama", "70b", 256, 512, 8192, "fp8", "tp=8,micro-batch=16,zero=3,recompute=full,overlap-tp=off", 829),
    ("titan", "h100-500w", "llama", "70b", 256, 512, 8192, "fp8", "tp=8,micro-batch=16,zero=3,recompute=full", 876),
    ("titan", "h100-500w", "llama", "70b", 256, 512, 8192, "bf16", "tp=8,micro-batch=16,zero=3,recompute=full,overlap-tp=off", 597),
    ("titan", "h100-500w", "llama", "70b", 256, 512, 8192, "bf16", "tp=8,micro-batch=16,zero=3,recompute=full", 652),
    ("titan", "h100-500w", "llama", "8b", 64, 96, 8192, "bf16", "tp=8,micro-batch=12,zero=3,recompute=selective,overlap-tp=off", 4378),
    ("titan", "h100-500w", "llama", "8b", 64, 96, 8192, "bf16", "tp=8,micro-batch=12,zero=3,recompute=selective", 4809),
    ("titan", "h100-500w", "llama", "8b", 64, 96, 8192, "fp8", "tp=8,micro-batch=12,zero=3,recompute=selective,overlap-tp=off", 5078),
    ("titan", "h100-500w", "llama", "8b", 64, 96, 8192, "fp8", "tp=8,micro-batch=12,zero=3,recompute=selective", 5570),
    ("titan", "h100-500w", "llama", "405b", 512, 256, 8192, "fp8", "tp=8,pp=8,zero=2,recompute=full", 100),
    ("titan", "h100-500w", "llama", "405b", 512, 256, 8192, "fp8", "tp=8,pp=8,vp=2,zero=2,recompute=full", 128),
    ("titan", "h100-500w", "llama", "405b", 512, 64, 32768, "fp8", "tp=8,pp=8,cp=1,zero=2,recompute=full", 76),
    ("titan", "h100-500w", "llama", "405b", 512, 32, 65536, "fp8", "tp=8,pp=8,cp=2,zero=2,recompute=full", 47),
    ("titan", "h100-500w", "llama", "405b", 512, 16, 131072, "fp8", "tp=8,pp=8,cp=4,zero=2,recompute=full", 31),
    ("titan", "h100-500w", "llama", "405b", 512, 8, 262144, "fp8", "tp=8,pp=8,cp=8,zero=2,recompute=full", 16),
    ("trainy", "h200", "llama", "8b", 32, 64, 8192, "fp8", "micro-batch=2,zero=3,recompute=selective", 10938),
    ("trainy", "h200", "llama", "8b", 64, 128, 8192, "fp8", "micro-batch=2,zero=3,recompute=selective", 10753),
    ("selene", "a100", "gpt2", "22b", 8, 4, 2048, "bf16", "tp=8,micro-batch=4,recompute=selective,overlap-tp=off", 4 * 2048 / 1.10 / 8),
    ("selene", "a100", "gpt2", "175b", 64, 64, 2048, "bf16", "tp=8,pp=8,vp=3,recompute=selective,overlap-tp=off", 64 * 2048 / 13.75 / 64),
    ("selene", "a100", "gpt2", "530b", 280, 280, 2048, "bf16", "tp=8,pp=35,vp=3,recompute=selective,overlap-tp=off", 280 * 2048 / 37.83 / 280),
    ("selene", "a100", "gpt2", "1t", 512, 512, 2048, "bf16", "tp=8,pp=64,recompute=selective,overlap-tp=off", 512 * 2048 / 71.49 / 512),
    ("selene", "a100", "gpt2", "22b", 8, 4, 2048, "bf16", "tp=8,micro-batch=4,recompute=full,overlap-tp=off", 4 * 2048 / 1.42 / 8),
    ("selene", "a100", "gpt2", "175b", 64, 64, 2048, "bf16", "tp=8,pp=8,vp=3,recompute=full,overlap-tp=off", 64 * 2048 / 18.13 / 64),
    ("selene", "a100", "gpt2", "530b", 280, 280, 2048, "bf16", "tp=8,pp=35,vp=3,recompute=full,overlap-tp=off", 280 * 2048 / 49.05 / 280),
    ("selene", "a100", "gpt2", "1t", 512, 512, 2048, "bf16", "tp=8,pp=64,recompute=full,overlap-tp=off", 512 * 2048 / 94.42 / 512),
]


def predict(program, machines, row):
    _, machine, model, preset, devices, batch, context, products, plan, _ = row
    done = subprocess.run([program, "plan", model, "--preset", preset, "-n", str(devices), "--full-batch", "--batch-size", str(batch),
                           "--context", str(context), "--products", products, "--hardware", os.path.join(machines, machine + ".json"),
                           "--plan", plan, "--json"], capture_output=True, text=True)
    try:
        return json.loads(done.stdout.splitlines()[0])["given"]
    except (ValueError, IndexError, KeyError):
        sys.exit(f"published_plans: {model} {preset}: {done.stderr.strip()}")


def tau(pairs):
    """Kendall's tau of (predicted, published)."""
    signs = [((a[0] > b[0]) - (a[0] < b[0])) * ((a[1] > b[1]) - (a[1] < b[1])) for i, a in enumerate(pairs) for b in pairs[:i]]
    return sum(signs) / len(signs) if signs else 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=os.path.join(HERE, "..", "build", "release", "trireme"))
    parser.add_argument("--machines", default=os.path.join(HERE, "..", "examples", "hardware"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = []
    for row in ROWS:
        given = predict(args.trireme, args.machines, row)
        rate = given["tokens_per_second_per_device"]
        found.append((row, rate, rate / row[9] - 1))
        if args.json:
            print(json.dumps(dict(zip(("source", "machine", "model", "preset", "devices", "batch", "context", "products", "plan",
                                       "published"), row), predicted=rate, error=rate / row[9] - 1, memory_bytes=given["memory_bytes"])))
        else:
            print(f"| {row[0]} | {row[2]} {row[3]} | {row[4]} | {row[6]} | {row[7]} | {row[8]} | {row[9]:.0f} | {rate:.0f} "
                  f"| {100 * (rate / row[9] - 1):+.0f} % |")
    for group in ["nemo", "titan", "trainy", "selene", None]:
        some = [f for f in found if group in (None, f[0][0])]
        mean = sum(abs(f[2]) for f in some) / len(some)
        order = tau([(f[1], f[0][9]) for f in some])
        summary = {"rows": group or "all", "count": len(some), "mean_error": mean, "tau": order}
        print(json.dumps(summary) if args.json else f"{summary['rows']}: {len(some)} rows, mean error {100 * mean:.1f} %, tau {order:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
