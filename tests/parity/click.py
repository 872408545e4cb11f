#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repeats in PyTorch what click_dump did, and compares losses and weights.
Usage: click.py DIR LOSS_TOLERANCE WEIGHT_TOLERANCE MODEL,OPTIMIZER[,bags|stacked|rank] ...   (runs in DIR/<that>)"""
import json
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

KINDS = {"F32": np.float32, "I32": np.int32, "I64": np.int64}
FIELDS, WIDTH = 6, 8


def read(path):
    """The safetensors format, on its own terms: 8 bytes of length, JSON, data."""
    blob = open(path, "rb").read()
    (length,) = struct.unpack("<Q", blob[:8])
    tensors = {}
    for name, entry in json.loads(blob[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in entry["data_offsets"])
            tensors[name] = np.frombuffer(blob[begin:end], KINDS[entry["dtype"]]).reshape(entry["shape"]).copy()
    return tensors


def rows(table, x, bags):
    """[N, F, width]; a bag is the mean of its rows by weight."""
    if not bags:
        return table[x["keys"].reshape(-1, FIELDS)]
    pooled = []
    for begin, end in zip(x["offsets"][:-1].tolist(), x["offsets"][1:].tolist()):
        w = x["values"][begin:end]
        total = float(w.sum())
        pooled.append((w[:, None] * table[x["keys"][begin:end]]).sum(0) / total if total else torch.zeros(table.shape[1]))
    return torch.stack(pooled).reshape(-1, FIELDS, table.shape[1])


def tower(p, name, x, count):
    for i in range(count):
        x = F.relu(F.linear(x, p[f"{name}.{i}.weight"], p[f"{name}.{i}.bias"]))
    return x


def logits(model, variant, p, x):
    bags = variant == "bags"
    e = rows(p["embedding.weight"], x, bags)
    flat = torch.cat([e.flatten(1), x["dense"]], 1)
    out = lambda h: F.linear(h, p["out.weight"], p["out.bias"])[:, 0]
    if model == "dcnv2":
        c = flat
        for i in range(2):
            inner = F.linear(c, p[f"cross.{i}.v"]) if variant == "rank" else c
            c = flat * F.linear(inner, p[f"cross.{i}." + ("u" if variant == "rank" else "weight")], p[f"cross.{i}.bias"]) + c
        if variant == "stacked":
            return out(tower(p, "deep", c, 2))
        return out(torch.cat([c, tower(p, "deep", flat, 2)], 1))
    if model == "dlrm":
        b = tower(p, "bottom", x["dense"], 1)
        b = F.relu(F.linear(b, p["bottom.out.weight"], p["bottom.out.bias"]))
        t = torch.cat([b[:, None], e], 1)
        z = torch.bmm(t, t.transpose(1, 2))
        i, j = np.tril_indices(FIELDS + 1, -1)
        return out(tower(p, "top", torch.cat([b, z[:, i, j]], 1), 2))
    wide = rows(p["wide.weight"], x, bags).sum((1, 2)) + F.linear(x["dense"], p["wide_dense.weight"])[:, 0]
    deep = out(tower(p, "deep", flat, 2))
    if model == "deepfm":
        pairs = sum((e[:, i] * e[:, j]).sum(1) for i in range(FIELDS) for j in range(i))
        return deep + wide + pairs
    return deep + wide


class LazyAdam:
    """torch.optim.SparseAdam, epsilon 1e-5, on the rows of a table that a batch names."""

    def __init__(self, p):
        self.p, self.m, self.v, self.t = p, torch.zeros_like(p), torch.zeros_like(p), 0

    def step(self, used):
        self.t += 1
        with torch.no_grad():
            g = self.p.grad[used]
            self.m[used] = 0.9 * self.m[used] + 0.1 * g
            self.v[used] = 0.999 * self.v[used] + 0.001 * g * g
            rate = 0.01 * (1 - 0.999**self.t) ** 0.5 / (1 - 0.9**self.t)
            self.p[used] -= rate * self.m[used] / (self.v[used].sqrt() + 1e-5)


def compare(folder, model, kind, variant, loss_tolerance, weight_tolerance):
    init, final, batches = (read(f"{folder}/{n}.safetensors") for n in ("init", "final", "batches"))
    losses = [float(line) for line in open(f"{folder}/losses.txt")]
    p = {k: torch.from_numpy(v.copy()).requires_grad_() for k, v in init.items()}
    tables = [k for k in p if k in ("embedding.weight", "wide.weight")]
    if kind == "adagrad":
        optimizers = [torch.optim.Adagrad(p.values(), lr=0.05, initial_accumulator_value=0.1, eps=1e-10)]
    elif kind == "adam":  # rows that a batch does not name stay as they are
        optimizers = [torch.optim.Adam([v for k, v in p.items() if k not in tables], lr=0.01, eps=1e-5)]
    else:
        optimizers = [torch.optim.SGD(p.values(), lr=0.05)]
    lazy = [LazyAdam(p[k]) for k in tables if kind == "adam"]
    worst = 0.0
    for step, ours in enumerate(losses):
        x = {k: torch.from_numpy(v[step]) for k, v in batches.items()}
        loss = F.binary_cross_entropy_with_logits(logits(model, variant, p, x), x["label"])
        for v in p.values():
            v.grad = None
        loss.backward()
        for o in optimizers:
            o.step()
        for o in lazy:
            o.step(torch.unique(x["keys"]))
        worst = max(worst, abs(loss.item() - ours))
    apart = max(float(np.abs(p[k].detach().numpy() - final[k]).max()) for k in p)
    print(f"{model} {kind} {variant}: loss {losses[0]:.5f} to {losses[-1]:.5f}, worst difference {worst:.1e} (at most "
          f"{loss_tolerance:g}), worst weight {apart:.1e} (at most {weight_tolerance:g})")
    moved = max(float(np.abs(final[k] - init[k]).max()) for k in p)
    return worst <= loss_tolerance and apart <= weight_tolerance and moved > 1e-3


def main():
    torch.set_num_threads(1)
    fine = True
    for run in sys.argv[4:]:
        model, kind, variant = (run.split(",") + [""])[:3]
        fine = compare(f"{sys.argv[1]}/{run}", model, kind, variant, float(sys.argv[2]), float(sys.argv[3])) and fine
    sys.exit(0 if fine else 1)


main()
