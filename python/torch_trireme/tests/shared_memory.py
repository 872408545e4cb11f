# SPDX-License-Identifier: Apache-2.0
"""Ranks under torchrun: PyTorch's large tensors lie in memory that the ranks share once collectives use them, and are otherwise as
safe as PyTorch's own. Prints "all right". Usage: shared_memory.py default|small|off|limit|other|apart|alone"""
import ctypes
import gc
import io
import os
import resource
import shutil
import sys
import tempfile
import threading

import torch
import torch.distributed as dist
import torch_trireme

MODE = sys.argv[1]
MEGA = 1 << 20


def is_shared(tensor):
    address = tensor.data_ptr()
    with open('/proc/self/maps') as maps:
        for line in maps:
            begin, end = (int(x, 16) for x in line.split()[0].split('-'))
            if begin <= address < end:
                return 'trireme' in line
    raise AssertionError('an address that is not mapped')


def own_allocator():
    """Whether PyTorch's CPU allocator is its own one."""
    c10 = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), 'lib', 'libc10.so'))
    found, default = c10._ZN3c1015GetCPUAllocatorEv, c10._ZN3c1022GetDefaultCPUAllocatorEv
    found.restype = default.restype = ctypes.c_void_p
    return found() == default()


def use_other_allocator():
    """Installs PyTorch's allocator of mobile devices with a higher priority, as an extension would its own."""
    c10 = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), 'lib', 'libc10.so'))
    other, install = c10._ZN3c1028GetDefaultMobileCPUAllocatorEv, c10._ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh
    other.restype, install.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_uint8)
    install(other(), 2)


def resident():
    with open('/proc/self/statm') as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def sum_of(tensor, expected, what, times=1):
    """Reduces the tensor, which holds the rank's number plus something equal on all ranks."""
    for _ in range(times):
        tensor.fill_(rank + 1)
        dist.all_reduce(tensor)
    assert bool((tensor == expected).all()), f'wrong sum: {what}'


def run_child(main):
    """Runs main() in a forked child, and returns its process number; the child ends with 0 if it returned True."""
    child = os.fork()
    if child == 0:
        right = False
        try:
            right = main()
        finally:
            os._exit(0 if right else 1)
    return child


def ends_well(child):
    return os.waitpid(child, 0)[1] == 0


def moves():
    """A tensor moves when its size is used for the second time; its address, views and values stay."""
    t, other, small = torch.empty(100000), torch.ones(1234567), torch.empty(1000)
    view, address = t.numpy(), t.data_ptr()
    sum_of(t, whole, 'first time')
    assert not is_shared(t)
    sum_of(t, whole, 'second time')
    assert is_shared(t) and t.data_ptr() == address and bool((view == whole).all()), 'a tensor that moved'
    view[7] = 5
    assert t[7] == 5, 'a view of the place before'
    sum_of(t, whole, 'third time')
    sum_of(small, whole, 'small', 3)
    assert is_shared(torch.empty(100000)) and not is_shared(other) and not is_shared(small) and not is_shared(before)
    sum_of(t[1000:50000], whole, 'a slice')
    part = t[2000:90000]
    part.fill_(rank)
    dist.broadcast(part, size - 1)
    assert bool((part == size - 1).all()), 'a slice that was sent'
    # slices of a private tensor do not move it: another thread may write to the rest of it
    flat = torch.empty(200000)
    for _ in range(3):
        sum_of(flat[:100000], whole, 'a slice of a private tensor')
    assert not is_shared(flat)
    # one rank's tensor is older than the group
    mixed = before if rank == 0 else torch.empty(100000)
    sum_of(mixed, whole, 'private on one rank', 3)
    # a strided tensor, several types, outputs of several ranks' size
    for _ in range(3):
        strided = torch.full((400, 500), float(rank + 1)).t()
        dist.all_reduce(strided)
        assert bool((strided == whole).all()), 'a strided tensor'
        halves = torch.full((100000,), rank + 1, dtype=torch.bfloat16)
        dist.all_reduce(halves)
        assert bool((halves == whole).all()), 'bfloat16'
        gathered = torch.empty(100000 * size)
        dist.all_gather_into_tensor(gathered, torch.full((100000,), float(rank)))
        assert bool((gathered.view(size, -1) == torch.arange(float(size)).view(-1, 1)).all()), 'all_gather_into_tensor'
        scattered = torch.empty(100000)
        dist.reduce_scatter_tensor(scattered, torch.full((100000 * size,), rank + 1.0))
        assert bool((scattered == whole).all()), 'reduce_scatter_tensor'
    assert is_shared(gathered) and is_shared(scattered)


def blocks():
    """Sizes around an arena's (64 MB); freed blocks are used again; sums are right in every block."""
    for _ in range(3):
        tensors = [torch.empty(n) for n in (16384, 20000, MEGA, 17 * MEGA, 99999, 5 * MEGA)]
        for t in tensors:
            sum_of(t, whole, f'{t.numel()} values', 2)
            assert is_shared(t), f'{t.numel()} values are not in shared memory'
        del tensors[::2]


def threads():
    """Many threads make and free tensors, of which some are shared."""
    failures = []

    def churn(seed):
        generator = torch.Generator().manual_seed(seed)
        held = []
        for _ in range(200):
            n = (16384, 100000)[int(torch.randint(2, (1,), generator=generator))] + int(torch.randint(2, (1,), generator=generator)) * 5000
            held.append((n, torch.full((n,), float(n + seed))))
            if len(held) > 5:
                n, t = held.pop(0)
                if not bool((t == n + seed).all()):
                    failures.append(f'a block of {n} values was given twice')

    all_threads = [threading.Thread(target=churn, args=(s,)) for s in range(4)]
    [t.start() for t in all_threads]
    for _ in range(50):
        sum_of(torch.empty(100000), whole, 'beside threads')
    [t.join() for t in all_threads]
    assert not failures, failures[0]


def networks():
    torch.manual_seed(0)
    network = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512), gradient_as_bucket_view=True)
    for _ in range(4):
        network(torch.ones(4, 512) * rank).sum().backward()
    assert is_shared(network.module.weight.grad), "DistributedDataParallel's gradients"
    # oneDNN takes its scratch memory from PyTorch's allocator as plain pointers
    layers = torch.nn.Sequential(*[torch.nn.Conv2d(c, 64, 3, padding=1, bias=False) for c in (3, 64, 64)], torch.nn.BatchNorm2d(64), torch.nn.MaxPool2d(2))
    layers(torch.randn(32, 3, 32, 32).to(memory_format=torch.channels_last)).sum().backward()


def forks():
    """A child has the values of the moment when it was forked; no process sees what another one writes."""
    moved, born, private = torch.empty(150000), torch.empty(100000), torch.full((1234567,), float(rank))
    sum_of(moved, whole, 'moved', 3)
    kept = [moved.fill_(rank), born.fill_(rank), private]
    assert [is_shared(t) for t in kept] == [True, True, False]
    gone = torch.full((100000,), 3.0)
    begin, end = os.pipe()

    def look():
        os.read(begin, 1)  # the parent has written to all of them by now
        right = all(bool((t == rank).all()) for t in kept) and bool((gone == 3).all()) and not any(is_shared(t) for t in kept)
        for t in kept:
            t.fill_(-1)
        fresh = [torch.full((n,), float(n)) for n in (100000, 150000, 20 * MEGA, 16384)]
        return right and all(bool((t == t.numel()).all()) for t in fresh) and not any(is_shared(t) for t in fresh)

    child = run_child(look)
    for t in kept:
        t.fill_(rank + 10)
    del gone
    again = torch.full((100000,), -2.0)
    os.write(end, b'x')
    assert ends_well(child), 'a forked child does not have the values of its parent'
    assert all(bool((t == rank + 10).all()) for t in kept) and bool((again == -2).all()), "a forked child wrote into its parent's tensor"
    sum_of(born, whole, 'after a fork', 2)
    # a child may end as a program does; the job goes on
    child = os.fork()
    if child == 0:
        sys.exit(0)
    assert ends_well(child), 'a child that ends by sys.exit'
    sum_of(born, whole, 'after a child ended')


def raises(call, words):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        assert words in str(error), error
        return True
    raise AssertionError(f'no error with {words!r}')


def forked_groups():
    """A child is no rank of its parent's group and says so. It may make a group of its own, which leaves the parent's memory alone."""
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    kept = torch.empty(100000)
    sum_of(kept, whole, 'before a fork', 3)
    begin, end = os.pipe()

    def use():
        calls = [lambda: dist.all_reduce(kept), lambda: dist.send(kept, 1 - rank if rank < 2 else 0), dist.barrier,
                 lambda: dist.all_reduce(kept, async_op=True), lambda: torch_trireme.empty(5)]
        right = all(raises(call, 'forked after init_process_group') for call in calls)
        os.read(begin, 1)
        dist.destroy_process_group()
        dist.init_process_group('trireme', init_method=f'file://{folder[0]}/store', rank=rank, world_size=size)
        t = torch.empty(100000)
        sum_of(t, whole, "in the children's group", 3)
        right = right and is_shared(t)
        dist.destroy_process_group()
        return right and bool((t == whole).all())

    child = run_child(use)
    new = [torch.full((100000,), float(rank)) for _ in range(50)]  # in what was free when the child was forked
    assert is_shared(new[-1])
    os.write(end, b'x')
    assert ends_well(child), 'a child with a group of its own'
    assert all(bool((t == rank).all()) for t in new), "a child has emptied its parent's memory"
    sum_of(kept, whole, 'after it', 2)
    if rank == 0:
        shutil.rmtree(folder[0])


def many():
    """So many tensors may move that the process keeps most of its mappings."""
    torch_trireme._backend.share_memory(torch_trireme._of(None), 4096, False, True)
    tensors = [torch.empty(1024) for _ in range(9000)]
    for t in tensors:
        sum_of(t, whole, 'one of many', 2)
    assert all(bool((t == whole).all()) for t in tensors) and is_shared(tensors[100]) and not is_shared(tensors[-1])
    with open('/proc/self/maps') as maps:
        assert sum(1 for _ in maps) < 30000, 'mappings'
    del tensors, t
    more = torch.empty(1024)
    sum_of(more, whole, 'after many', 2)
    torch_trireme._backend.share_memory(torch_trireme._of(None), torch_trireme.LEAST, False, True)


def refused():
    """What PyTorch refuses is refused, and for its reason."""
    with open('/proc/sys/vm/overcommit_memory') as f:
        promises_all = f.read().strip() == '1'
    assert promises_all or raises(lambda: torch.empty(1 << 42), 'memory')
    kept = []
    assert raises(lambda: [kept.append(torch_trireme.empty(10)) for _ in range(300)], 'shared buffers of this rank are in use')
    assert raises(lambda: torch_trireme.empty(-1), 'sizes 0 and above') and raises(lambda: torch_trireme.empty(1 << 40, 1 << 40), 'sizes 0 and above')


class Rows(torch.utils.data.Dataset):
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        return self.values[i].clone()


def add_in_child(tensor, done):
    tensor += 1
    done.put(float(tensor.sum()))


def other_processes():
    values = torch.arange(64.0).view(-1, 1).repeat(1, 20000)
    for method in ('fork', 'spawn'):
        rows = [int(row[0]) for batch in torch.utils.data.DataLoader(Rows(values), batch_size=8, num_workers=2, multiprocessing_context=method)
                for row in batch if bool((row == row[0]).all())]
        assert rows == list(range(64)), f'a DataLoader with workers by {method}'
    context = torch.multiprocessing.get_context('spawn')
    t, done = torch.zeros(100000), context.SimpleQueue()
    t.share_memory_()
    child = context.Process(target=add_in_child, args=(t, done))
    child.start()
    assert done.get() == 100000
    child.join()
    assert child.exitcode == 0 and bool((t == 1).all()), 'share_memory_'
    sum_of(t, whole, "in memory of torch.multiprocessing", 2)
    stored = io.BytesIO()
    t = torch.full((100000,), 4.0)
    torch.save({'t': t}, stored)
    stored.seek(0)
    assert torch.equal(torch.load(stored)['t'], t)


def limits():
    """Where the kernel gives no shared memory, tensors stay private."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEGA, limit[1]))
    t = torch.empty(40 * MEGA)  # more than what the arenas have free
    sum_of(t, whole, 'without shared memory', 3)
    assert not is_shared(t) and not is_shared(torch.empty(40 * MEGA))
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    dist.barrier()


def returns_memory():
    """Memory that tensors no longer need goes back to the kernel."""
    gc.collect()
    begin = resident()
    tensors = [torch.full((5 * MEGA,), 1.0) for _ in range(30)]
    full = resident()
    assert full - begin > 300 * MEGA, 'tensors without memory'
    del tensors
    for _ in range(800):
        torch.empty(8 * MEGA)
    assert full - resident() > 300 * MEGA, f'{(resident() - begin) // MEGA} MB are kept'


def switches():
    torch_trireme.private_memory()
    t = torch.empty(100000)
    sum_of(t, whole, 'after private_memory', 3)
    assert not is_shared(t)
    torch_trireme.share_memory(least=8192)
    assert is_shared(torch.empty(2048)) and not is_shared(torch.empty(2000)) and is_shared(torch.empty(77777))
    flat = torch.empty(300000)
    sum_of(flat[1000:200000], whole, 'a slice of a shared tensor')
    torch_trireme.share_memory(least=0)
    assert torch.empty(0).numel() == 0 and torch.empty(0, 5).sum() == 0 and is_shared(torch.empty(1))


def default():
    for part in (moves, blocks, threads, networks, forks, forked_groups, other_processes, limits, refused, many, returns_memory, switches):
        part()
        dist.barrier()
    kept, one = torch.full((50000,), float(rank)), torch_trireme.empty(1000)
    one.fill_(3)
    dist.destroy_process_group()
    assert bool((kept == rank).all()) and bool((one == 3).all()), 'tensors of a group that is gone'
    fresh = torch.full((100000,), 2.0)
    assert not is_shared(fresh), 'a new tensor without a group'
    child = run_child(lambda: bool((kept == rank).all()) and kept.fill_(-1) is kept)
    assert ends_well(child) and bool((kept == rank).all()), 'a child after the group'
    del one
    dist.init_process_group('trireme')
    sum_of(fresh, whole, 'older than the second group', 2)
    sum_of(kept, whole, "the first group's", 2)
    again = torch.empty(60000)
    sum_of(again, whole, 'in the second group', 2)
    assert is_shared(again)
    del kept
    sum_of(again, whole, 'in the second group', 2)
    dist.destroy_process_group()
    assert bool((again == whole).all())


def small():
    """/dev/shm has room for no tensor: 100 MB are shared and reduced in any case."""
    assert os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize < MEGA
    for n in (100000, 25 * MEGA):
        t = torch.empty(n)
        sum_of(t, whole, f'{n} values', 3)
        assert is_shared(t)
    dist.destroy_process_group()


def unshared():
    """No rank shares: every tensor is as PyTorch makes it."""
    t = torch.empty(100000)
    sum_of(t, whole, MODE, 3)
    assert not is_shared(t) and not is_shared(torch.empty(100000))
    if MODE == 'other':
        try:
            torch_trireme.share_memory()
        except RuntimeError as error:
            assert 'another allocator' in str(error), error
        else:
            raise AssertionError('share_memory beside another allocator')
    else:
        assert own_allocator()
    dist.destroy_process_group()


before = torch.ones(100000)
if MODE == 'other':
    use_other_allocator()
if MODE == 'limit':
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, resource.getrlimit(resource.RLIMIT_AS)[1]))
if MODE == 'apart':  # each rank says that it has a host of its own
    own_host = torch_trireme._host
    torch_trireme._host = lambda: own_host() + os.environ['RANK']
if __name__ == '__main__':
    dist.init_process_group('trireme')
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = size * (size + 1) / 2
    {'default': default, 'small': small}.get(MODE, unshared)()
    print('all right', flush=True)
