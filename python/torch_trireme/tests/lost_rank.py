# SPDX-License-Identifier: Apache-2.0
"""Started by torchrun: rank 1 dies (KILL) or is stopped (STOP) while the others wait for it, in a collective or a message. They must
get an error that names it and the call. Usage: lost_rank.py KILL|STOP FOLDER"""
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
    own = os.getpid()
    if sys.argv[1] == 'STOP' and os.fork() == 0:  # a helper ends the stopped rank once both others have reported
        while not all(os.path.exists(os.path.join(sys.argv[2], f'rank{other}')) for other in (0, 2)) and os.getppid() == own:
            time.sleep(0.1)
        os.kill(own, signal.SIGKILL)
        os._exit(0)
    os.kill(own, getattr(signal, 'SIG' + sys.argv[1]))
begin = time.monotonic()
try:
    dist.all_reduce(t) if r == 0 else dist.recv(t, 1)
    text = 'no error'
except RuntimeError as error:
    text = str(error).split('\n')[0]
place = os.path.join(sys.argv[2], f'rank{r}')
with open(place + '.new', 'w') as f:
    f.write(f'{time.monotonic() - begin:.2f} s: {text}\n')
os.rename(place + '.new', place)
