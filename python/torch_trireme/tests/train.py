# SPDX-License-Identifier: Apache-2.0
"""Started by torchrun: DistributedDataParallel trains a small network; prints the losses. Usage: train.py BACKEND [fsdp|tensor]"""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import torch_trireme  # noqa: F401

dist.init_process_group(sys.argv[1])
r, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
way = sys.argv[2] if len(sys.argv) > 2 else 'ddp'
if way == 'ddp':
    model = DistributedDataParallel(model)
elif way == 'fsdp':
    from torch.distributed.fsdp import fully_shard
    for layer in (model[0], model[2], model[4]):
        fully_shard(layer)
    fully_shard(model)
else:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh('cpu', (n,))
    parallelize_module(model, mesh, {'0': ColwiseParallel(), '2': RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(2)
losses = []
for step in range(10):
    x, y = torch.randn(16 * n, 32, generator=data), torch.randint(8, (16 * n,), generator=data)
    if way != 'tensor':
        x, y = x[r * 16:(r + 1) * 16], y[r * 16:(r + 1) * 16]
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    whole = loss.detach().clone()
    if way != 'tensor':
        dist.all_reduce(whole)
        whole /= n
    losses.append(f'{whole.item():.5f}')
if r == 0:
    print('losses', *losses, flush=True)
dist.destroy_process_group()
