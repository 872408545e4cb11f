#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of bench/resnet_table.py: training steps of torchvision's ResNet in PyTorch, as one JSON line.
Usage: peer_torch_resnet.py MODEL IMAGE_SIZE BATCH THREADS fp32|mixed [compile]"""
import json
import resource
import statistics
import sys
import time

import torch
import torchvision

name, size, batch, threads, precision = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
torch.set_num_threads(threads)
torch.manual_seed(0)
classes = 10 if size == 32 else 1000
network = getattr(torchvision.models, name)(num_classes=classes).train().to(memory_format=torch.channels_last)
image = torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)
label = torch.randint(0, classes, (batch,))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True)
loss_of = torch.nn.CrossEntropyLoss()
run = torch.compile(network) if "compile" in sys.argv else network
seconds = []
for _ in range(7 if size < 100 else 4):
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "mixed"):
        loss = loss_of(run(image), label)
    loss.backward()
    optimizer.step()
    loss.item()
    seconds.append(time.perf_counter() - begin)
warm = seconds[1:]
print(json.dumps({"peer": "torch " + torch.__version__, "images_per_second": batch / statistics.median(warm),
                  "first_step_seconds": seconds[0],
                  "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
