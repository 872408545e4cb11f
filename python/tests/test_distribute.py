# SPDX-License-Identifier: Apache-2.0
"""Ranks: the three calls and the collectives, in place on NumPy arrays and torch tensors; a callback that raises on one rank."""
import json
import re
import subprocess

import numpy as np
import pytest

import trireme
from conftest import PROGRAM, run_ranks
from trireme import distribute

JOB = '''
import numpy as np, trireme
from trireme import distribute as d
rank, size = d.rank(), d.size()
w = np.full(5, rank, 'float32'); v = np.arange(3) + rank
assert d.broadcast([w, None, v])[0] is w and (w == 0).all() and list(v) == [0, 1, 2]
g = [np.full((2, 2), rank + 1.0, 'float32'), None, np.array([rank], 'int64')]
d.all_reduce(g, reduction='sum')
assert (g[0] == sum(range(1, size + 1))).all() and g[2][0] == sum(range(size))
assert d.all_reduce(np.float32([rank]) , 'max')[0] == size - 1
either, both = np.array([True, rank == 0, False]), np.array([True, rank == 0, False])
d.all_reduce([either]), d.all_reduce(both, 'prod')
assert either.tolist() == [True, True, False] and both.tolist() == [True, size == 1, False] and either.view('uint8').max() == 1
assert d.Communicator().reduce_scatter(np.ones((size, 2), bool)).view('uint8').tolist() == [1, 1]
rows = np.arange(8).reshape(8, 1)
(mine, label), batch = d.shard_and_rebatch((rows, rows * 2), 4)
assert batch == 4 // size and np.array_equal(mine, rows[rank::size]) and (label == 2 * mine).all() and rows[1] == 1
comm = d.Communicator()
assert (comm.rank, comm.size) == (rank, size)
assert np.array_equal(comm.all_gather(np.int32([rank, 7])), [[r, 7] for r in range(size)])
assert comm.reduce_scatter(np.arange(size, dtype='float32')) == rank * size
for wrong in (lambda: comm.all_to_all(np.zeros((size + 1, 2))), lambda: comm.reduce_scatter(np.zeros(size + 1)), lambda: comm.all_reduce([1, 2]),
              lambda: d.all_reduce(np.ones(2, bool), 'mean'), lambda: d.all_reduce([np.ones(2, bool), np.ones(2)]),
              lambda: comm.all_reduce(np.zeros(2), 'average'), lambda: comm.broadcast(np.zeros((2, 2))[:, 0])):
    try:
        wrong()
    except trireme.Error:
        pass
    else:
        raise AssertionError('no error')
assert np.array_equal(comm.all_to_all(np.int64([10 * rank + i for i in range(size)])), [10 * i + rank for i in range(size)])
comm.barrier()
half = comm.split(rank % 2)
assert half.size == (size + 1 - rank % 2) // 2
if size > 1 and rank < 2:
    x = np.float64([rank])
    comm.send(x, 1 - rank) if rank == 0 else comm.recv(x, 0)
    assert x[0] == 0
try:
    import torch
    t = torch.full((3,), float(rank + 1), dtype=torch.bfloat16)
    p = torch.nn.Parameter(torch.full((2,), float(rank)))
    seen = torch.tensor([rank == 0, False])
    d.all_reduce(seen)
    assert seen.tolist() == [True, False] and seen.view(torch.uint8).tolist() == [1, 0]
    d.all_reduce([t, p.data]); d.broadcast(list(torch.nn.Linear(2, 2).parameters()))
    assert (t == sum(range(1, size + 1))).all() and p[0] == sum(range(size))
except ImportError:
    pass
print('rank', rank, 'of', size, 'done')
'''


@pytest.mark.parametrize('ranks', [1, 2, 3])
def test_calls_and_collectives(tmp_path, ranks):
    if ranks == 3:
        text = JOB.replace('mine, label), batch = d.shard_and_rebatch((rows, rows * 2), 4)', 'mine, label), batch = d.shard_and_rebatch((rows, rows * 2), 6)')
        text = text.replace('batch == 4 // size and np.array_equal(mine, rows[rank::size])', 'len(mine) == 3')
    else:
        text = JOB
    (tmp_path / 'job.py').write_text(text)
    assert f'rank 0 of {ranks} done' in run_ranks(ranks, ['job.py'], tmp_path)


def test_one_process_is_one_rank():
    values = np.float32([1, 2])
    assert distribute.size() == 1 and distribute.all_reduce(values, 'mean') is values and distribute.broadcast(values) is values
    data, batch = distribute.shard_and_rebatch_dataset([values], 8)
    assert data[0] is values and batch == 8


def test_one_rank_has_no_others():
    comm = distribute.Communicator()
    for call, sentence in ((lambda: comm.send(np.zeros(3), 1), 'send: there is no rank 1 to exchange messages with'), (lambda: comm.recv(np.zeros(3), 5), 'recv: there is no rank 5'),
                           (lambda: comm.broadcast(np.zeros(3), 4), 'broadcast: there is no rank 4'), (lambda: comm.reduce(np.zeros(3), -4), 'reduce: there is no rank -4')):
        with pytest.raises(trireme.Error, match=sentence):
            call()


# Each case: what rank r does after distribute.init(), and the sentence that every rank gets which fails (None: that rank ends well).
UNLIKE = {
    'learning rate': ("model(learning_rate=0.1 * (1 + r)).train(until_step=2)", 'training: the ranks differ in the learning rate'),
    'steps': ("model().train(until_step=2 + r)", r'training: the ranks differ in until_step \(found 2 to 3\)'),
    'batches': ("model(20 + 20 * r).train(until_step=2)", 'training: the ranks differ in the steps of an epoch'),
    'samples': ("model(20, 200 + 200 * r).train(until_epoch=1)", 'training: the ranks differ in the steps of an epoch'),
    'momentum': ("model(optimizer={'kind': 'momentum', 'momentum': 0.5 + 0.1 * r}).train(until_step=2)", 'rank 1 has another program than rank 0'),
    'one rank without a batch': ("model().train(trireme.Dataset.open('synth', batch_size=20, shapes={'train_count': 200 - 170 * r}), until_step=2)", 'an epoch has no batch'),
    'a thread at the end': ("leave_a_thread_inside()", 'rank 0 has ended while one of its threads was in a collective'),
}


@pytest.mark.parametrize('case', UNLIKE)
def test_ranks_that_are_unlike_are_told(tmp_path, case):
    """They would train on with other weights, wait for each other, or crash."""
    code, sentence = UNLIKE[case]
    (tmp_path / 'job.py').write_text(f'''
import os, sys, threading, time
import numpy as np, trireme
from trireme import distribute as d, ops
d.init()
r = d.rank()
def model(batch=20, count=200, **more):
    data = trireme.Dataset.open('synth', batch_size=batch, shapes={{'train_count': count}})
    return trireme.Model(lambda image: ops.mlp(image, [16], 10), data, **more)
def leave_a_thread_inside():
    if r == 0:
        thread = threading.Thread(target=lambda: d.all_reduce(np.zeros(4)), daemon=True)
        thread.start()
        seen = 0
        while seen < 20:  # it stays in the call of the library
            seen += 1 if sys._current_frames()[thread.ident].f_code.co_name == 'plain_call' else -seen
            time.sleep(0.02)
        return
    while not os.path.exists('rank0'):
        time.sleep(0.01)
    with open('pid0') as f:
        pid = f.read()
    while os.path.exists('/proc/' + pid):
        time.sleep(0.01)
    d.all_reduce(np.zeros(4))
open(f'pid{{r}}', 'w').write(str(os.getpid()))
try:
    {code}
    outcome = 'ended well'
except trireme.Error as error:
    outcome = error.message
open(f'rank{{r}}', 'w').write(outcome)
''')
    run_ranks(2, ['job.py'], tmp_path, timeout=100)
    ends = [(tmp_path / f'rank{r}').read_text() for r in (0, 1)]
    wanted = [end for end in ends if case != 'a thread at the end' or end is ends[1]]
    assert all(re.search(sentence, end) for end in wanted), ends


def test_values_that_are_wrong():
    fixed = np.zeros(3, 'float32')
    fixed.setflags(write=False)
    with pytest.raises(trireme.Error, match=r'all_reduce: a value of shape \[3\] is read-only'):
        distribute.all_reduce([np.zeros(3, 'float32'), fixed])
    with pytest.raises(trireme.Error, match='broadcast: the array of shape .* is not contiguous'):
        distribute.broadcast(np.zeros((4, 4), 'float32')[:, 0])
    with pytest.raises(trireme.Error, match='read-only'):
        distribute.all_reduce(np.float32(3))
    with pytest.raises(trireme.Error, match='complex64 is not supported'):
        distribute.all_reduce(np.zeros(3, 'complex64'))
    with pytest.raises(trireme.Error, match="there is no 'average'.*sum, mean"):
        distribute.all_reduce(np.zeros(3, 'float32'), 'average')


FORKS = '''
import multiprocessing, os, sys
import numpy as np, trireme
from trireme import distribute
distribute.init()
data = trireme.Dataset.open('synth', batch_size=8, prefetch_depth=4, threads=2)
model = trireme.Model(lambda image: trireme.ops.mlp(image, [16], 10), data)
model.train(until_step=2)
comm = distribute.Communicator()
half = comm.split(0)
values = np.ones(3, 'float32')

def child():
    assert distribute.rank() == comm.rank and distribute.size() == 2
    for call in (distribute.all_reduce, distribute.broadcast, comm.all_reduce, half.all_gather, lambda v: comm.barrier(),
                 lambda v: distribute.Communicator().all_reduce(v),
                 lambda v: model.train(until_step=3), lambda v: model.state_dict(), lambda v: data.next()):
        try:
            call(values)
        except trireme.Error as error:
            assert 'was forked' in error.message, error.message
        else:
            raise AssertionError('no error')

process = multiprocessing.get_context('fork').Process(target=child)
process.start()
process.join(60)
assert process.exitcode == 0, process.exitcode
if os.fork() == 0:  # ends as a program does
    child()
    sys.exit(0)
assert os.wait()[1] == 0
model.train(until_step=4)
assert (distribute.all_reduce(values) == 2).all()
half.close()
try:
    half.all_reduce(values)
except trireme.Error as error:
    assert 'it was closed' in error.message
else:
    raise AssertionError('no error')
print('rank', comm.rank, 'done')
'''


def test_forked_children_are_no_ranks(tmp_path):
    (tmp_path / 'job.py').write_text(FORKS)
    assert 'rank 0 done' in run_ranks(2, ['job.py'], tmp_path, timeout=120)


class OnlyDLPack:
    """An array of a framework that has DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **more):
        return self.array.__dlpack__()


def test_dlpack_and_buffers_go_in_without_copies():
    from trireme._convert import tensor
    array = np.arange(6, dtype='int64').reshape(2, 3)
    made, keep = tensor(OnlyDLPack(array))
    assert made.data == array.ctypes.data and made.dtype == 8 and tuple(made.shape.dim[:2]) == (2, 3)
    data = bytearray(b'\x01\x02\x03')
    made, keep = tensor(data, write=True)
    assert made.dtype == 6 and made.shape.dim[0] == 3
    with pytest.raises(trireme.Error, match='read-only'):
        tensor(bytes(data), write=True)
    with pytest.raises(trireme.Error, match='not contiguous'):
        tensor(OnlyDLPack(array.T))


RAISES = '''
import trireme
from trireme import distribute, ops
distribute.init()
def broken(p):
    if distribute.rank() == 1 and p.global_step == 2:
        raise RuntimeError('the disk of rank 1 is on fire')
model = trireme.Model(lambda image: ops.mlp(image, [16], 10), trireme.Dataset.open('synth', batch_size=8))
try:
    model.train(until_epoch=5, callbacks=[broken])
except trireme.Error as error:
    print('rank', distribute.rank(), 'got:', error.message)
    raise SystemExit(5)
'''


def test_other_ranks_are_told_of_a_callback_that_raises(tmp_path):
    (tmp_path / 'job.py').write_text(RAISES)
    out = run_ranks(2, ['job.py'], tmp_path, code=2, timeout=60)
    log = ''.join(p.read_text() for p in tmp_path.glob('device*/train.log*'))
    assert 'got:' in log and 'on fire' in log.split('got:')[1].split('\n')[0], (out, log)


RECORDS = '''
import trireme
from trireme import distribute, ops
distribute.init()
model = trireme.Model(lambda image: ops.mlp(image, [16], 10), trireme.Dataset.open('synth', batch_size=8, shapes={'train_count': 160}))
model.train(until_step=6, callbacks=[trireme.RunRecorder(%r, 1)])
'''


def test_each_rank_has_a_record(tmp_path):
    (tmp_path / 'job.py').write_text(RECORDS % str(tmp_path / 'run'))
    run_ranks(2, ['job.py'], tmp_path)
    done = subprocess.run([PROGRAM, 'report', str(tmp_path / 'run'), '--json'], stdout=subprocess.PIPE, timeout=60, check=True)
    report = json.loads(done.stdout)['runs'][0]
    assert [p['who'] for p in report['roles']] == ['rank 0', 'rank 1'] and all(p['state'] == 'done' for p in report['roles'])
    assert all(p['rank_wait_fraction'] > 0 for p in report['roles']) and report['curves']['step'] == [1, 2, 3, 4, 5, 6]


ENDS = '''
import atexit, os, sys, time
import numpy as np, trireme
from trireme import distribute, nn, ops
distribute.init()
rank, case = distribute.rank(), sys.argv[1]

def wait():  # rank 1 ends when rank 0 has told what it got
    for _ in range(6000):
        if os.path.exists(sys.argv[2]):
            return
        time.sleep(0.01)
if rank == 1:
    atexit.register(wait)
broken, batches = rank == 1, [(np.zeros((4, 3, 8, 8), 'f4'), np.zeros(4, 'i8'))] * 5
data = trireme.Dataset.open('synth', batch_size=8, shapes={'train_count': 160})

def net(image):
    if not (broken and case == 'network'):
        return ops.mlp(image, [16], 10)

def add(logits, batch):
    if broken and case == 'metric':
        raise LookupError('no such metric')
    return 1.0, 1.0

def stop(p):
    if broken and case == 'stop' and p.global_step == 2:
        raise trireme.StopTraining

def work():
    if case == 'read-only':
        values = np.zeros(1000, 'f4')
        values.setflags(write=not broken)
        for _ in range(3):
            distribute.all_reduce(values)
    elif case in ('own loop', 'missing input'):
        with trireme.Graph() as g:
            x = trireme.input('x', 'float32', (8, 3))
            loss = (nn.Linear(3, 1)(x) ** 2).mean()
        program = trireme.Exec(g, loss, parallel={'comm': distribute.Communicator().handle})
        for i in range(5):
            if case == 'missing input':
                program.step(0.1, **({} if broken else {'x': np.zeros((8, 3), 'f4')}))
            else:
                program.step(0.1, x=np.zeros((8, 4 if broken and i == 2 else 3), 'f4'))
    else:
        feed = data
        if case in ('dtype', 'shape'):
            bad = np.zeros((4, 3, 9, 9), 'f4') if case == 'shape' else np.zeros((4, 3, 8, 8), 'i4')
            feed = trireme.Dataset.iterable(batches[:2] + [(bad, batches[0][1])] * 3 if broken else batches).shard(1, 0)
        model = trireme.Model(net, feed, metrics=[trireme.Metric('m', add)])
        model.train(until_epoch=1, callbacks=[stop])
        model.evaluate(feed)

if rank == 1:
    work()
try:
    work()
except trireme.Error as error:
    with open(sys.argv[2] + '.new', 'w') as f:
        f.write(error.message)
    os.rename(sys.argv[2] + '.new', sys.argv[2])
    sys.exit(5)
'''


@pytest.mark.parametrize('case, sentence', [
    ('network', 'rank 1 has ended with Error: the network function net returned NoneType'),
    ('metric', 'rank 1 has ended with LookupError: no such metric'),
    ('stop', 'rank 1 has stopped after step 2, but rank 0 goes on'),
    ('read-only', r'rank 1 has ended with Error: all_reduce: a value of shape [1000] is read-only'),
    ('own loop', "rank 1 has ended with Error: input 'x': [8, 3] float32 expected, [8, 4] float32 fed"),
    ('missing input', "input 'x' has no values; feed it"),
    ('dtype', 'expected image float32'), ('shape', 'expected image float32')])
def test_the_other_rank_gets_the_sentence(tmp_path, case, sentence):
    (tmp_path / 'job.py').write_text(ENDS)
    run_ranks(2, ['job.py', case, tmp_path / 'told'], tmp_path, code=2, timeout=120)
    assert sentence in (tmp_path / 'told').read_text()
