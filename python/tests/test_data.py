# SPDX-License-Identifier: Apache-2.0
"""Datasets: arrays without copies, functions, iterables, transforms, tokenizers."""
import os

import numpy as np
import pytest

import trireme
from conftest import run_python
from trireme import Dataset, ops, transforms as t


def numbers(count=12):
    return {'x': np.arange(count * 2, dtype='float32').reshape(count, 2), 'label': np.arange(count, dtype='int32') % 3}


def test_arrays_are_read_in_place():
    arrays = numbers()
    data = Dataset.arrays(arrays, classes=3).batch(4)
    assert data.fields == {'x': ('float32', (4, 2)), 'label': ('int32', (4,))} and len(data) == 3 and data.class_count == 3
    arrays['x'][0] = 100
    rows = [(b.epoch, b.index, b.samples, b.last, b['x'].copy()) for b in data]
    assert [r[:4] for r in rows] == [(0, 0, 4, False), (0, 1, 4, False), (0, 2, 4, True)]
    assert np.array_equal(np.concatenate([r[4] for r in rows]), arrays['x'])
    assert data.position == (1, 0) and next(iter(data)).epoch == 1
    with pytest.raises(ValueError):
        data.next()['x'][0] = 1  # the batch is the dataset's


def test_refining_and_padding():
    data = Dataset.arrays(numbers(10)).batch(4, drop_remainder=False).seed(3).shuffle().shard(2, 1, 'pad').prefetch(2, 1)
    batches = [(b.samples, b['label'].copy()) for b in data]
    assert [s for s, _ in batches] == [4, 1] and list(batches[1][1][1:]) == [-1] * 3
    data.seek(0)
    assert np.array_equal(data.next()['label'], batches[0][1])
    assert data.describe()['shuffle'] is True and data.sample_count == 10
    with pytest.raises(trireme.Error):
        data.batch(3)  # reading has begun


def test_transforms_of_the_library_and_of_the_program():
    data = Dataset.source('shapes', train_count=20).batch(4)
    data.map(t.random_crop(32, padding=4), t.random_flip(), t.rescale(), t.normalize((0.5, 0.5, 0.5), 0.25), t.hwc2chw())
    data.map(lambda sample, rng: sample['image'].__setitem__((0, 0, 0), 7 + sample['label'] * 0))
    batch = data.next()
    assert batch['image'].shape == (4, 3, 32, 32) and (batch['image'][:, 0, 0, 0] == 7).all()
    broken = Dataset.arrays(numbers()).map(lambda sample, rng: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        broken.next()


def test_samples_of_a_function():
    arrays = numbers()
    data = Dataset.samples(lambda i: (arrays['x'][i], arrays['label'][i]), 12, {'x': ('float32', (2,)), 'label': ('int32', ())}, classes=3)
    seen = np.concatenate([b['x'].copy() for b in data.shuffle().batch(4)])
    assert sorted(map(tuple, seen)) == sorted(map(tuple, arrays['x']))
    wrong = Dataset.samples(lambda i: {'x': np.zeros(3, 'float32')}, 4, {'x': ('float32', (2,))})
    with pytest.raises(trireme.Error, match=r"field 'x': another shape \(found \[3\], expected \[2\]\)"):
        wrong.next()


def test_samples_are_what_the_fields_say():
    fields = {'x': ('float32', (2,)), 'label': ('int32', ())}
    for value, sentence in (((np.zeros(2),), 'sample 0: other fields .found 1, expected x, label'), ((np.zeros(2), 1, 2), 'found 3, expected x, label'),
                            ({'x': np.zeros(2)}, 'found x, expected x, label'), ((np.zeros(2), 1.7), "field 'label': another type .found float64 from 1.7 to 1.7, expected int32"),
                            ((np.zeros(2), 2 ** 40), "field 'label': another type .found int64 from 1099511627776"), ((None, 1), "field 'x': another type"),
                            ((['a', 'b'], 1), "field 'x': another type")):
        with pytest.raises(trireme.Error, match=sentence):
            Dataset.samples(lambda index: value, 4, fields).next()
    assert Dataset.samples(lambda index: ([1, 2], np.uint8(3)), 4, fields).batch(2).next()['label'].tolist() == [3, 3]
    for wrong in ({'x': 'float32'}, ['x'], {'x': ('float32', (2.5,))}):
        with pytest.raises(TypeError, match='Dataset.samples: '):
            Dataset.samples(lambda index: 1, 4, wrong)
    with pytest.raises(TypeError, match='read: a function expected'):
        Dataset.samples(3, 4, fields)


def test_a_transform_that_would_change_nothing_is_named():
    for function, sentence in ((lambda sample, rng: sample.update(x=sample['x'] * 2), "the field 'x' was replaced: write into its array"),
                               (lambda sample, rng: sample.update(z=1), "the field 'z' was replaced"), (lambda sample, rng: {'x': 1}, 'it returned a value, which nothing reads')):
        with pytest.raises(TypeError, match=sentence):
            Dataset.arrays(numbers()).map(function).next()
    for function in (lambda sample, rng: np.multiply(sample['x'], 2, out=sample['x']), lambda sample, rng: (sample['x'].__imul__(2), sample)[1]):
        assert np.array_equal(Dataset.arrays(numbers()).map(function).batch(4).next()['x'], numbers()['x'][:4] * 2)


def test_arrays_that_would_lose_something_are_refused():
    masked = np.ma.masked_array(np.arange(3, dtype='float32'), mask=[1, 0, 0])
    with pytest.raises(trireme.Error, match="array 'x': the array is masked"):
        Dataset.arrays({'x': masked})
    with pytest.raises(trireme.Error, match="field 'label': another type .found int64 from 1 to 1099511627776, expected int32"):
        Dataset.iterable([(np.zeros((2, 3), 'float32'), np.array([2 ** 40, 1]))])
    with pytest.raises(TypeError, match='found a dictionary; Dataset.arrays takes one'):
        Dataset.iterable(numbers())
    assert list(Dataset.iterable([np.zeros((2, 3), 'float32')], names='x').fields) == ['x']
    for mean in ((0.5, 0.5), (1, 2, 3, 4)):
        with pytest.raises(ValueError, match='normalize: one number, or three'):
            t.normalize(mean, 1)
    torch = pytest.importorskip('torch')
    for tensor in (torch.eye(3).to_sparse(), torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])):
        with pytest.raises(trireme.Error, match='the tensor is not dense'):
            trireme.distribute.all_reduce(tensor)


def test_a_program_ends_while_a_thread_fills_batches(tmp_path):
    run_python(['-c', '''
import numpy as np, trireme
data = trireme.Dataset.samples(lambda i: np.float32([i]), 1000, {'x': ('float32', (1,))}).batch(4).prefetch(8, 2)
assert data.next()['x'][1] == 1
'''], tmp_path, timeout=60)


def test_iterables_feed_training():
    arrays, starts = numbers(60), []

    class Loader:
        def __len__(self):
            return 6

        def __iter__(self):
            starts.append(1)
            for i in range(6):
                yield arrays['x'][10 * i:10 * i + 10].astype('float64'), arrays['label'][10 * i:10 * i + 10].astype('int64')
    data = Dataset.iterable(Loader(), names=('x', 'label'), classes=3)
    assert data.fields == {'x': ('float32', (10, 2)), 'label': ('int32', (10,))} and len(data) == 6
    model = trireme.Model(lambda x: ops.mlp(x * 0.05, [8], 3), data, optimizer='momentum')
    history = trireme.History()
    model.train(until_epoch=3, callbacks=[history])
    same = trireme.Model(lambda x: ops.mlp(x * 0.05, [8], 3), Dataset.arrays(arrays, 3).batch(10), optimizer='momentum')
    other = trireme.History()
    same.train(until_epoch=3, callbacks=[other])
    assert history.losses == other.losses and len(starts) == 3


class OnlyDLPack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_iterables_of_other_arrays():
    import array
    rows = np.arange(8, dtype='float32').reshape(4, 2)
    for batch, field in ((OnlyDLPack(rows.copy()), ('float32', (4, 2))), (rows.T.copy().T, ('float32', (4, 2))), (rows.tolist(), ('float32', (4, 2))),
                         (array.array('i', [1, 2, 3, 4]), ('int32', (4,))), (np.array([True, False] * 2), ('uint8', (4,)))):
        data = Dataset.iterable([{'x': batch}] * 2)
        assert data.fields == {'x': field} and [b['x'].tolist() for b in data] == [np.asarray(getattr(batch, 'array', batch)).tolist()] * 2
    torch = pytest.importorskip('torch')
    data = Dataset.iterable([torch.ones(4, 2, dtype=torch.bfloat16)], names=('x',))
    assert data.fields == {'x': ('bfloat16', (4, 2))} and (data.next()['x'] == 0x3F80).all()
    assert Dataset.arrays({'x': torch.tensor([True, False])}).batch(2).next()['x'].tolist() == [1, 0]


def test_iterables_that_are_wrong():
    with pytest.raises(trireme.Error, match=r"field 'x': a batch of samples is expected \(found one number\)"):
        Dataset.iterable([np.array(3, 'float32')], names=('x',))
    with pytest.raises(trireme.Error, match="field 'x': an array is needed .found NoneType"):
        Dataset.iterable([None], names=('x',))
    with pytest.raises(trireme.Error, match="field 'x': an array is needed .found NoneType"):
        Dataset.iterable([{'x': np.zeros((4, 2), 'float32')}, {'x': None}])
    good = [np.zeros((4, 2), 'float32')] * 2
    with pytest.raises(trireme.Error, match='has no len'):
        Dataset.iterable(iter(good), names=('x',))
    changed = Dataset.iterable([good[0], np.zeros((4, 3), 'float32')], names=('x',))
    with pytest.raises(trireme.Error, match=r'another form \(found x float32 \[3\], expected x float32 \[2\]\)'):
        list(changed)
    for sizes, words in (((4, 6), 'found 6 samples after batches of 4, expected 4'), ((4, 3, 4), 'found 4 samples after batches of 4 and a smaller one')):
        resized = Dataset.iterable([np.zeros((n, 2), 'float32') for n in sizes], names=('x',))
        with pytest.raises(trireme.Error, match=words):
            list(resized)
    with pytest.raises(trireme.Error, match='a batch of 2 fields .expected x.; give names for all'):
        Dataset.iterable([(good[0], good[0])], names=('x',))
    short = Dataset.iterable(good, names=('x',), count=5)
    with pytest.raises(trireme.Error, match='has ended after 8 samples'):
        list(short)
    for fields in ((np.zeros((4, 2), 'float32'), np.zeros(3, 'int32')), (np.zeros((0, 2), 'float32'),)):
        with pytest.raises(trireme.Error, match='other numbers of rows'):
            Dataset.iterable([fields])
    with pytest.raises(trireme.Error, match='in order only'):
        list(Dataset.iterable(good, names=('x',)).shuffle())


class Loader:
    """What a torch DataLoader without drop_last tells."""

    drop_last, batch_size, sampler = False, 4, range(10)

    def __len__(self):
        return 3

    def __iter__(self):
        return iter(batches_of_ten())


def batches_of_ten():
    arrays = numbers(10)
    return [(arrays['x'][i:i + 4], arrays['label'][i:i + 4]) for i in (0, 4, 8)]


@pytest.mark.parametrize('batches', [Loader(), batches_of_ten(), [dict(zip(('x', 'label'), b)) for b in batches_of_ten()]])
def test_a_smaller_last_batch(batches):
    names = ('x', 'label')
    for _ in range(2):
        assert [b.samples for b in Dataset.iterable(batches, names=names)] == [4, 4]
    whole = Dataset.iterable(batches, names=names, classes=3, drop_remainder=False)
    for _ in range(2):
        assert [(b.samples, list(b['label'])) for b in whole][2] == (2, [2, 0, -1, -1])
    model = trireme.Model(lambda x: ops.mlp(x * 0.05, [8], 3), Dataset.iterable(batches, names=names, classes=3))
    model.train(until_epoch=2)
    assert model.global_step == 4 and model.evaluate(whole)['samples'] == 10 and len(model.predict(whole)) == 10


def test_torch_loaders_feed_training():
    """With and without worker processes, which are forked while the library's threads run or started anew: the same weights."""
    torch = pytest.importorskip('torch')
    arrays, weights = numbers(40), []
    rows = torch.utils.data.TensorDataset(torch.from_numpy(arrays['x']), torch.from_numpy(arrays['label']).long())
    for more in ({}, {'num_workers': 2}, {'num_workers': 2, 'persistent_workers': True, 'multiprocessing_context': 'spawn'}):
        loader = torch.utils.data.DataLoader(rows, batch_size=8, timeout=60 if more else 0, **more)
        data = Dataset.iterable(loader, classes=3)
        model = trireme.Model(lambda image: ops.mlp(image * 0.05, [8], 3), data, seed=1)
        model.train(until_epoch=2)
        assert model.global_step == 10 and model.evaluate(loader)['samples'] == 40
        model.load_state_dict({k: torch.from_numpy(v) for k, v in model.state_dict().items()})
        weights.append({k: v.copy() for k, v in model.state_dict().items()})
        assert all(np.array_equal(v, weights[0][k]) for k, v in weights[-1].items())
        data.close()


def test_a_loaders_error_is_raised():
    """A worker process that fails, and one that dies, end the training."""
    torch = pytest.importorskip('torch')

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            if index == 20:
                os._exit(3) if self.dies else 1 / 0
            return np.zeros(4, 'float32'), 0
    for dies, kind, sentence in ((False, ZeroDivisionError, 'division by zero'), (True, (RuntimeError, ConnectionError), 'worker.*exited unexpectedly|reset by peer')):
        rows = Rows()
        rows.dies = dies
        loader = torch.utils.data.DataLoader(rows, batch_size=8, num_workers=2, timeout=60)
        with pytest.raises(kind, match=sentence):  # a worker reads ahead: it may die before the first batch
            data = Dataset.iterable(loader, classes=3)
            trireme.Model(lambda image: ops.mlp(image, [8], 3), data).train(until_epoch=1)


def test_sources_are_checked(tmp_path):
    with pytest.raises(trireme.Error, match='no source') as caught:
        Dataset.source('cifar11')
    assert caught.value.status == 'invalid'
    with pytest.raises(trireme.Error, match='nowhere') as caught:
        Dataset.source('cifar10', tmp_path / 'nowhere')
    assert caught.value.status == 'io' and caught.value.code == -3 and caught.value.file.endswith('.c') and caught.value.line > 0
    clicks = Dataset.source('clicks', rows=100, fields=3, dense=2).batch(10)
    assert set(clicks.next()) == {'label', 'dense', 'keys'}
    with pytest.raises(TypeError, match="no option 'row'; the nearest is 'rows'"):
        Dataset.source('clicks', row=5)
    with pytest.raises(trireme.Error, match='samples|length|as many'):
        Dataset.arrays({'x': np.zeros((3, 2), 'float32'), 'y': np.zeros(4, 'float32')})


def test_text(tmp_path):
    (tmp_path / 'input.txt').write_text('the cat and the hat and the rat\n' * 60)
    tokenizer = trireme.Tokenizer.train(tmp_path / 'input.txt', 300)
    ids = tokenizer.encode('the cat')
    assert ids.dtype == np.int32 and tokenizer.decode(ids) == 'the cat' and len(tokenizer) <= 300
    tokenizer.save(tmp_path / 'tokenizer')
    assert np.array_equal(trireme.Tokenizer(tmp_path / 'tokenizer').encode('the cat'), ids)
    data = Dataset.source('text', tmp_path / 'input.txt', tokens='characters', context=8).batch(4)
    assert data.fields['tokens'] == ('int32', (4, 8))
    bytes_ = trireme.Tokenizer()
    assert len(bytes_) == 256 and bytes_.encode('a\0b').tolist() == [97, 0, 98] and bytes_.decode([]) == ''
    for wrong in ([72.9], np.array([2 ** 32 + 72]), 'abc'):
        with pytest.raises(trireme.Error, match='Tokenizer.decode: ids: another type'):
            bytes_.decode(wrong)
    for call in (lambda: bytes_.encode(3), lambda: trireme.Tokenizer.train([], 300), lambda: trireme.Tokenizer.train([None], 300)):
        with pytest.raises(TypeError, match='Tokenizer.* expected, found'):
            call()
    assert trireme.machine()['cores'] >= 1


def test_the_mode_of_an_input_fn_is_a_usage():
    counts = {usage: Dataset.open('synth', usage, 10, shapes={'train_count': 40, 'test_count': 20}).sample_count for usage in ('train', 'test', 'eval')}
    assert counts['eval'] == counts['test'] == 20 and counts['train'] == 40
