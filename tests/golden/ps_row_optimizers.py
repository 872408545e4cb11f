#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frozen numbers for src/ps/table/apply_test.c from PyTorch: rows after each step of torch.optim.
usage: ps_row_optimizers.py > ps_row_optimizers.txt     (made with PyTorch 2.15.0, CPU)

Each line: case step value...   Gradients and start are formulas that the test repeats:
g[t][i] = ((7 t + 3 i) mod 11 - 5) / 10, w[i] = (i mod 5 - 2) / 4, 6 values, 5 steps; the case
"sparse_adam" touches row 0 in steps 1, 2 and 5 only."""
import torch

WIDTH, STEPS = 6, 5


def start():
    return torch.tensor([(i % 5 - 2) / 4 for i in range(WIDTH)], dtype=torch.float32)


def gradient(t):
    return torch.tensor([((7 * t + 3 * i) % 11 - 5) / 10 for i in range(WIDTH)], dtype=torch.float32)


def run(name, make):
    w = torch.nn.Parameter(start())
    optimizer = make([w])
    for t in range(1, STEPS + 1):
        w.grad = gradient(t)
        optimizer.step()
        print(name, t, *(f"{x:.9g}" for x in w.detach().tolist()))


def run_sparse_adam():
    table = torch.nn.Parameter(torch.stack([start(), start()]))
    optimizer = torch.optim.SparseAdam([table], lr=0.05, betas=(0.8, 0.95), eps=1e-6)
    for t in range(1, STEPS + 1):
        row = 0 if t in (1, 2, 5) else 1
        table.grad = torch.sparse_coo_tensor([[row]], gradient(t)[None], table.shape)
        optimizer.step()
        print("sparse_adam", t, *(f"{x:.9g}" for x in table.detach()[0].tolist()))


run("sgd", lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01))
run("momentum", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
run("nesterov", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True))
run("adagrad", lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1, eps=1e-10))
run("adam", lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.02))
run("adamw", lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.02))
run_sparse_adam()
