# SPDX-License-Identifier: Apache-2.0
"""Started by torchrun: rank 1 is killed; the others must get an error that names it within 10 s. Usage: lost_rank.py FOLDER"""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import torch_trireme  # noqa: F401

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others when one is gone: they report first
dist.init_process_group('trireme')
r = dist.get_rank()
t = torch.ones(1000)
dist.all_reduce(t)
if r == 1:
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.monotonic()
try:
    dist.all_reduce(t)
    text = 'no error'
except RuntimeError as error:
    text = str(error).split('\n')[0]
with open(os.path.join(sys.argv[1], f'rank{r}'), 'w') as f:
    f.write(f'{time.monotonic() - begin:.2f} s: {text}\n')
