# SPDX-License-Identifier: Apache-2.0
"""Networks as classes. A Module holds no arrays: it is traced once into the graph, and its parameters get the names that
torch.nn gives them, so that weights can be exchanged.

    class Net(nn.Module):
        def __init__(self):
            self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
            self.fc = nn.Linear(16, 10)

        def forward(self, image):
            return self.fc(ops.global_avg_pool(self.body(image)))
"""
import math

from . import ops
from ._convert import expect
from .graph import current, parameter, state


def pair(value):
    """(height, width) of one number for both, or of two."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def modules_in(name, value):
    """(name, Module) of a value that is one, or holds some in lists and dictionaries."""
    if isinstance(value, Module):
        yield name, value
    elif isinstance(value, (list, tuple, dict)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from modules_in(f'{name}.{key}', inner)


class Module:
    """A part of a network: attributes that are Modules, or lists or dictionaries of them, are its parts; forward() adds the operators."""

    _path = None
    _made = None, {}  # the graph of the last call, and its leaves of this module

    def forward(self, *inputs):
        """Adds the operators; a class of your own defines it."""
        raise NotImplementedError(f'{type(self).__name__}: there is no forward()')

    def __call__(self, *inputs):
        if self._path is None:
            self.name_parts('')
        return self.forward(*inputs)

    def children(self):
        """(name, Module) of the parts, in the order in which they were set."""
        for name, value in vars(self).items():
            yield from modules_in(name, value)

    def modules(self, outer=()):
        """This module and all inside it. outer: those that it is in; a part that refers to one of them does not contain it."""
        yield self
        for _, child in self.children():
            if child not in outer:
                yield from child.modules((*outer, self))

    def name_parts(self, path, outer=()):
        """Gives the parts their names, which begin with `path`; outer as in modules()."""
        self._path = path
        for name, child in self.children():
            if child not in outer:
                child.name_parts(f'{path}{name}.', (*outer, self))

    def __getstate__(self):
        """A copy has no nodes: it makes its own in the graph in which it is called."""
        return {k: v for k, v in vars(self).items() if k != '_made'}

    def leaf(self, name, make):
        """A parameter or state of this module: one node in each graph, however often the module is called."""
        graph = current()
        if self._made[0] is not graph:
            self._made = graph, {}
        nodes = self._made[1]
        if name not in nodes:
            nodes[name] = make(self._path + name)
        return nodes[name]

    def parameter(self, name, shape, init='zero'):
        """A parameter NAME of this module, which training updates; init as in trireme.parameter."""
        return self.leaf(name, lambda path: parameter(path, shape, init))

    def state(self, name, shape, init='zero'):
        """A state NAME of this module: kept and saved, but not trained; init as in trireme.parameter."""
        return self.leaf(name, lambda path: state(path, shape, init))


class Sequential(Module):
    """Modules and functions, one after the other; named 0, 1, ..."""

    def __init__(self, *parts):
        expect(all(map(callable, parts)), 'Sequential', 'Modules and functions', parts)
        self.parts = list(parts)

    def children(self):
        return ((str(i), p) for i, p in enumerate(self.parts) if isinstance(p, Module))

    def forward(self, x):
        for p in self.parts:
            x = p(x)
        return x

    def __getitem__(self, index):
        return self.parts[index]

    def __len__(self):
        return len(self.parts)


class Linear(Module):
    """x [..., inputs] -> [..., outputs]; initial values of torch.nn.Linear."""

    def __init__(self, inputs, outputs, bias=True, init='linear'):
        self.inputs, self.outputs, self.bias, self.init = inputs, outputs, bias, init

    def forward(self, x):
        weight = self.parameter('weight', (self.outputs, self.inputs), self.init)
        bound = 'linear' if self.init == 'linear' else 'zero'
        return ops.linear(x, weight, self.parameter('bias', (self.outputs,), bound) if self.bias else None)


class Conv2d(Module):
    """image [N, inputs, H, W] -> [N, outputs, H', W']."""

    def __init__(self, inputs, outputs, kernel, stride=1, padding=0, dilation=1, groups=1, bias=True, init='he_normal_fan_out'):
        self.inputs, self.outputs, self.bias, self.init = inputs, outputs, bias, init
        self.kernel = pair(kernel)
        self.options = {'stride': stride, 'pad': padding, 'dilation': dilation, 'groups': groups}

    def forward(self, x):
        weight = self.parameter('weight', (self.outputs, self.inputs // (self.options['groups'] or 1)) + self.kernel, self.init)
        return ops.conv2d(x, weight, self.parameter('bias', (self.outputs,)) if self.bias else None, **self.options)


class BatchNorm2d(Module):
    """Batch norm over all dimensions but the second; statistics of all ranks unless the model's options say otherwise."""

    def __init__(self, features, eps=1e-5, momentum=0.1, gamma='one'):
        self.features, self.eps, self.momentum, self.gamma = features, eps, momentum, gamma

    def forward(self, x):
        size = (self.features,)
        return ops.batch_norm(x, self.parameter('weight', size, self.gamma), self.parameter('bias', size),
                              self.state('running_mean', size), self.state('running_var', size, 'one'),
                              epsilon=self.eps, momentum=self.momentum)


class LayerNorm(Module):
    """x [..., features]: mean 0 and variance 1 of the last dimension, times weight plus bias."""

    def __init__(self, features, eps=1e-5):
        self.features, self.eps = features, eps

    def forward(self, x):
        return ops.layer_norm(x, self.parameter('weight', (self.features,), 'one'), self.parameter('bias', (self.features,)), self.eps)


class RMSNorm(Module):
    """x [..., features]: mean square 1 of the last dimension, times weight."""

    def __init__(self, features, eps=1e-5):
        self.features, self.eps = features, eps

    def forward(self, x):
        return ops.rms_norm(x, self.parameter('weight', (self.features,), 'one'), self.eps)


class Embedding(Module):
    """ids [...] -> [..., width]: the rows of a table; decay leaves it out."""

    def __init__(self, rows, width, init=('normal', 1.0)):
        self.rows, self.width, self.init = rows, width, init

    def forward(self, ids):
        return ops.embedding(ops.exclude_from_decay(self.parameter('weight', (self.rows, self.width), self.init)), ids)


class MultiheadAttention(Module):
    """Self-attention: x [B, T, width] -> [B, T, width]; one linear layer makes queries, keys and values. Names and order of
    parameters are those of torch.nn.MultiheadAttention(batch_first=True)."""

    def __init__(self, width, heads, causal=False, bias=True):
        self.width, self.heads, self.causal, self.bias = width, heads, causal, bias
        self.out_proj = Linear(width, width, bias)

    def forward(self, x, mask=None):
        weight = self.parameter('in_proj_weight', (3 * self.width, self.width), 'glorot_uniform')
        qkv = ops.linear(x, weight, self.parameter('in_proj_bias', (3 * self.width,)) if self.bias else None)
        return self.out_proj(ops.attention_packed(qkv, self.heads, 0, mask, causal=self.causal))


class MaxPool2d(Module):
    """image [N, C, H, W] -> [N, C, H', W']: the largest number of each window."""

    def __init__(self, kernel, stride=None, padding=0):
        self.options = {'kernel': kernel, 'stride': stride, 'pad': padding}

    def forward(self, x):
        return ops.max_pool(x, **self.options)


class AvgPool2d(Module):
    """image [N, C, H, W] -> [N, C, H', W']: the mean of each window."""

    def __init__(self, kernel, stride=None, padding=0, count_include_pad=True):
        self.options = {'kernel': kernel, 'stride': stride, 'pad': padding, 'count_padding': count_include_pad}

    def forward(self, x):
        return ops.avg_pool(x, **self.options)


class Dropout(Module):
    """While training, elements are zero with the probability `rate`, and the others are larger; else x."""

    def __init__(self, rate=0.5):
        self.rate = rate

    def forward(self, x):
        return ops.dropout(x, self.rate)


class Flatten(Module):
    """x [N, ...] -> [N, product of the others]."""

    def forward(self, x):
        return x.reshape(x.shape[0], math.prod(x.shape[1:]))


def _layer(name, function, doc=None):
    """A Module of an operator without options."""
    def forward(self, x):
        return function(x)
    forward.__doc__ = doc or function.__doc__
    return type(name, (Module,), {'forward': forward, '__doc__': forward.__doc__, '__module__': __name__})


ReLU, Sigmoid, Tanh = _layer('ReLU', ops.relu), _layer('Sigmoid', ops.sigmoid), _layer('Tanh', ops.tanh)
SiLU, GELU, Softmax = _layer('SiLU', ops.silu), _layer('GELU', ops.gelu), _layer('Softmax', ops.softmax)
GlobalAvgPool2d = _layer('GlobalAvgPool2d', ops.global_avg_pool, 'image [N, C, H, W] -> [N, C]: the mean of each channel.')
