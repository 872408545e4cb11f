#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 training steps by PyTorch's DistributedDataParallel over gloo; bench/ddp_table.py's peer.

    python -m torch.distributed.run --standalone --nproc-per-node 2 peer_torch_ddp.py IMAGE_SIZE GLOBAL_BATCH fp32|mixed

One thread a rank, channels-last, the same data in each step; prints one JSON object."""
import json
import sys
import time

import torch
import torch.distributed
import torchvision

size, batch, precision = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.manual_seed(0)
classes = 10 if size < 64 else 1000
network = torch.nn.parallel.DistributedDataParallel(
    torchvision.models.resnet50(num_classes=classes).to(memory_format=torch.channels_last))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
loss_of = torch.nn.CrossEntropyLoss()
images = torch.randn(batch // ranks, 3, size, size).to(memory_format=torch.channels_last)
labels = torch.randint(0, classes, (batch // ranks,))
times = []
for _ in range(8):
    begin = time.perf_counter()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "mixed"):
        loss = loss_of(network(images), labels)
    loss.backward()
    optimizer.step()
    times.append(time.perf_counter() - begin)
if rank == 0:
    print(json.dumps({"images_per_second": batch / sorted(times[2:])[3], "ranks": ranks, "torch": torch.__version__}))
torch.distributed.destroy_process_group()
