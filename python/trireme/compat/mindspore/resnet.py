# SPDX-License-Identifier: Apache-2.0
"""The ResNet that MindSpore's guide takes from its model zoo: `from trireme.compat.mindspore.resnet import resnet50`."""
from ... import ops
from . import Cell


class ResNet(Cell):
    """image [N, 3, H, W] -> logits [N, num_classes]; names and initial values are torchvision's."""

    def __init__(self, depth, num_classes, stem='imagenet'):
        self.depth, self.num_classes, self.stem = depth, num_classes, stem

    def construct(self, image):
        return ops.resnet(image, depth=self.depth, classes=self.num_classes, stem=self.stem)


def resnet50(batch_size=32, num_classes=10):
    return ResNet(50, num_classes)


def resnet101(batch_size=32, num_classes=10):
    return ResNet(101, num_classes)
