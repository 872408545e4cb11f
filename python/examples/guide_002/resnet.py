# SPDX-License-Identifier: Apache-2.0
# The file resnet.py of guide 002 (MindSpore's model zoo).
from trireme.compat.mindspore.resnet import resnet50  # noqa: F401
