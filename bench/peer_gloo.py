#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce of fp32 sums with PyTorch's gloo back-end, ranks forked from this program: a peer of bench/comm.sh.
Usage: peer_gloo.py RANKS [BYTES...]    prints "BYTES B mean X us best Y us" a size"""
import os
import sys
import tempfile
import time


def rank_main(rank, ranks, sizes, meet):
    if ranks <= os.cpu_count():
        os.sched_setaffinity(0, {rank})
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meet, rank=rank, world_size=ranks)
    for size in sizes:
        data = torch.zeros(max(1, size // 4))
        repeats = 200 if size < 1 << 17 else 40 if size < 1 << 24 else 8
        for _ in range(3):
            dist.all_reduce(data)
        best, total = 1e9, 0.0
        for _ in range(repeats):
            begin = time.perf_counter()
            dist.all_reduce(data)
            seconds = time.perf_counter() - begin
            best, total = min(best, seconds), total + seconds
        if rank == 0:
            print(f"{size} B mean {1e6 * total / repeats:.1f} us best {1e6 * best:.1f} us", flush=True)
    dist.destroy_process_group()


def main():
    ranks = int(sys.argv[1])
    sizes = [int(a) for a in sys.argv[2:]] or [4, 1024, 65536, 1 << 20, 8 << 20, 102000000]
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            pid = os.fork()
            if pid == 0:
                rank_main(rank, ranks, sizes, os.path.join(folder, "meet"))
                os._exit(0)
            children.append(pid)
        return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)


if __name__ == "__main__":
    sys.exit(main())
