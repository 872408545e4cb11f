# SPDX-License-Identifier: Apache-2.0
"""Started by torchrun with 2 ranks: rank 0 ends while one of its threads waits in an all-reduce. It must end well, and rank 1 must get an
error."""
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

import torch_trireme  # noqa: F401

dist.init_process_group('trireme')
place = sys.argv[1]
if dist.get_rank() == 0:
    threading.Thread(target=lambda: dist.all_reduce(torch.ones(3)), daemon=True).start()
    time.sleep(1)
    open(place, 'w').close()
else:
    while not os.path.exists(place):
        time.sleep(0.01)
    try:
        while True:  # the thread of rank 0 may take part in the first one
            dist.all_reduce(torch.ones(3))
    except RuntimeError as error:
        print('told:', str(error).split('\n')[0], flush=True)
