# SPDX-License-Identifier: Apache-2.0
"""The backend "trireme" of torch.distributed: collectives and messages on CPU tensors.

    import torch.distributed, torch_trireme
    torch.distributed.init_process_group('trireme')

Ranks of one host use shared memory; ranks of several hosts the network as well. Ranks are started as for any backend (torchrun,
mpirun, srun). Where two or more ranks share a host, the first group puts the large tensors of its collectives into memory that they
share, so that nothing is copied; TRIREME_SHARE_TENSORS=0 or `private_memory` leave all tensors to PyTorch's own allocator.
TRIREME_ENGINE names another transport than the default: "ucx", "tcp" (equal on all ranks). A rank whose process is stopped for
TRIREME_STALL_SECONDS (8) counts as lost.
"""
import atexit
import ctypes
import datetime
import json
import logging
import operator
import os
import resource
import shutil
import socket
import tempfile
import threading
import time

import torch
import torch.distributed as dist


def _load():
    """Loads libtrireme, of which the extension uses the symbols, and the extension."""
    try:
        from trireme._library import candidates
        places = candidates()
    except ModuleNotFoundError:
        places = [os.environ.get('TRIREME_LIBRARY') or 'libtrireme.so.0']
    tried = []
    for place in places:
        try:
            ctypes.CDLL(place, mode=ctypes.RTLD_GLOBAL)
            break
        except OSError as error:
            tried.append(str(error))
    else:
        raise ImportError('torch_trireme: libtrireme.so.0: not found (tried ' + '; '.join(tried) + '); install the package '
                          '`trireme` or the library, or name the file in TRIREME_LIBRARY')
    try:
        from torch_trireme import _backend
    except ImportError as error:
        raise ImportError(f'torch_trireme: the backend does not fit torch {torch.__version__} or {place} ({error}); build it again with this '
                          'torch, and install the library of the same source') from error
    return _backend


LEAST = 65536  # bytes of a large tensor
_backend = _load()


@atexit.register
def _end_groups():
    """A thread that was in a collective leaves it before the interpreter ends, which would end the thread inside it."""
    if _backend.shutdown_all():
        until = time.monotonic() + 5
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(max(0, until - time.monotonic()))


def _own_address():
    """The address by which the host of MASTER_ADDR reaches this one."""
    master = os.environ.get('MASTER_ADDR', '')
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect((master or socket.gethostname(), 9))
            return s.getsockname()[0]
    except OSError:
        return socket.gethostname()


def _host():
    """Names this host: two processes with one name can share memory."""
    try:
        with open('/proc/sys/kernel/random/boot_id') as f:
            boot = f.read().strip()
    except OSError:
        boot = ''
    return '/'.join([socket.gethostname(), boot, os.readlink('/proc/self/ns/pid') if os.path.exists('/proc/self/ns/pid') else ''])


def _free_port():
    with socket.socket() as s:
        s.bind(('', 0))
        return s.getsockname()[1]


def _stall_seconds():
    """After so many seconds without a heartbeat a rank counts as stopped: the others get an error."""
    text = os.environ.get('TRIREME_STALL_SECONDS') or '8'
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 1e9:
        raise ValueError(f'TRIREME_STALL_SECONDS: no number of seconds (found {text!r}, expected for example 8); correct or unset it')
    return seconds


def _shares_tensors():
    """Whether large tensors may go into shared memory without being asked for. Not where address space or memory is promised strictly: a
    peer that cannot map a tensor, or memory that turns out to be missing when it is written, would be an error."""
    text = os.environ.get('TRIREME_SHARE_TENSORS') or '1'
    if text not in ('0', '1'):
        raise ValueError(f'TRIREME_SHARE_TENSORS: no switch (found {text!r}, expected 0 or 1); correct or unset it')
    try:
        with open('/proc/sys/vm/overcommit_memory') as f:
            strict = f.read().strip() == '2'
    except OSError:
        strict = False
    return text == '1' and not strict and resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def _wait_for(store, keys, until, missing):
    """Returns the first key that the store has. Tells who is missing after 10 s, and raises when the time is over; `missing` says who."""
    pause, tell = 0.001, time.monotonic() + 10
    while True:
        for key in keys():
            if store.check([key]):
                return key
        now = time.monotonic()
        if now > until:
            raise dist.DistBackendError(f'torch_trireme: Timed out waiting: {missing()}')
        if now > tell:
            logging.getLogger('torch_trireme').warning('torch_trireme: waiting for more than 10 s: %s', missing())
            tell = until
        time.sleep(min(pause, max(0, until - now)))
        pause = min(0.05, 2 * pause)


def _settings(me):
    """(seconds without a heartbeat, whether tensors are shared) of this rank's environment."""
    try:
        return _stall_seconds(), _shares_tensors()
    except ValueError as error:
        raise ValueError(f'torch_trireme: rank {me}: {error}') from None


def _meet(store, me, ranks, seconds, place_of):
    """The ranks of a group meet in its store. Returns (hosts of the ranks, what place_of(hosts) returned on the first rank, the settings). Lists
    that differ, wrong settings of a rank and ranks that do not come are an error that names them, on all ranks. A process that is not in its own list does not get here: PyTorch does not
    tell its backend."""
    until, leader = time.monotonic() + seconds, ranks[0]
    verdict, refusal = f'{leader}/verdict', f'{leader}/refusal'

    def host_of(rank):
        theirs = json.loads(store.get(f'rank/{rank}'))
        if theirs['ranks'] == ranks:
            return theirs['host']
        raise ValueError(f'torch_trireme: new_group: rank {me} calls it with ranks {ranks}, rank {rank} with {theirs["ranks"]}; give the same '
                         'ranks on every rank')

    def missing():
        late = [rank for rank in ranks if not store.check([f'rank/{rank}'])] or [leader]
        return (f'rank {me} is in init_process_group or new_group of ranks {ranks}, where {", ".join(f"rank {rank}" for rank in late)} did not '
                f'come; each of these ranks calls it, with these ranks and in the same order among its groups')
    hosts = {}
    try:
        settings = _settings(me)  # before the others count on this rank
        store.set(f'rank/{me}', json.dumps({'ranks': ranks, 'host': _host()}))
        while me == leader and len(hosts) < len(ranks):
            found = _wait_for(store, lambda: [refusal] + [f'rank/{rank}' for rank in ranks if rank not in hosts], until, missing)
            if found == refusal:
                raise ValueError(store.get(refusal).decode())
            rank = int(found.split('/')[1])
            hosts[rank] = host_of(rank)
        if me == leader:
            store.set(verdict, json.dumps({'hosts': hosts, 'place': place_of(hosts)}))
        elif _wait_for(store, lambda: [f'rank/{leader}', verdict], until, missing) != verdict:
            host_of(leader)
    except ValueError as error:
        store.set(verdict if me == leader else refusal, json.dumps({'error': str(error)}) if me == leader else str(error))
        raise
    _wait_for(store, lambda: [verdict], until, missing)
    found = json.loads(store.get(verdict))
    if 'error' in found:
        raise ValueError(found['error'])
    return list(found['hosts'].values()), found['place'], settings


def _create(options, backend_options=None):
    """Makes the backend of one process group: its ranks agree on a rendezvous and a token through the group's store."""
    rank, size = options.group_rank, options.group_size
    ranks = list(options.global_ranks_in_group) or list(range(size))
    seconds = options.timeout.total_seconds() if isinstance(options.timeout, datetime.timedelta) else float(options.timeout)
    if not seconds >= 0:
        raise ValueError(f'torch_trireme: no time for the group (found a timeout of {seconds:g} s, expected at least 0)')
    folder = tempfile.mkdtemp(prefix='trireme-torch-')

    def place_of(hosts):
        together = len(set(hosts.values())) == 1
        return {'token': os.urandom(32).hex(), 'rendezvous': f'unix:{folder}/rendezvous' if together else f'{_own_address()}:{_free_port()}'}
    try:
        # a group that is made again finds the keys of the one before in the store
        times = options.store.add(f'trireme/times/{ranks[rank]}', 1)
        hosts, place, (stall, shares) = _meet(dist.PrefixStore(f'trireme/{times}', options.store), ranks[rank], ranks, seconds, place_of)
        token = os.path.join(folder, 'token')
        with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), 'wb') as f:
            f.write(bytes.fromhex(place['token']))
        backend = _backend.create(rank, size, place['rendezvous'], token, seconds, f'group {options.group_id}' if options.group_id else 'world',
                                  os.environ.get('TRIREME_ENGINE', ''), stall)
        if shares and hosts.count(_host()) > 1 and 'shm' in _backend.engine(backend):
            _backend.share_memory(backend, LEAST, False, False)
        return backend
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _of(group):
    group = group or dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        raise ValueError(f'torch_trireme: no process group of this rank (found {group!r}); call init_process_group first, or give a group that this rank is in')
    backend = group._get_backend(torch.device('cpu'))
    return getattr(backend, 'wrapped_pg', backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL puts each backend into another one


def empty(*sizes, dtype=torch.float32, group=None):
    """Returns a tensor of zeros in memory that all ranks of the host read and write in place. Not collective."""
    try:
        sizes = [operator.index(n) for n in (sizes[0] if len(sizes) == 1 and hasattr(sizes[0], '__iter__') else sizes)]
    except TypeError:
        raise TypeError(f'torch_trireme.empty: sizes: whole numbers expected, found {sizes!r}') from None
    return _backend.empty(_of(group), sizes, dtype)


def share_memory(least=LEAST, group=None):
    """Puts all tensors of at least `least` bytes that PyTorch makes from now on into memory that the ranks of the host share, not only
    those of sizes that collectives use. For groups other than the first one, smaller tensors, and large buffers of which collectives use
    slices. Not collective. A forked child (DataLoader) copies all of them."""
    if not isinstance(least, int) or not 0 <= least < 1 << 63:
        raise ValueError(f'torch_trireme.share_memory: least: a number of bytes expected, found {least!r}')
    _backend.share_memory(_of(group), least, True, True)


def private_memory():
    """Leaves all tensors that PyTorch makes from now on to its own allocator, as TRIREME_SHARE_TENSORS=0 does from the start. Not
    collective."""
    _backend.private_memory()


def engine(group=None):
    """Names what moves a group's data: "shm", "shm+tcp", "tcp" ..."""
    return _backend.engine(_of(group))


dist.Backend.register_backend('trireme', _create, extended_api=True, devices=['cpu'])
