# SPDX-License-Identifier: Apache-2.0
"""The declarations: every function is bound, a library of another version is recognised, import is quick."""
import ctypes
import inspect
import os
import re
import shutil
import subprocess
import sys

import pytest

import trireme
from conftest import BUILD, PYTHON, ROOT, python_environment, run_python
from trireme import _c, _library


def test_every_public_function_is_exported():
    for name in _c.FUNCTIONS:
        assert getattr(_c, name).__doc__.startswith(name + '(')
    assert len(_c.FUNCTIONS) > 450 and _c.trm_version() == trireme.__version__.encode()


def test_layouts_are_those_of_the_library():
    count = ctypes.c_int32()
    _c.lib.trm_layout(ctypes.byref(count))
    assert count.value == sum(1 + len(s._fields_) for s in _c.STRUCTS) > 1000


def test_a_library_of_another_version_is_recognised(tmp_path):
    class Changed(ctypes.Structure):
        _fields_ = [('status', ctypes.c_int64)]
    with pytest.raises(trireme.Error, match='Changed has another layout.*install both from one source'):
        _library.check_layout(_c.lib, (Changed,) + _c.STRUCTS[1:])
    compiler = shutil.which('cc')
    if compiler is None:
        pytest.skip('no C compiler here')
    old = tmp_path / 'libtrireme.so.0'
    (tmp_path / 'old.c').write_text('const char *trm_version(void) { return "0.1.0"; }')
    subprocess.run([compiler, '-shared', '-fPIC', str(tmp_path / 'old.c'), '-o', str(old)], check=True)
    out = run_python(['-c', 'import trireme._c'], tmp_path, code=1, TRIREME_LIBRARY=str(old))
    assert 'trireme._library.Error' in out and 'of another version' in out
    out = run_python(['-c', 'import trireme._c'], tmp_path, code=1, TRIREME_LIBRARY=str(tmp_path / 'none.so'))
    assert 'not found (tried' in out and 'set TRIREME_LIBRARY' in out


def test_import_needs_neither_numpy_nor_the_library(tmp_path):
    run_python(['-c', 'import sys, trireme; assert "numpy" not in sys.modules; dir(trireme); trireme.Error'], tmp_path)


def test_names_and_help(capsys):
    for name in trireme.__all__:
        assert getattr(trireme, name) is not None
    assert {'Model', 'ops', 'distribute'} <= set(dir(trireme))
    public = [getattr(trireme, name) for name in trireme.__all__]
    public += [getattr(module, name) for module in (trireme.nn, trireme.ops, trireme.transforms, trireme.distribute) for name in dir(module) if name[0] != '_'
               and getattr(getattr(module, name), '__module__', '').startswith('trireme')]
    silent = [f'{found.__name__}.{name}' for found in public if isinstance(found, type) for name, member in vars(found).items()
              if name[0] != '_' and (callable(member) or isinstance(member, property)) and not inspect.getdoc(getattr(found, name))]
    silent += [found.__name__ for found in public if not inspect.getdoc(found)]
    assert not silent
    help(trireme.ops.conv2d)
    assert 'zeros added: top, bottom, left, right' in capsys.readouterr().out
    assert 'TRM_ERR' not in _c.trm_error.__doc__ and 'one sentence' in _c.trm_error.__doc__
    with pytest.raises(AttributeError, match="no 'nonsense'"):
        trireme.nonsense
    with open(os.path.join(os.path.dirname(trireme.__file__), '__init__.pyi')) as f:  # what editors complete
        assert sorted(re.findall(r'(\w+) as \1\b', f.read())) == sorted(trireme.__all__)


def test_help_and_completion_know_all_options():
    structs = {trireme.Model: _c.trm_model_options, trireme.Exec: _c.trm_exec_options, trireme.Planner: _c.trm_planner_options,
               trireme.Elastic: _c.trm_elastic_options, trireme.RunConfig: _c.trm_run_config, trireme.Dataset.open: _c.trm_dataset_spec,
               trireme.Tokenizer.train: _c.trm_tokenizer_options, trireme.EarlyStop: _c.trm_early_stop_options}
    for function, struct in structs.items():
        said, names = inspect.getdoc(getattr(function, '__init__', function) if isinstance(function, type) else function), inspect.signature(function).parameters
        assert [line for line in inspect.cleandoc(struct.__doc__).split('\n') if line not in said] == []
        assert [name for name, _ in struct._fields_ if name not in names and not name.endswith('_context')] == []
    assert {'precision', 'recompute', 'augment'} & set(inspect.signature(trireme.Model).parameters) == {'precision', 'recompute'}
    assert 'Options, exec, loss_scale (trm_loss_scale_options)' in trireme.Model.__init__.__doc__
    notes = dict(line.split(': ', 1) for line in inspect.cleandoc(_c.trm_dataset_spec.__doc__).split('\n'))  # each its own comment
    assert notes['seed'] == 'of order and augmentation' and notes['prefetch_depth'] == notes['threads'] and '4 batches ahead' in notes['threads']


def test_the_program(tmp_path):
    program = run_python(['-m', 'trireme', '--version'], tmp_path)
    assert trireme.__version__ in program
    out = run_python(['-m', 'trireme', 'nonsense'], tmp_path, code=2)
    assert 'nonsense' in out


def test_every_place_has_the_version():
    places = {'CMakeLists.txt': r'^project\(trireme VERSION ([0-9.]+)', 'CITATION.cff': r'^version: (\S+)', 'README.md': r'Status: version ([0-9.]+);',
              'python/pyproject.toml': r'^version = "(.*)"', 'python/torch_trireme/pyproject.toml': r'^version = "(.*)"',
              'docs/man/trireme.1': r'^\.TH .*"trireme ([0-9.]+)"', 'docs/man/libtrireme.3': r'^\.TH .*"trireme ([0-9.]+)"'}
    found = {}
    for place, pattern in places.items():
        with open(os.path.join(ROOT, place)) as f:
            found[place] = re.findall(pattern, f.read(), re.M)
    assert found == {place: [trireme.__version__] for place in places}


def test_sources_are_python_3_8():
    import ast
    for folder, _, names in os.walk(PYTHON):
        for name in names:
            if name.endswith('.py'):
                with open(os.path.join(folder, name)) as f:
                    ast.parse(f.read(), name, feature_version=(3, 8))
    assert BUILD and sys.version_info >= (3, 8) and python_environment()
