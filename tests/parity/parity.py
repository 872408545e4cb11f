#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repeats in PyTorch what parity_dump did, and compares losses, weights and running statistics.
Usage: parity.py [--double] LOSS_TOLERANCE WEIGHT_TOLERANCE DIR ...    a folder of a dump each, named as its model"""
import json
import os
import struct
import sys

import numpy as np
import torch
import torchvision

KINDS = {"F32": np.float32, "I32": np.int32, "I64": np.int64}


def read(path):
    """The safetensors format, on its own terms: 8 bytes of length, JSON, data."""
    blob = open(path, "rb").read()
    (length,) = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in entry["data_offsets"])
            tensors[name] = np.frombuffer(blob[begin:end], KINDS[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def agrees(folder, loss_tolerance, weight_tolerance, dtype):
    model_name = os.path.basename(folder)
    init, final, batches = (read(f"{folder}/{n}.safetensors") for n in ("init", "final", "batches"))
    losses = [float(line) for line in open(f"{folder}/losses.txt")]
    model = getattr(torchvision.models, model_name)(num_classes=init["fc.bias"].shape[0]).train()
    state = {k: torch.from_numpy(v.copy()) for k, v in init.items()}
    for key in model.state_dict():
        if key.endswith("num_batches_tracked"):
            state.setdefault(key, torch.zeros((), dtype=torch.int64))
    model.load_state_dict(state, strict=True)
    model = model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, weight_decay=1e-4)
    loss_of = torch.nn.CrossEntropyLoss()
    worst = 0.0
    for step, ours in enumerate(losses):
        optimizer.zero_grad()
        image = torch.from_numpy(batches["image"][step].copy()).to(dtype)
        label = torch.from_numpy(batches["label"][step].copy()).long()
        loss = loss_of(model(image), label)
        loss.backward()
        optimizer.step()
        error = abs(loss.item() - ours) / abs(loss.item())
        worst = max(worst, error)
        print(f"step {step + 1}: torch {loss.item():.7f} trireme {ours:.7f} relative {error:.1e}")
    apart = 0.0
    for key, tensor in model.state_dict().items():
        if key in final:
            theirs = tensor.double().numpy()
            scale = max(np.abs(theirs).max(), 1e-2)
            error = np.abs(theirs - final[key]).max() / scale
            if error > weight_tolerance:
                print(f"{key}: off by {error:.1e} of its largest element")
            apart = max(apart, error)
    print(f"{model_name}: worst loss {worst:.2e} (at most {loss_tolerance:g}), worst tensor {apart:.2e} (at most {weight_tolerance:g})")
    return worst <= loss_tolerance and apart <= weight_tolerance


arguments = [a for a in sys.argv[1:] if a != "--double"]
torch.set_num_threads(2)
good = [agrees(folder, float(arguments[0]), float(arguments[1]), torch.float64 if "--double" in sys.argv else torch.float32)
        for folder in arguments[2:]]
sys.exit(0 if good and all(good) else 1)
