# SPDX-License-Identifier: Apache-2.0
"""Calls that would crash, wait for ever, or go on with other values than the caller means: each is refused with a sentence."""
import collections
import copy
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest

import trireme
from conftest import run_python
from trireme import _call, Dataset, distribute, nn, ops, transforms as t
from trireme._call import stopping


def small(**more):
    return Dataset.open('synth', batch_size=20, shapes={'train_count': 200, 'test_count': 100}, **more)


def mlp(image):
    return ops.mlp(image, [16], 10)


def raises(call, kind, sentence):
    with pytest.raises(kind, match=sentence):
        call()


# ---- objects of the library

def test_objects_with_a_handle_are_not_copied():
    """Two of them would free one object of the library."""
    with trireme.Graph() as graph:
        node = trireme.input('x', 'float32', (2, 3))
    model = trireme.Model(mlp, small())
    for made in (small(), model, graph, trireme.Tokenizer(), model.exec, trireme.model.Context()):
        for call in (copy.copy, copy.deepcopy, pickle.dumps):
            raises(lambda: call(made), TypeError, f'{type(made).__name__}: it cannot be copied or pickled')
    raises(lambda: copy.deepcopy(node), TypeError, 'Graph: it cannot be copied')
    history = trireme.History()
    model.train(until_step=2, callbacks=[history])
    assert pickle.loads(pickle.dumps(history)).losses == history.losses


def test_a_model_serves_one_thread():
    model, told, inside, leave = trireme.Model(mlp, small()), [], threading.Event(), threading.Event()

    def other():
        inside.wait(60)
        try:
            model.evaluate(small(usage='test'))
        except trireme.Error as error:
            told.append(error.message)
        leave.set()

    def wait(progress):
        inside.set()
        assert leave.wait(60)
        assert model.evaluate(small(usage='test'))['samples'] == 100  # a callback may call
    thread = threading.Thread(target=other)
    thread.start()
    model.train(until_step=1, callbacks=[wait])
    thread.join()
    assert len(told) == 1 and 'Model: another thread is in a call of this model (trm_model_evaluate was called)' in told[0]
    model.train(until_step=2)


# ---- networks

def test_nodes_are_not_compared_with_numbers():
    """Python's answer would be False, which counts as 0."""
    with trireme.Graph():
        x = trireme.input('x', 'float32', (4, 3))
        for call in (lambda: (x == 0) * x, lambda: 0 != x, lambda: x == np.zeros(3), lambda: x == 'a'):
            raises(call, TypeError, 'a node has no values while the network is built: == and != cannot compare it')
        for call in (lambda: x < 0, lambda: 0 <= x, lambda: max(x, 0), lambda: sorted([x, x])):
            raises(call, TypeError, 'a node has no values while the network is built: <, <=, > and >= cannot compare it')
        assert x == x and x != x + 0 and x in [x] and x is not None and x != None and len({x, x}) == 1  # noqa: E711


def test_modules_in_lists_of_lists_and_with_a_way_back():
    class Part(nn.Module):
        def __init__(self, whole):
            self.whole, self.fc = whole, nn.Linear(8, 8)

        def forward(self, x):
            return ops.linear(self.fc(x), self.parameter('graph', (8, 8), 'linear'))

    class Whole(nn.Module):
        def __init__(self):
            self.rows = [[nn.Linear(3072, 8)], {'last': (nn.Linear(8, 10),)}]
            self.part = Part(self)

        def forward(self, image):
            return self.rows[1]['last'][0](self.part(self.rows[0][0](image.flatten())))
    whole = Whole()
    assert set(trireme.Model(whole, small()).state_dict()) == {
        'rows.0.0.weight', 'rows.0.0.bias', 'rows.1.last.0.weight', 'rows.1.last.0.bias', 'part.fc.weight', 'part.fc.bias', 'part.graph'}
    assert len(list(whole.modules())) == 5
    raises(lambda: nn.Sequential([nn.Linear(3, 2)]), TypeError, 'Sequential: Modules and functions expected')
    fc0, fc1 = nn.Linear(3072, 8), nn.Linear(8, 10)
    raises(lambda: trireme.Model(lambda image: fc1(fc0(image.flatten())), small()), trireme.Error, "'weight' is the name of two leaves .*; give one another name")


def test_a_network_is_the_same_in_each_call():
    for network in (lambda image: ops.mlp(image, [16], 10 if trireme.graph.current().training else 5),
                    lambda image: ops.mlp(image, [16] if trireme.graph.current().training else [16, 16], 10)):
        model = trireme.Model(network, small())
        raises(lambda: model.evaluate(small(usage='test')), trireme.Error, 'has no such parameter .*; build both graphs with the same parameters')


def test_steps_need_all_inputs():
    with trireme.Graph() as g:
        x, y = (trireme.input(name, 'float32', (2, 3)) for name in ('x', 'y'))
        trireme.input('unread', 'int32', (2,)) + 1
        loss = ((x * trireme.parameter('w', (3,), 'one') - y) ** 2).mean()
    made, ones = trireme.Exec(g, loss), np.ones((2, 3), 'float32')
    raises(lambda: made.step(0.1, x=ones), trireme.Error, "input 'y' has no values; feed it, or write to its memory")
    raises(trireme.Exec(g, loss).forward, trireme.Error, "input 'x' has no values")
    assert made.step(0.0, y=ones * 3) == 4  # x keeps its values
    made.input('y')[:] = 1
    assert made.step(0.0) == 0
    other = trireme.Exec(g, loss)
    other.input('y')[:] = 3
    assert other.step(0.0, x=ones) == 4


# ---- callbacks

def test_callbacks_that_raise_at_odd_moments_leave_a_sound_model(tmp_path):
    test, model = small(usage='test'), trireme.Model(mlp, small())

    def broken(progress):
        raise LookupError('mine')
    for hook, step in (('on_begin', 0), ('on_epoch_begin', 0), ('on_gradients', 0), ('on_step_end', 1), ('on_checkpoint', 2), ('on_epoch_end', 10),
                       ('on_evaluated', 20), ('on_end', 30)):
        for sink in ([False, True] if hook == 'on_epoch_end' else [False]):
            callbacks = [trireme.ModelCheckpoint(tmp_path / hook, every_steps=1), trireme.EvaluateEvery(test), trireme.Lambda(**{hook: broken})]
            raises(lambda: model.train(until_epoch=model.global_step // 10 + 1, callbacks=callbacks), LookupError, 'mine')
    after = model.global_step
    model.train(until_step=after + 1, callbacks=[trireme.ModelCheckpoint(tmp_path / 'after', every_steps=1)])
    assert model.resume(tmp_path / 'after') and model.global_step == after + 1 and model.evaluate(test)['samples'] == 100


@pytest.mark.parametrize('error', [StopIteration('mine'), GeneratorExit('mine'), MemoryError('mine'), trireme.Error('mine', -3), RuntimeError('generator raised StopIteration')])
def test_any_exception_of_a_callback_is_raised(error):
    def broken(progress):
        raise error
    with pytest.raises(type(error)) as caught:
        trireme.Model(mlp, small()).train(until_step=3, callbacks=[broken])
    assert caught.value is error


@pytest.mark.parametrize('move', [lambda data, model: data.seek(0), lambda data, model: data.next(), lambda data, model: model.evaluate(data)])
def test_a_callback_that_moves_the_data_of_its_training_is_told(move):
    data = small()
    model = trireme.Model(mlp, data)

    def callback(progress):
        move(data, model)
    raises(lambda: model.train(until_step=4, callbacks=[callback]), trireme.Error, 'it was read or moved beside its training .by a callback.., use another dataset')


def test_metrics_do_not_write():
    def write(logits, batch):
        logits[:] = 0
        return 1, 2
    raises(lambda: trireme.Model(mlp, small(), metrics=[trireme.Metric('m', write)]).evaluate(small(usage='test')), ValueError, 'read-only')


def test_estimators_have_metrics():
    def run(**more):
        estimator = trireme.Estimator(lambda mode, params: trireme.EstimatorSpec(mlp, metrics=[trireme.Metric('m', **more)]))
        spec = trireme.TrainSpec(lambda context: small(), max_steps=2)
        return trireme.train_and_evaluate(estimator, spec, trireme.EvalSpec(lambda context: small(usage='test')))
    assert run(add=lambda logits, batch: (1, 2))['evaluation']['m'] == 0.5
    raises(lambda: run(add=lambda logits, batch: 1 / 0), ZeroDivisionError, '')
    raises(lambda: run(add=lambda logits, batch: (1, 2), value=lambda sums: 1 / 0), ZeroDivisionError, '')


def test_intervals_of_the_event_file():
    raises(lambda: trireme.Model(mlp, small()).train(until_step=1, callbacks=[trireme.TensorBoard('nowhere', histogram_epochs=-1)]), trireme.Error, 'below 0')
    assert not os.path.exists('nowhere')


# ---- data

@pytest.mark.parametrize('threads', [0, 1])
def test_a_function_that_reads_its_own_dataset_is_told(threads):
    """It would wait for itself for ever."""
    own = []
    for call in (lambda: own[0].next(), lambda: own[0].seek(0)):
        own[:] = [Dataset.samples(lambda index: (call(), 1.0)[1], 8, {'x': ('float32', ())}).batch(2)]
        if threads:
            own[0].prefetch(2, threads)
        raises(own[0].next, trireme.Error, 'a function that fills a batch of a dataset reads this dataset itself; use another one')
    outer = Dataset.samples(lambda index: float(own[0].sample_count), 8, {'x': ('float32', ())})
    assert outer.next()['x'] == 8


def test_iterables_are_named_when_they_are_none():
    batch = np.zeros((2, 3), 'float32')
    raises(lambda: Dataset.iterable(lambda: batch), TypeError, 'Dataset.iterable: an iterable of batches expected, found <function')
    for names in (('x', 'x'), 3):
        raises(lambda: Dataset.iterable([(batch, batch)], names=names), TypeError, 'Dataset.iterable: names: one text, or several that differ expected')
    raises(lambda: Dataset.iterable([batch], names='x', count=1.5), TypeError, 'Dataset: count and classes: whole numbers expected')
    raises(lambda: Dataset.samples(lambda index: 1.0, 'a', {'x': ('float32', ())}), TypeError, 'Dataset: count and classes: whole numbers expected')
    raises(lambda: Dataset.iterable([([[1.0, 2.0], [3.0]], [0, 1])]), trireme.Error, "field 'image': no array")
    raises(lambda: list(Dataset.iterable([batch, batch.astype('int32')], names='x')), trireme.Error, 'another form .found x int32')
    raises(lambda: list(Dataset.iterable([{'x': batch, 'y': batch}, {'x': batch}])), trireme.Error, 'another form')

    class Ends:
        """Its second epoch has one batch."""
        epochs = 0

        def __len__(self):
            return 3

        def __iter__(self):
            self.epochs += 1
            return iter([batch] * (3 if self.epochs == 1 else 1))
    data = Dataset.iterable(Ends(), names='x')
    assert len(list(data)) == 3
    raises(lambda: list(data), trireme.Error, 'has ended after 2 samples, before its epoch')


def test_a_transform_that_removes_a_field_is_named():
    data = Dataset.arrays({'x': np.zeros((4, 3), 'float32')}).map(lambda sample, rng: sample.pop('x'))
    raises(data.next, TypeError, "the field 'x' was replaced")


def test_files_of_clicks_are_sources(tmp_path):
    rows = {'criteo': '\t'.join(['1'] + ['3'] * 13 + ['a'] * 26) + '\n', 'csv': '1,x,y\n', 'libsvm': '1 3:1 4:2\n', 'slots': 'click:1 7:5 7:6 8:9\n',
            'avazu': '1,1,14102100' + ',3' * 21 + '\n'}
    for kind, row in rows.items():
        (tmp_path / kind).write_text(row * 4 if kind != 'csv' else 'label,a,b\n' + row * 4)
        more = {} if kind == 'libsvm' else {'buckets': 100}
        assert {'label', 'keys'} <= set(Dataset.source(kind, tmp_path / kind, **more).batch(2).next()), kind
    raises(lambda: Dataset.source('click_tfrecord', tmp_path / 'none'), trireme.Error, 'none')
    raises(lambda: Dataset.source('cifar10', tmp_path, buckets=3), TypeError, r'Dataset.source: cifar10 takes no options \(found buckets\)')


def test_a_window_is_as_wide_as_high():
    for made in (t.random_crop(8), t.center_crop(8), t.resize(8), t.random_resized_crop(8)):
        assert (made.height, made.width) == (8, 8)
    assert t.resize(8, 9).width == 9 and 'half_pixel, original, antialias' in t.resize.__doc__


# ---- arrays

class OnlyDLPack:
    """An array of a framework that has DLPack alone."""

    def __init__(self, give):
        self.give = give

    def __dlpack__(self, **more):
        return self.give()


def test_dlpack_of_odd_arrays():
    from trireme._convert import tensor
    fixed, floats = np.zeros(3, 'float32'), np.arange(12, dtype='float32').reshape(4, 3)
    fixed.setflags(write=False)
    for array in (floats, floats[2:3], floats[1:, :], floats[:0], floats[:, :1][:1], floats[0, 1:2], np.zeros((3, 0), 'float32').T, floats[None, :, None][..., :]):
        made, keep = tensor(OnlyDLPack(array.__dlpack__))
        assert made.dtype == 1 and tuple(made.shape.dim[:array.ndim]) == array.shape and (array.size == 0 or made.data == array.ctypes.data)
    for array in (floats.T, floats[:, 1:], floats[::-1], floats[::2], np.lib.stride_tricks.as_strided(floats[:1, :1], (4, 4), (0, 4))):
        raises(lambda: tensor(OnlyDLPack(array.__dlpack__), 'it'), trireme.Error, 'it: the array of shape .* is not contiguous')
    raises(lambda: tensor(OnlyDLPack(np.zeros((1,) * 7, 'float32').__dlpack__)), trireme.Error, 'too many dimensions')
    for give in (fixed.__dlpack__, lambda: None, lambda: [1]):
        raises(lambda: tensor(OnlyDLPack(give), 'it'), trireme.Error, 'it: the array gives no memory by DLPack')


def test_booleans_by_dlpack_are_booleans():
    torch = pytest.importorskip('torch')
    try:
        capsule = torch.utils.dlpack.to_dlpack(torch.tensor([True, False]))
    except RuntimeError:
        pytest.skip('this torch gives no booleans by DLPack')
    array = OnlyDLPack(lambda: capsule)
    raises(lambda: distribute.all_reduce(array, 'mean'), trireme.Error, 'mean of booleans')


def test_collectives_take_parameters_and_named_tuples():
    pair = collections.namedtuple('Pair', 'a b')
    comm = distribute.Communicator()
    assert comm.all_gather(3.0).shape == (1, 1) and comm.all_gather([1, 2]).tolist() == [[1, 2]]
    torch = pytest.importorskip('torch')
    assert comm.all_gather(torch.nn.Parameter(torch.ones(3))).tolist() == [[1, 1, 1]] and comm.all_to_all(torch.ones(1, 3).t().contiguous().t()).shape == (1, 3)
    assert distribute.shard_and_rebatch(pair(np.zeros(4), np.ones(4)), 2)[0].b[0] == 1


def test_collectives_return_tensors_for_tensors():
    """NumPy has no bfloat16."""
    torch, comm = pytest.importorskip('torch'), distribute.Communicator()
    for kind in (torch.bfloat16, torch.float32, torch.bool):
        rows = torch.ones(1, 3).to(kind)
        for found, size in ((comm.all_gather(rows), (1, 1, 3)), (comm.reduce_scatter(rows), (3,)), (comm.all_to_all(rows), (1, 3))):
            assert found.dtype == kind and tuple(found.shape) == size and found.float().sum() == 3
    assert isinstance(comm.all_gather(np.ones(3)), np.ndarray)


def test_tensors_without_memory_are_named():
    torch = pytest.importorskip('torch')
    freed = torch.ones(1000)
    (freed.untyped_storage if hasattr(freed, 'untyped_storage') else freed.storage)().resize_(0)
    raises(lambda: distribute.all_reduce(freed), trireme.Error, r'all_reduce: the tensor of shape \(1000,\) has no memory')


# ---- weights

def test_weights_of_other_names_are_refused():
    model = trireme.Model(mlp, small())
    renamed = {'module.' + name: value for name, value in model.state_dict().items()}
    for strict in (True, False):
        raises(lambda: model.load_state_dict(renamed, strict), trireme.Error, "4 variables are missing .first: 'fc0.bias'; the nearest found is 'module.fc0.bias'")
    model.load_state_dict({name[7:]: value * 0 for name, value in renamed.items() if 'weight' in name}, strict=False)
    assert not model.state_dict()['fc0.weight'].any()
    with pytest.raises(TypeError) as caught:
        model.load_state_dict(list(model.state_dict().items()))
    assert len(str(caught.value)) < 500


# ---- MindSpore's names

def test_mindspores_arguments_without_an_equal_are_refused():
    import trireme.compat.mindspore  # noqa: F401
    import mindspore.dataset as ds
    from mindspore import context, nn as layers
    from mindspore.train import Model
    arrays = (np.zeros((4, 3), 'float32'), np.zeros(4, 'int32'))
    for call, sentence in (
            (lambda: context.set_context(mode=0, devce_target='CPU'), "set_context: devce_target='CPU' is not supported"),
            (lambda: layers.SoftmaxCrossEntropyWithLogits(sparse=True, reduction='sum'), "reduction='sum' is not supported .expected 'mean'"),
            (lambda: layers.Dense(3, 4, activation='relu'), "Dense: activation='relu'"), (lambda: layers.Dense(3, 4, weight_init='zeros'), 'Dense: weight_init'),
            (lambda: layers.Conv2d(3, 4, 3, pad_mode='reflect'), "Conv2d: pad_mode='reflect'"), (lambda: layers.MaxPool2d(2, 2, 'reflect'), 'MaxPool2d: pad_mode'),
            (lambda: layers.AvgPool2d(2, 2, 'same'), 'AvgPool2d: pad_mode'), (lambda: layers.BatchNorm2d(3, affine=False), 'BatchNorm2d: affine=False'),
            (lambda: Model(None, amp_level='O2'), "amp_level='O2' is not supported .expected 'O0'"),
            (lambda: ds.NumpySlicesDataset(arrays, num_samples=2), 'dataset: num_samples=2'),
            (lambda: ds.NumpySlicesDataset(arrays).batch(2, pad_info={}), 'batch: pad_info'), (lambda: ds.NumpySlicesDataset(arrays).map(3, output_columns='x'), 'map: output_columns')):
        raises(call, trireme.Error, sentence)
    context.set_context(mode=0, device_target='Ascend', save_graphs=False)
    assert layers.Dropout(p=0.25).rate == 0.25 and layers.BatchNorm2d(3, affine=True, gamma_init='ones').momentum == pytest.approx(0.1)
    assert ds.NumpySlicesDataset(arrays, shuffle=False, num_parallel_workers=4).batch(2, num_parallel_workers=4).get_dataset_size() == 2


# ---- Ctrl-C while C calls functions of the program

INTERRUPTED = '''
import os, signal, sys, threading
import numpy as np
import trireme
from trireme import Dataset, ops
signal.signal(signal.SIGINT, signal.default_int_handler)

def shapes(count, **more):
    return Dataset.open('synth', batch_size=20, shapes={'train_count': count, 'test_count': count}, **more)

def press():
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

def mlp(image):
    return ops.mlp(image, [16], 10)

calls = []
def count(*values):
    calls.append(1)
    if len(calls) == 20:
        press()
    return calls and (1, 2)

model = trireme.Model(mlp, shapes(200), metrics=[trireme.Metric('m', count)] if sys.argv[1] == 'metric' else [])
long, test = shapes(10 ** 7, usage='test'), shapes(100, usage='test')
samples = Dataset.samples(lambda index: count()[0] * 1.0, 10 ** 8, {'x': ('float32', ())}).batch(1000)

def estimate():
    estimator = trireme.Estimator(lambda mode, params: trireme.EstimatorSpec(mlp))
    trireme.train_and_evaluate(estimator, trireme.TrainSpec(lambda context: shapes(200), epochs=10 ** 6, hooks=[count]), trireme.EvalSpec(lambda context: shapes(100, usage='test')))

try:
    {'train': lambda: model.train(until_epoch=10 ** 6, callbacks=[lambda p: count() and None]),
     'nested': lambda: model.train(until_epoch=10 ** 6, callbacks=[lambda p: count() and model.evaluate(test) and None]),
     'predict': lambda: model.predict(long, see=lambda logits, batch: count() and None),
     'metric': lambda: model.evaluate(long),
     'evaluate': lambda: press() or model.evaluate(long),
     'samples': lambda: [samples.next() for _ in range(10 ** 6)],
     'planner': lambda: press() or trireme.Planner('resnet50', shapes(200), ranks=64),
     'profile': lambda: press() or model.exec.profile(50000),
     'estimator': estimate}[sys.argv[1]]()
    print('not interrupted')
except KeyboardInterrupt:
    step = model.global_step
    model.train(until_step=step + 2, callbacks=[lambda p: None])
    print('interrupted', model.global_step - step, model.evaluate(test)['samples'], len(samples.next()['x']), flush=True)
    os._exit(0)
'''


@pytest.mark.parametrize('call', ['train', 'nested', 'predict', 'metric', 'evaluate', 'samples', 'estimator', 'planner', 'profile'])
def test_ctrl_c_is_raised_when_c_calls_the_program(tmp_path, call):
    """The exception was lost on the way into the function, and C went on with a result that was none."""
    out = run_python(['-c', INTERRUPTED, call], tmp_path)
    assert out.splitlines()[-1] == 'interrupted 2 100 1000' and 'Exception ignored' not in out, out


def test_a_signal_that_is_noticed_late_stops_no_later_call():
    """The thread that hears of signals may get a CPU when the call has ended: its request was for the next call, which was "stopped on request"."""
    stops, before = [], signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        with stopping(lambda: stops.append('outer')):
            with _call._receiving:  # the inner call's thread has to wait
                inner = stopping(lambda: stops.append('inner'))
                inner.__enter__()
                os.kill(os.getpid(), signal.SIGINT)
                _call._receivers.pop()  # as the call does when it ends
            deadline = time.monotonic() + 60
            while not stops and time.monotonic() < deadline:
                time.sleep(0.001)
            _call._receivers.append((set(), {}))  # which the end takes off
            inner.__exit__(None, None, None)
        assert stops == ['outer']
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_an_inner_call_is_that_of_the_outer_one():
    """The evaluation in a callback may end before it hears of the signal: the training around it was then "stopped on request"."""
    heard, before = threading.Event(), signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        with pytest.raises(KeyboardInterrupt), stopping(lambda: None):
            with stopping(heard.set):
                os.kill(os.getpid(), signal.SIGINT)
                assert heard.wait(60)
            raise trireme.Error('stopped on request after step 30', trireme._c.TRM_CANCELLED)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_daemon_thread_trains_at_the_end(tmp_path):
    out = run_python(['-c', '''
import threading, time
import numpy as np, trireme
from trireme import ops
fields = {'image': ('float32', (3, 8, 8)), 'label': ('int32', ())}
data = trireme.Dataset.samples(lambda i: (np.zeros((3, 8, 8), 'f4'), 0), 1000, fields).batch(10).prefetch(4, 2)
model, begun = trireme.Model(lambda image: ops.mlp(image, [4], 10), data), threading.Event()
threading.Thread(target=lambda: model.train(until_epoch=10 ** 6, callbacks=[lambda p: begun.set()]), daemon=True).start()
other = trireme.Dataset.samples(lambda i: time.sleep(0.1) or np.zeros(1, 'f4'), 10 ** 6, {'x': ('float32', (1,))}).batch(2)
threading.Thread(target=lambda: [other.next() for _ in range(10 ** 6)], daemon=True).start()
begun.wait()
print('ends')
'''], tmp_path)
    assert 'ends' in out and 'stopped on request' in out


def test_a_handler_of_ctrl_c_of_the_programs_own_is_called(tmp_path):
    out = run_python(['-c', '''
import os, signal, threading
import trireme
from trireme import ops
signal.signal(signal.SIGINT, lambda number, frame: print('heard'))
model = trireme.Model(lambda image: ops.mlp(image, [4], 10), trireme.Dataset.open('synth', batch_size=8, shapes={'train_count': 80}))
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    model.train(until_epoch=10 ** 6)
except KeyboardInterrupt as error:
    print(error)
'''], tmp_path)
    assert out.count('heard') == 1 and 'stopped on request' in out


def test_curves_leave_out_what_is_no_number():
    history = trireme.History()
    history.steps, history.losses = [1, 2, 3], [float('nan'), 2.0, float('inf')]
    assert 'nan' not in history._repr_svg_() and 'inf' not in history._repr_svg_() and '>2<' in history._repr_svg_()
    history.losses = [float('nan')] * 3
    assert 'no loss is a finite number' in history._repr_svg_()


def test_objects_of_other_kinds_are_named():
    data, endless = trireme.Dataset.open('synth', batch_size=8, shapes={'train_count': 16}), iter(lambda: print, None)
    model = trireme.Model(lambda image: ops.mlp(image, [4], 10), data)
    with pytest.raises(trireme.Error, match='callbacks: found more than 16'):
        model.train(until_step=1, callbacks=endless)
    for wrong in ({'file': 'log.txt'}, {'every_seconds': '1'}):
        with pytest.raises(TypeError, match='ProgressBar: .* expected, found'):
            trireme.ProgressBar(**wrong)
    with pytest.raises(TypeError, match='RunConfig: cluster: a Cluster expected'):
        trireme.Estimator(print, config=trireme.RunConfig(cluster='host:1'))
    estimator = trireme.Estimator(lambda mode, params: trireme.EstimatorSpec(lambda image: ops.mlp(image, [4], 10)))
    with pytest.raises(TypeError, match='max_steps cannot be 2.5'):
        trireme.train_and_evaluate(estimator, trireme.TrainSpec(lambda context: data, max_steps=2.5), None)
    from trireme.compat.mindspore import install  # noqa: F401
    import mindspore.dataset as ds
    with pytest.raises(trireme.Error, match='column_names has 1 names'):
        ds.NumpySlicesDataset((np.zeros((8, 3), 'f4'), np.zeros(8, 'i4')), column_names=['image'])


def test_modules_and_datasets_of_torch_are_named():
    torch = pytest.importorskip('torch')
    data = trireme.Dataset.open('synth', batch_size=8, shapes={'train_count': 16})
    with pytest.raises(TypeError, match='network: a function or a Module of trireme.nn'):
        trireme.Model(torch.nn.Linear(3, 2), data)
    with pytest.raises(TypeError, match='loss: a function or a Module of trireme.nn'):
        trireme.Model(lambda image: ops.mlp(image, [4], 10), data, loss=torch.nn.CrossEntropyLoss())
    with pytest.raises(trireme.Error, match='a DataLoader makes batches'):
        trireme.Model('mlp', torch.utils.data.TensorDataset(torch.zeros(8, 3, 8, 8), torch.zeros(8, dtype=torch.long)))
