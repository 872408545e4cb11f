# SPDX-License-Identifier: Apache-2.0
"""Fixtures that the tests of the package share: the program, jobs of several processes, a cache of their own.

With TRIREME_INSTALLED=1 they test the package that is installed (a wheel), and nothing of a build.
"""
import os
import re
import shutil
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.path.join(ROOT, 'python')
INSTALLED = os.environ.get('TRIREME_INSTALLED') == '1'
BUILD = os.environ.get('TRIREME_BUILD', os.path.join(ROOT, 'build', 'release'))
PROGRAM = os.path.join(os.path.dirname(sys.executable), 'trireme') if INSTALLED else os.environ.get('TRIREME', os.path.join(BUILD, 'trireme'))
if not INSTALLED:
    sys.path.insert(0, PYTHON)


@pytest.fixture(scope='session', autouse=True)
def cache(tmp_path_factory):
    """Kernels are measured anew: no test depends on the user's cache. Threads: as in a job of several processes."""
    os.environ['XDG_CACHE_HOME'] = str(tmp_path_factory.mktemp('cache'))
    os.environ.setdefault('OMP_WAIT_POLICY', 'passive')


def python_environment(**more):
    return dict(os.environ, PYTHONUNBUFFERED='1', **({} if INSTALLED else {'PYTHONPATH': PYTHON}), **more)


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


def run_in_c(source, cwd):
    """Compiles a program in C against the library that the package has loaded, and runs it; returns its output."""
    import trireme
    compiler = os.environ.get('CC') or shutil.which('cc')
    if compiler is None:
        pytest.skip('no C compiler here')
    library = trireme._c.lib._name
    program = os.path.join(str(cwd), 'in_c')
    run([compiler, '-O2', source, '-I', os.path.join(ROOT, 'include'), '-o', program, library, f'-Wl,-rpath,{os.path.dirname(library)}',
         '-Wl,--allow-shlib-undefined', '-lm'], cwd)
    return run([program], cwd)


def losses(output):
    """The losses of LossMonitor's lines, as texts."""
    return re.findall(r'loss is ([0-9.einf-]+)', output)
