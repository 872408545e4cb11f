# SPDX-License-Identifier: Apache-2.0
"""Three calls that make a training program of any framework run on many ranks; on one device they have no effect.

    from trireme import distribute

    data, batch = distribute.shard_and_rebatch((images, labels), 256)
    distribute.broadcast(weights)
    for step in range(steps):
        ...
        distribute.all_reduce(gradients, reduction='mean')

Values are NumPy arrays and torch tensors on the CPU, changed in place; None is skipped. Sizes and types of a list are the same
on every rank. The first call finds the rank in the environment (mpirun, torchrun, srun, `trireme run`, TF_CONFIG, rank tables)
and meets the other ranks; the end of the process ends them. In an elastic job (trireme.Elastic) the calls use its ranks of now.
"""
import contextlib
import ctypes
import math
import sys
import weakref
from ctypes import byref

from . import _c
from ._call import Owner, call, sentence_of, take
from ._convert import described, enum, is_boolean, np, plain, tensor
from ._library import Error, need

_shapes = {}
_joined = False
_elastic = None  # a weak reference to the elastic job of this process


def _flat(value, what):
    """(trm_tensor, keep) of a value as a flat range that is written."""
    address, number, size, keep, writeable = described(value, what)
    if not writeable:
        raise Error(f'{what}: a value of shape {list(size)} is read-only, and its elements are replaced; pass a copy')
    count = math.prod(size)
    flat = _shapes.get(count)
    if flat is None:
        flat = _shapes[count] = _c.trm_shape(1, (count, 0, 0, 0, 0, 0))
    return _c.trm_tensor(address or None, number, flat), keep


def _list(values):
    """The values of a list, tuple or dictionary, or one value, as a list."""
    return list(values.values()) if isinstance(values, dict) else values if isinstance(values, (list, tuple)) else [values]


def _tensors(values, what):
    """(trm_tensor or an array of them, count, keep) of a list of values."""
    if len(values) == 1 and values[0] is not None:
        made, keep = _flat(values[0], what)
        return made, 1, keep
    made, keep = (_c.trm_tensor * max(1, len(values)))(), []
    for i, value in enumerate(values):
        if value is not None:
            made[i], kept = _flat(value, what)
            keep.append(kept)
    return made, len(values), keep


def _reduction(name, values, what):
    """The trm_reduction of a name. Booleans are bytes to the library, in which one and one make two: their sum is "or", their product
    "and", as NumPy and torch have it."""
    number = enum('trm_reduction', name)
    booleans = {is_boolean(value) for value in values if value is not None}
    if True not in booleans or number in (_c.TRM_REDUCTION_MAX, _c.TRM_REDUCTION_MIN):
        return number
    if number not in (_c.TRM_REDUCTION_SUM, _c.TRM_REDUCTION_PROD) or len(booleans) > 1:
        raise Error(f'{what}: {name} of booleans{" and numbers" if len(booleans) > 1 else ""} (expected sum, which is "or", prod, which is "and", '
                    'max or min of booleans alone); convert them, or call it for them alone')
    return _c.TRM_REDUCTION_MAX if number == _c.TRM_REDUCTION_SUM else _c.TRM_REDUCTION_MIN


def init():
    """Finds the rank and meets the other ranks; the other calls do it when they are the first. An exception that ends this
    process then reaches the other ranks as the cause of their errors."""
    global _joined
    if _job() is not None:
        return
    call(_c.trm_join)
    if not _joined and _c.trm_distribute_size(None) > 1:
        sys.excepthook = _telling(sys.excepthook)
    _joined = True


def _job():
    """The elastic job of this process, or None."""
    job = _elastic and _elastic()
    return job if job is not None and job._handle else None


def _ranks(what):
    """The handle of the three calls: None, the ranks that init() joins, or those of an elastic job of now."""
    _joined or init()
    job = _elastic and _job()
    return job._calls(what) if job else None


def refuse_joined():
    """Raises Error if this process has met other ranks."""
    need(not _joined or _c.trm_distribute_size(None) == 1,
         'Elastic: this process has joined its ranks by trireme.distribute already; make the Elastic in place of that')


def stay_apart(job):
    """From now on the elastic job takes the place of the ranks that init() joins."""
    global _elastic
    _elastic = weakref.ref(job)


def _telling(before):
    """The hook of exceptions that no code catches: the other ranks are told, then `before` prints."""
    def hook(kind, error, trace):
        me = _c.trm_distribute_rank(None)
        sentence = sentence_of(f'rank {me} has ended with', error)
        with contextlib.suppress(Error):  # a forked child is no rank: it ends alone
            _c.trm_comm_abort(take(_c.trm_distribute_comm, None), byref(_c.trm_error(status=_c.TRM_PEER, rank=me, message=sentence.encode())))
        before(kind, error, trace)
    return hook


def rank():
    """This process's rank, from 0."""
    init()
    job = _job()
    return _c.trm_distribute_rank(None) if job is None else job.comm.rank


def size():
    """The number of ranks."""
    init()
    job = _job()
    return _c.trm_distribute_size(None) if job is None else job.comm.size


def broadcast(values, root=0):
    """Copies the values of rank `root` to every rank, in place; returns them."""
    ranks = _ranks('broadcast')
    made, count, keep = _tensors(_list(values), 'broadcast')
    call(_c.trm_distribute_broadcast, ranks, made, count, root)
    return values


def all_reduce(values, reduction='sum'):
    """Replaces every value by the sum, mean, prod, max or min over the ranks, in place; returns them. The sum of booleans is "or"."""
    ranks = _ranks('all_reduce')
    listed = _list(values)
    made, count, keep = _tensors(listed, 'all_reduce')
    call(_c.trm_distribute_all_reduce, ranks, made, count, _reduction(reduction, listed, 'all_reduce'))
    return values


def shard_and_rebatch(dataset, batch):
    """(data of this rank, batch of this rank) of a dataset and a batch of all ranks.

    dataset: a trireme Dataset (refined in place); an array, or a tuple, list or dictionary of arrays of equal length (a rank
        gets every size-th row, as a copy); an object with a method shard(count, index), such as tf.data.Dataset
    """
    local = ctypes.c_int64()
    handle = getattr(dataset, 'handle', None)
    call(_c.trm_distribute_shard_and_rebatch, _ranks('shard_and_rebatch'), handle, batch, byref(local))
    if handle is not None or size() == 1:
        return dataset, local.value
    if isinstance(dataset, dict):
        mine = dict(zip(dataset, _shard(list(dataset.values()), batch)))
    elif isinstance(dataset, (tuple, list)):
        mine = getattr(dataset, '_make', type(dataset))(_shard(list(dataset), batch))  # also of a named tuple
    else:
        mine = dataset.shard(size(), rank()) if callable(getattr(dataset, 'shard', None)) else _shard([dataset], batch)[0]
    return mine, local.value


shard_and_rebatch_dataset = shard_and_rebatch


def _shard(arrays, batch):
    """The rows of this rank, copied: what trm_distribute_shard_arrays moves to the front of each array."""
    need(arrays, 'shard_and_rebatch: there is no array (found an empty collection)')
    copies = [a.clone() if hasattr(a, 'clone') else np.array(a) for a in arrays]
    samples, batch = ctypes.c_int64(len(copies[0])), ctypes.c_int64(batch)
    made = (_c.trm_tensor * len(copies))(*[tensor(a, 'shard_and_rebatch')[0] for a in copies])
    call(_c.trm_distribute_shard_arrays, _ranks('shard_and_rebatch'), made, len(copies), byref(samples), byref(batch))
    return [a[:samples.value] for a in copies]


def _dense(array):
    """A torch tensor as the library can read it, anything else as a NumPy array."""
    array = plain(array)
    return array if hasattr(array, 'new_empty') else np.ascontiguousarray(array)


def _empty(array, size):
    """An array of another size, of torch for a tensor."""
    return array.new_empty(size) if hasattr(array, 'new_empty') else np.empty(size, array.dtype)


class Communicator(Owner):
    """All collectives on NumPy arrays and torch tensors, over the process's ranks or a part of them. One of an elastic job, and its parts,
    serve until the ranks change."""

    free = 'trm_comm_destroy'
    owned = False  # made by split()
    job, epoch = None, 0  # the elastic job, and the epoch of its ranks that this is of

    def __init__(self, handle=None, owned=False, parent=None):
        if handle is None and _job() is not None:
            parent = _job()
            handle = parent.comm.handle
        elif handle is None:
            init()
            handle = take(_c.trm_distribute_comm, None)
        self.handle, self.owned, self.parent = handle, owned, parent
        self.process = parent.process if parent is not None else self.process
        self.job = getattr(parent, 'job', parent)
        if self.job is not None:
            self.epoch = self.job._epoch()
            if owned:
                self.job._parts.append(weakref.ref(self))
        self.rank = _c.trm_comm_rank(self.handle) if self.handle else 0
        self.size = _c.trm_comm_size(self.handle) if self.handle else 1

    def _gone(self):
        """Whether the library has destroyed the communicator, with the ranks of its epoch."""
        return self.job is not None and self.job._epoch() != self.epoch

    def _usable(self, what):
        """The handle; None: one rank. Raises Error where a call would find no ranks."""
        need(not self._gone(),
             f'Communicator.{what}: the ranks of the elastic job have changed since this Communicator was made; make another one')
        if self.handle and self.in_child():
            self.refuse_child(f'Communicator.{what}', 'ranks')
        return self.handle

    def _message(self, function, what, array, peer):
        """Sends an array to a rank, or fills it with what a rank sends."""
        need(self._usable(what), f'{what}: there is no rank {peer} to exchange messages with (found one rank)')
        made, keep = tensor(array, what, what == 'recv')
        call(function, self.handle, made.data, _c.trm_shape_count(byref(made.shape)), made.dtype, peer)
        return array

    def _run(self, kind, send, recv, **more):
        """Runs a collective. send: an array of the type of recv; None: recv has the values."""
        made, keep = tensor(recv, kind, True)
        op = _c.trm_collective(kind=enum('trm_collective_kind', kind), recv=made.data, dtype=made.dtype)
        op.count = _c.trm_shape_count(byref(made.shape))
        if kind in ('allgather', 'alltoall'):  # the elements of one row
            op.count //= self.size
        if send is not None:
            op.send = tensor(send, kind)[0].data
        for name, value in more.items():
            setattr(op, name, _reduction(value, [recv], kind) if name == 'reduce' else value)
        if self._usable(kind):
            call(_c.trm_comm_run, self.handle, byref(op))
        elif op.root != 0:
            raise Error(f'{kind}: there is no rank {op.root} (found one rank, expected root 0)')
        elif send is not None:  # one rank; the values were checked as those of many are
            ctypes.memmove(op.recv, op.send, _c.trm_tensor_bytes(byref(made)))
        return recv

    def _rows(self, array, what):
        array = _dense(array)
        need(len(array) == self.size, f'{what}: the first dimension is {len(array)} (expected {self.size}, the ranks)')
        return array

    def all_reduce(self, array, reduction='sum'):
        """Replaces the array by the sum, mean, prod, max or min over the ranks; returns it."""
        return self._run('allreduce', None, array, reduce=reduction)

    def broadcast(self, array, root=0):
        """Copies rank `root`'s array to every rank, in place; returns it."""
        return self._run('broadcast', None, array, root=root)

    def reduce(self, array, root=0, reduction='sum'):
        """As all_reduce, on rank `root` alone; the arrays of others do not change."""
        return self._run('reduce', None, array, root=root, reduce=reduction)

    def all_gather(self, array):
        """Array [...] of each rank -> array [size, ...]; of a torch tensor a tensor."""
        array = _dense(array)
        return self._run('allgather', array, _empty(array, (self.size, *array.shape)))

    def reduce_scatter(self, array, reduction='sum'):
        """Array [size, ...] -> the combined row of this rank; of a torch tensor a tensor."""
        array = self._rows(array, 'reduce_scatter')
        return self._run('reduce_scatter', array, _empty(array, array.shape[1:]), reduce=reduction)

    def all_to_all(self, array):
        """Array [size, ...]: row i goes to rank i -> array [size, ...]: row i is from rank i; of a torch tensor a tensor."""
        array = self._rows(array, 'all_to_all')
        return self._run('alltoall', array, _empty(array, array.shape))

    def barrier(self):
        """Returns when every rank has called it."""
        if self._usable('barrier'):
            call(_c.trm_comm_barrier, self.handle)

    def send(self, array, peer):
        """Sends the array to rank `peer`, which calls recv() with one of the same size and type."""
        self._message(_c.trm_comm_send, 'send', array, peer)

    def recv(self, array, peer):
        """Fills the array with what rank `peer` sends; returns it."""
        return self._message(_c.trm_comm_recv, 'recv', array, peer)

    def split(self, colour, key=0):
        """A communicator of the ranks that pass the same colour, ordered by key; None for a negative colour."""
        if not self._usable('split'):
            return self if colour >= 0 else None
        part = take(_c.trm_comm_split, self.handle, colour, key)
        return Communicator(part, True, self) if part else None

    def close(self):
        """Ends a communicator that split() made."""
        if self.owned and not self._gone():
            self.destroy()
        self.closed = True
