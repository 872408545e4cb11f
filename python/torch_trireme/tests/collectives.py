# SPDX-License-Identifier: Apache-2.0
"""Started by torchrun: every collective and message of the backend against values computed here. Usage: collectives.py"""
import datetime

import torch
import torch.distributed as dist

import torch_trireme

try:
    torch_trireme.empty(3)
except ValueError as error:
    assert 'call init_process_group first' in str(error), error
else:
    raise AssertionError('a tensor without a group')
dist.init_process_group('trireme', timeout=datetime.timedelta(seconds=60))
r, n = dist.get_rank(), dist.get_world_size()
mine = [torch.arange(6, dtype=torch.float64).reshape(2, 3) * (k + 1) + k for k in range(n)]  # every rank knows every rank's values


def same(found, expected):
    expected = expected.to(found.dtype)
    assert torch.equal(found, expected), (found, expected)


def reductions():
    ops = {dist.ReduceOp.SUM: sum(mine), dist.ReduceOp.AVG: sum(mine) / n, dist.ReduceOp.MIN: torch.stack(mine).amin(0),
           dist.ReduceOp.MAX: torch.stack(mine).amax(0), dist.ReduceOp.PRODUCT: torch.stack(mine).prod(0)}
    for op, expected in ops.items():
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.uint8):
            if op == dist.ReduceOp.AVG and not dtype.is_floating_point or dtype in (torch.float16, torch.bfloat16) and op == dist.ReduceOp.PRODUCT:
                continue
            t = mine[r].to(dtype, copy=True)
            dist.all_reduce(t, op)
            torch.testing.assert_close(t, expected.to(dtype), rtol=1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-6, atol=0)
    for op, combine in ((dist.ReduceOp.BAND, torch.bitwise_and), (dist.ReduceOp.BOR, torch.bitwise_or), (dist.ReduceOp.BXOR, torch.bitwise_xor)):
        expected = mine[0].long() + 3
        for k in range(1, n):
            expected = combine(expected, mine[k].long() + 3)
        t = mine[r].long() + 3
        dist.all_reduce(t, op)
        same(t, expected)
    c = torch.complex(mine[r].float(), -mine[r].float())
    dist.all_reduce(c)
    torch.testing.assert_close(c, torch.complex(sum(mine).float(), -sum(mine).float()))
    b = torch.tensor([r == 0, True, False])
    dist.all_reduce(b)
    same(b, torch.tensor([True, True, False]))
    t = mine[r].clone().t()  # not contiguous
    dist.all_reduce(t)
    same(t, sum(mine).t())
    root = mine[r].clone()
    dist.reduce(root, n - 1)
    same(root, sum(mine) if r == n - 1 else mine[r])
    s = torch.sparse_coo_tensor([[r, n]], [1.0, 2.0], (n + 1,))
    dist.all_reduce(s)
    same(s.to_dense(), torch.tensor([1.0] * n + [2.0 * n]))
    e = torch_trireme.empty(100000)
    e.fill_(r + 1)
    dist.all_reduce(e)
    same(e, torch.full((100000,), n * (n + 1) / 2))


def moves():
    t = mine[r].clone()
    dist.broadcast(t, n - 1)
    same(t, mine[n - 1])
    out = [torch.empty(2, 3, dtype=torch.float64) for _ in range(n)]
    dist.all_gather(out, mine[r])
    same(torch.stack(out), torch.stack(mine))
    out = [torch.empty(k + 1) for k in range(n)]  # of several sizes
    dist.all_gather(out, torch.full((r + 1,), float(r)))
    for k in range(n):
        same(out[k], torch.full((k + 1,), float(k)))
    whole = torch.empty(2 * n, 3, dtype=torch.float64)
    dist.all_gather_into_tensor(whole, mine[r])
    same(whole, torch.cat(mine))
    part = torch.empty(2, 3, dtype=torch.float64)
    dist.reduce_scatter_tensor(part, torch.cat(mine) * (r + 1))
    same(part, mine[r] * sum(range(1, n + 1)))
    dist.reduce_scatter(part, [m * (r + 1) for m in mine])
    same(part, mine[r] * sum(range(1, n + 1)))
    dist.scatter(part, [m + 1 for m in mine] if r == 0 else None, src=0)
    same(part, mine[r] + 1)
    out = [torch.empty(2, 3, dtype=torch.float64) for _ in range(n)] if r == 0 else None
    dist.gather(mine[r], out, dst=0)
    if r == 0:
        same(torch.stack(out), torch.stack(mine))
    got = torch.empty(n)
    dist.all_to_all_single(got, torch.arange(float(n)) + 100 * r)
    same(got, torch.tensor([100.0 * k + r for k in range(n)]))
    sent, received = [k + 1 for k in range(n)], [r + 1] * n  # uneven: k + 1 rows for rank k
    got = torch.empty(sum(received), 2)
    dist.all_to_all_single(got, torch.full((sum(sent), 2), float(r)), received, sent)
    same(got, torch.cat([torch.full((r + 1, 2), float(k)) for k in range(n)]))
    got = [torch.empty(r + 1) for _ in range(n)]
    dist.all_to_all(got, [torch.full((k + 1,), float(r)) for k in range(n)])
    for k in range(n):
        same(got[k], torch.full((r + 1,), float(k)))
    objects = [None] * n
    dist.all_gather_object(objects, {'rank': r})
    assert objects == [{'rank': k} for k in range(n)], objects


def messages():
    after, before = (r + 1) % n, (r - 1) % n
    big, small = torch.empty(300000), torch.empty(7)  # receives in another order than sends
    works = [dist.irecv(big, after, tag=5), dist.irecv(small, after, tag=9)]
    works += [dist.isend(torch.full((7,), 1.5), before, tag=9), dist.isend(torch.full((300000,), float(r)), before, tag=5)]
    for w in reversed(works):
        w.wait()
    same(big, torch.full((300000,), float(after)))
    same(small, torch.full((7,), 1.5))
    if r == 0:
        sources = []
        for _ in range(n - 1):
            t = torch.empty(2)
            sources.append(dist.recv(t))
            same(t, torch.full((2,), float(sources[-1])))
        assert sorted(sources) == list(range(1, n)), sources
    else:
        dist.send(torch.full((2,), float(r)), 0)


def order():
    """Started operations end in order, whatever is waited for first."""
    tensors = [torch.full((1000,), float(k + r)) for k in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for w in reversed(works):
        w.wait()
    for k, t in enumerate(tensors):
        same(t, torch.full((1000,), float(n * k + sum(range(n)))))
    t = torch.ones(5)
    assert torch.equal(dist.all_reduce(t, async_op=True).get_future().then(lambda f: f.value()[0] * 2).wait(), torch.full((5,), 2.0 * n))


def groups():
    first = dist.new_group([0, 1])
    if r < 2:
        t = torch.ones(4)
        dist.all_reduce(t, group=first)
        same(t, torch.full((4,), 2.0))
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))


def wrong():
    """Each call is refused on all ranks alike, with a sentence; the group goes on."""
    one, many = torch.ones(1), [torch.ones(1)] * (n + 1)
    for call, words in (
            (lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), dist.ReduceOp.MAX), 'complex'),
            (lambda: dist.all_gather_into_tensor(torch.empty(3), torch.ones(4)), 'size'),
            (lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), 'non-integral'),
            (lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e5m2)), 'scalar type'),
            (lambda: dist.all_reduce(torch.tensor([True]), dist.ReduceOp.AVG), 'with boolean tensors'),
            (lambda: dist.all_reduce(torch.eye(3).to_sparse(), dist.ReduceOp.MAX), 'sparse'),
            (lambda: dist.all_reduce(torch.eye(3 + r % 2).to_sparse()), 'sparse tensor of size'),
            (lambda: dist.all_reduce(torch.eye(3, dtype=[torch.float32, torch.float64][r % 2]).to_sparse()), 'and type'),
            (lambda: dist.all_reduce([1.0, 2.0]), 'of type torch.Tensor'),
            (lambda: dist.broadcast(one, src=n), 'root rank'),
            (lambda: dist.reduce(one, dst=n), 'root rank'),
            (lambda: dist.send(one, n), f'rank {n} is not another rank of this group of {n}'),
            (lambda: dist.send(one, r), 'destination rank'),
            (lambda: dist.send(one, (r + 1) % n, tag=-1), 'onnegative'),
            (lambda: dist.recv(torch.ones(2, 2).t()[:1], n + 3), f'rank {n + 3} is not another rank of this group of {n}'),
            (lambda: dist.all_gather(many, one), 'output tensor list'),
            (lambda: dist.all_gather([torch.ones(1, dtype=torch.int64)] * n, one), 'dtypes'),
            (lambda: dist.reduce_scatter(one, many), 'list size'),
            (lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(2 * n + 1)), 'size'),
            (lambda: dist.all_to_all_single(torch.ones(n + 1), torch.ones(n + 1)), 'divide'),
            (lambda: dist.all_to_all_single(torch.ones(n), torch.ones(n), [1] * n, [2] * n), 'plit'),
            (lambda: dist.all_to_all_single(torch.ones(n), torch.ones(n, dtype=torch.int32)), 'dtypes'),
            (lambda: dist.all_to_all([one] * n, [one.double()] * n), 'dtypes'),
            (lambda: dist.scatter(one, many), 'list size' if r == 0 else 'scatter_list'),
            (lambda: dist.gather(one, many), 'list size' if r == 0 else 'gather_list'),
            (lambda: torch_trireme.empty(3, dtype='float32'), 'a torch.dtype is needed (found str)'),
            (lambda: torch_trireme.empty(-1), 'sizes 0 and above'),
            (lambda: torch_trireme.empty('a'), "whole numbers expected, found ('a',)"),
            (lambda: torch_trireme.empty(2.5), 'whole numbers expected, found (2.5,)'),
            (lambda: dist.new_group(list(range(n)), timeout=datetime.timedelta(seconds=-3)), 'found a timeout of -3 s'),
            (lambda: torch_trireme.empty(2 ** 62, 2), 'fewer than 2^63 bytes'),
            (lambda: torch_trireme.empty(2 ** 45), 'no shared memory for'),
            (lambda: torch_trireme.share_memory(-1), 'share_memory'),
            (lambda: torch_trireme.share_memory(2 ** 70), 'share_memory: least: a number of bytes expected'),
            (lambda: torch_trireme.engine('world'), "no process group of this rank (found 'world')")):
        try:
            call()
        except (RuntimeError, ValueError, TypeError) as error:
            assert words in str(error), (words, error)
        else:
            raise AssertionError(f'no error with {words}')


for part in (reductions, moves, messages, order, groups, wrong):
    part()
    dist.barrier()
if r == 0:
    print('all right:', torch_trireme.engine(), flush=True)
dist.destroy_process_group()
