# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests of torch.distributed for gloo (torch.testing._internal.distributed.distributed_test, which its packages
contain) with this backend in gloo's place. Usage: torch_own_tests.py [-k PATTERN] [unittest's options]"""
import os
import sys
import tempfile
import unittest

os.environ.setdefault('BACKEND', 'gloo')
os.environ.setdefault('WORLD_SIZE', '3')
os.environ.setdefault('TEMP_DIR', tempfile.mkdtemp())
os.environ.setdefault('INIT_METHOD', 'file://' + os.path.join(os.environ['TEMP_DIR'], 'shared_init_file'))
for folder in ('barrier', 'test_dir'):
    os.makedirs(os.path.join(os.environ['TEMP_DIR'], folder), exist_ok=True)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch_trireme  # noqa: E402, F401
from torch.testing._internal import common_distributed  # noqa: E402
from torch.testing._internal.common_utils import run_tests  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

# The import above has chosen the tests for gloo; now they run with this backend.
distributed_test.BACKEND = os.environ['BACKEND'] = 'trireme'
common_distributed.PROFILING_SUPPORTED_BACKENDS = distributed_test.PROFILING_SUPPORTED_BACKENDS = ['trireme']


# These compare the backend's name with "gloo" while they run.
BY_NAME = ['test_accumulate_gradients_no_sync', 'test_accumulate_gradients_no_sync_allreduce_hook',
           'test_accumulate_gradients_no_sync_allreduce_with_then_hook', 'test_accumulate_gradients_no_sync_grad_is_view']


class TestTrireme(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    @classmethod
    def _run(cls, rank, test_name, *arguments, **options):
        if test_name in BY_NAME:
            dist.Backend._plugins['GLOO'] = dist.Backend._plugins['TRIREME']
            distributed_test.BACKEND = os.environ['BACKEND'] = 'gloo'
        super()._run(rank, test_name, *arguments, **options)

    @unittest.skip("DistributedDataParallel's log names every backend from outside PyTorch 'custom'; the test expects dist.get_backend()")
    def test_ddp_logging_data_cpu(self):
        pass

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


if __name__ == '__main__':
    run_tests()
