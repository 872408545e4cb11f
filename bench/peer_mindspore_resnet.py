#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 training steps in MindSpore on CPU, guide 002's own framework, in graph mode.

    peer_mindspore_resnet.py IMAGE_SIZE BATCH THREADS [STEPS]

Prints one JSON object: images_per_second (median step), first_step_seconds, peak_bytes."""
import json
import os
import resource
import statistics
import sys
import time

size, batch, threads = (int(word) for word in sys.argv[1:4])
steps = int(sys.argv[4]) if len(sys.argv) > 4 else 4
os.environ["OMP_NUM_THREADS"] = str(threads)
os.environ.setdefault("GLOG_v", "3")

import mindspore
import numpy
from mindspore import Tensor, nn, ops

mindspore.set_context(mode=mindspore.GRAPH_MODE)
mindspore.set_device("CPU")
mindspore.set_seed(1)


def normed(inputs, outputs, kernel, stride):
    """Convolution and batch normalisation, as every layer of the network begins."""
    return nn.SequentialCell([
        nn.Conv2d(inputs, outputs, kernel, stride, pad_mode="pad", padding=(kernel - 1) // 2, has_bias=False),
        nn.BatchNorm2d(outputs)])


class Block(nn.Cell):
    """A bottleneck block: 1x1, 3x3, 1x1, added to its input (projected where the shape changes)."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.branch = nn.SequentialCell([normed(inputs, width, 1, 1), nn.ReLU(), normed(width, width, 3, stride),
                                         nn.ReLU(), normed(width, 4 * width, 1, 1)])
        self.projects = stride != 1 or inputs != 4 * width
        self.shortcut = normed(inputs, 4 * width, 1, stride) if self.projects else None
        self.activation = nn.ReLU()

    def construct(self, x):
        rest = self.shortcut(x) if self.projects else x
        return self.activation(self.branch(x) + rest)


class Network(nn.Cell):
    """ResNet-50."""

    def __init__(self, classes):
        super().__init__()
        layers, channels = [normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, pad_mode="same")], 64
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for index in range(blocks):
                layers.append(Block(channels, 64 << stage, 2 if stage > 0 and index == 0 else 1))
                channels = 256 << stage
        self.body, self.head = nn.SequentialCell(layers), nn.Dense(2048, classes)

    def construct(self, x):
        return self.head(ops.mean(self.body(x), (2, 3)))


network = Network(10 if size == 32 else 1000)
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
train = nn.TrainOneStepCell(nn.WithLossCell(network, loss), nn.Momentum(network.trainable_params(), 0.01, 0.9))
train.set_train()
random = numpy.random.default_rng(1)
image = Tensor(random.standard_normal((batch, 3, size, size), dtype=numpy.float32))
label = Tensor(random.integers(0, 10, batch).astype(numpy.int32))
seconds = []
for _ in range(steps + 1):
    begin = time.perf_counter()
    train(image, label).asnumpy()
    seconds.append(time.perf_counter() - begin)
print(json.dumps({"peer": "mindspore " + mindspore.__version__, "image_size": size, "batch_size": batch,
                  "images_per_second": batch / statistics.median(seconds[1:]), "first_step_seconds": seconds[0],
                  "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
