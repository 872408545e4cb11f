# SPDX-License-Identifier: Apache-2.0
# Guide 001: a training program with its own arrays, gradients and loop, with its three calls. It was written for one process;
# the import and the three lines marked + were added. The same program in C is examples/own_loop.c, with the same numbers.
#
#     python guide_001.py                              one process
#     trireme run -n 4 -- python guide_001.py          four: the same numbers
import numpy as np
import trireme as npu  # + guide 001: import npu_device as npu

HIDDEN, SAMPLES, STEPS = 16, 4096, 600


def noise(count):  # -1 .. 1
    state, values = noise.state, np.empty(count, np.float32)
    for i in range(count):
        state = (state * 1664525 + 1013904223) & 0xffffffff
        values[i] = np.float32(state >> 8) / np.float32(8388608) - np.float32(1)
    noise.state = state
    return values


noise.state = 1


def backward(x, y, w, g, part):
    """Adds one sample's part of the gradient, returns its loss, in the order of additions of the program in C."""
    h = np.empty(HIDDEN, np.float32)
    out = w[4 * HIDDEN]
    for k in range(HIDDEN):
        a, b, c, o = w[4 * k:4 * k + 4]
        h[k] = np.tanh(a * x[0] + b * x[1] + c)
        out = out + o * h[k]
    error = out - y
    below = part * error * w[3:4 * HIDDEN:4] * (np.float32(1) - h * h)
    g[0:4 * HIDDEN:4] += below * x[0]
    g[1:4 * HIDDEN:4] += below * x[1]
    g[2:4 * HIDDEN:4] += below
    g[3:4 * HIDDEN:4] += part * error * h
    g[4 * HIDDEN] += part * error
    return error * error / np.float32(2)


def main(steps=STEPS):
    batch = 256
    data = np.empty((SAMPLES, 3), np.float32)
    for row in data:
        row[:2] = noise(2)
        row[2] = np.float32(np.sin(np.float32(3) * row[0]) * row[1])
    weights = noise(4 * HIDDEN + 1)
    data, batch = npu.distribute.shard_and_rebatch_dataset(data, batch)  # +
    npu.distribute.broadcast(weights)  # +
    for step in range(steps):
        loss, gradient = np.float32(0), np.zeros_like(weights)
        for i in range(batch):
            x0, x1, y = data[(step * batch + i) % len(data)]
            loss += backward((x0, x1), y, weights, gradient, np.float32(1) / np.float32(batch))
        gradient = npu.distribute.all_reduce(gradient, reduction="mean")  # +
        weights -= np.float32(0.2) * gradient
    print(f'last loss {loss / batch:.4f}; weights', *(f'{w:.3f}' for w in weights))


if __name__ == '__main__':
    import sys
    main(*(int(a) for a in sys.argv[1:]))
