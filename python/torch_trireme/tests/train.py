# SPDX-License-Identifier: Apache-2.0
"""Started by torchrun: trains a small network, or a small Llama of transformers, and prints the losses.
Usage: train.py BACKEND ddp|fsdp|tensor [llama]"""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import torch_trireme  # noqa: F401

dist.init_process_group(sys.argv[1])
way, llama = sys.argv[2], sys.argv[3:] == ['llama']
r, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
torch.set_num_threads(1)
if llama:
    import transformers
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2))
    layers = list(model.model.layers)
    by_column, by_row = ('self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj', 'mlp.gate_proj', 'mlp.up_proj'), ('self_attn.o_proj', 'mlp.down_proj')
    by_column, by_row = ([f'model.layers.*.{name}' for name in names] for names in (by_column, by_row))
else:
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    layers, by_column, by_row = [model[0], model[2], model[4]], ['0'], ['2']
if way == 'ddp':
    model = DistributedDataParallel(model)
elif way == 'fsdp':
    from torch.distributed.fsdp import fully_shard
    for layer in layers:
        fully_shard(layer)
    fully_shard(model)
else:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh('cpu', (n,))
    parallelize_module(model, mesh, {name: kind() for names, kind in ((by_column, ColwiseParallel), (by_row, RowwiseParallel)) for name in names})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(2)
losses = []
for step in range(10):
    if llama:
        x = y = torch.randint(96, (4 * n, 24), generator=data)
    else:
        x, y = torch.randn(16 * n, 32, generator=data), torch.randint(8, (16 * n,), generator=data)
    if way != 'tensor':
        share = len(x) // n
        x, y = x[r * share:(r + 1) * share], y[r * share:(r + 1) * share]
    loss = model(x, labels=y).loss if llama else torch.nn.functional.cross_entropy(model(x), y)
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
dist.barrier()  # no rank ends before the losses are printed
dist.destroy_process_group()
