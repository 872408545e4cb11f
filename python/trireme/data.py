# SPDX-License-Identifier: Apache-2.0
"""Datasets: from files, arrays, functions and iterables to batches.

    train = Dataset.open('cifar-10-batches-bin', batch_size=128)                  # the usual pipeline of a format
    train = Dataset.arrays({'image': images, 'label': labels}).shuffle().batch(64)
    train = Dataset.iterable(torch_loader, names=('image', 'label'))

    for batch in train:                    # one epoch: a dictionary of arrays, valid until the next batch
        batch['image']
"""
import contextlib
import ctypes
import functools
import os
from collections.abc import Mapping
from ctypes import byref

from . import _c
from ._call import Owner, busy, call, deferring, guarded, plain_call, take
from ._convert import (DTYPE_NAMES, argument, converted, described, dtype_number, enum, expect, np, options, plain, shape, sizes, takes, tensor, text, view,
                       whole_numbers)
from ._library import Error, need
from ._methods import DatasetMethods

_SOURCES = ('cifar10', 'image_folder', 'tfrecord_imagenet', 'shapes', 'random', 'clicks', 'random_clicks', 'tokens', 'text', 'json_lines')
_CLICK_FILES = {'criteo': 'criteo', 'avazu': 'avazu', 'csv': 'csv', 'libsvm': 'libsvm', 'slots': 'slots', 'click_tfrecord': 'tfrecord-clicks'}


class Dataset(DatasetMethods, Owner):
    """A source with its refinements. Refining methods return the dataset, so that they can be chained; their order does not
    matter: source, permutation, shard, window shuffle, transforms, batch, repeat, prefetch. The arrays of a batch hold until the next one,
    until the dataset is shared out among ranks (by a Model of several ranks), or until ranks change; copy what you keep longer. They can be
    read after close(), too: the dataset's memory is freed when the last of them is gone.
    """

    free = 'trm_dataset_destroy'
    own_functions = False  # the library calls functions of the program

    def __init__(self, handle, keep=()):
        self.handle, self.keep, self.reading = handle, list(keep), False

    # ---- sources

    @classmethod
    @takes(_c.trm_dataset_spec)
    def open(cls, path='auto', usage='train', batch_size=32, **more):
        """A dataset by name or path, with the usual pipeline of its format ("synth": generated shapes).

        usage: train, test (or eval, the mode of an InputContext), all
        more: members of trm_dataset_spec: kind, image_size, seed, threads, prefetch_depth, click={...}, text={...}, ...
        """
        keep = []
        spec = options(_c.trm_dataset_spec, dict(more, path=path, usage=usage, batch_size=batch_size), keep)
        return cls(take(_c.trm_dataset_open, byref(spec)), keep)

    @classmethod
    @takes(_c.trm_click_options, _c.trm_text_options, _c.trm_shapes_options, _c.trm_random_options, _c.trm_click_generator_options,
           _c.trm_click_random_options)
    def source(cls, kind, path=None, usage='train', **more):
        """A bare source, in its order and without transforms: cifar10, image_folder, tfrecord_imagenet, shapes, random,
        clicks, random_clicks, criteo, avazu, csv, libsvm, slots, click_tfrecord, tokens, text, json_lines.

        more: members of the source's options (trm_click_options, trm_text_options, trm_shapes_options, ...)
        """
        need(kind in _SOURCES or kind in _CLICK_FILES,
             f'Dataset.source: there is no source {kind!r} (expected one of {", ".join(_SOURCES)}, {", ".join(_CLICK_FILES)})')
        function, keep = _c.trm_dataset_click_file if kind in _CLICK_FILES else getattr(_c, 'trm_dataset_' + kind), []
        given = {'kind': text(_CLICK_FILES.get(kind)), 'path': text(path), 'usage': enum('trm_usage', usage)}
        if 'options' in function.names:
            struct = function.argtypes[function.names.index('options')]._type_
            given['options'] = byref(options(struct, more, keep))
        elif more:
            raise TypeError(f'Dataset.source: {kind} takes no options (found {", ".join(more)})')
        return cls(take(function, *[given[name] for name in function.names[:-2]]), keep)

    @classmethod
    def arrays(cls, arrays, classes=0):
        """Samples in arrays by name; the first dimension counts the samples. The arrays are read in place, not copied.

        classes: of an int32 array "label"; 0 = none
        """
        expect(isinstance(arrays, Mapping), 'Dataset.arrays', 'a dictionary of arrays by name', arrays)
        fields, keep = (_c.trm_batch_field * max(1, len(arrays)))(), []
        for field, (name, array) in zip(fields, arrays.items()):
            made, kept = tensor(array, f'array {name!r}')
            keep += [kept, text(name)]
            field.name, field.tensor = keep[-1], made
        return cls(take(_c.trm_dataset_arrays, fields, len(arrays), classes), keep)

    @classmethod
    def samples(cls, read, count, fields, classes=0, in_order=False):
        """Samples that read(index) returns as a dictionary or a tuple of arrays: the same index, the same sample.

        fields: {name: (dtype, shape)} of one sample
        in_order: indices come in rising order only, from 0 in each epoch: no shuffle, at most one thread
        """
        expect(callable(read), 'Dataset.samples: read', 'a function', read)
        expect(isinstance(fields, Mapping) and all(isinstance(field, (tuple, list)) and len(field) == 2 for field in fields.values()),
               'Dataset.samples: fields', 'a dictionary {name: (dtype, shape)}', fields)
        fields = {name: (dtype_number(kind), tuple(whole_numbers(size, f'Dataset.samples: shape of {name!r}'))) for name, (kind, size) in fields.items()}
        names = list(fields)

        def read_sample(context, index, out):
            values = read(index)
            if not isinstance(values, (dict, tuple, list)):
                values = [values]
            if set(values) != set(names) if isinstance(values, dict) else len(values) != len(names):
                raise Error(f'sample {index}: other fields (found {", ".join(map(str, values)) if isinstance(values, dict) else len(values)}, '
                            f'expected {", ".join(names)})')
            for i, name in enumerate(names):
                what = f'sample {index}, field {name!r}'
                value = np.asarray(values[name] if isinstance(values, dict) else values[i], order='C')
                made, _ = tensor(converted(value, fields[name][0], what), what, size=fields[name][1])
                ctypes.memmove(out[i].data, made.data, _c.trm_tensor_bytes(byref(made)))
        return cls._callback(read_sample, count, fields, classes, in_order)

    @classmethod
    def _callback(cls, read_sample, count, fields, classes, in_order):
        source, keep = _c.trm_data_source(*whole_numbers([count, classes], 'Dataset: count and classes'), len(fields)), []
        for field, (name, (kind, size)) in zip(source.fields, fields.items()):
            keep.append(text(name))
            field.name, field.tensor = keep[-1], _c.trm_tensor(None, kind, shape(size))
        source.read = guarded(_c.trm_sample_read, read_sample, "the dataset's read function", own_threads=True)
        source.in_order = in_order
        made = cls(take(_c.trm_dataset_callback, byref(source)), keep + [source])
        made.ends_first()
        made.own_functions = True
        return made

    @classmethod
    def iterable(cls, batches, names=('image', 'label'), count=None, classes=0, drop_remainder=True):
        """Batches from an iterable: a torch DataLoader, a list, any object whose iter() gives an epoch of batches.

        A batch is a dictionary, or a tuple in the order of `names`, of NumPy arrays or torch tensors of equal shapes and types.
        count: batches of an epoch, where the iterable has no len(). Labels of type int64 become int32.
        drop_remainder: leave out a last batch that is smaller; False: it is padded, as batch() does (evaluate() and predict() do so)
        """
        if isinstance(batches, Mapping):
            raise TypeError('Dataset.iterable: an iterable of batches expected, found a dictionary; Dataset.arrays takes one')
        expect(is_iterable(batches), 'Dataset.iterable', 'an iterable of batches', batches)
        stream = _Stream(batches, names)
        if count is None:
            try:
                count = len(batches)
            except TypeError:
                raise Error('Dataset.iterable: the iterable has no len(); give count, the batches of an epoch') from None
        size = stream.size
        made = cls._callback(stream.read, _count_samples(batches, stream.names, count, size), stream.fields, classes, True)
        made.keep.append(stream)
        return made.batch(size, drop_remainder)

    # ---- refining

    def map(self, *steps):
        """Appends transforms: those of trireme.transforms, and functions f(sample, rng) that change a sample in place."""
        for step in steps:
            expect(isinstance(step, _c.trm_transform) or callable(step), 'Dataset.map', 'a transform or a function', step)
            if callable(step):
                self._own_transform(step)
            else:
                call(_c.trm_dataset_map, self.handle, byref(step), 1)
        return self

    def _own_transform(self, function):
        def run(context, index, seed, fields):
            arrays = {name: view(fields[i], self.held()) for i, name in enumerate(self.names)}
            sample = dict(arrays)
            found = function(sample, np.random.default_rng(seed))
            for name in {**arrays, **sample}:
                if sample.get(name) is not arrays.get(name):
                    raise TypeError(f"the field {name!r} was replaced: write into its array, sample[{name!r}][:] = ...")
            if found is not None and found is not sample and not any(found is array for array in arrays.values()):
                raise TypeError('it returned a value, which nothing reads: write into the arrays of the sample')
        hook = guarded(_c.trm_sample_transform, run, 'the transform', own_threads=True)
        self.keep.append(hook)
        self.ends_first()
        self.own_functions = True
        call(_c.trm_dataset_transform, self.handle, hook, None)

    def seek(self, epoch, batch=0):
        """The next batch is batch `batch` of the epoch."""
        self.use()
        call(_c.trm_dataset_seek, self.handle, epoch, batch)
        self.reading = False  # it ends the threads
        return self

    # ---- reading

    def next(self):
        """The next batch as a dictionary of arrays, valid until the next call; None at the end of an epoch."""
        held = self.use()
        out = ctypes.POINTER(_c.trm_batch)()
        with deferring() if self.own_functions else contextlib.nullcontext(), busy(self, held):
            status = call(_c.trm_dataset_next, self.handle, byref(out))
        if status == _c.TRM_END:
            return None
        return batch_arrays(out[0], held)

    def __iter__(self):
        batch = self.next() or self.next()  # the end of an epoch that has been read is no epoch
        while batch is not None:
            yield batch
            batch = self.next()

    def __len__(self):
        """Batches of an epoch of this shard."""
        call(_c.trm_dataset_check, self.handle)
        return _c.trm_dataset_epoch_batches(self.handle)

    @property
    def position(self):
        """(epoch, batch) of the next batch."""
        epoch, batch = ctypes.c_int64(), ctypes.c_int64()
        _c.trm_dataset_position(self.handle, byref(epoch), byref(batch))
        return epoch.value, batch.value

    @property
    def fields(self):
        """{name: (dtype, shape)} of a batch."""
        call(_c.trm_dataset_check, self.handle)
        found, field = {}, _c.trm_batch_field()
        while _c.trm_dataset_field(self.handle, len(found), byref(field)):
            found[field.name.decode()] = (DTYPE_NAMES[field.tensor.dtype], sizes(field.tensor.shape))
        return found

    @functools.cached_property
    def names(self):
        """The names of the fields of a batch."""
        return list(self.fields)

    def use(self):
        """Before the library reads: returns what a call that reads holds. Raises Error in a forked child if threads of the parent read."""
        if self.in_child():
            if self.reading:
                self.refuse_child('Dataset', 'reading threads')
            self.process = os.getpid()
        self.reading = True
        return self.held()


def transform(name, *values):
    """The transform of a C function; its arrays hold a number for each of R, G, B, or get one for all of them."""
    function, passed = getattr(_c, name), []
    for index, (kind, value) in enumerate(zip(function.argtypes, values)):
        value = 0 if value is None else value
        if isinstance(kind, type) and issubclass(kind, ctypes.Array):
            three = list(value) if hasattr(value, '__iter__') else [value] * len(kind())
            if len(three) != len(kind()):
                raise ValueError(f'{name[len("trm_transform_"):]}: one number, or three for R, G, B expected, found {value!r}')
            value = kind(*three)
        passed.append(argument(function, index, value, None))
    return plain_call(function, *passed)


def batch_arrays(batch, held=None):
    """The fields of a trm_batch as arrays over its memory. held: as in view()."""
    found = Batch((batch.fields[i].name.decode(), view(batch.fields[i].tensor, held, True)) for i in range(batch.field_count))
    found.epoch, found.index, found.samples, found.last = batch.epoch, batch.index, batch.samples, batch.last
    return found


class Batch(dict):
    """A batch: arrays by name. samples: real rows, further ones are padding; epoch, index, last: its place."""


def _count_samples(batches, names, count, size):
    """Samples of an epoch of `count` batches, of which the last may be smaller: a DataLoader and a list tell."""
    if getattr(batches, 'drop_last', True) is False and getattr(batches, 'batch_size', None) == size and \
            hasattr(getattr(batches, 'sampler', None), '__len__') and len(batches) == count:
        return len(batches.sampler)
    if isinstance(batches, (list, tuple)) and len(batches) == count:
        last = batches[-1]
        name, values = next(iter(last.items())) if isinstance(last, dict) else (names[0], last[0] if isinstance(last, (list, tuple)) else last)
        return (count - 1) * size + len(_field(name, values)[0])
    return count * size


class _Stream:
    """Reads the batches of an iterable sample by sample, in order."""

    def __init__(self, batches, names):
        names = [names] if isinstance(names, str) else names
        differ = isinstance(names, (tuple, list)) and len(set(names)) == len(names)
        expect(differ, 'Dataset.iterable: names', 'one text, or several that differ', names)
        self.batches, self.names, self.fields, self.full = batches, names, None, 0
        self.start()
        self.take()

    def start(self):
        self.iterator, self.first, self.size = iter(self.batches), 0, 0

    def take(self):
        try:
            batch = next(self.iterator)
        except StopIteration:
            raise Error(f'Dataset.iterable: the iterable has ended after {self.first + self.size} samples, before its epoch; '
                        f'give count, the full batches of an epoch, and an iterable that can be read again') from None
        if not isinstance(batch, dict):
            batch = batch if isinstance(batch, (tuple, list)) else (batch,)
            need(len(batch) <= len(self.names),
                 f'Dataset.iterable: a batch of {len(batch)} fields (expected {", ".join(self.names)}); give names for all of them')
            batch = dict(zip(self.names, batch))
        arrays = {name: _field(name, value) for name, value in batch.items()}
        found = {name: (number, a.shape[1:]) for name, (a, number) in arrays.items()}
        arrays = {name: a for name, (a, _) in arrays.items()}
        self.fields = self.fields or found
        if found != self.fields:
            raise Error(f'Dataset.iterable: a batch of another form (found {_form(found)}, expected {_form(self.fields)})')
        rows = {len(a) for a in arrays.values()}
        if len(rows) != 1 or 0 in rows:
            raise Error('Dataset.iterable: the fields of a batch have other numbers of rows (found '
                        f'{", ".join(f"{name} {list(a.shape)}" for name, a in arrays.items())}, expected one, at least 1)')
        count = rows.pop()
        self.full = self.full or count
        if count > self.full or 0 < self.size < self.full:
            raise Error(f'Dataset.iterable: a batch of another size (found {count} samples after batches of {self.full}'
                        f'{" and a smaller one" if self.size < self.full else ""}, expected {self.full}, and fewer in the last batch alone)')
        self.first += self.size
        self.arrays = [arrays[name] for name in self.fields]
        self.size = len(self.arrays[0])
        self.rows = [(a.ctypes.data, a[0].nbytes) for a in self.arrays]

    def read(self, context, index, out):
        if index < self.first:
            self.start()
            self.take()
        while index >= self.first + self.size:
            self.take()
        for i, (address, bytes_) in enumerate(self.rows):
            ctypes.memmove(out[i].data, address + (index - self.first) * bytes_, bytes_)


def _field(name, value):
    """(array, trm_dtype) of a field of a batch: NumPy, torch, DLPack, a buffer, or lists of numbers. float64 becomes float32."""
    value = plain(value)
    if isinstance(value, (np.ndarray, np.generic, list, tuple, int, float)):
        try:
            value = np.asarray(value, order='C')
        except ValueError as error:  # lists of several lengths
            raise Error(f'Dataset.iterable: field {name!r}: no array ({error})') from None
    address, number, size, keep, _ = described(value, f'Dataset.iterable: field {name!r}')
    need(size, f'Dataset.iterable: field {name!r}: a batch of samples is expected (found one number); a DataLoader makes batches')
    array = view(_c.trm_tensor(address, number, shape(size)), keep, True)
    if number == _c.TRM_FLOAT64 or number == _c.TRM_INT64 and name in ('label', 'targets'):
        number = _c.TRM_FLOAT32 if number == _c.TRM_FLOAT64 else _c.TRM_INT32
        array = converted(array, number, f'Dataset.iterable: field {name!r}')
    return array, number


def _form(fields):
    return ', '.join(f'{name} {DTYPE_NAMES[kind]} {list(size)}' for name, (kind, size) in fields.items())


def is_iterable(value):
    """Whether iter(value) works: by __iter__, or by numbers from 0 on (__getitem__), as a PyTorch data set has."""
    return hasattr(value, '__iter__') or hasattr(value, '__getitem__')


def as_dataset(data, drop_remainder=True):
    """A Dataset of what a caller gave: itself, a dictionary of arrays, or an iterable of batches."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Mapping):
        return Dataset.arrays(data)
    batches = is_iterable(data) and not hasattr(data, '__dlpack__') and not isinstance(data, (str, bytes))
    expect(batches, 'data', 'a Dataset, a dictionary of arrays or an iterable of batches', data)
    return Dataset.iterable(data, drop_remainder=drop_remainder)
