# SPDX-License-Identifier: Apache-2.0
"""The backend "trireme" of torch.distributed: collectives and messages on CPU tensors.

    import torch.distributed, torch_trireme
    torch.distributed.init_process_group('trireme')

Ranks of one host use shared memory; ranks of several hosts the network as well. Ranks are started as for any backend (torchrun,
mpirun, srun). `empty` makes tensors in memory that the ranks of a host share: collectives on them need no copy.
TRIREME_ENGINE names another transport than the default: "ucx", "tcp" (equal on all ranks). A rank whose process is stopped for
TRIREME_STALL_SECONDS (8) counts as lost.
"""
import atexit
import ctypes
import datetime
import os
import shutil
import socket
import tempfile

import torch
import torch.distributed as dist


def _load():
    """Loads libtrireme, of which the extension uses the symbols, and the extension."""
    try:
        from trireme._library import places
        candidates = places()
    except ImportError:
        candidates = [os.environ.get('TRIREME_LIBRARY') or 'libtrireme.so.0']
    tried = []
    for place in candidates:
        try:
            ctypes.CDLL(place, mode=ctypes.RTLD_GLOBAL)
            break
        except OSError as error:
            tried.append(str(error))
    else:
        raise ImportError('torch_trireme: libtrireme.so.0: not found (tried ' + '; '.join(tried) + '); install the package '
                          '`trireme` or the library, or name the file in TRIREME_LIBRARY')
    from torch_trireme import _backend
    return _backend


_backend = _load()
atexit.register(_backend.shutdown_all)


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


def _create(options, backend_options=None):
    """Makes the backend of one process group: its ranks agree on a rendezvous and a token through the group's store."""
    store, rank, size = options.store, options.group_rank, options.group_size
    seconds = options.timeout.total_seconds() if isinstance(options.timeout, datetime.timedelta) else float(options.timeout)
    folder = tempfile.mkdtemp(prefix='trireme-torch-')
    try:
        store.set(f'trireme/host/{rank}', _host())
        if rank == 0:
            hosts = {store.get(f'trireme/host/{r}') for r in range(size)}
            place = f'unix:{folder}/rendezvous' if len(hosts) == 1 else f'{_own_address()}:{_free_port()}'
            store.set('trireme/token', os.urandom(32).hex())
            store.set('trireme/rendezvous', place)
        token = os.path.join(folder, 'token')
        with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), 'wb') as f:
            f.write(bytes.fromhex(store.get('trireme/token').decode()))
        place = store.get('trireme/rendezvous').decode()
        return _backend.create(rank, size, place, token, seconds, str(options.group_id or 'world'), os.environ.get('TRIREME_ENGINE', ''),
                               _stall_seconds())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _of(group):
    return (group or dist.group.WORLD)._get_backend(torch.device('cpu'))


def empty(*sizes, dtype=torch.float32, group=None):
    """Returns a tensor of zeros in memory that all ranks of the host read and write in place. Not collective."""
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        sizes = tuple(sizes[0])
    return _backend.empty(_of(group), list(sizes), dtype)


def share_memory(least=65536, group=None):
    """Puts all tensors of at least `least` bytes that PyTorch makes from now on into memory that the ranks of the host share, so that
    collectives of `group` on them need no copy: gradients, buckets of DistributedDataParallel, buffers of FSDP. Call it after
    init_process_group and before the model is made. Not collective. A forked child (DataLoader) gets private copies."""
    _backend.share_memory(_of(group), least)


def engine(group=None):
    """Names what moves a group's data: "shm", "shm+tcp", "tcp" ..."""
    return _backend.engine(_of(group))


dist.Backend.register_backend('trireme', _create, extended_api=True, devices=['cpu'])
