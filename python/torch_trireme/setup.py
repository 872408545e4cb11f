# SPDX-License-Identifier: Apache-2.0
"""Builds the extension against the torch that is there. Headers of Trireme: those in TRIREME_INCLUDE, else this
repository's, else those that pkg-config finds.
The library itself is found when the package is imported (torch_trireme/__init__.py)."""
import os
import subprocess

from setuptools import setup
from torch.utils import cpp_extension

here = os.path.dirname(os.path.abspath(__file__))
include = os.environ.get('TRIREME_INCLUDE') or os.path.join(here, '..', '..', 'include')
if not os.path.isdir(os.path.join(include, 'trireme')):
    include = subprocess.run(['pkg-config', '--variable=includedir', 'trireme'], check=True, capture_output=True, text=True).stdout.strip()

setup(ext_modules=[cpp_extension.CppExtension(
    'torch_trireme._backend', ['src/backend.cpp', 'src/messages.cpp', 'src/shared_allocator.cpp', 'src/work.cpp'], include_dirs=[include],
    extra_compile_args=['-O2', '-g0', '-Wall', '-Wno-deprecated-declarations'])],
    cmdclass={'build_ext': cpp_extension.BuildExtension})
