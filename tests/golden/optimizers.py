#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes optimizers.h: trajectories of PyTorch's optimisers (and of LARS and FTRL, which it lacks,
from their papers' formulae in double precision) for src/exec/optimizer/update_test.c.

    python3 tests/golden/optimizers.py > tests/golden/optimizers.h      (python with torch; made by 2.15)

Weights a [2, 3] (decayed) and b [3] (not decayed); all starting values and gradients are small
multiples of 1/8, exact in float32, computed by the same formulae in the C test."""
import math
import torch

STEPS = 6
torch.set_default_dtype(torch.float64)


def start(i):
    return ((i * 3) % 7 - 3) / 4 + 0.125


def gradient(t, i):
    return ((t * 7 + i * 5) % 13 - 6) / 8


def params():
    a = torch.tensor([start(i) for i in range(6)]).reshape(2, 3).requires_grad_()
    b = torch.tensor([start(i + 6) for i in range(3)]).requires_grad_()
    return a, b


def set_gradients(t, a, b):
    a.grad = torch.tensor([gradient(t, i) for i in range(6)]).reshape(2, 3)
    b.grad = torch.tensor([gradient(t, i + 6) for i in range(3)])


def run(make, decay, clip=0.0):
    a, b = params()
    optimizer = make([{"params": [a], "weight_decay": decay}, {"params": [b], "weight_decay": 0.0}])
    for t in range(STEPS):
        set_gradients(t, a, b)
        if clip:
            total = math.sqrt(sum((p.grad ** 2).sum().item() for p in (a, b)))
            if total > clip:
                for p in (a, b):
                    p.grad *= clip / total
        optimizer.step()
    return torch.cat([a.detach().reshape(-1), b.detach()]).tolist()


def lars(lr, momentum, decay, trust, epsilon):
    a, b = (p.detach() for p in params())
    va, vb = torch.zeros_like(a), torch.zeros_like(b)
    for t in range(STEPS):
        ga = torch.tensor([gradient(t, i) for i in range(6)]).reshape(2, 3)
        gb = torch.tensor([gradient(t, i + 6) for i in range(3)])
        local = trust * a.norm() / (ga.norm() + decay * a.norm() + epsilon)
        va = momentum * va + lr * local * (ga + decay * a)
        vb = momentum * vb + lr * gb
        a, b = a - va, b - vb
    return torch.cat([a.reshape(-1), b]).tolist()


def ftrl(lr, l1, l2, initial):
    w = [start(i) for i in range(9)]
    n, z = [initial] * 9, [0.0] * 9
    for t in range(STEPS):
        for i in range(9):
            g = gradient(t, i)
            total = n[i] + g * g
            z[i] += g - (math.sqrt(total) - math.sqrt(n[i])) / lr * w[i]
            n[i] = total
            if abs(z[i]) <= l1:
                w[i] = 0.0
            else:
                w[i] = (math.copysign(l1, z[i]) - z[i]) / (math.sqrt(total) / lr + 2 * l2)
    return w


def sparse(make):
    """A table [5, 2]; each step uses rows 3, 1, 3 (row 3 twice)."""
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    with torch.no_grad():
        embedding.weight.copy_(torch.tensor([start(i) for i in range(10)]).reshape(5, 2))
    optimizer = make(embedding.parameters())
    for t in range(STEPS):
        optimizer.zero_grad()
        rows = torch.tensor([gradient(t, i) for i in range(6)]).reshape(3, 2)
        (embedding(torch.tensor([3, 1, 3])) * rows).sum().backward()
        optimizer.step()
    return embedding.weight.detach().reshape(-1).tolist()


def show(name, values):
    print(f"static const double golden_{name}[{len(values)}] = {{")
    for i in range(0, len(values), 3):
        print("    " + " ".join(f"{v:.17g}," for v in values[i:i + 3]))
    print("};")


def main():
    o = torch.optim
    print("/* Made by tests/golden/optimizers.py; do not edit. */")
    show("sgd", run(lambda p: o.SGD(p, lr=0.1), 0.01))
    show("momentum", run(lambda p: o.SGD(p, lr=0.1, momentum=0.9), 0.01))
    show("momentum_clip", run(lambda p: o.SGD(p, lr=0.1, momentum=0.9), 0.01, clip=0.75))
    show("nesterov", run(lambda p: o.SGD(p, lr=0.1, momentum=0.9, nesterov=True), 0.01))
    show("adam", run(lambda p: o.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6), 0.05))
    show("adamw", run(lambda p: o.AdamW(p, lr=0.02), 0.05))
    show("adagrad", run(lambda p: o.Adagrad(p, lr=0.1, initial_accumulator_value=0.1), 0.01))
    show("lars", lars(0.5, 0.9, 0.01, 0.02, 1e-9))
    show("ftrl", ftrl(0.1, 0.2, 0.05, 0.1))
    show("sparse_sgd", sparse(lambda p: o.SGD(p, lr=0.1)))
    show("sparse_adam", sparse(lambda p: o.SparseAdam(list(p), lr=0.02)))
    show("sparse_adagrad", sparse(lambda p: o.Adagrad(p, lr=0.1, initial_accumulator_value=0.1)))


main()
