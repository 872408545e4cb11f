#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes operators.h: outputs and gradients of PyTorch (float64) for src/exec/ref/ref_golden_test.c.

    python3 tests/golden/operators.py > tests/golden/operators.h      (python with torch; made by 2.15)

Inputs are small multiples of 1/16, exact in every float, from one formula that the C test shares:
value(k, i) = ((i * 7 + k * 5) % 31 - 15) / 16 for element i of input k. The loss of a case is
sum(value(9, i) * y_i), so that gradients are not all ones."""
import torch
import torch.nn.functional as f

torch.set_default_dtype(torch.float64)


def value(k, i):
    return ((i * 7 + k * 5) % 31 - 15) / 16


def tensor(k, *shape):
    count = 1
    for d in shape:
        count *= d
    return torch.tensor([value(k, i) for i in range(count)]).reshape(shape).requires_grad_()


def show(name, t):
    values = t.detach().reshape(-1).tolist()
    print(f"static const double golden_{name}[{len(values)}] = {{")
    for i in range(0, len(values), 4):
        print("    " + " ".join(f"{v:.13g}," for v in values[i:i + 4]))
    print("};")


def case(name, y, *inputs):
    show(name, y)
    r = torch.tensor([value(9, i) for i in range(y.numel())]).reshape(y.shape)
    for k, g in enumerate(torch.autograd.grad((y * r).sum(), inputs, retain_graph=True)):
        show(f"{name}_d{k}", g)


def norm():
    x, gamma, beta = tensor(0, 3, 2, 2, 3), tensor(1, 2), tensor(2, 2)
    mean, variance = tensor(3, 2).detach(), (tensor(4, 2) + 2).detach()
    y = f.batch_norm(x, mean, variance, gamma, beta, training=True, momentum=0.1, eps=1e-5)
    case("norm", y, x, gamma, beta)
    show("norm_mean", mean)
    show("norm_variance", variance)
    mean, variance = tensor(3, 2).detach(), (tensor(4, 2) + 2).detach()
    y = f.batch_norm(x, mean, variance, gamma, beta, training=False, eps=1e-5)
    case("norm_infer", y, x, gamma, beta)


def loss():
    z, labels = tensor(0, 5, 4), torch.tensor([3, 1, 0, 1, 2])
    case("xent", f.cross_entropy(z, labels), z)
    case("xent_smooth", f.cross_entropy(z, labels, label_smoothing=0.1, ignore_index=1), z)
    t = (tensor(1, 5, 4) / 2 + 0.5).detach()
    case("bce", f.binary_cross_entropy_with_logits(z, t), z)
    case("softmax", f.softmax(z, -1), z)


def attention(q, k, v, mask):
    """[B, T, H, D] each; mask is true where a key is read."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    y = f.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), attn_mask=mask)
    return y.transpose(1, 2)


def rotated(x, theta, first):
    """As transformers' Llama does it: half-split."""
    width = x.shape[-1]
    inv = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(first, first + x.shape[1], dtype=torch.float64), inv)
    angles = torch.cat((angles, angles), -1)[None, :, None, :]
    half = torch.cat((-x[..., width // 2:], x[..., :width // 2]), -1)
    return x * angles.cos() + half * angles.sin()


def transformer():
    x, gamma, beta = tensor(0, 3, 4), tensor(1, 4), tensor(2, 4)
    case("layer_norm", f.layer_norm(x, (4,), gamma, beta, 1e-5), x, gamma, beta)
    case("rms_norm", f.rms_norm(x, (4,), gamma, 1e-5), x, gamma)
    case("gelu", f.gelu(3 * x), x)
    case("gelu_tanh", f.gelu(3 * x, approximate="tanh"), x)
    case("silu", f.silu(3 * x), x)
    gate, up = tensor(0, 3, 4), tensor(1, 3, 4)
    case("swiglu", f.silu(gate) * up, gate, up)
    a, b = tensor(0, 2, 3, 2, 4), tensor(1, 3, 4, 2)
    case("matmul", a @ b, a, b)
    x, w, b = tensor(0, 2, 3, 4), tensor(1, 4, 2), tensor(2, 2)
    case("linear_by_inputs", x @ w + b, x, w, b)
    q, k, v = tensor(0, 2, 3, 4, 2), tensor(1, 2, 4, 2, 2), tensor(2, 2, 4, 2, 2)
    case("attention", attention(q, k, v, torch.ones(3, 4).tril(1).bool()), q, k, v)
    padding = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 0]]).bool()[:, None, None, :]
    case("attention_masked", attention(q, k, v, padding), q, k, v)
    qkv = tensor(0, 2, 3, 8)
    q, k, v = qkv[..., :4].reshape(2, 3, 2, 2), qkv[..., 4:6].reshape(2, 3, 1, 2), qkv[..., 6:].reshape(2, 3, 1, 2)
    case("attention_packed", attention(q, k, v, torch.ones(3, 3).tril().bool()).reshape(2, 3, 4), qkv)
    x = tensor(0, 2, 3, 2, 4)
    case("rotary", rotated(x, 100.0, 5), x)
    x, w, labels = tensor(0, 2, 3, 4), tensor(1, 5, 4), torch.tensor([[3, 1, 0], [1, 2, 4]])
    case("linear_xent", f.cross_entropy((x @ w.T).reshape(6, 5), labels.reshape(6), ignore_index=1), x, w)
    # as transformers' Mixtral: top 2 of 3 experts, shares normalised, its load_balancing_loss_func
    x, router = tensor(0, 4, 2), tensor(1, 3, 2)
    gate, up, down = tensor(2, 3, 2, 2), tensor(3, 3, 2, 2), tensor(4, 3, 2, 2)
    shares = f.softmax(x @ router.T, -1)
    weights, chosen = torch.topk(shares, 2)
    weights = weights / weights.sum(-1, keepdim=True)
    y = torch.stack([sum(weights[t, k] * (down[e] @ (f.silu(gate[e] @ x[t]) * (up[e] @ x[t])))
                         for k, e in enumerate(chosen[t].tolist())) for t in range(4)])
    case("experts", y, x, router, gate, up, down)
    balance = 3 * (f.one_hot(chosen, 3).double().mean(0) * shares.mean(0)).sum()
    case("balance", balance, x, router)
    table, ids = tensor(0, 5, 3), torch.tensor([4, 1, 4, 0])
    case("tied", f.cross_entropy(f.embedding(ids, table) @ table.T, ids), table)


def main():
    print("/* Made by tests/golden/operators.py; do not edit. */")
    x, w, b = tensor(0, 2, 4, 5, 6), tensor(1, 4, 2, 3, 2), tensor(2, 4)
    case("conv", f.conv2d(x, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2), x, w, b)
    x, w = tensor(0, 1, 2, 4, 4), tensor(1, 3, 2, 3, 3)
    case("conv_same", f.conv2d(f.pad(x, (0, 2, 1, 0)), w), x, w)
    x, w, b = tensor(0, 3, 4), tensor(1, 2, 4), tensor(2, 2)
    case("linear", f.linear(x, w, b), x, w, b)
    norm()
    x = tensor(0, 2, 2, 5, 5)
    case("max_pool", f.max_pool2d(x, 3, 2, 1), x)
    case("avg_pool", f.avg_pool2d(x, 3, 2, 1, count_include_pad=True), x)
    case("avg_pool_inside", f.avg_pool2d(x, 3, 2, 1, count_include_pad=False), x)
    case("global_pool", f.adaptive_avg_pool2d(x, 1).reshape(2, 2), x)
    loss()
    table, ids = tensor(0, 5, 3), torch.tensor([4, 1, 4, 0])
    case("embedding", f.embedding(ids, table), table)
    transformer()


main()
