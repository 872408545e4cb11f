# SPDX-License-Identifier: Apache-2.0
"""Fixtures that the tests of the package share: the program, jobs of several processes, a cache of their own."""
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.path.join(ROOT, 'python')
BUILD = os.environ.get('TRIREME_BUILD', os.path.join(ROOT, 'build', 'release'))
PROGRAM = os.environ.get('TRIREME', os.path.join(BUILD, 'trireme'))
sys.path.insert(0, PYTHON)


@pytest.fixture(scope='session', autouse=True)
def cache(tmp_path_factory):
    """Kernels are measured anew: no test depends on the user's cache. Threads: as in a job of several processes."""
    os.environ['XDG_CACHE_HOME'] = str(tmp_path_factory.mktemp('cache'))
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')


def python_environment(**more):
    return dict(os.environ, PYTHONPATH=PYTHON, PYTHONUNBUFFERED='1', **more)


def run(command, cwd, timeout=300, code=0, **more):
    """Runs a command; returns its output, both streams together."""
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=python_environment(**more), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=timeout, text=True)
    assert done.returncode == code, f'{command}: exit {done.returncode}, {code} expected\n{done.stdout[-3000:]}'
    return done.stdout


def run_python(arguments, cwd, **more):
    return run([sys.executable] + list(arguments), cwd, **more)


def run_ranks(count, arguments, cwd, **more):
    """Runs a Python program on several ranks; returns the output of rank 0."""
    return run([PROGRAM, 'run', '-n', count, '--', sys.executable] + list(arguments), cwd, **more)


def losses(output):
    """The losses of LossMonitor's lines, as texts."""
    return re.findall(r'loss is ([0-9.einf-]+)', output)
