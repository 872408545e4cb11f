#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of Python: a training step with a callback beside one without, the three calls on 4 bytes, and the import.

Usage: PYTHONPATH=python python3 bench/python_overhead.py

A step: the mlp of examples/mlp.c at batch 64. The same model trains turns of steps with a hook in Python after each step and with
none (the loop is then C alone); the difference of the medians is the overhead. The three calls run on one rank, where they have no
effect: all their time is Python's. The imports run in turns, that of NumPy alone beside them.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time


def measure(function, repeats):
    """Seconds of one call: the fastest of 100 groups, so that other load of the machine has little effect."""
    times = []
    for _ in range(100):
        begin = time.perf_counter()
        for _ in range(repeats // 100):
            function()
        times.append(time.perf_counter() - begin)
    return 100 * min(times) / repeats


def step_overhead(turns=12, steps=150):
    import trireme
    from trireme import ops
    data = trireme.Dataset.open('synth', batch_size=64, prefetch_depth=trireme._c.TRM_NONE)
    model = trireme.Model(lambda image: ops.mlp(image, [256, 128], 10), data, optimizer='momentum')
    model.train(until_step=steps)
    times, done = {'python': [], 'c': []}, steps
    for turn in range(2 * turns):
        kind = ('python', 'c')[turn % 2]
        done += steps
        begin = time.perf_counter()
        model.train(until_step=done, callbacks=[lambda p: p.loss < 0] if kind == 'python' else [])
        times[kind].append((time.perf_counter() - begin) / steps)
    # The hook by itself: what C calls, from the trampoline to its return.
    class Hook(trireme.Callback):
        def on_step_end(self, p):
            return p.loss < 0
    keep = []
    c = Hook().c_callback(model, keep)
    progress = trireme._c.trm_progress()
    from ctypes import byref, cast
    hook = cast(c.on_step_end, type(c.on_step_end))
    alone = measure(lambda: hook(None, byref(progress), None), 20000)
    return statistics.median(times['python']), statistics.median(times['c']), alone


def call_overhead():
    import numpy as np
    from trireme import distribute
    value, rows = np.zeros(1, 'float32'), np.zeros((8, 1), 'float32')
    distribute.init()
    return {'broadcast': measure(lambda: distribute.broadcast(value), 20000),
            'all_reduce': measure(lambda: distribute.all_reduce(value, 'mean'), 20000),
            'shard_and_rebatch': measure(lambda: distribute.shard_and_rebatch(rows, 8), 20000)}


def import_time(repeats=9):
    """Median wall and CPU seconds of each import in turns. Bytecode is kept between the runs, as `pip install` keeps it: where
    PYTHONDONTWRITEBYTECODE is set and nothing is installed, Python compiles the declarations again at each start, 40 ms."""
    command = ('import time; t, c = time.perf_counter(), time.process_time(); import {}; '
               'print(time.perf_counter() - t, time.process_time() - c)')
    kinds = {'import numpy': 'numpy', 'import trireme': 'trireme', 'with the library': 'trireme; trireme._c',
             'with the library and NumPy': 'trireme; trireme.Model'}
    found = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as bytecode:
        environment = dict(os.environ, PYTHONPYCACHEPREFIX=bytecode)
        environment.pop('PYTHONDONTWRITEBYTECODE', None)
        for _ in range(repeats + 1):
            for name, what in kinds.items():
                out = subprocess.run([sys.executable, '-c', command.format(what)], check=True, capture_output=True, text=True, env=environment)
                found[name].append([float(word) for word in out.stdout.split()])
    return {name: [statistics.median(run[i] for run in runs[1:]) for i in (0, 1)] for name, runs in found.items()}


def row(what, found, unit, most=None, more=''):
    verdict = '|' if most is None else f'{most} {unit} | {"holds" if found <= most else "too much"}'
    print(f'| {what} | {found:.3g} {unit} | {verdict} | {more} |', flush=True)


def main():
    load = os.getloadavg()[0]
    print('| measured | found | at most | | more |\n|---|---|---|---|---|')
    with_hook, without, alone = step_overhead()
    row('a hook after each step of the mlp, batch 64', 1e6 * alone, 'us', 20,
        f'the step takes {1e6 * without:.0f} us without Python, {1e6 * (with_hook - without):+.1f} us with the hook, in turns')
    row('the same, of the step', 100 * alone / without, '%', 0.5)
    for name, seconds in call_overhead().items():
        row(f'{name} of 4 bytes', 1e6 * seconds, 'us', 5)
    for name, (wall, cpu) in import_time().items():
        row(name, 1e3 * wall, 'ms', None if 'numpy' in name.lower() else 50, f'{1e3 * cpu:.0f} ms of CPU')
    print(f'load {load:.1f} before, {os.getloadavg()[0]:.1f} after')


if __name__ == '__main__':
    main()
