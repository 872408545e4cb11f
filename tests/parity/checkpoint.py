#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of Trireme in torchvision's network with strict=True, and one of torchvision's for Trireme.

    checkpoint.py make DIR MODEL ...                     writes random weights, DIR/MODEL.theirs.safetensors
    checkpoint.py compare BATCH.bin [MODEL FILE.safetensors PREDICTIONS.npz] ...   compares the logits

Several models a call: importing torch takes longer than what is done with it."""
import json
import struct
import sys

import numpy as np
import torch
import torchvision

torch.set_num_threads(1)
KINDS = {"F32": np.float32, "I64": np.int64}


def read(path):
    blob = open(path, "rb").read()
    (length,) = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8 : 8 + length])
    header.pop("__metadata__", None)
    return {name: torch.from_numpy(np.frombuffer(blob[8 + length :][slice(*entry["data_offsets"])], KINDS[entry["dtype"]])
                                   .reshape(entry["shape"]).copy()) for name, entry in header.items()}


def write(path, state):
    header, data = {}, b""
    for name, tensor in state.items():
        array = tensor.numpy()
        kind = next(k for k, v in KINDS.items() if v == array.dtype)
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)


def network(name):
    return getattr(torchvision.models, name)(num_classes=10).eval()


def images(path):
    """CIFAR-10's test set as guide 002 prepares it, with the mean and deviation in the right order."""
    rows = np.fromfile(path, np.uint8).reshape(-1, 3073)[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    mean, deviation = np.array([0.4914, 0.4822, 0.4465], np.float32), np.array([0.2023, 0.1994, 0.2010], np.float32)
    return torch.from_numpy((rows - mean[:, None, None]) / deviation[:, None, None])


def compare(name, weights, batch, predictions):
    model = network(name)
    model.load_state_dict(read(weights), strict=True)
    with torch.no_grad():
        theirs = model(images(batch)).numpy()
    ours = np.load(predictions)["logits"]
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    error = np.abs(ours - theirs).max() / np.abs(theirs).max()
    spread = np.abs(theirs - theirs[:1]).max() / np.abs(theirs).max()
    print(f"{name}: logits apart by {error:.1e} of the largest, images by {spread:.1e}")
    assert error < 1e-4 < spread


def make(name, path):
    torch.manual_seed(3)
    model = network(name)
    for key, tensor in model.state_dict().items():  # running statistics that are not their defaults
        if key.endswith("running_mean"):
            tensor.normal_(0, 0.1)
        elif key.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
    write(path, model.state_dict())


if sys.argv[1] == "make":
    for model in sys.argv[3:]:
        make(model, f"{sys.argv[2]}/{model}.theirs.safetensors")
else:
    for model, weights, predictions in zip(*(iter(sys.argv[3:]),) * 3, strict=True):
        compare(model, weights, sys.argv[2], predictions)
