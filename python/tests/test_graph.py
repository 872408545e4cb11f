# SPDX-License-Identifier: Apache-2.0
"""Graphs and executors: operators compute what NumPy does, own loops, arrays of the program's memory."""
import numpy as np
import pytest

import trireme
from trireme import nn, ops


def compute(build, **inputs):
    """The value of a graph of inputs, by the reference back-end."""
    with trireme.Graph(training=False) as g:
        nodes = {k: trireme.input(k, v.dtype, v.shape) for k, v in inputs.items()}
        result = build(**nodes)
    results = result if isinstance(result, tuple) else (result,)
    made = trireme.Exec(g, outputs=results)
    made.feed(inputs)
    made.forward()
    values = [made.output(i).copy() for i in range(len(results))]
    assert all(v.shape == r.shape for v, r in zip(values, results))
    return values if isinstance(result, tuple) else values[0]


A = np.linspace(-2, 3, 24, dtype='float32').reshape(2, 3, 4)
B = np.linspace(1, 2, 4, dtype='float32')


@pytest.mark.parametrize('name, build, expected', [
    ('arithmetic', lambda a, b: (a + b) * 2 - b / 3 + 1 / b, lambda a, b: (a + b) * 2 - b / 3 + 1 / b),
    ('reversed', lambda a, b: 3 - a * np.float32(2) - np.ones(4, 'float32') + -b, lambda a, b: 3 - a * 2 - 1 - b),
    ('power', lambda a, b: b ** 2 + b ** 0.5 + b ** 3 + a, lambda a, b: b ** 2 + b ** 0.5 + b ** 3 + a),
    ('other powers', lambda a, b: b ** -2 + b ** 2.5 + b ** 0 + a ** 7 + b ** 1 + a, lambda a, b: b ** -2 + b ** 2.5 + 1 + a ** 7 + b + a),
    ('reduce', lambda a, b: a.sum(-1) + a.mean((2,)) + a.max(2) + b[0], lambda a, b: a.sum(-1) + a.mean(2) + a.max(2) + b[0]),
    ('keep', lambda a, b: a - a.max(-1, True) + b, lambda a, b: a - a.max(-1, keepdims=True) + b),
    ('all', lambda a, b: ops.reduce_sum(a) + ops.reduce_sum(b), lambda a, b: a.sum() + b.sum()),
    ('index', lambda a, b: a[1, :, 1:3] + b[2], lambda a, b: a[1, :, 1:3] + b[2]),
    ('rest', lambda a, b: a[..., -1] + a[:, None, 0, 0] + b[3:], lambda a, b: a[..., -1] + a[:, None, 0, 0] + b[3:]),
    ('shape', lambda a, b: a.reshape(6, 4).T.reshape((4, -1)) * b.reshape(4, 1), lambda a, b: a.reshape(6, 4).T * b.reshape(4, 1)),
    ('transpose', lambda a, b: a.transpose(2, 0, 1) + b[0], lambda a, b: a.transpose(2, 0, 1) + b[0]),
    ('matmul', lambda a, b: a @ a.transpose(0, 2, 1) + b[1], lambda a, b: a @ a.transpose(0, 2, 1) + b[1]),
    ('array times node', lambda a, b: np.ones((5, 3), 'float32') @ a[0] + b, lambda a, b: np.ones((5, 3)) @ a[0] + b),
    ('whole numbers', lambda a, b: a + np.arange(4) + [1, 2, 3, 4] + np.float64(0.5) + b, lambda a, b: a + np.arange(4) + [1, 2, 3, 4] + 0.5 + b),
    ('concat', lambda a, b: ops.concat([a, a * 2], axis=1) + b, lambda a, b: np.concatenate([a, a * 2], 1) + b),
    ('pad', lambda a, b: ops.pad(a, (0, 1, 0), (0, 0, 2)) + b[0], lambda a, b: np.pad(a, ((0, 0), (1, 0), (0, 2))) + b[0]),
    ('functions', lambda a, b: ops.tanh(a) + ops.relu(a) + ops.exp(a) + ops.log(b), lambda a, b: np.tanh(a) + np.maximum(a, 0) + np.exp(a) + np.log(b)),
])
def test_operators_are_numpys(name, build, expected):
    assert np.allclose(compute(build, a=A, b=B), expected(A, B), rtol=1e-5, atol=1e-6)


def test_operators_with_options_and_several_outputs():
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype('float32')
    pooled = compute(lambda x: ops.max_pool(x, kernel=2, stride=2), x=x)
    assert np.allclose(pooled, x.reshape(2, 3, 3, 2, 3, 2).max((3, 5)))
    top, columns = compute(lambda a: ops.top_values(a, 2), a=A)
    assert np.array_equal(columns, np.argsort(-A, -1)[..., :2]) and columns.dtype == np.int32
    hot = compute(lambda ids: ops.one_hot(ids, 3), ids=np.array([0, 2], 'int32'))
    assert np.array_equal(hot, np.eye(3)[[0, 2]])
    assert compute(lambda ids: ops.cast(ids * 3, 'float32'), ids=np.array([5], 'int32')) == [15.0]
    assert np.array_equal(compute(lambda a: ops.embedding(a, np.arange(2)), a=A[0]), A[0][:2])  # positions as a constant
    with trireme.Graph():
        ids = trireme.input('ids', 'int32', (1,))
        with pytest.raises(trireme.Error, match='float32'):
            ids * 0.5  # not 0
        with pytest.raises(TypeError, match='a node has no values'):
            np.sqrt(np.asarray(ids))


def test_gradients():
    with trireme.Graph() as g:
        a = trireme.input('a', 'float32', (4,))
        loss = (a ** 2).sum()
        found, none = g.gradients(loss, [a, trireme.input('b', 'float32', (4,))])
    made = trireme.Exec(g, outputs=[found])
    made.input('a')[:] = B
    made.forward()
    assert none is None and np.allclose(made.output(), 2 * B)


def linear_regression(**more):
    with trireme.Graph() as g:
        x, y = trireme.input('x', 'float32', (8, 3)), trireme.input('y', 'float32', (8, 1))
        with trireme.scope('layer'):
            w = trireme.parameter('weight', (1, 3), 'normal_001')
        loss = ((ops.linear(x, w) - y) ** 2).mean()
    return g, loss


def test_own_loop_is_numpys():
    g, loss = linear_regression()
    made = trireme.Exec(g, loss, whole_gradients=True, seed=3)
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(8, 3)).astype('float32'), made.read('layer.weight').astype('float64')
    y = (x @ [[1.0], [2.0], [3.0]]).astype('float32')
    for step in range(30):
        value = made.step(0.1, x=x, y=y)
        error = x @ w.T - y
        assert value == pytest.approx(float((error ** 2).mean()), rel=1e-4, abs=1e-7)
        w -= 0.1 * 2 * error.T @ x / 8
    assert np.allclose(made.read('layer.weight'), w, rtol=1e-4) and made.global_step == 30
    made.feed(x=x, y=y)
    made.forward_backward()
    assert np.allclose(made.gradient('layer.weight'), 2 * (x @ w.T - y).T @ x / 8, atol=1e-4)
    parameters, gradients = made.ranges()
    parameters[:] = 0  # the program's memory itself
    assert not made.read('layer.weight').any() and gradients.any()
    assert made.describe()['program']['parameter_count'] == 3 and made.explain(True) and made.profile(1)
    assert made.variables['layer.weight'][0] == 'parameter'


def test_wrong_arrays_are_named():
    g, loss = linear_regression()
    made = trireme.Exec(g, loss)
    with pytest.raises(trireme.Error, match=r"\[8, 4\]"):
        made.feed(x=np.zeros((8, 4), 'float32'))
    with pytest.raises(trireme.Error, match='float64.*float32|float32.*float64'):
        made.feed(x=np.zeros((8, 3)))
    with pytest.raises(trireme.Error, match="'nonsense'"):
        made.feed(nonsense=np.zeros(3, 'float32'))
    with pytest.raises(trireme.Error, match='complex64 is not supported'):
        made.feed(x=np.zeros((8, 3), 'complex64'))
    with pytest.raises(trireme.Error, match='not contiguous'):
        made.feed(x=np.zeros((3, 8), 'float32').T)
    with pytest.raises(trireme.Error, match='an array is needed.*found list'):
        made.feed(x=[[0.0] * 3] * 8)
    with pytest.raises(trireme.Error, match="variable 'w': there is none"):
        made.read('w')
    with pytest.raises(trireme.Error, match='two graphs'):
        with trireme.Graph() as other:
            trireme.input('x', 'float32', (8, 1)) + loss
        assert other


def test_sizes_and_indices_are_whole_and_all_there():
    with trireme.Graph() as g:
        x = trireme.input('x', 'float32', (4, 3))
        image = x.reshape(1, 1, 4, 3)
        for call in (lambda: trireme.input('y', 'float32', (2.7, 3)), lambda: x.reshape(12.9, 1), lambda: x.sum(1.5), lambda: ops.mlp(x, 'ab', 10),
                     lambda: trireme.input('y', 'float32', (2 ** 64,))):
            with pytest.raises(TypeError, match='whole numbers expected, found'):
                call()
        for call in (lambda: x.transpose(0,), lambda: ops.slice(x, (1,), (1, 1)), lambda: ops.pad(x, (1, 0), (0,))):  # the library reads two of each
            with pytest.raises(trireme.Error, match='one number for each dimension of'):
                call()
        for options in ({'kernel': (2,)}, {'kernel': (1, 1, 1)}, {'kernel': 1, 'pad': (1, 2, 3)}):
            with pytest.raises(TypeError, match=r'cannot be .* \(found \d, expected \d\)'):
                ops.max_pool(image, **options)
        for power in (x, 'a', float('nan')):
            with pytest.raises(TypeError, match='a number expected as power'):
                x ** power
        for call in (lambda: len(x.sum()), lambda: list(x.sum())):
            with pytest.raises(TypeError, match='scalar'):
                call()
        for index in (True, (..., ..., 0)):
            with pytest.raises(IndexError, match='whole numbers, slices, None and one ... expected'):
                x[index]
        for init in (('uniform', 1), ('normal',), ('normal', -1), ('normal', float('nan'))):
            with pytest.raises(trireme.Error, match='trm_init: there is no'):
                trireme.parameter('w', (2,), init)
        for dtype in (True, 99):
            with pytest.raises(trireme.Error, match='dtype: type .* is not supported'):
                trireme.input('y', dtype, (2,))
        with pytest.raises(TypeError, match='scope: a name expected'):
            with trireme.scope(None):
                pass
        assert x.sum(np.int64(1)).shape == (4,) and len(list(x)) == 4
        assert x.reshape(np.array([2, 6])).shape == trireme.input('z', 'float32', np.array((2, 6))).shape == (2, 6) and x.sum(np.array([0, 1])).shape == ()
        assert x.transpose(np.array([1, 0])).shape == (3, 4) and x.sum(np.array(1)).shape == (4,)
        with trireme.Graph() as other:
            y = trireme.input('y', 'float32', (2,)).mean()
        assert trireme.graph.current() is g
        for wrong in (y, None):
            with pytest.raises(TypeError, match='Graph.gradients: nodes of this graph expected'):
                g.gradients(x.sum(), [wrong])
        with g:
            pass
        assert trireme.graph.current() is g and other is not g
    with pytest.raises(trireme.Error, match='no graph is being built'):
        trireme.graph.current()


def test_exec_takes_nodes_of_its_graph():
    with trireme.Graph() as g:
        y = trireme.input('x', 'float32', (2, 3)) * trireme.parameter('w', (3,), 'one')
        loss = y.mean()
    with trireme.Graph():
        other = trireme.input('x', 'float32', (2, 3)).mean()
    made = trireme.Exec(g, loss, outputs=y)
    made.step(0.1, x=np.full((2, 3), 4, 'float32'))
    assert made.output().tolist() == [[4.0] * 3] * 2
    for options in ({'loss': other}, {'loss': 3}, {'outputs': [y, other]}):
        with pytest.raises(TypeError, match='Exec: loss and outputs: nodes of the graph expected, found'):
            trireme.Exec(g, **options)


def test_modules_have_torchs_names():
    class Block(nn.Module):
        def __init__(self):
            self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
            self.heads = [nn.Linear(4, 2), nn.Linear(4, 2)]
            self.norm, self.embed = nn.LayerNorm(2), nn.Embedding(5, 2)

        def forward(self, image, ids):
            x = ops.global_avg_pool(self.body(self.body[2](image)))
            return self.norm(self.heads[0](x) + self.heads[1](x) + self.heads[1](x)) + self.embed(ids)
    with trireme.Graph() as g:
        block = Block()
        y = block(trireme.input('image', 'float32', (2, 3, 8, 8)), trireme.input('ids', 'int32', (2,)))
        loss = (y ** 2).mean()
    found = trireme.Exec(g, loss).variables
    assert set(n for n, v in found.items() if v[0] != 'slot') == {
        'body.0.weight', 'body.1.weight', 'body.1.bias', 'body.1.running_mean', 'body.1.running_var', 'heads.0.weight', 'heads.0.bias',
        'heads.1.weight', 'heads.1.bias', 'norm.weight', 'norm.bias', 'embed.weight'}
    assert len(list(block.modules())) == 9


def test_labels_are_classes_of_any_integer_type():
    logits = np.arange(6, dtype='float32').reshape(2, 3)
    values = [compute(lambda a, kind=kind: ops.softmax_cross_entropy(a, kind([0, 2])), a=logits) for kind in (list, np.int32, np.int64, np.uint8)]
    assert values[0] > 0 and all(value == values[0] for value in values)
    with pytest.raises(trireme.Error, match='int32'):
        compute(lambda a: ops.softmax_cross_entropy(a, [0.0, 2.0]), a=logits)


def resnet_names(blocks, convolutions):
    """The names of torchvision's ResNet, but for the counters of its batch norms, which nothing reads."""
    def norm(name):
        return [f'{name}.{part}' for part in ('weight', 'bias', 'running_mean', 'running_var')]
    names = ['conv1.weight', *norm('bn1'), 'fc.weight', 'fc.bias']
    for layer, count in enumerate(blocks, 1):
        for block in range(count):
            at = f'layer{layer}.{block}'
            for i in range(1, convolutions + 1):
                names += [f'{at}.conv{i}.weight', *norm(f'{at}.bn{i}')]
            if block == 0 and (layer > 1 or convolutions == 3):
                names += [f'{at}.downsample.0.weight', *norm(f'{at}.downsample.1')]
    return names


@pytest.mark.parametrize('name, blocks, convolutions', [('resnet18', (2, 2, 2, 2), 2), ('resnet50', (3, 4, 6, 3), 3)])
def test_state_dict_has_torchvisions_names(name, blocks, convolutions):
    with trireme.Graph(training=False) as g:
        logits = ops.network_build(name, trireme.input('image', 'float32', (1, 3, 64, 64)), classes=10, stem='imagenet')
    made = trireme.Exec(g, outputs=[logits])
    values = made.state_dict()
    assert sorted(values) == sorted(resnet_names(blocks, convolutions)) and values['layer1.0.conv1.weight'].shape[:2] == (64, 64)
    try:
        import torch
        import torchvision
    except ImportError:
        return
    torch.manual_seed(1)
    theirs = torchvision.models.resnet.__dict__[name](num_classes=10).eval()
    made.load_state_dict(theirs.state_dict())
    image = np.random.default_rng(1).normal(size=(1, 3, 64, 64)).astype('float32')
    made.feed(image=image)
    made.forward()
    with torch.no_grad():
        assert np.allclose(made.output(), theirs(torch.from_numpy(image)).numpy(), rtol=1e-3, atol=1e-4)
        missing, _ = theirs.load_state_dict({k: torch.from_numpy(v) for k, v in made.state_dict().items()}, strict=False)
    assert all(name.endswith('num_batches_tracked') for name in missing)


# Each network of transformers, small: ours, the name and configuration of theirs, its input, names that tell a mistake without transformers.
TOKENS = ('tokens', 'int32', (2, 6))
OF_TRANSFORMERS = {
    'gpt2': (TOKENS, lambda x: ops.language_build('gpt2', x, layers=1, width=8, heads=2, context=6, vocabulary=50), 'GPT2LMHeadModel',
             dict(n_layer=1, n_embd=8, n_head=2, n_positions=6, vocab_size=50), ['wte.weight', 'wpe.weight', 'ln_f.weight', 'ln_f.bias', *(f'h.0.{part}.{kind}' for kind in ('weight', 'bias') for part in
              ('ln_1', 'attn.c_attn', 'attn.c_proj', 'ln_2', 'mlp.c_fc', 'mlp.c_proj'))]),
    'llama': (TOKENS, lambda x: ops.language_build('llama', x, layers=1, width=8, heads=2, kv_heads=1, hidden=12, context=6, vocabulary=50, untied=True),
              'LlamaForCausalLM', dict(num_hidden_layers=1, hidden_size=8, num_attention_heads=2, num_key_value_heads=1, intermediate_size=12,
                                       max_position_embeddings=6, vocab_size=50, rms_norm_eps=1e-5, tie_word_embeddings=False, pad_token_id=None),
              ['model.embed_tokens.weight', 'model.layers.0.self_attn.q_proj.weight', 'model.norm.weight', 'lm_head.weight']),
    'bert': (TOKENS, lambda x: ops.language_build('bert', x, layers=1, width=8, heads=2, context=6, vocabulary=50), 'BertForMaskedLM',
             dict(num_hidden_layers=1, hidden_size=8, num_attention_heads=2, intermediate_size=32, max_position_embeddings=6, vocab_size=50,
                  pad_token_id=None), ['bert.embeddings.word_embeddings.weight', 'bert.encoder.layer.0.attention.self.query.bias', 'cls.predictions.bias']),
    'vit': (('image', 'float32', (2, 3, 8, 8)), lambda x: ops.vit(x, 5, layers=1, width=8, heads=2, patch=4), 'ViTForImageClassification',
            dict(num_hidden_layers=1, hidden_size=8, num_attention_heads=2, intermediate_size=32, patch_size=4, image_size=8, num_labels=5),
            ['vit.embeddings.cls_token', 'vit.encoder.layer.0.attention.attention.query.weight', 'classifier.bias']),
}


@pytest.mark.parametrize('name', OF_TRANSFORMERS)
def test_state_dict_has_hugging_faces_names(name, tmp_path):
    """The names, shapes and values of transformers' files (its modules have others), and the same logits."""
    place, build, kind, config, some = OF_TRANSFORMERS[name]
    with trireme.Graph(training=False) as g:
        logits = build(trireme.input(*place))
    made = trireme.Exec(g, outputs=[logits])
    ours = made.state_dict()
    assert set(some) <= set(ours)
    try:
        import safetensors.numpy
        import torch
        import transformers
    except ImportError:
        return
    torch.manual_seed(1)
    kind = getattr(transformers, kind)
    theirs = kind(kind.config_class(**config)).eval()
    for value in theirs.parameters():
        torch.nn.init.normal_(value, std=0.3)
    theirs.save_pretrained(tmp_path)
    prefix = 'transformer.' if name == 'gpt2' else ''
    files = {k[len(prefix):]: v for k, v in safetensors.numpy.load_file(tmp_path / 'model.safetensors').items()}
    assert {k: v.shape for k, v in files.items()} == {k: v.shape for k, v in ours.items()}
    made.load_state_dict(files)
    random = np.random.default_rng(2)
    values = random.integers(0, 50, place[2]).astype('int32') if place is TOKENS else random.normal(size=place[2]).astype('float32')
    made.feed({place[0]: values})
    made.forward()
    given = torch.from_numpy(values)
    with torch.no_grad():
        assert np.allclose(made.output(), theirs(given.long() if place is TOKENS else given).logits.numpy(), rtol=1e-3, atol=1e-4)


def test_planner_reports(tmp_path):
    data = trireme.Dataset.open('synth', batch_size=8, shapes={'train_count': 64})
    plan = trireme.Planner(lambda image: ops.mlp(image, [64], 10), data, ranks=2, measure=False)
    assert plan.info['ranks'] == 2 and plan.info['step_seconds'] > 0
    assert plan.report() and 'data parallel' in str(plan) and plan._repr_svg_().startswith('<svg') and plan.dot().startswith('digraph')
    assert plan.plans()[0]['plan'] and plan.simulate(largest=4)
    plan.save(tmp_path / 'plan.txt')
    read = trireme.read_plan(tmp_path / 'plan.txt')
    assert read['ranks'] == 2 and 'mesh' in read['text']


def language_losses(**options):
    with trireme.Graph() as g:
        ids, targets = (trireme.input(n, 'int32', (2, 8)) for n in ('tokens', 'targets'))
        loss = ops.language_loss('gpt2', ids, targets, layers=2, width=16, heads=2, vocabulary=11, context=8, lora=options.pop('lora', None))
    made = trireme.Exec(g, loss=loss, optimizer='adam', seed=3, **options)
    losses = []
    for batch in np.random.default_rng(0).integers(0, 11, (4, 2, 8)).astype('int32'):
        made.feed(tokens=batch, targets=batch)
        made.forward_backward()
        losses.append(made.loss)
        made.update(0.01)
    return losses


def test_recomputation_and_adapters():
    adapters = {'rank': 2, 'alpha': 4, 'targets': 'all'}
    assert language_losses() == language_losses(recompute=True)
    assert language_losses(lora=adapters) == language_losses(lora=adapters, recompute=True) != language_losses()
    with pytest.raises(trireme.Error, match="no layer 'q_proj'"):
        language_losses(lora={'rank': 2, 'targets': 'q_proj'})


def test_segments_and_frozen_parameters():
    losses = []
    for segment in (False, True):
        with trireme.Graph() as g:
            x = trireme.input('x', 'float32', (4, 3))
            for i in range(3):
                with trireme.scope(f'layer{i}', segment=segment):
                    w = trireme.parameter('weight', (3, 3), 'linear')
                    x = ops.tanh(x @ (ops.freeze(w) if i == 1 else w))
            loss = (x * x).mean()
        made = trireme.Exec(g, loss=loss, recompute=segment)
        made.feed(x=np.linspace(-1, 1, 12, dtype='float32').reshape(4, 3))
        before = made.read('layer1.weight')
        losses.append([])
        for _ in range(3):
            made.forward_backward()
            losses[-1].append(made.loss)
            made.update(0.5)
        assert np.array_equal(before, made.read('layer1.weight'))
    assert losses[0] == losses[1] and losses[0][2] < losses[0][0]
