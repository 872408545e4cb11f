# SPDX-License-Identifier: Apache-2.0
"""Started by torchrun with 4 ranks: ranks 1 and 3 come late to a monitored barrier, which names both; rank 1 does not come to an
asynchronous all-reduce of a group, whose error names it when the group's time is over."""
import datetime
import re

import torch
import torch.distributed as dist

import torch_trireme  # noqa: F401

dist.init_process_group('trireme')
r = dist.get_rank()
store = dist.distributed_c10d._get_default_store()


def fails(call):
    try:
        call()
    except RuntimeError as error:
        return str(error).split('\n')[0]
    raise AssertionError('no error')


dist.barrier()
if r in (0, 2):
    text = fails(lambda: dist.monitored_barrier(timeout=datetime.timedelta(seconds=5), wait_all_ranks=True))
    # on a busy machine rank 2 may be late, too
    assert r != 0 or re.search('Ranks 1, (2, )?3 failed to pass monitoredBarrier', text), text
    store.set(f'reported{r}', text)
store.wait(['reported0', 'reported2'])
pair = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=15))
if r == 0:
    text = fails(lambda: dist.all_reduce(torch.ones(2), group=pair, async_op=True).wait())
    assert 'all_reduce: Timed out' in text and 'rank 1' in text, text
    store.set('late', 'named')
store.wait(['late'])
if r == 0:
    print('all right', flush=True)
