# SPDX-License-Identifier: Apache-2.0
"""The guides' scripts on 1, 2 and 8 processes: the losses of the C programs to the digit."""
import json
import os
import re
import shutil
import sys

import numpy as np
import pytest

from conftest import PROGRAM, PYTHON, ROOT, losses, run, run_in_c, run_python, run_ranks

EXAMPLES = os.path.join(PYTHON, 'examples')
GUIDE_002 = os.path.join(EXAMPLES, 'guide_002')


# ---- 001: the three calls

def test_guide_001_is_the_program_in_c(tmp_path):
    script = os.path.join(EXAMPLES, 'guide_001.py')
    with open(script) as f:
        text = f.read()
    assert text.count('# +') == 4  # one changed import and three calls
    alone = run_python([script, '15'], tmp_path)
    for ranks in (2, 8):
        out = run_ranks(ranks, [script, '15'], tmp_path)
        assert re.search(r'weights.*', out).group() == re.search(r'weights.*', alone).group()
    # The program in C, with as many steps.
    with open(os.path.join(ROOT, 'examples', 'own_loop.c')) as f:
        source = f.read()
    assert 'STEPS = 600' in source
    (tmp_path / 'own_loop.c').write_text(source.replace('STEPS = 600', 'STEPS = 15'))
    assert alone == run_in_c('own_loop.c', tmp_path)


# ---- 002: MindSpore's ResNet-50

@pytest.fixture(scope='module')
def cifar(tmp_path_factory):
    """Generated images in CIFAR-10's files: 48 for training and 16 for testing, all of which the guide reads."""
    folder = tmp_path_factory.mktemp('cifar')
    run([PROGRAM, 'data', 'synth', '--output', folder / 'cifar-10-batches-bin', '--synth-train', 48, '--synth-test', 16, '--quiet'], folder)
    return folder / 'cifar-10-batches-bin'


def guide_002(folder, mode='DATA_PARALLEL', size=32, batch=32):
    """The guide's script in a folder, in small: image size, batch, parallel mode, three epochs."""
    shutil.copy(os.path.join(GUIDE_002, 'resnet.py'), folder)
    with open(os.path.join(GUIDE_002, 'resnet50_distributed_training.py')) as f:
        text = f.read()
    assert text.count('trireme') == 1  # one changed line
    for before, after in (('resize_height = 224', f'resize_height = {size}'), ('resize_width = 224', f'resize_width = {size}'),
                          ('ParallelMode.AUTO_PARALLEL', f'ParallelMode.{mode}'), ('batch_size=32', f'batch_size={batch}'),
                          ('epoch_size=10', 'epoch_size=3')):
        assert before in text
        text = text.replace(before, after)
    (folder / 'resnet50_distributed_training.py').write_text(text)


def guide_in_c(folder, cifar, ranks, batch, mode='data_parallel'):
    """The same training by the program: the guide's exact pipeline."""
    context = f'parallel_mode={mode};mirror_mean=true' + (';full_batch=false' if 'auto' in mode else ';cooperative_gradients=off')
    flags = ['train', 'resnet50', '--exact-guide', '--data', cifar, '--image-size', 32, '--loss', 'expand', '--batch-size', batch, '--epochs', 3,
             '--json', '--eval-every-epochs', 0, '--seed', 0, '--context', context]
    command = [PROGRAM] + flags if ranks == 1 else [PROGRAM, 'run', '-n', ranks, '--', PROGRAM] + flags
    out = run(command, folder)
    return [json.loads(line)['loss'] for line in out.split('\n') if line.startswith('{"event":"epoch"')]


@pytest.mark.parametrize('ranks, batch, mode', [(1, 32, 'AUTO_PARALLEL'), (2, 16, 'DATA_PARALLEL'), (8, 4, 'DATA_PARALLEL')])
def test_guide_002_has_the_losses_of_the_program(tmp_path, cifar, ranks, batch, mode):
    guide_002(tmp_path, mode, batch=batch)
    command = ['-m', 'pytest', '-s', '-q', '-p', 'no:cacheprovider', os.path.join(str(tmp_path), 'resnet50_distributed_training.py')]
    more = {'DATA_PATH': str(cifar), 'DEVICE_ID': '0', 'timeout': 600}
    out = run_python(command, tmp_path, **more) if ranks == 1 else run_ranks(ranks, command, tmp_path, **more)
    found = losses(out)
    expected = guide_in_c(tmp_path, cifar, ranks, batch, mode.lower())
    assert len(expected) == 3 and expected[1] != expected[2]
    assert found == [f'{float(np.float32(x)):.8g}' for x in expected]  # the program writes 9 digits, LossMonitor 8


def test_guide_002_launch_script(tmp_path, cifar):
    guide_002(tmp_path, batch=4)
    shutil.copy(os.path.join(GUIDE_002, 'run.sh'), tmp_path)
    table = {'board_id': '0x0000', 'chip_info': '910', 'deploy_mode': 'lab', 'group_count': '1', 'status': 'completed', 'group_list': [{
        'device_num': '2', 'server_num': '1', 'group_name': '', 'instance_count': '2', 'instance_list': [
            {'devices': [{'device_id': str(i), 'device_ip': f'192.1.27.{6 + i}'}], 'rank_id': str(i), 'server_id': '127.0.0.1'} for i in range(2)]}],
        'para_plane_nic_location': 'device', 'para_plane_nic_name': ['eth0', 'eth1'], 'para_plane_nic_num': '2'}
    (tmp_path / 'rank_table_8pcs.json').write_text(json.dumps(table))
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'bin' / 'pytest').write_text(f'#!/bin/sh\nexec {sys.executable} -m pytest -p no:cacheprovider "$@"\n')
    (tmp_path / 'bin' / 'pytest').chmod(0o755)
    out = run(['bash', 'run.sh', cifar], tmp_path, timeout=600, RANK_SIZE='2', OMP_NUM_THREADS='1', PATH=f'{tmp_path}/bin:{os.environ["PATH"]}')
    assert 'training success' in out
    log = (tmp_path / 'device0' / 'train.log0').read_text()
    assert re.search(r'epoch: 1 step: \d+, loss is [0-9.]+$', log, re.M), log


LAYERS = """
import numpy as np
import trireme.compat.mindspore
import mindspore.dataset as ds, mindspore.nn as nn
from mindspore.common import dtype
from mindspore.dataset.transforms.c_transforms import TypeCast
from mindspore.dataset.vision.c_transforms import Rescale
from mindspore.ops import operations as P
from mindspore.train import Model
from mindspore.train.callback import CheckpointConfig, ModelCheckpoint

class Net(nn.Cell):
    def __init__(self):
        super(Net, self).__init__(auto_prefix=False)
        self.body = nn.SequentialCell([nn.Conv2d(3, 4, 3, has_bias=True), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2, 2), nn.MaxPool2d(2, 2), nn.Dropout(0.9)])
        self.flatten, self.fc, self.mean, self.join = nn.Flatten(), nn.Dense(4 * 2 * 2, 3), P.ReduceMean(keep_dims=True), P.Concat(1)

    def construct(self, image):
        x = self.fc(self.flatten(self.body(image)))
        return P.Sub()(x, self.mean(self.join([x, x]), 1))

net, random = Net(), np.random.default_rng(0)
assert isinstance(net.fc, nn.Dense) and isinstance(net.fc, nn.Cell) and len(list(net.body.trainable_params())) == 1
data = ds.NumpySlicesDataset((random.random((24, 3, 8, 8), 'float32'), np.arange(24, dtype='int32') % 3), shuffle=False)
data = data.map(operations=TypeCast(dtype.int32), input_columns='label').batch(8).repeat(2)
try:
    data.map(operations=[lambda x: x])
    raise SystemExit('a function was taken')
except Exception as error:
    assert 'is no operation of mindspore.dataset' in str(error), error
model = Model(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True), nn.Momentum(net.trainable_params(), 0.01, 0.9))
model.train(2, data, callbacks=ModelCheckpoint('ckpt', 'run', CheckpointConfig(3, 1)), dataset_sink_mode=False)
print(model.model.global_step, sorted(model.model.state_dict()), Rescale(1 / 255.0, 0.0).scale)
"""


def test_mindspores_layers_train(tmp_path):
    names = ['body.0.bias', 'body.0.weight', 'body.1.bias', 'body.1.running_mean', 'body.1.running_var', 'body.1.weight', 'fc.bias', 'fc.weight']
    assert f'6 {names}' in run_python(['-c', LAYERS], tmp_path) and list((tmp_path / 'run').glob('ckpt-6'))


def test_mindspores_missing_names_are_named(tmp_path):
    out = run_python(['-c', 'import trireme.compat.mindspore\nfrom mindspore import ops\nops.operations.Conv3DTranspose'], tmp_path, code=1)
    assert 'mindspore.ops.operations.Conv3DTranspose is not in trireme.compat.mindspore' in out


# ---- 000: parameter servers

def guide_000_in_c(folder, workers, model_dir):
    flags = ['train', 'lenet', '--data', 'synth', '--synth-train', 1000, '--synth-test', 200, '--batch-size', 20, '--steps', 12, '--seed', 1,
             '--learning-rate', 0.01, '--log-every', 1, '--mode', 'sync', '-n', workers, '--ps', 1, '--output', model_dir]
    return run([PROGRAM] + flags, folder, OMP_NUM_THREADS='1')


STEP = re.compile(r'loss = ([0-9.]+), step = (\d+)')


@pytest.mark.parametrize('workers', [1, 2, 8])
def test_guide_000_has_the_losses_of_the_program(tmp_path, workers):
    import random
    import socket
    import subprocess
    from conftest import python_environment
    ports = []
    while len(ports) < workers + 1:
        port = random.randrange(10000, 32000)
        with socket.socket() as s:
            try:
                s.bind(('127.0.0.1', port))
                ports.append(port)
            except OSError:
                pass
    hosts = [f'--ps_hosts=127.0.0.1:{ports[0]}', '--worker_hosts=' + ', '.join(f'127.0.0.1:{p}' for p in ports[1:])]
    command = [sys.executable, os.path.join(EXAMPLES, 'guide_000.py'), '--mode=sync', '--model_dir=multiworker'] + hosts
    roles = [('ps', 0)] + [('worker', i) for i in range(workers)]
    environment = python_environment(GUIDE_000_NETWORK='lenet', OMP_NUM_THREADS='1')
    processes = [subprocess.Popen(command + [f'--job_name={role}', f'--task_index={i}'], cwd=tmp_path, env=environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for role, i in roles]
    outputs = []
    try:
        outputs = [p.communicate(timeout=300)[0] for p in processes]
    finally:
        for p in processes:
            p.kill()
    assert [p.returncode for p in processes] == [0] * len(roles), outputs
    found = [x for x, _ in STEP.findall(outputs[1])]
    expected = [x for x, _ in STEP.findall(guide_000_in_c(tmp_path, workers, 'in_c'))]
    assert len(found) >= 11 and found == expected[:len(found)], (outputs, expected)


def test_guide_000_with_its_own_network_in_one_process(tmp_path):
    out = run_python([os.path.join(EXAMPLES, 'guide_000.py'), '--model_dir=alone'], tmp_path)
    assert len(STEP.findall(out)) >= 11 and 'step 12' in out and list((tmp_path / 'alone').glob('ckpt-*'))
    with open(os.path.join(EXAMPLES, 'guide_000.py')) as f:
        text = f.read()
    body = text[text.index('def model_fn'):text.index('def input_fn')].strip().split('\n')
    assert len(body) <= 25
