# SPDX-License-Identifier: Apache-2.0
"""Ranks under torchrun: after share_memory() PyTorch's large tensors lie in shared memory, collectives on them are right, a forked child
has copies of its own, and tensors outlive their process group. Prints "all right"."""
import os
import threading

import torch
import torch.distributed as dist
import torch_trireme

dist.init_process_group('trireme')
rank, size = dist.get_rank(), dist.get_world_size()


def is_shared(tensor):
    address = tensor.data_ptr()
    with open('/proc/self/maps') as maps:
        for line in maps:
            begin, end = (int(x, 16) for x in line.split()[0].split('-'))
            if begin <= address < end:
                return 'trireme' in line
    raise AssertionError('an address that is not mapped')


before = torch.ones(100000)
torch_trireme.share_memory(least=65536)
assert not is_shared(before) and not is_shared(torch.ones(100)), 'small or older tensors are shared'
# sizes around arenas' (64 MB); freed blocks are used again; sums are right in every block
for round in range(3):
    tensors = [torch.full((n,), float(rank + i)) for i, n in enumerate((16384, 20000, 1 << 20, 17 << 20, 99999, 5 << 20))]
    for i, t in enumerate(tensors):
        assert is_shared(t), f'{t.numel()} values are not in shared memory'
        dist.all_reduce(t)
        assert bool((t == sum(r + i for r in range(size))).all()), f'wrong sum of {t.numel()} values'
    part = tensors[2][1000:500000]
    dist.broadcast(part, 0)
    del tensors[::2], t, part
# many threads allocate and free
failures = []


def churn(seed):
    generator = torch.Generator().manual_seed(seed)
    held = []
    for _ in range(200):
        n = int(torch.randint(16384, 300000, (1,), generator=generator))
        held.append((n, torch.full((n,), float(n))))
        if len(held) > 5:
            n, t = held.pop(0)
            if not bool((t == n).all()):
                failures.append(f'a block of {n} values was given twice')


threads = [threading.Thread(target=churn, args=(s,)) for s in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failures, failures[0]
# DistributedDataParallel's gradients are views of shared buckets
torch.manual_seed(0)
network = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512), gradient_as_bucket_view=True)
for _ in range(2):
    network(torch.ones(4, 512) * rank).sum().backward()
assert is_shared(network.module.weight.grad)
# oneDNN takes its scratch memory from PyTorch's allocator as plain pointers
layers = torch.nn.Sequential(*[torch.nn.Conv2d(c, 64, 3, padding=1, bias=False) for c in (3, 64, 64)], torch.nn.BatchNorm2d(64), torch.nn.MaxPool2d(2))
layers(torch.randn(32, 3, 32, 32).to(memory_format=torch.channels_last)).sum().backward()
# a child's writes stay its own
kept = torch.full((50000,), float(rank))
child = os.fork()
if child == 0:
    right = bool((kept == rank).all())
    kept.fill_(-1)
    fresh = torch.full((50000,), 7.0)
    os._exit(0 if right and bool((fresh == 7).all()) else 1)
assert os.waitpid(child, 0)[1] == 0, 'a forked child'
assert bool((kept == rank).all()), "a forked child wrote into its parent's tensor"
one = torch_trireme.empty(1000)
one.fill_(3)
dist.destroy_process_group()
assert bool((kept == rank).all()) and bool((one == 3).all())
del one
more = torch.full((40 << 20,), 2.0)  # larger than what is free: PyTorch's own memory
assert not is_shared(more)
print('all right', flush=True)
