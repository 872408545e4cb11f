# SPDX-License-Identifier: Apache-2.0
"""Models: the losses of the C programs, networks of every form, callbacks, state, Ctrl-C, what is refused."""
import contextlib
import gc
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import trireme
from conftest import PROGRAM, PYTHON, ROOT, losses, python_environment, run, run_in_c, run_python
from trireme import nn, ops


def small(batch=20, count=200, **more):
    return trireme.Dataset.open('synth', batch_size=batch, shapes={'train_count': count, 'test_count': 100}, **more)


def mlp(image):
    return ops.mlp(image, [32], 10)


class Net(nn.Module):
    """examples/mlp.c's network as a Module."""

    def __init__(self):
        self.flatten, self.fc0, self.fc1 = nn.Flatten(), nn.Linear(3 * 32 * 32, 32), nn.Linear(32, 10)

    def forward(self, image):
        return self.fc1(ops.relu(self.fc0(self.flatten(image))))


def test_losses_of_the_example_in_c(tmp_path):
    in_c = run_in_c(os.path.join(ROOT, 'examples', 'mlp.c'), tmp_path)
    assert run_python([os.path.join(PYTHON, 'examples', 'mlp.py')], tmp_path) == in_c and len(losses(in_c)) == 3


def train_losses(network, **more):
    history = trireme.History()
    model = trireme.Model(network, small(), optimizer='momentum', seed=1, **more)
    model.train(until_step=6, callbacks=[history])
    assert history.steps == [1, 2, 3, 4, 5, 6] and '<polyline' in history._repr_svg_()
    return model, history.losses


def test_functions_modules_and_names_are_one_network():
    model, of_function = train_losses(mlp)
    module, of_module = train_losses(Net())
    assert of_function == of_module and len(set(of_function)) == 6
    assert set(model.state_dict()) == set(module.state_dict()) and 'fc0.weight' in model.state_dict()
    _, of_name = train_losses('mlp')
    _, of_same = train_losses(lambda inputs: ops.mlp(inputs['image'], [512, 256], 10))
    assert of_name == of_same


def test_own_loss_is_the_librarys():
    def loss(logits, label):
        shifted = logits - logits.max(-1, True)
        picked = (shifted * ops.one_hot(label, 10)).sum(-1)
        return (ops.log(ops.exp(shifted).sum(-1)) - picked).mean()
    _, own = train_losses(mlp, loss=loss)
    _, expanded = train_losses(mlp, loss='softmax_expand')
    _, fused = train_losses(mlp)
    assert np.allclose(own, fused, rtol=1e-5) and np.allclose(expanded, fused, rtol=1e-5)


def test_options_inside_are_found_by_their_names():
    keep = []
    made = trireme._convert.options(trireme._c.trm_model_options, {'precision': 'mixed', 'seed': 7, 'mesh': '2x4', 'fusion': False,
                                                                   'loss_scale': {'on': True}, 'memory_bytes': 5}, keep)
    assert (made.exec.precision, made.exec.seed, made.exec.fusion) == (1, 7, trireme._c.TRM_OFF)
    assert made.exec.parallel.split.mesh == b'2x4' and made.exec.loss_scale.on and made.exec.memory_bytes == 5
    with pytest.raises(TypeError, match="no option 'presicion'; the nearest is 'precision'"):
        trireme.Model(mlp, small(), presicion='mixed')
    with pytest.raises(TypeError, match='several places'):
        trireme.Model(mlp, small(), kind=1)
    with pytest.raises(trireme.Error, match="there is no 'adma'.*expected one of default, sgd"):
        trireme.Model(mlp, small(), optimizer='adma')


def test_wrong_kinds_of_arguments_are_named():
    for options, sentence in (({'optimizer': 5}, 'optimizer: a name or a dictionary'), ({'metrics': ['top1']}, 'metrics: at most .* Metric objects')):
        with pytest.raises(TypeError, match=sentence):
            trireme.Model(mlp, small(), **options)
    for network, sentence in ((5, 'network: a function, .* found 5'), (lambda image: mlp(image) if image else image, 'a node has no value')):
        with pytest.raises(TypeError, match=sentence):
            trireme.Model(network, small())
    with pytest.raises(TypeError, match="data: a Dataset, .* found 'synth'"):
        trireme.Model(mlp, small()).train('synth', until_step=1)
    with pytest.raises(ValueError, match='returned 3 numbers, expected 2'):
        trireme.Model(mlp, small(), metrics=[trireme.Metric('m', lambda logits, batch: (1, 2, 3))]).evaluate(small(usage='test'))
    broken = trireme.Metric('broken', lambda logits, batch: (1, 2), value=lambda sums: 1 / 0)
    model = trireme.Model(mlp, small(), metrics=[broken])
    for call in (lambda: model.evaluate(small(usage='test')), lambda: model.train(until_epoch=9, callbacks=[trireme.EvaluateEvery(small(usage='test'))])):
        with pytest.raises(ZeroDivisionError):
            call()
    assert model.global_step == 10  # it ended with its first evaluation
    for network, words in ((lambda image: image['left'], 'integer'), (lambda image: ops.relu(image).sum('x'), "whole numbers expected, found 'x'")):
        with pytest.raises(TypeError, match=words):
            trireme.Model(network, small())
    with pytest.raises(trireme.Error, match='object is not supported'):
        trireme.Model(lambda image: image + np.array([None]), small())
    with pytest.raises(TypeError, match="dataset_batch: the argument size cannot be '4'"):
        small().batch('4')
    for number in (-1, 2 ** 64):
        with pytest.raises(TypeError, match=f'dataset_seed: the argument seed cannot be {number} .0 to {2 ** 64 - 1} expected.'):
            small().seed(number)
        with pytest.raises(TypeError, match=f'the option seed cannot be {number} .0 to {2 ** 64 - 1} expected.'):
            trireme.Model(mlp, small(), seed=number)
    small().seed(2 ** 64 - 1)
    with pytest.raises(TypeError, match='Dataset.map: a transform or a function expected, found 3'):
        small().map(3)
    with pytest.raises(TypeError, match='Dataset.arrays: a dictionary'):
        trireme.Dataset.arrays([np.zeros(3)])
    with pytest.raises(TypeError, match='Exec: graph'):
        trireme.Exec(None)
    with pytest.raises(TypeError, match='on_log'):
        trireme.on_log(3)
    with pytest.raises(TypeError, match="learning_rate: a number or a dictionary .* expected, found 'fast'"):
        trireme.Model(mlp, small(), learning_rate='fast')
    model = trireme.Model(mlp, small())
    with pytest.raises(TypeError, match='a Callback object or a function expected, found 3'):
        model.train(until_step=1, callbacks=[3])
    with pytest.raises(TypeError, match='data: a Dataset, .* expected, found None'):
        model.evaluate(None)
    with pytest.raises(trireme.Error, match='no end in epochs or steps .found 0 and 0.; set until_epoch or until_step'):
        model.train()


def raises(call, kind, sentence):
    with pytest.raises(kind, match=sentence):
        call()


def test_numbers_and_texts_that_c_would_cut_are_refused(tmp_path):
    model = trireme.Model(mlp, small())
    for call, sentence in ((lambda: model.train(until_step=2 ** 70), 'the option until_step cannot be'), (lambda: model.train(until_step=1.5), 'the option until_step cannot be 1.5'),
                           (lambda: trireme.learning_rate_at(0.1, -3), 'learning_rate_at: the argument step cannot be -3'),
                           (lambda: model.train(until_step=1, callbacks=[trireme.LossMonitor('a')]), "loss_monitor: the argument every cannot be 'a'"),
                           (lambda: setattr(model.exec, 'global_step', -1), 'exec_set_step: the argument step cannot be -1'),
                           (lambda: trireme.transforms.random_crop('a'), "transform_random_crop: the argument height cannot be 'a'"),
                           (lambda: model.load(3), 'a name or path expected, found 3')):
        raises(call, TypeError, sentence)
    for call in (lambda: model.save('a\0b'), lambda: trireme.Dataset.arrays({'a\0b': np.zeros(3, 'float32')})):
        raises(call, ValueError, 'without the character 0 expected')
    for call, sentence in ((lambda: trireme.Model(mlp, small(), precision=77), 'trm_precision: there is no 77 .expected one of fp32'),
                           (lambda: trireme.Model(mlp, small(), memory_bytes=-1), '-1 bytes of memory: no number below 0'),
                           (lambda: model.evaluate(small(usage='test'), steps=-1), 'evaluation: -1 batches, at least 1 expected'),
                           (lambda: model.load(None), "argument 'path' is None")):
        raises(call, trireme.Error, sentence)
    odd = os.fsdecode(os.fsencode(str(tmp_path)) + b'/\xff')  # a name that is no UTF-8
    model.save(odd)
    assert model.resume(odd)


@pytest.mark.parametrize('made', [lambda: trireme.LossMonitor(-1), lambda: trireme.EvaluateEvery(small(usage='test'), -1), lambda: trireme.EarlyStop(watch='loss', patience=-1),
                                  lambda: trireme.ModelCheckpoint('run', every_steps=-1), lambda: trireme.MetricsRecorder('m.csv', -1), lambda: trireme.RunRecorder('run', -1)])
def test_intervals_are_not_negative(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(trireme.Error, match='or with a number of steps, epochs or seconds below 0'):
        trireme.Model(mlp, small()).train(until_step=2, callbacks=[made()])
    assert not os.listdir('.')


def test_data_of_another_shape_is_refused():
    """Also data with fewer elements than the network's input: zeros would take the place of the rest."""
    random = np.random.default_rng(0)

    def of(*size):
        return trireme.Dataset.arrays({'image': random.random((40,) + size, 'float32'), 'label': np.zeros(40, 'int32')}, 10)
    model = trireme.Model(mlp, small())
    for data, found in ((of(1, 32, 32).batch(20), r'\[20, 1, 32, 32\]'), (of(3, 16, 16).batch(20), r'\[20, 3, 16, 16\]'), (of(3, 1024).batch(20), r'\[20, 3, 1024\]'),
                        (of(3, 32, 32).batch(10), r'\[10, 3, 32, 32\]'), (of(3, 32, 32).batch(40), r'\[40, 3, 32, 32\]')):
        with pytest.raises(trireme.Error, match=rf"field 'image' is float32 {found}, the model was compiled for float32 \[20, 3, 32, 32\]"):
            model.train(data, until_step=3)
    assert model.global_step == 0
    model.train(of(3, 32, 32).batch(20), until_step=3)
    assert model.evaluate(of(3, 32, 32).batch(20, False))['samples'] == 40


def test_what_would_be_ignored_is_refused(tmp_path):
    with pytest.raises(TypeError, match="Watch: there is no hook 'on_step_ended' .expected on_begin"):
        class Watch(trireme.Callback):
            def on_step_ended(self, progress):
                pass

    async def later(progress):
        pass

    def generator(progress):
        yield progress
    model = trireme.Model(mlp, small())
    for hook in (later, generator):
        with pytest.warns(RuntimeWarning) if hook is later else contextlib.nullcontext(), pytest.raises(TypeError, match='no plain function: it returned a .*, of which nothing has run'):
            model.train(until_step=5, callbacks=[hook])
            gc.collect()
    model.train(until_step=9, callbacks=[lambda p: np.bool_(p.global_step == 3)])
    assert model.global_step == 3
    with pytest.raises(TypeError, match="Lambda: on_step_end: a function expected, found 3"):
        trireme.Lambda(on_step_end=3)
    with pytest.raises(TypeError, match="Metric 'm': a function value expected, which makes the metric of its 3 sums"):
        trireme.Metric('m', lambda logits, batch: (1, 2, 3), sums=3)
    of_array = trireme.Metric('m', lambda logits, batch: np.array([3.0, 4.0]))
    assert trireme.Model(mlp, small(), metrics=[of_array]).evaluate(small(usage='test'))['m'] == 0.75
    for wrong in ({'metrics': of_array}, {'metrics': None}, {'loss': 3}, {'loss': None}, {'context': 'parallel_mode=data_parallel'}, {'loss_scale': 3}):
        with pytest.raises((TypeError, trireme.Error), match='expected'):
            trireme.Model(mlp, small(), **wrong)
    with pytest.raises(TypeError, match='data: a Dataset, a dictionary of arrays'):
        model.predict(np.zeros((20, 3, 32, 32), 'float32'))


def test_weights_are_set_after_all_were_checked():
    model = trireme.Model(mlp, small())
    before = {k: v.copy() for k, v in model.state_dict().items()}
    for wrong in (np.zeros(3, 'float32'), np.zeros(10) + 1j, 'a', None):
        with pytest.raises(trireme.Error, match="variable 'fc1.bias'"):
            model.load_state_dict(dict({k: v * 0 for k, v in before.items()}, **{'fc1.bias': wrong}))
    assert all(np.array_equal(v, before[k]) for k, v in model.state_dict().items())
    with pytest.raises(TypeError, match='load_state_dict: a dictionary'):
        model.load_state_dict(None)


def test_nodes_serve_their_own_graph_alone():
    kept = []
    trireme.Model(lambda image: (kept.append(image), mlp(image))[1], small())
    for use in (lambda image: mlp(kept[0]), lambda image: image + kept[0], lambda image: kept[0].sum()):
        with pytest.raises(trireme.Error, match='a node of a graph that is gone|nodes of two graphs'):
            trireme.Model(use, small())
    with pytest.raises(trireme.Error, match='a node of a graph that is gone'):
        kept[0].shape


def test_specifications_are_checked():
    def spec(mode, params):
        return trireme.EstimatorSpec(mlp)
    with pytest.raises(TypeError, match='Estimator: a function model_fn'):
        trireme.Estimator(None)
    estimator, data = trireme.Estimator(spec), small()
    for train, sentence in ((lambda context: data, 'a TrainSpec expected'), (trireme.TrainSpec(None, max_steps=1), 'a function input_fn expected, found None')):
        with pytest.raises(TypeError, match=sentence):
            trireme.train_and_evaluate(estimator, train)
    trireme.train_and_evaluate(estimator, trireme.TrainSpec(lambda context: data, max_steps=1))
    with pytest.raises(trireme.Error, match='Dataset: it belongs to the estimator that asked input_fn for it'):
        data.next()


def test_exceptions_belong_to_the_call_that_runs():
    test, fails = small(usage='test'), []
    metric = trireme.Metric('m', lambda logits, batch: (1, 2), value=lambda sums: 1 / 0 if fails.pop() else 0.5)
    model = trireme.Model(mlp, small(), metrics=[metric])

    def evaluate(p):
        fails.append(True)
        with pytest.raises(ZeroDivisionError):
            model.evaluate(test)
    model.train(until_step=3, callbacks=[evaluate])  # what the callback has caught is over
    assert model.global_step == 3

    def evaluate_well(p):
        fails.append(False)
        assert model.evaluate(test)['m'] == 0.5
        fails.append(True)  # of EvaluateEvery
    for hooks in ({'on_step_end': evaluate_well}, {'on_epoch_begin': lambda p: fails.append(True), 'on_evaluated': evaluate_well}):
        with pytest.raises(ZeroDivisionError):
            model.train(until_epoch=9, callbacks=[trireme.Lambda(**hooks), trireme.EvaluateEvery(test)])
        assert model.global_step % 10 == 0, model.global_step  # it ended with the evaluation that failed
    assert model.global_step == 20


@pytest.mark.parametrize('names', [['loss'], ['top1'], ['m', 'm']])
def test_metrics_have_names_of_their_own(names):
    with pytest.raises(trireme.Error, match=f"metric '{names[0]}': evaluations have a figure of this name already, which it would hide; give"):
        trireme.Model(mlp, small(), metrics=[trireme.Metric(name, lambda logits, batch: (1, 2)) for name in names])


def test_evaluate_predict_and_metrics():
    data, test = small(), small(usage='test')
    wrong = trireme.Metric('wrong', lambda logits, batch: ((logits.argmax(1) != batch['label']).sum(), len(logits)))
    model = trireme.Model(mlp, data, optimizer='momentum', metrics=[wrong])
    model.train(until_epoch=2)
    result = model.evaluate(test)
    assert result['samples'] == 100 and abs(result['wrong'] - (1 - result['top1'])) < 1e-12
    logits = model.predict(test)
    labels = np.concatenate([b['label'][:b.samples].copy() for b in test])
    assert logits.shape == (100, 10) and np.mean(logits.argmax(1) == labels) == pytest.approx(result['top1'])
    seen = []
    model.predict(test, see=lambda logits, batch: seen.append(len(logits)))
    assert sum(seen) == 100


def test_save_resume_load_export(tmp_path):
    data = small()
    model = trireme.Model(mlp, data, optimizer='momentum')
    model.train(until_step=4)
    model.save(tmp_path / 'run')
    more = trireme.Model(mlp, small(), optimizer='momentum')
    assert not more.resume(tmp_path / 'nothing') and more.resume(tmp_path / 'run') and more.global_step == 4
    ends = []
    for m in (model, more):
        m.train(until_step=8, callbacks=[lambda p: ends.append(p.loss)])
    assert ends[:4] == ends[4:]
    model.export(tmp_path / 'w.safetensors')
    weights = trireme.load_safetensors(tmp_path / 'w.safetensors')
    assert set(weights) == set(model.state_dict()) and np.array_equal(weights['fc0.bias'], model.state_dict()['fc0.bias'])
    fresh = trireme.Model(mlp, small())
    assert fresh.load(tmp_path / 'w.safetensors') == 0
    model.export(tmp_path / 'w.npz')
    assert np.array_equal(np.load(tmp_path / 'w.npz')['fc1.weight'], fresh.state_dict()['fc1.weight'])
    with pytest.raises(trireme.Error, match='unknown suffix'):
        model.export(tmp_path / 'w.h5')


def test_state_dict_goes_in_and_out():
    model, other = trireme.Model(mlp, small(), seed=1), trireme.Model(mlp, small(), seed=2)
    assert not np.array_equal(model.state_dict()['fc0.weight'], other.state_dict()['fc0.weight'])
    other.load_state_dict(model.state_dict())
    assert np.array_equal(model.state_dict()['fc0.weight'], other.state_dict()['fc0.weight'])
    values = model.state_dict()
    del values['fc1.bias']
    with pytest.raises(trireme.Error, match="missing.*'fc1.bias'"):
        other.load_state_dict(values)
    with pytest.raises(trireme.Error, match=r'another shape \(found \[3\], expected \[10\]\)'):
        other.load_state_dict(dict(values, **{'fc1.bias': np.zeros(3)}))


def test_fields_are_found_by_name():
    """Each dataset may have its fields in an order of its own."""
    random = np.random.default_rng(0)
    fields = {'a': random.random((40, 4), 'float32'), 'b': random.random((40, 4), 'float32') + 5, 'label': (np.arange(40) % 3).astype('int32')}

    def of(names):
        return trireme.Dataset.arrays({name: fields[name] for name in names}, 3).batch(8)

    def made():
        return trireme.Model(lambda a, b: ops.linear(ops.concat([a, b * 0.1], 1), trireme.parameter('w', (3, 8), 'linear')), of(('a', 'b', 'label')),
                             learning_rate=np.float32(0.01))
    one, two = made(), made()
    one.train(until_epoch=1)
    two.train(of(('b', 'label', 'a')), until_epoch=1)
    assert np.array_equal(one.state_dict()['w'], two.state_dict()['w'])
    found = [{k: v for k, v in one.evaluate(of(names)).items() if k != 'seconds'} for names in (('label', 'a', 'b'), ('b', 'a', 'label'))]
    assert found[0] == found[1] and np.array_equal(one.predict(of(('b', 'label', 'a'))), one.predict(of(('a', 'b', 'label'))))
    assert np.array_equal(one.predict(of(('b', 'a'))), one.predict(of(('a', 'b', 'label'))))  # without labels
    assert np.array_equal(made().predict(of(('a', 'b'))), made().predict(of(('a', 'b', 'label'))))
    with pytest.raises(trireme.Error, match="no field 'label', which the network or its loss reads"):
        one.evaluate(of(('a', 'b')))
    for call in (one.evaluate, one.predict, lambda data: one.train(data, until_epoch=2)):
        with pytest.raises(trireme.Error, match="no field 'b', which the network or its loss reads .found 2 fields, the first is 'label'.; add it"):
            call(of(('label', 'a')))


def test_weights_of_other_types_go_in():
    with trireme.Graph() as g:
        x = trireme.input('x', 'float32', (2, 3))
        loss = ops.linear(x, trireme.parameter('w', (4, 3))).mean()
        trireme.state('count', (2,), dtype='int32')
    made = trireme.Exec(g, loss)
    rows = np.arange(12).reshape(4, 3)
    made.load_state_dict({'w': rows.T.astype('float16').T, 'count': [5, 6]})
    assert np.array_equal(made.read('w'), rows) and list(made.read('count')) == [5, 6]
    with pytest.raises(trireme.Error, match="variable 'count': another type .found float64 from 5.7 to 6.9, expected int32.; convert it"):
        made.load_state_dict({'w': rows, 'count': [5.7, 6.9]})
    torch = pytest.importorskip('torch')
    made.load_state_dict({'w': torch.from_numpy(rows.T.copy()).bfloat16().t() * 2, 'count': torch.tensor([7, 8], dtype=torch.int32)})
    assert np.array_equal(made.read('w'), rows * 2) and list(made.read('count')) == [7, 8]


def test_what_is_closed_says_so():
    model, data = trireme.Model(mlp, small()), small()
    program = model.exec
    model.close()
    model.close()
    data.close()
    for kind, call in (('Model', lambda: model.train(until_step=1)), ('Model', lambda: model.evaluate(small())), ('Model', lambda: model.state_dict()),
                       ('Model', lambda: model.global_step), ('Model', lambda: model.save('nowhere')), ('Model', lambda: program.read('fc0.bias')),
                       ('Model', program.forward), ('Model', lambda: program.loss), ('Model', program.explain), ('Dataset', data.next),
                       ('Dataset', lambda: len(data)), ('Dataset', lambda: data.position), ('Dataset', lambda: trireme.Model(mlp, data)),
                       ('Dataset', lambda: trireme.distribute.shard_and_rebatch(data, 8))):
        with pytest.raises(trireme.Error, match=f'{kind}: it was closed'):
            call()


def test_arrays_outlive_what_is_closed():
    data = small(prefetch_depth=2, threads=2)
    batches = [data.next() for _ in range(3)]
    values = batches[2]['image'].copy()
    data.seek(1, 2)
    assert np.array_equal(batches[2]['image'], values)
    data.close()
    model = trireme.Model(mlp, small())
    parameters, gradients = model.exec.ranges()
    kept, count = parameters.copy(), len(parameters)
    image = model.exec.input('image')
    model.close()
    others = [trireme.Model(mlp, small()) for _ in range(3)]  # in the memory of the first one, were it free
    assert np.array_equal(batches[2]['image'], values) and np.array_equal(parameters, kept) and len(gradients) == count
    image[:] = 1
    assert all(np.array_equal(other.exec.ranges()[0], others[0].exec.ranges()[0]) for other in others)
    del parameters, gradients, image, batches, model, others


def test_a_callback_closes_what_is_in_use():
    model, data, seen = trireme.Model(mlp, small()), small(), []

    def close(p):
        seen.append(p.global_step)
        model.close()
        data.close()

    model.train(data, until_step=3, callbacks=[close])
    assert seen == [1, 2, 3]
    with pytest.raises(trireme.Error, match='Model: it was closed'):
        model.train(until_step=4)
    kept, model = [], trireme.Model(mlp, small())
    model.predict(small(), see=lambda logits, batch: (kept.append(logits), model.close()))
    assert all(np.isfinite(logits).all() for logits in kept)
    read = trireme.Dataset.samples(lambda index: (read.close(), np.ones(2, 'float32'))[1], 4, {'x': ('float32', (2,))}).batch(2).prefetch(2, 1)
    assert read.next()['x'].sum() == 4


CHILD = '''
import multiprocessing, os, sys
import trireme
from trireme import ops
def train():
    data = trireme.Dataset.open('synth', batch_size=64)
    model = trireme.Model(lambda image: ops.mlp(image, [64], 10), data, threads=2)
    model.train(until_step=3)
    return model, data

model, data = train()
moved = trireme.Dataset.open('synth', batch_size=64)
first, moved_values = moved.next()['image'].copy(), moved.seek(1, 2).next()['image'].copy()
moved.seek(1, 2)

def use():
    train()
    assert (moved.next()['image'] == moved_values).all() and moved.seek(0).next()['image'].shape == first.shape
    moved.close()
    assert len(model.state_dict()) == 4
    model.predict(trireme.Dataset.open('synth', usage='test', shapes={'test_count': 100}))
    for call in (data.next, lambda: model.train(until_step=5)):
        try:
            call()
        except trireme.Error as error:
            assert 'was forked' in error.message and 'reading threads' in error.message, error
        else:
            raise AssertionError('no error')

child = multiprocessing.get_context('fork').Process(target=use)
child.start()
child.join(60)
assert child.exitcode == 0, child.exitcode
if os.fork() == 0:
    use()
    sys.exit(0)
assert os.wait()[1] == 0
model.train(until_step=5)
assert (moved.next()['image'] == moved_values).all()
'''


def test_a_forked_child_trains(tmp_path):
    run_python(['-c', CHILD], tmp_path, timeout=120, OMP_NUM_THREADS='2')


def test_hooks_see_progress_and_end_training():
    seen = []

    class Watch(trireme.Callback):
        def on_begin(self, p):
            seen.append(('begin', p.epoch_steps))

        def on_step_end(self, p):
            assert p.model.global_step == p.global_step and p.learning_rate == 0.05 and dir(p)
            if p.global_step == 3:
                raise trireme.StopTraining

        def on_end(self, p):
            seen.append(('end', p.stopping))
    model = trireme.Model(mlp, small(), learning_rate={'base': 0.05})
    model.train(until_epoch=5, callbacks=[Watch()])
    assert seen[0] == ('begin', 10) and model.global_step == 3
    model.train(until_epoch=5, callbacks=[lambda p: p.global_step == 5])
    assert model.global_step == 5
    assert trireme.learning_rate_at({'base': 1, 'warmup_steps': 4}, 0) == 0.25


def test_early_stop_needs_evaluations():
    model = trireme.Model(mlp, small())
    with pytest.raises(trireme.Error, match='no callback evaluates; add .*EvaluateEvery'):
        model.train(until_epoch=9, callbacks=[trireme.EarlyStop(watch='top1')])
    model.train(until_epoch=9, callbacks=[trireme.EarlyStop(watch='top1', min_delta=1), trireme.EvaluateEvery(small(usage='test'))])
    assert model.global_step == 20
    model.train(until_epoch=3, callbacks=[trireme.EarlyStop(watch='loss')])


def test_library_callbacks(tmp_path, capsys):
    test = small(usage='test')
    model = trireme.Model(mlp, small())
    model.train(until_epoch=2, callbacks=[
        trireme.LossMonitor(5), trireme.TimeMonitor(), trireme.EvaluateEvery(test), trireme.MetricsRecorder(tmp_path / 'm.csv'),
        trireme.ModelCheckpoint(tmp_path / 'run', every_epochs=1, keep=1), trireme.TensorBoard(tmp_path / 'tb', every_steps=1),
        trireme.ProgressBar()])
    out = capsys.readouterr()
    assert len(losses(out.out)) == 4 and 'epoch time' in out.out and out.err == ''  # no bar where there is no terminal
    assert len((tmp_path / 'm.csv').read_text().splitlines()) > 20 and list((tmp_path / 'tb').iterdir())
    assert len(list((tmp_path / 'run').glob('ckpt-*'))) == 1


def test_a_bar_on_a_terminal_and_nowhere_else():
    class Screen(io.StringIO):
        def isatty(self):
            return True
    screen, file = Screen(), io.StringIO()
    trireme.Model(mlp, small()).train(until_epoch=2, callbacks=[trireme.ProgressBar(0, screen), trireme.ProgressBar(0, file)])
    lines = screen.getvalue().split('\n')
    assert len(lines) == 3 and lines[0].count('\r') == 10 and re.search(r'epoch 2/2 \[={20}\] 10/10 loss \d+\.\d{4} \d+ samples/s$', lines[1])
    assert file.getvalue() == ''


class Mute(Exception):
    def __str__(self):
        raise self.args[0]('it has no words')


@pytest.mark.parametrize('error', [Mute(RuntimeError), Mute(KeyboardInterrupt), ValueError('a\0b\ncd'), ValueError('\udcff'), ValueError('\u00e9' * 500), KeyError(3)])
def test_exceptions_with_strange_words_are_raised(error):
    def broken(progress):
        raise error
    with pytest.raises(type(error)) as caught:
        trireme.Model(mlp, small()).train(until_step=3, callbacks=[broken])
    assert caught.value is error


def test_callbacks_are_a_list():
    model = trireme.Model(mlp, small())
    model.train(until_step=1, callbacks=None)
    for wrong in (trireme.LossMonitor(), lambda progress: None, 3):
        with pytest.raises(TypeError, match='callbacks: a list of Callback objects and functions expected, found'):
            model.train(until_step=2, callbacks=wrong)


def test_a_callback_that_raises_ends_training_with_its_exception():
    class Broken(trireme.Callback):
        def on_step_end(self, p):
            raise LookupError('no such thing')
    model = trireme.Model(mlp, small())
    with pytest.raises(LookupError, match='no such thing'):
        model.train(until_epoch=5, callbacks=[Broken()])
    assert model.global_step == 1
    for wrong, sentence in ((trireme.LossMonitor, r'write LossMonitor\(\), with brackets'), (trireme.ProgressBar, r'write ProgressBar\(\), with brackets'),
                            (trireme.EarlyStop, r'write EarlyStop\(\)'), (lambda p: trireme.LossMonitor(), 'put the callback itself in the list'),
                            (dict, 'a Callback object or a function expected')):
        with pytest.raises(TypeError, match=sentence):
            model.train(until_epoch=5, callbacks=[wrong])
    model.train(until_epoch=1)  # the model is usable


def test_networks_that_are_wrong():
    with pytest.raises(trireme.Error, match='network function nothing returned NoneType.*is a return missing'):
        def nothing(image):
            ops.mlp(image, [32], 10)
        trireme.Model(nothing, small())
    with pytest.raises(ZeroDivisionError):
        trireme.Model(lambda image: 1 / 0, small())
    with pytest.raises(trireme.Error, match='is no field of the data.*image, label'):
        trireme.Model(lambda image, picture: image, small())
    with pytest.raises(trireme.Error, match='no field|nonsense'):
        trireme.Model(lambda inputs: inputs['nonsense'], small())
    with pytest.raises(trireme.Error, match=r'\[20, 3, 32, 32\]'):  # the operator names the shapes
        trireme.Model(lambda image: ops.linear(image, trireme.parameter('w', (10, 7))), small())
    with pytest.raises(trireme.Error, match='no graph is being built'):
        trireme.parameter('w', (10, 7))
    with pytest.raises(trireme.Error, match='there is no loss'):
        trireme.Model(mlp, small(), loss='softmaks')
    with pytest.raises(trireme.Error, match='loss function'):
        trireme.Model(mlp, small(), loss=lambda logits, label: None)


LOOP = '''
import signal, sys
import trireme
from trireme import ops
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test in the background of a shell inherits SIG_IGN
data = trireme.Dataset.open('synth', batch_size=20)
model = trireme.Model(lambda image: ops.mlp(image, [32], 10), data)
print('ready', flush=True)
try:
    model.train(until_epoch=100000, sink=%s, callbacks=[trireme.ModelCheckpoint('run', every_seconds=10000)])
except KeyboardInterrupt as error:
    print('interrupted', model.global_step > 0, flush=True)
    sys.exit(7)
'''


@pytest.mark.parametrize('sink', [False, True])
def test_ctrl_c_ends_training_after_its_step_and_saves(tmp_path, sink):
    process = subprocess.Popen([sys.executable, '-c', LOOP % sink], cwd=tmp_path, env=python_environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == 'ready\n'
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert out == 'interrupted True\n' and process.returncode == 7
    assert list((tmp_path / 'run').glob('ckpt-*'))


def test_interrupt_in_a_callback_is_raised():
    def press(p):
        if p.global_step == 2:
            raise KeyboardInterrupt
    model = trireme.Model(mlp, small())
    with pytest.raises(KeyboardInterrupt):
        model.train(until_epoch=5, callbacks=[press])
    assert model.global_step == 2


def report_of(folder):
    done = subprocess.run([PROGRAM, 'report', str(folder), '--json'], stdout=subprocess.PIPE, timeout=60, check=True)
    return json.loads(done.stdout)['runs'][0]


def test_a_run_is_recorded_for_reports(tmp_path):
    model = trireme.Model(mlp, small())
    seen = []
    model.train(until_epoch=2, callbacks=[
        trireme.Lambda(), trireme.RunRecorder(tmp_path / 'run', 3), trireme.EvaluateEvery(small(usage='test')), trireme.ModelCheckpoint(tmp_path / 'run', every_epochs=1),
        trireme.Lambda(on_step_end=lambda p: seen.append(p.loss))])
    lines = [json.loads(line) for line in (tmp_path / 'run' / 'run.jsonl').read_text().splitlines()]
    kinds = [line['event'] for line in lines]
    assert kinds[:2] == ['options', 'start'] and kinds[-1] == 'done' and kinds.count('eval') == 2 and kinds.count('epoch') == 2
    steps = [line for line in lines if line['event'] == 'step']
    assert steps[0]['global_step'] == 1 and steps[-1]['global_step'] == len(seen) and len(steps) < len(seen)
    assert all(abs(s['loss'] - seen[s['global_step'] - 1]) < 1e-6 and s['samples_per_second'] > 0 for s in steps)
    report = report_of(tmp_path / 'run')
    assert report['state'] == 'done' and report['global_step'] == len(seen), report
    # a second call goes on with the file; an error is a failed run; a file in the way is an exception
    model.train(until_epoch=3, callbacks=[trireme.RunRecorder(tmp_path / 'run')])
    lines = [json.loads(line) for line in (tmp_path / 'run' / 'run.jsonl').read_text().splitlines()]
    assert [line['resumed'] for line in lines if line['event'] == 'start'] == [False, True]

    def fail(p):
        raise ValueError('no')
    with pytest.raises(ValueError):
        model.train(until_epoch=4, callbacks=[trireme.RunRecorder(tmp_path / 'run'), trireme.Lambda(on_step_end=fail)])
    assert report_of(tmp_path / 'run')['state'] == 'failed'
    (tmp_path / 'file').write_text('')
    with pytest.raises(trireme.Error, match='file'):
        model.train(until_epoch=5, callbacks=[trireme.RunRecorder(tmp_path / 'file')])
