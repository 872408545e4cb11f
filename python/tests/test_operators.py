# SPDX-License-Identifier: Apache-2.0
"""Every operator of trireme.ops, in the forward of an nn.Module: what it computes is NumPy's, written down here for each."""
import numpy as np
import pytest

import trireme
from trireme import nn, ops

R = np.random.default_rng(7)


def numbers(*size):
    return R.uniform(0.2, 1.5, size).astype('float32') * R.choice([-1, 1], size).astype('float32')


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def erf(x):
    from math import erf as of_number
    return np.vectorize(of_number)(x)


def normalized(x, axes, epsilon=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def convolved(x, w, b, pad):
    n, _, h, _ = x.shape
    k = w.shape[2]
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    out = np.zeros((n, w.shape[0], h, h))
    for i in range(h):
        for j in range(h):
            out[:, :, i, j] = np.tensordot(x[:, :, i:i + k, j:j + k], w, ((1, 2, 3), (1, 2, 3))) + b
    return out


def windows(x):
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2)


def attended(q, k, v, mask=None, causal=False):
    """q [B, T, H, D]"""
    scores = np.einsum('bthd,bshd->bhts', q, k) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask[:, None, None, :] != 0, scores, -1e9)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:])) > 0, scores, -1e9)
    return np.einsum('bhts,bshd->bthd', softmax(scores), v)


def packed(x, heads):
    """[B, T, 3 heads D] -> three of [B, T, heads, D]"""
    b, t, c = x.shape
    return x.reshape(b, t, 3, heads, c // (3 * heads)).transpose(2, 0, 1, 3, 4)


def rotated(x):
    """x [B, T, H, D]"""
    t, d = x.shape[1], x.shape[-1]
    angle = np.arange(t)[:, None] * 10000.0 ** (-2 * np.arange(d // 2) / d)
    c, s = np.cos(angle)[None, :, None], np.sin(angle)[None, :, None]
    a, b = x[..., :d // 2], x[..., d // 2:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def experts(x, router, up, down):
    """Two of the experts for each row, GELU's tanh form, shares divided by their sum"""
    shares = softmax(x @ router.T)
    out = np.zeros_like(x)
    for i, row in enumerate(x):
        best = np.argsort(-shares[i])[:2]
        for e in best:
            hidden = up[e] @ row
            out[i] += shares[i, e] / shares[i, best].sum() * (down[e] @ (0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden ** 3)))))
    return out


def cross_entropy(logits, labels):
    return -np.log(softmax(logits))[np.arange(len(labels)), labels].mean()


A, B, P = numbers(3, 4), numbers(3, 4), np.abs(numbers(3, 4))
IMAGE, W, BIAS = numbers(2, 3, 6, 6), numbers(4, 3, 3, 3), numbers(4)
Q, K, V = numbers(2, 5, 2, 4), numbers(2, 5, 2, 4), numbers(2, 5, 2, 4)
QKV, X = numbers(2, 5, 24), numbers(5, 4)
LABELS, CHOICE = np.array([2, 0, 3], 'int32'), np.array([1, 0, 1, 1, 0], 'int32')
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], 'int32')
E, UP, DOWN = numbers(3, 4), numbers(3, 6, 4), numbers(3, 4, 6)
TABLE, OFFSETS = numbers(6, 3), np.array([0, 2, 2, 5], 'int32')

CASES = {
    'exclude_from_decay': None, 'freeze': None, 'update_all_rows': None,  # marks of parameters, tested below
    'conv2d': (lambda x, w, b: ops.conv2d(x, w, b, pad=1), lambda x, w, b: convolved(x, w, b, 1), (IMAGE, W, BIAS)),
    'linear': (ops.linear, lambda x, w, b: x @ w.T + b, (A, numbers(2, 4), numbers(2))),
    'linear_by_inputs': (ops.linear_by_inputs, lambda x, w, b: x @ w + b, (A, numbers(4, 2), numbers(2))),
    'matmul': (lambda a, b: ops.matmul(a, b, transpose_b=True), lambda a, b: a @ b.T, (A, B)),
    'batch_norm': (lambda x, g, b, m, v: ops.batch_norm(x, g, b, m, v, epsilon=1e-5),
                   lambda x, g, b, m, v: (x - m[:, None, None]) / np.sqrt(v[:, None, None] + 1e-5) * g[:, None, None] + b[:, None, None],
                   (IMAGE, numbers(3), numbers(3), numbers(3), np.abs(numbers(3)))),
    'layer_norm': (ops.layer_norm, lambda x, g, b: normalized(x, -1) * g + b, (A, numbers(4), numbers(4))),
    'rms_norm': (lambda x, g: ops.rms_norm(x, g, 1e-6), lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g, (A, numbers(4))),
    'attention': (lambda q, k, v, m: ops.attention(q, k, v, m), attended, (Q, K, V, MASK)),
    'attention_packed': (lambda x: ops.attention_packed(x, 2, causal=True),
                         lambda x: attended(*packed(x, 2), causal=True).reshape(2, 5, 8), (QKV,)),
    'rotary': (ops.rotary, rotated, (numbers(2, 5, 2, 4),)),
    'top_values': (lambda a: ops.top_values(a, 2)[0], lambda a: -np.sort(-a, -1)[:, :2], (A,)),
    'expert_linear': (ops.expert_linear, lambda x, w, e: np.einsum('noi,ni->no', w[e], x), (X, UP, CHOICE)),
    'mixture_of_experts': (lambda x, r, u, d: ops.mixture_of_experts(x, router=r, up=u, down=d, top_k=2)[0], experts, (X, E, UP, DOWN)),
    'max_pool': (lambda x: ops.max_pool(x, kernel=2, stride=2), lambda x: windows(x).max((3, 5)), (IMAGE,)),
    'avg_pool': (lambda x: ops.avg_pool(x, kernel=2, stride=2), lambda x: windows(x).mean((3, 5)), (IMAGE,)),
    'global_avg_pool': (ops.global_avg_pool, lambda x: x.mean((2, 3)), (IMAGE,)),
    'embedding': (ops.embedding, lambda t, i: t[i], (TABLE, LABELS)),
    'bag_pool': (lambda r, o: ops.bag_pool(r, o, pooling='mean'),
                 lambda r, o: np.stack([r[a:b].mean(0) if b > a else r[0] * 0 for a, b in zip(o, o[1:])]), (numbers(5, 3), OFFSETS)),
    'pair_dots': (ops.pair_dots, lambda x: np.stack([(x[:, i] * x[:, j]).sum(-1) for i in range(3) for j in range(i)], 1), (numbers(2, 3, 4),)),
    'dropout': (lambda x: ops.dropout(x, 0.5), lambda x: x, (A,)),  # a graph for evaluation
    'add': (ops.add, lambda a, b: a + b, (A, B)), 'sub': (ops.sub, lambda a, b: a - b, (A, B)),
    'mul': (ops.mul, lambda a, b: a * b, (A, B)), 'div': (ops.div, lambda a, b: a / b, (A, B)),
    'relu': (ops.relu, lambda x: np.maximum(x, 0), (A,)), 'sigmoid': (ops.sigmoid, sigmoid, (A,)), 'tanh': (ops.tanh, np.tanh, (A,)),
    'gelu': (ops.gelu, lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))), (A,)), 'silu': (ops.silu, lambda x: x * sigmoid(x), (A,)),
    'swiglu': (ops.swiglu, lambda g, u: g * sigmoid(g) * u, (A, B)), 'exp': (ops.exp, np.exp, (A,)), 'log': (ops.log, np.log, (P,)),
    'power': (lambda x: ops.power(x, -3), lambda x: x ** -3, (A,)), 'sqrt': (ops.sqrt, np.sqrt, (P,)), 'neg': (ops.neg, lambda x: -x, (A,)), 'scale': (lambda x: ops.scale(x, 3), lambda x: x * 3, (A,)),
    'cast': (lambda i: ops.cast(i, 'float32'), lambda i: i.astype('float32'), (LABELS,)),
    'reshape': (lambda x: ops.reshape(x, (2, 6)), lambda x: x.reshape(2, 6), (A,)),
    'transpose': (lambda x: ops.transpose(x, (1, 0)), lambda x: x.T, (A,)),
    'concat': (lambda a, b: ops.concat([a, b], 1), lambda a, b: np.concatenate([a, b], 1), (A, B)),
    'slice': (lambda x: ops.slice(x, (1, 0), (2, 3)), lambda x: x[1:3, :3], (A,)),
    'pad': (lambda x: ops.pad(x, (1, 0), (0, 2), 5), lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=5), (A,)),
    'one_hot': (lambda i: ops.one_hot(i, 4), lambda i: np.eye(4)[i], (LABELS,)),
    'reduce_sum': (lambda x: ops.reduce_sum(x, 0), lambda x: x.sum(0), (A,)),
    'reduce_mean': (lambda x: ops.reduce_mean(x, (0, 1)), lambda x: x.mean(), (A,)),
    'reduce_max': (lambda x: ops.reduce_max(x, 1, True), lambda x: x.max(1, keepdims=True), (A,)),
    'softmax': (ops.softmax, softmax, (A,)),
    'softmax_cross_entropy': (ops.softmax_cross_entropy, cross_entropy, (A, LABELS)),
    'softmax_cross_entropy_expand': (ops.softmax_cross_entropy_expand, cross_entropy, (A, LABELS)),
    'linear_cross_entropy': (ops.linear_cross_entropy, lambda x, w, y: cross_entropy(x @ w.T, y), (A, numbers(6, 4), LABELS)),
    'bce_with_logits': (ops.bce_with_logits, lambda x, y: -(y * np.log(sigmoid(x)) + (1 - y) * np.log(1 - sigmoid(x))).mean(),
                        (numbers(5), np.float32([1, 0, 1, 1, 0]))),
}
KEYS = np.arange(8, dtype='int64').reshape(4, 2)
TABLES = {'rows': 8, 'width': 4, 'hidden': [8]}
LANGUAGE = {'layers': 1, 'width': 8, 'heads': 2, 'vocabulary': 11, 'context': 8}
NETWORKS = {
    'resnet': (lambda x: ops.resnet(x, depth=18, classes=5, stem='cifar'), (2, 5), (numbers(2, 3, 32, 32),)),
    'mlp': (lambda x: ops.mlp(x, [8], 5), (3, 5), (A,)), 'lenet': (lambda x: ops.lenet(x, 5), (2, 5), (numbers(2, 1, 28, 28),)),
    'vit': (lambda x: ops.vit(x, 5, layers=1, width=8, heads=2, patch=4), (2, 5), (numbers(2, 3, 8, 8),)),
    'network_build': (lambda x: ops.network_build('lenet', x, classes=5), (2, 5), (numbers(2, 1, 28, 28),)),
    'language_build': (lambda i: ops.language_build('llama', i, **LANGUAGE), (4, 2, 11), (KEYS.astype('int32'),)),
    'language_loss': (lambda i: ops.language_loss('gpt2', i, i, **LANGUAGE), (), (KEYS.astype('int32'),)),
    'widedeep': (lambda k: ops.widedeep(keys=k, **TABLES), (4,), (KEYS,)), 'deepfm': (lambda k: ops.deepfm(keys=k, **TABLES), (4,), (KEYS,)),
    'dcnv2': (lambda k: ops.dcnv2(keys=k, cross_layers=1, **TABLES), (4,), (KEYS,)),
    'dlrm': (lambda k, d: ops.dlrm(keys=k, dense=d, bottom=[8, 4], **TABLES), (4,), (KEYS, numbers(4, 3))),
    'recommender_build': (lambda k: ops.recommender_build('deepfm', keys=k, **TABLES), (4,), (KEYS,)),
}


class One(nn.Module):
    """A network of one operator."""

    def __init__(self, build):
        self.build = build

    def forward(self, *inputs):
        return self.build(*inputs)


def compute(build, arrays):
    with trireme.Graph(training=False) as g:
        result = One(build)(*(trireme.input(f'in{i}', a.dtype, a.shape) for i, a in enumerate(arrays)))
    made = trireme.Exec(g, outputs=[result])
    made.feed({f'in{i}': a for i, a in enumerate(arrays)})
    made.forward()
    return made.output().copy()


def test_all_operators_are_here():
    assert sorted(list(CASES) + list(NETWORKS)) == sorted(ops.__all__)


@pytest.mark.parametrize('name', [name for name, case in CASES.items() if case])
def test_an_operator_is_numpys(name):
    build, expected, arrays = CASES[name]
    found = compute(build, arrays)
    wanted = expected(*(a.astype('float64') if a.dtype == 'float32' else a for a in arrays))
    assert found.shape == np.shape(wanted) and np.allclose(found, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize('name', list(NETWORKS))
def test_a_network_has_its_outputs(name):
    build, size, arrays = NETWORKS[name]
    found = compute(build, arrays)
    assert found.shape == size and np.isfinite(found).all() and (size == () or found.std() > 0)


def test_marks_of_parameters_are_kept():
    with trireme.Graph() as g:
        w = [trireme.parameter(n, (3, 2), 'one') for n in ('plain', 'kept', 'frozen')]
        ids = trireme.input('ids', 'int32', (1,))
        rows = ops.embedding(ops.update_all_rows(w[0]), ids) + ops.embedding(ops.exclude_from_decay(w[1]), ids)
        loss = (rows + ops.embedding(ops.freeze(w[2]), ids)).sum()
    made = trireme.Exec(g, loss, optimizer={'kind': 'sgd', 'weight_decay': 0.5})
    made.step(0.1, ids=np.int32([1]))
    plain, kept, frozen = (made.read(n) for n in ('plain', 'kept', 'frozen'))
    assert np.allclose(frozen, 1) and np.allclose(kept, [[1, 1], [0.9, 0.9], [1, 1]])
    assert np.allclose(plain, [[0.95, 0.95], [0.85, 0.85], [0.95, 0.95]])  # decay of every row, not of those that were read


@pytest.mark.parametrize('power', [0, 1, 2, 3, 5, 8, -1, -3, 0.5, 1.7])
def test_powers_are_numpys(power):
    x = P if power != int(power) else A
    assert np.allclose(compute(lambda a: a ** power, [x]), x.astype('float64') ** power, rtol=1e-5)


def test_attention_is_torchs():
    torch = pytest.importorskip('torch')
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = numbers(2, 5, 8)
    with trireme.Graph(training=False) as g:
        result = nn.MultiheadAttention(8, 2)(trireme.input('x', 'float32', x.shape))
    made = trireme.Exec(g, outputs=[result])
    assert set(made.state_dict()) == set(theirs.state_dict())
    made.load_state_dict(theirs.state_dict())
    made.feed(x=x)
    made.forward()
    t = torch.from_numpy(x)
    assert np.allclose(made.output(), theirs(t, t, t)[0].detach().numpy(), atol=1e-5)
