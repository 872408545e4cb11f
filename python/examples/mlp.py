# SPDX-License-Identifier: Apache-2.0
# A small network learns ten classes of generated shapes: examples/mlp.c in Python, with its losses.
import trireme
from trireme import ops

train = trireme.Dataset.open('synth', batch_size=64)
test = trireme.Dataset.open('synth', usage='test')
model = trireme.Model(lambda image: ops.mlp(image, [256, 128], 10), train, optimizer='momentum', learning_rate=0.01)
model.train(until_epoch=3, callbacks=[trireme.LossMonitor(0)])
result = model.evaluate(test)
print(f'accuracy on {result["samples"]} new images: {result["top1"]:.3f}')
