# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs: ranks die, leave and join; the others go on with the weights of the undisturbed job."""
import json
import sys

import pytest

import trireme
from conftest import PROGRAM, run, run_python, run_ranks

# Each rank writes what it has seen to PLACE/pid: its hooks' memberships, how it ended, its weights.
JOB = '''
import hashlib, json, os, signal, sys, time
import trireme
from trireme import ops
case, place = sys.argv[1:]
job = trireme.Elastic(least=2 if case == 'too few' else 1, most=3, deterministic='strict', join={'heartbeat_seconds': 0.1})
first = job.membership
data = trireme.Dataset.open('synth', batch_size=8, augment=False, shapes={'train_count': 240})
model = trireme.Model(lambda image: ops.mlp(image, [16], 10), data, optimizer='momentum', elastic=job, threads=1, block=-1)
seen, last = [], 9 if case != 'comes back' else None

def after_step(p):
    if first['rank'] == 1 and p.global_step == 4 and case != 'whole':
        os.kill(os.getpid(), signal.SIGKILL if case in ('dies', 'comes back') else signal.SIGTERM)
        patience = time.monotonic() + 120  # a thread takes the signal; the few steps that are left could be faster
        while not job.wants_change:
            assert time.monotonic() < patience, 'SIGTERM has not become a wish to leave'
            time.sleep(0.001)
    if case == 'comes back':
        time.sleep(0.01)
    return p.global_step == last  # the same step on all ranks

class Watch(trireme.Callback):
    def on_membership(self, p):
        seen.append(p.membership)

    def on_begin(self, p):
        global last
        if seen and seen[-1]['joined']:
            last = p.global_step + 3

def tell(**more):
    weights = b''.join(array.tobytes() for array in model.state_dict().values())
    path = os.path.join(place, str(os.getpid()))
    with open(path + '.new', 'w') as f:
        json.dump(dict(more, first=first, seen=seen, left=model.left, step=model.global_step, digest=hashlib.sha256(weights).hexdigest()), f)
    os.rename(path + '.new', path)  # a reader finds the whole file or none

try:
    model.train(until_step=9 if last else 10 ** 9, callbacks=[after_step, Watch()])
except SystemExit as end:
    tell(code=end.code)
    patience = time.monotonic() + 120  # the launcher ends the other rank as soon as this one has ended
    while case == 'too few' and sum(name.isdigit() for name in os.listdir(place)) < 2:
        assert time.monotonic() < patience, 'the other rank has not told its end'
        time.sleep(0.01)
    raise
except trireme.Error as error:  # of the other ranks
    assert error.status == 'cancelled', error
    tell(code=0)
    sys.exit(143)
tell(code=0)
'''


def job(folder, case, code=0, restarts=0):
    place = folder / case.replace(' ', '_')
    place.mkdir()
    (folder / 'job.py').write_text(JOB)
    run([PROGRAM, 'run', '-n', 2, '--elastic', '1:3', '--elastic-restarts', restarts, '--launch-dir', place / 'logs', '--', sys.executable, 'job.py',
         case, place], folder, timeout=200, code=code)
    return sorted((json.loads(p.read_text()) for p in place.iterdir() if p.name.isdigit()), key=lambda r: r['first']['rank'])


def test_a_rank_dies_and_a_rank_leaves(tmp_path):
    whole = job(tmp_path, 'whole')
    assert [r['first']['rank'] for r in whole] == [0, 1] and len({r['digest'] for r in whole}) == 1 and not whole[0]['seen']
    (rest,) = job(tmp_path, 'dies')
    assert [(m['epoch'], m['rank'], m['ranks'], m['lost'], m['left'], m['joined']) for m in rest['seen']] == [(2, 0, 1, [1], [], [])]
    assert rest['digest'] == whole[0]['digest'] and rest['step'] == 9 and not rest['left']
    rest, gone = job(tmp_path, 'leaves')
    assert [(m['ranks'], m['lost'], m['left'], m['redone_steps']) for m in rest['seen']] == [(1, [], [1], 0)]
    assert rest['digest'] == whole[0]['digest'] and gone['left'] and 4 <= gone['step'] < 9 and gone['code'] == 0


def test_a_rank_that_is_started_again_joins(tmp_path):
    back, rest = job(tmp_path, 'comes back', restarts=1)
    assert back['first']['epoch'] == 0 and rest['first']['epoch'] == 1
    assert [m['lost'] for m in rest['seen']] == [[1], []] and rest['seen'][1]['joined'] == back['seen'][0]['joined'] != []
    assert rest['step'] == back['step'] and rest['digest'] == back['digest'] and rest['seen'][1]['ranks'] == 2


def test_a_rank_that_may_not_leave_stops_the_job(tmp_path):
    ended = job(tmp_path, 'too few', code=143)
    assert all(r['step'] < 9 for r in ended) and [r['code'] for r in ended] == [0, 143]


LOOP = '''
import os, signal, sys
import numpy as np
import trireme
job = trireme.Elastic(join={'heartbeat_seconds': 0.1})
me, step, total = job.rank, 0, np.zeros(1, 'float32')
whole = trireme.distribute.Communicator()
half = whole.split(0)
fixed = np.ones(2)
fixed.setflags(write=False)

def refused(function, sentence):
    try:
        function()
    except trireme.Error as error:
        assert sentence in error.message, error
    else:
        raise SystemExit('no error: ' + sentence)
while step < 6:
    try:
        if me == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        mean = job.comm.all_reduce(np.ones(1, 'float32'), 'mean')
        sums = [np.ones(2), None, np.full((1, 2), 3, 'int32')]
        trireme.distribute.all_reduce(sums)  # the three calls use the ranks of now
        assert [v.tolist() for v in sums if v is not None] == [[job.size] * 2, [[3 * job.size] * 2]]
        refused(lambda: trireme.distribute.all_reduce([sums[0], fixed]), 'read-only')
        assert sums[0][0] == job.size  # nothing is summed before all values are checked
        total += mean
        step += 1
    except trireme.Error as error:
        assert job.can_recover(error), error
        assert 1 in job.recover(error)['lost']
        both = np.array([step], 'int64')
        assert job.comm.all_reduce(both, 'min')[0] == step == 3
assert total == 6 and job.size == 2 and not job.wants_change
assert (trireme.distribute.rank(), trireme.distribute.size()) == (job.rank, 2)
assert trireme.distribute.Communicator().size == 2
for old in (whole, half):
    refused(old.barrier, 'ranks of the elastic job have changed')
    old.close()
assert trireme.distribute.Communicator().split(0).all_reduce(np.ones(1)) == 2
assert trireme.distribute.broadcast({'rank': np.array([job.rank])}, root=1)['rank'][0] == 1
mine, batch = trireme.distribute.shard_and_rebatch(np.arange(6), 4)
assert batch == 2 and mine.tolist() == [job.rank, job.rank + 2, job.rank + 4]
job.request_leave()
job.close()
print('rank', me, 'done')
'''


def test_a_loop_of_its_own(tmp_path):
    (tmp_path / 'job.py').write_text(LOOP)
    out = run([PROGRAM, 'run', '-n', 3, '--elastic', '1:3', '--', sys.executable, 'job.py'], tmp_path, timeout=200)
    assert 'rank 0 done' in out


def test_one_process_is_a_job_of_one(tmp_path):
    run_python(['-c', '''
import trireme
from trireme import ops
job = trireme.Elastic()
data = trireme.Dataset.open('synth', batch_size=8, shapes={'train_count': 80})
model = trireme.Model(lambda image: ops.mlp(image, [16], 10), data, elastic=job)
for wrong in ({'leest': 2}, {'least': 3, 'most': 2}, {'least': -1}, {'most': -2}, {'join': {'heartbeat_seconds': -1.0}}, {'decision_seconds': float('nan')}):
    try:
        trireme.Elastic(**wrong)
        raise SystemExit('accepted: %s' % wrong)
    except (TypeError, trireme.Error):
        pass
def refused(function, sentence):
    try:
        function()
    except trireme.Error as error:
        assert sentence in error.message, error
    else:
        raise SystemExit('no error: ' + sentence)
refused(trireme.Elastic, 'has an Elastic already')
try:
    job.recover('gone')
    raise SystemExit('a text is accepted as cause')
except TypeError as error:
    assert 'cause: the Error of the operation that failed expected' in str(error), error
assert trireme.distribute.size() == 1 and trireme.distribute.Communicator().size == 1
del job
model.train(until_step=3)
assert model.elastic.size == 1 and not model.left
job = model.elastic
job.close()
assert job.size == 1  # the model is still there
model.close()
refused(lambda: job.membership, 'has left the job')
assert trireme.distribute.size() == 1
'''], tmp_path)


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(trireme.Error, match='least'):
        trireme.Elastic(least=3, most=2)
    with pytest.raises(TypeError, match='elastic.*cannot be'):
        trireme.Model('mlp', trireme.Dataset.open('synth'), elastic='2:4')
    (tmp_path / 'job.py').write_text("from trireme import distribute, Elastic\ndistribute.init()\nElastic()")
    out = run_ranks(2, ['job.py'], tmp_path, code=2)
    log = ''.join(p.read_text() for p in tmp_path.glob('device*/train.log*'))
    assert 'has joined its ranks by trireme.distribute already' in log + out
