# SPDX-License-Identifier: Apache-2.0
"""Started by torchrun with 4 ranks: new_group with ranks that differ is an error on each rank that can know it, which names a rank and both
lists; a rank that does not come is named when the group's time is over. Groups that agree serve, also afterwards."""
import datetime
import sys
import time

import torch
import torch.distributed as dist

import torch_trireme  # noqa: F401

dist.init_process_group('trireme')
r = dist.get_rank()


def told(lists, seconds=600):
    """What new_group with lists[r] says on this rank; after a group that was made, the sum over its ranks."""
    begin = time.monotonic()
    try:
        group = dist.new_group(lists[r], timeout=datetime.timedelta(seconds=seconds))
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            return 'no member'
        ones = torch.ones(1)
        dist.all_reduce(ones, group=group)
        return int(ones)
    except (ValueError, RuntimeError) as error:
        print(f'{time.monotonic() - begin:.1f} s: rank {r}: {error}', file=sys.stderr)
        return str(error)
    finally:
        dist.barrier()


def has(text, *parts):
    assert all(part in str(text) for part in parts), text


found = told([[0, 1, 2], [0, 1], [0, 1, 2], [3]])
has(found, *(['1'] if r == 3 else ['new_group: rank ', 'with ranks [0, 1', 'rank ', 'give the same']))
found = told([[0, 1], [0, 1], [0, 2], [0, 2]])  # rank 3 is not in its own list; ranks 0 and 1 have their group if rank 2 comes last
has(found, *[['2'], ['2'], ['rank 2 calls it with ranks [0, 2], rank 0 with [0, 1]'], ['no member']][r])
found = told([[0, 1, 2], [0, 2, 3], [0, 1, 2], [0, 1, 3]])
has(found, *[['rank 0', '[0, 1, 2]'], ['no member'], ['new_group: rank '], ['new_group: rank ']][r])
found = told([[0, 1, 2], [2, 3], [0, 1, 2], [2, 3]], 5)  # rank 1 is not in its own list: nothing tells the others
has(found, *[['Timed out waiting: rank 0 is in', 'of ranks [0, 1, 2]', 'where rank 1 did not come'], ['no member'],
             ['Timed out waiting: rank 2 is in', 'rank 1 did not come'], ['[2, 3]']][r])
assert told([[0, 1, 2, 3]] * 4) == 4
if r == 0:
    print('all right', flush=True)
