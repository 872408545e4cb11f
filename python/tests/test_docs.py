# SPDX-License-Identifier: Apache-2.0
"""The Python of docs/guides/python.md runs, and the guides' code in it is that of the examples."""
import os
import re

from conftest import PYTHON, ROOT, run_python


def blocks():
    with open(os.path.join(ROOT, 'docs', 'guides', 'python.md')) as f:
        return re.findall(r'^```python\n(.*?)^```$', f.read(), re.M | re.S)


def test_the_guide_runs():
    program, network, *rest = blocks()
    names = {}
    assert 'until_epoch=3' in program
    exec(program.replace('until_epoch=3', 'until_step=5'), names)
    exec(network, names)
    trireme = names['trireme']
    model = trireme.Model(names['Net'](), names['train'], loss=names['loss'])
    model.train(until_step=2, callbacks=[names['Watch']()])
    assert model.global_step == 2 and len(rest) == 5
    assert model.evaluate(trireme.Dataset.open('synth', usage='test', shapes={'test_count': 40}))['samples'] == 40  # the last batch is padded
    elastic = next(block for block in rest if 'Elastic(' in block)
    assert 'least=2' in elastic and 'until_epoch=10' in elastic
    exec(elastic.replace('least=2', 'least=1').replace('until_epoch=10', 'until_step=2'), dict(names, network=names['Net']()), names)
    assert names['model'].global_step == 2 and names['job'].size == 1
    names['model'].close()
    names['job'].close()


def test_the_loss_of_mindspore_leaves_out_padding(tmp_path):
    code = """
import trireme.compat.mindspore, trireme
from mindspore import nn
from trireme import ops
data = trireme.Dataset.open('synth', batch_size=16, shapes={'train_count': 32, 'test_count': 20})
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True)
model = trireme.Model(lambda image: ops.mlp(image, [4], 10), data, loss=lambda logits, label: loss(logits, label))
print(model.evaluate(trireme.Dataset.open('synth', usage='test', batch_size=16, shapes={'test_count': 20}))['samples'])
"""
    assert run_python(['-c', code], tmp_path).split()[-1] == '20'


def test_the_whole_program_is_the_example():
    with open(os.path.join(PYTHON, 'examples', 'mlp.py')) as f:
        example = f.read()
    lines = blocks()[0].strip().split('\n')
    assert all(line in example for line in lines[:-1])


def test_model_fn_is_the_examples():
    with open(os.path.join(PYTHON, 'examples', 'guide_000.py')) as f:
        example = f.read()
    shown = blocks()[-1].split('\n', 1)[1]
    assert shown.strip() in example
