# SPDX-License-Identifier: Apache-2.0
# Written by tools/python_declarations.py from include/trireme/*.h; change the headers and run it.
"""Every operator of a graph. A value is a Node, a number or an array; each function returns a Node.

None stands for an absent node, and for the default of an option.
"""
from typing import Any, Optional, Sequence, Tuple, Union

from .graph import OUTPUT, Node, Value, operate

__all__ = [
    'exclude_from_decay', 'freeze', 'update_all_rows', 'conv2d', 'linear', 'linear_by_inputs', 'matmul',
    'batch_norm', 'layer_norm', 'rms_norm', 'attention', 'attention_packed', 'rotary', 'top_values',
    'expert_linear', 'mixture_of_experts', 'max_pool', 'avg_pool', 'global_avg_pool', 'embedding', 'bag_pool',
    'pair_dots', 'dropout', 'add', 'sub', 'mul', 'div', 'relu', 'sigmoid', 'tanh', 'gelu', 'silu', 'swiglu', 'exp',
    'log', 'sqrt', 'power', 'neg', 'scale', 'cast', 'reshape', 'transpose', 'concat', 'slice', 'pad', 'one_hot',
    'reduce_sum', 'reduce_mean', 'reduce_max', 'softmax', 'softmax_cross_entropy', 'linear_cross_entropy',
    'bce_with_logits', 'resnet', 'mlp', 'lenet', 'vit', 'language_build', 'language_loss', 'widedeep', 'deepfm',
    'dcnv2', 'dlrm', 'recommender_build', 'network_build', 'softmax_cross_entropy_expand',
]


def exclude_from_decay(parameter: Value) -> Node:
    """Excludes a parameter from weight decay (embeddings), as vectors are by default; the option
    decay_all includes it.
      returns  the parameter
    """
    return operate('trm_exclude_from_decay', parameter)


def freeze(parameter: Value) -> Node:
    """Freezes a parameter: training reads it and does not change it. It has neither a gradient nor
    optimiser state. Checkpoints contain it.
      returns  the parameter
    """
    return operate('trm_freeze', parameter)


def update_all_rows(parameter: Value) -> Node:
    """Lets the optimiser update all rows of an embedding table in each step, as PyTorch does. Without
    it only the rows that the batch looks up are updated, and their moments (lazy Adam).
      returns  the parameter
    """
    return operate('trm_update_all_rows', parameter)


def conv2d(x: Value, weight: Value, bias: Optional[Value] = None, *, stride: Any = None, dilation: Any = None,
           pad: Any = None, groups: Any = None) -> Node:
    """Adds a convolution: x [N, C, H, W], weight [O, C / groups, KH, KW], bias [O] -> [N, O, H', W'],
    H' = (H + pads - dilation (KH - 1) - 1) / stride + 1, rounded down.
      param    bias: None = none

    stride: height, width; 0 = 1
    dilation: height, width; 0 = 1
    pad: zeros added: top, bottom, left, right
    groups: 0 = 1
    """
    return operate('trm_conv2d', x, weight, bias, dict(stride=stride, dilation=dilation, pad=pad, groups=groups))


def linear(x: Value, weight: Value, bias: Optional[Value] = None) -> Node:
    """Adds a linear layer: x [..., I], weight [O, I], bias [O] -> x weight^T + bias [..., O].
      param    bias: None = none
    """
    return operate('trm_linear', x, weight, bias)


def linear_by_inputs(x: Value, weight: Value, bias: Optional[Value] = None) -> Node:
    """Adds a linear layer with weights [I, O], the layout of GPT-2's files: x [..., I], bias [O] ->
    [..., O].
      param    bias: None = none
    """
    return operate('trm_linear_by_inputs', x, weight, bias)


def matmul(a: Value, b: Value, transpose_a: bool = False, transpose_b: bool = False) -> Node:
    """Adds a matrix product: [..., M, K] * [..., K, N] -> [..., M, N], after the transposes of the last
    two dimensions. Leading dimensions are equal, or 1 or absent on one side, whose matrices are then
    used for all.
    """
    return operate('trm_matmul', a, b, transpose_a, transpose_b)


def batch_norm(x: Value, gamma: Value, beta: Value, running_mean: Value, running_variance: Value, *,
               epsilon: Any = None, momentum: Any = None) -> Node:
    """Adds a batch norm of x [N, C, ...] over all dimensions but the second. Training uses batch
    statistics and updates the running mean and the running unbiased variance; evaluation uses the
    running ones.
      param    gamma, beta: parameters [C]
               running_mean, running_variance: states [C]
      source   Ioffe and Szegedy 2015

    epsilon: added to the variance; 0 = 1e-5
    momentum: weight of the new value in the running statistics; 0 = 0.1
    """
    return operate('trm_batch_norm', x, gamma, beta, running_mean, running_variance,
                   dict(epsilon=epsilon, momentum=momentum))


def layer_norm(x: Value, gamma: Value, beta: Value, epsilon: float = 0) -> Node:
    """Adds a layer norm: scales each row of x [..., C] to mean 0 and variance 1, times gamma [C], plus
    beta [C].
      param    epsilon: 0 = 1e-5
      source   Ba et al. 2016
    """
    return operate('trm_layer_norm', x, gamma, beta, epsilon)


def rms_norm(x: Value, gamma: Value, epsilon: float = 0) -> Node:
    """Adds an RMS norm: divides each row of x [..., C] by the root of its mean square + epsilon, times
    gamma [C].
      param    epsilon: 0 = 1e-5
      source   Zhang and Sennrich 2019
    """
    return operate('trm_rms_norm', x, gamma, epsilon)


def attention(q: Value, k: Value, v: Value, mask: Optional[Value] = None, *, causal: Any = None,
              scale: Any = None) -> Node:
    """Adds attention, softmax(scale q k^T) v for each head: q [B, T, H, D], k and v [B, S, G, D] -> [B,
    T, H, D]. Query head h reads key head h / (H / G). Scores exist in tiles only, so memory grows
    with T + S, forward and backward. A query that may read no key gives 0. A causal attention with T
    > S breaks the graph.
      param    mask: int32 [B, S]: keys with 0 are not read; None = all are read
      source   Vaswani et al. 2017; Ainslie et al. 2023 (heads that share keys); Dao et al. 2022, Dao
               2023 (tiles)

    causal: query t of T reads keys 0 to t + S - T of S
    scale: factor of the scores; 0 = 1 / sqrt(D)
    """
    return operate('trm_attention', q, k, v, mask, dict(causal=causal, scale=scale))


def attention_packed(qkv: Value, heads: int, kv_heads: int = 0, mask: Optional[Value] = None, *, causal: Any = None,
                     scale: Any = None) -> Node:
    """Adds attention whose queries, keys and values lie side by side, as one linear layer makes them:
    qkv [B, T, (heads + 2 kv_heads) D] -> [B, T, heads D].
      param    kv_heads: 0 = heads
               mask: int32 [B, T], as in trm_attention

    causal: query t of T reads keys 0 to t + S - T of S
    scale: factor of the scores; 0 = 1 / sqrt(D)
    """
    return operate('trm_attention_packed', qkv, heads, kv_heads, mask, dict(causal=causal, scale=scale))


def rotary(x: Value, theta: float = 0, first_position: int = 0) -> Node:
    """Adds rotary positions: x [B, T, ..., D], D even. Rotates elements i and i + D/2 of position t by
    the angle t theta^(-2 i / D) (the half-split convention of Llama in Hugging Face's transformers).
      param    theta: 0 = 10000
               first_position: position of row 0
      source   Su et al. 2021
    """
    return operate('trm_rotary', x, theta, first_position)


def top_values(x: Value, k: int) -> Tuple[Node, Node]:
    """Adds the k largest numbers of each row, largest first: x [..., C] -> [..., k]. Of equal numbers
    the one with the lower column comes first.
      param    columns: int32 [..., k] columns of these numbers, written
    """
    return operate('trm_top_values', x, k, OUTPUT)


def expert_linear(x: Value, weights: Value, experts: Value) -> Node:
    """Adds a linear layer that applies to each row the weights of its expert: x [..., I], weights [E,
    O, I], experts int32 [...] -> [..., O]. An expert outside [0, E) ends the step with TRM_INVALID.
    """
    return operate('trm_expert_linear', x, weights, experts)


def mixture_of_experts(x: Value, *, router: Value, up: Value, gate: Any = None, down: Value, top_k: Any = None,
                       normalize: Any = None) -> Tuple[Node, Node]:
    """Adds a mixture of experts: x [..., C] -> [..., C], the sum of the outputs of each row's top_k
    experts, each times its share (softmax of the router). No row is dropped.
      param    load_balance: E * sum over experts of (share of choices) * (mean probability), to be
               added to the loss, written; NULL = not wanted
      source   Shazeer et al. 2017; Fedus et al. 2021 (load balance)

    router: [E, C]
    up: [E, H, C]
    gate: [E, H, C]: SwiGLU; None: GELU of `up`
    down: [E, C, H]
    top_k: experts of a row; 0 = 2
    normalize: the shares of the chosen experts are divided by their sum. Default: on
    """
    return operate('trm_mixture_of_experts', x,
                   dict(router=router, up=up, gate=gate, down=down, top_k=top_k, normalize=normalize), OUTPUT)


def max_pool(x: Value, *, kernel: Any = None, stride: Any = None, pad: Any = None, count_padding: Any = None) -> Node:
    """Adds a maximum pooling: [N, C, H, W] -> [N, C, H', W'], H' = (H + pads - kernel) / stride + 1,
    rounded down.
      param    options: `kernel` must be given

    kernel: height, width of the window
    stride: height, width; 0 = kernel
    pad: top, bottom, left, right, each below the kernel's; padding never is the maximum
    count_padding: average pooling divides by the whole window; false: by the elements inside the image
    """
    return operate('trm_max_pool', x, dict(kernel=kernel, stride=stride, pad=pad, count_padding=count_padding))


def avg_pool(x: Value, *, kernel: Any = None, stride: Any = None, pad: Any = None, count_padding: Any = None) -> Node:
    """Adds an average pooling: [N, C, H, W] -> [N, C, H', W'], as trm_max_pool.
      param    options: `kernel` must be given

    kernel: height, width of the window
    stride: height, width; 0 = kernel
    pad: top, bottom, left, right, each below the kernel's; padding never is the maximum
    count_padding: average pooling divides by the whole window; false: by the elements inside the image
    """
    return operate('trm_avg_pool', x, dict(kernel=kernel, stride=stride, pad=pad, count_padding=count_padding))


def global_avg_pool(x: Value) -> Node:
    """Adds the mean over each channel's image: [N, C, H, W] -> [N, C]."""
    return operate('trm_global_avg_pool', x)


def embedding(table: Value, ids: Value) -> Node:
    """Adds a lookup of rows: table [V, D], ids int32 or int64 of any shape -> [..., D]. An id outside
    [0, V) ends the step with TRM_INVALID. The gradient is sparse: it has only the rows that were
    read.
    """
    return operate('trm_embedding', table, ids)


def bag_pool(rows: Value, offsets: Value, weights: Optional[Value] = None, pooling: Any = 'sum') -> Node:
    """Adds a pooling of bags of rows: rows [K, D], offsets int [B + 1] -> [B, D]. Bag b is rows
    [offsets[b], offsets[b + 1]), each times its weight. An empty bag, or one whose weights are 0,
    gives 0.
      param    weights: float32 [K], which get no gradient; None = all 1

    pooling: sum, mean, sqrt_n
    """
    return operate('trm_bag_pool', rows, offsets, weights, pooling)


def pair_dots(x: Value) -> Node:
    """Adds the inner products of all pairs of rows: x [N, V, W] -> [N, V (V - 1) / 2], in the order (1,
    0), (2, 0), (2, 1), (3, 0) ...
    """
    return operate('trm_pair_dots', x)


def dropout(x: Value, rate: float) -> Node:
    """Adds dropout. Training: sets elements to zero with probability `rate` and multiplies the others
    by 1 / (1 - rate); the mask is a function of (seed, step, operator, element). Evaluation:
    identity.
      source   Srivastava et al. 2014
    """
    return operate('trm_dropout', x, rate)


def add(a: Value, b: Value) -> Node:
    """Adds a + b."""
    return operate('trm_add', a, b)


def sub(a: Value, b: Value) -> Node:
    """Adds a - b."""
    return operate('trm_sub', a, b)


def mul(a: Value, b: Value) -> Node:
    """Adds a * b."""
    return operate('trm_mul', a, b)


def div(a: Value, b: Value) -> Node:
    """Adds a / b."""
    return operate('trm_div', a, b)


def relu(x: Value) -> Node:
    """Adds max(x, 0)."""
    return operate('trm_relu', x)


def sigmoid(x: Value) -> Node:
    """Adds 1 / (1 + exp(-x))."""
    return operate('trm_sigmoid', x)


def tanh(x: Value) -> Node:
    """Adds tanh(x)."""
    return operate('trm_tanh', x)


def gelu(x: Value, form: Any = 'erf') -> Node:
    """Adds a GELU of x, of either form.
      source   Hendrycks and Gimpel 2016

    form: erf, tanh
    """
    return operate('trm_gelu', x, form)


def silu(x: Value) -> Node:
    """Adds x / (1 + exp(-x))."""
    return operate('trm_silu', x)


def swiglu(gate: Value, up: Value) -> Node:
    """Adds silu(gate) * up; both have one shape.
      source   Shazeer 2020
    """
    return operate('trm_swiglu', gate, up)


def exp(x: Value) -> Node:
    """Adds exp(x)."""
    return operate('trm_exp', x)


def log(x: Value) -> Node:
    """Adds the natural logarithm of x."""
    return operate('trm_log', x)


def sqrt(x: Value) -> Node:
    """Adds the square root of x."""
    return operate('trm_sqrt', x)


def power(x: Value, power: float) -> Node:
    """Adds x to a constant power. A whole power of at most 64 is made of products, so that negative
    numbers have it, too; 0.5 is the square root; another one is exp(power * log(x)), for positive
    numbers.
    """
    return operate('trm_power', x, power)


def neg(x: Value) -> Node:
    """Adds -x."""
    return operate('trm_neg', x)


def scale(x: Value, factor: float) -> Node:
    """Adds factor * x."""
    return operate('trm_scale', x, factor)


def cast(x: Value, dtype: Any) -> Node:
    """Adds a conversion of x to another type."""
    return operate('trm_cast', x, dtype)


def reshape(x: Value, shape: Sequence[int]) -> Node:
    """Adds a view of x with another shape of the same element count. One dimension may be -1: it is
    computed.
    """
    return operate('trm_reshape', x, shape)


def transpose(x: Value, order: Sequence[int]) -> Node:
    """Adds a permutation of dimensions: output dimension i is input dimension order[i].
      param    order: [rank of x]
    """
    return operate('trm_transpose', x, order)


def concat(nodes: Sequence[Value], axis: int) -> Node:
    """Adds the concatenation of `count` nodes, whose shapes are equal except along `axis`.
      param    axis: negative: from the end
    """
    return operate('trm_concat', nodes, axis)


def slice(x: Value, begin: Sequence[int], size: Sequence[int]) -> Node:
    """Adds elements [begin, begin + size) of each dimension.
      param    begin, size: [rank of x]
    """
    return operate('trm_slice', x, begin, size)


def pad(x: Value, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Node:
    """Adds x with before[i] and after[i] elements of `value` around dimension i.
      param    before, after: [rank of x]
    """
    return operate('trm_pad', x, before, after, value)


def one_hot(labels: Value, classes: int, on: float = 1.0, off: float = 0.0) -> Node:
    """Adds one-hot rows: int labels [...] -> float32 [..., classes], `on` at the label and `off`
    elsewhere.
    """
    return operate('trm_one_hot', labels, classes, on, off)


def reduce_sum(x: Value, axes: Union[int, Sequence[int], None] = None, keep_dims: bool = False) -> Node:
    """Adds the sum over `count` axes.
      param    axes: negative: from the end; count 0: all axes
               keep_dims: reduced dimensions stay, with size 1
    """
    return operate('trm_reduce_sum', x, axes, keep_dims)


def reduce_mean(x: Value, axes: Union[int, Sequence[int], None] = None, keep_dims: bool = False) -> Node:
    """Adds the mean over `count` axes; parameters as in trm_reduce_sum."""
    return operate('trm_reduce_mean', x, axes, keep_dims)


def reduce_max(x: Value, axes: Union[int, Sequence[int], None] = None, keep_dims: bool = False) -> Node:
    """Adds the maximum over `count` axes; parameters as in trm_reduce_sum."""
    return operate('trm_reduce_max', x, axes, keep_dims)


def softmax(x: Value) -> Node:
    """Adds softmax over the last dimension."""
    return operate('trm_softmax', x)


def softmax_cross_entropy(logits: Value, labels: Value, *, label_smoothing: Any = None, use_ignore_index: Any = None,
                          ignore_index: Any = None, bias: Any = None, counted_share: Any = None) -> Node:
    """Adds the mean over rows of -sum(target * log softmax(logits)): logits [N, K], labels int32 [N] ->
    scalar. A label outside [0, K) that is not ignored ends the step with TRM_INVALID.

    label_smoothing: weight of the uniform distribution in the target, 0 to 1
    use_ignore_index: rows whose label is ignore_index do not count
    ignore_index: such a label; the rows are neither in the sum nor in the mean
    bias: trm_linear_cross_entropy: [V], added to the logits; None = none
    counted_share: trm_linear_cross_entropy: share of the rows that count, where it is known: memory is taken for as many. More may count, which takes longer. 0 = all
    """
    return operate('trm_softmax_cross_entropy', logits, labels,
                   dict(label_smoothing=label_smoothing, use_ignore_index=use_ignore_index, ignore_index=ignore_index, bias=bias, counted_share=counted_share))


def linear_cross_entropy(x: Value, weight: Value, labels: Value, *, label_smoothing: Any = None,
                         use_ignore_index: Any = None, ignore_index: Any = None, bias: Any = None,
                         counted_share: Any = None) -> Node:
    """Adds the softmax cross-entropy of the logits x weight^T without keeping them: x [..., C], weight
    [V, C], labels int32 [...] -> scalar. Logits and their gradients are computed for some rows at a
    time, so memory does not grow with rows times V. In a graph for evaluation of a trm_model, the
    largest logits give its accuracy. A label outside [0, V) that is not ignored ends
    the step with TRM_INVALID.
      param    options: as in trm_softmax_cross_entropy, without label smoothing

    label_smoothing: weight of the uniform distribution in the target, 0 to 1
    use_ignore_index: rows whose label is ignore_index do not count
    ignore_index: such a label; the rows are neither in the sum nor in the mean
    bias: trm_linear_cross_entropy: [V], added to the logits; None = none
    counted_share: trm_linear_cross_entropy: share of the rows that count, where it is known: memory is taken for as many. More may count, which takes longer. 0 = all
    """
    return operate('trm_linear_cross_entropy', x, weight, labels,
                   dict(label_smoothing=label_smoothing, use_ignore_index=use_ignore_index, ignore_index=ignore_index, bias=bias, counted_share=counted_share))


def bce_with_logits(logits: Value, targets: Value) -> Node:
    """Adds the mean binary cross-entropy of logits z and targets t of equal shapes, max(z, 0) - z t +
    log(1 + exp(-|z|)) -> scalar.
    """
    return operate('trm_bce_with_logits', logits, targets)


def resnet(image: Value, *, depth: Any = None, classes: Any = None, stem: Any = None,
           zero_init_residual: Any = None) -> Node:
    """Adds a ResNet in the "v1.5" form (stride on the 3x3 of a bottleneck), as torchvision's: image [N,
    3, H, W] -> logits [N, classes].
      source   He et al. 2015

    depth: 18, 34, 50, 101 or 152
    classes: 0 = 1000
    stem: the first layers
    zero_init_residual: the last norm of each block has weight 0 at the beginning
    """
    return operate('trm_resnet', image,
                   dict(depth=depth, classes=classes, stem=stem, zero_init_residual=zero_init_residual))


def mlp(x: Value, hidden: Sequence[int], classes: int) -> Node:
    """Adds linear layers with ReLU of the widths hidden[count], then one of `classes` outputs: x [N,
    ...], flattened -> logits [N, classes]. Names: "fc0.weight", "fc0.bias", ...
    """
    return operate('trm_mlp', x, hidden, classes)


def lenet(image: Value, classes: int) -> Node:
    """Adds LeNet in its usual modern form, conv 5x5 (6), pool, conv 5x5 (16), pool, 120, 84: image [N,
    C, H, W], H and W at least 12 -> logits [N, classes].
      source   LeCun et al. 1998
    """
    return operate('trm_lenet', image, classes)


def vit(image: Value, classes: int, *, layers: Any = None, width: Any = None, heads: Any = None, hidden: Any = None,
        patch: Any = None, dropout: Any = None, epsilon: Any = None, lora: Any = None) -> Node:
    """Adds a vision transformer: image [N, C, H, W] -> logits [N, classes]. Names, shapes and initial
    values of the parameters are those of transformers' ViTForImageClassification,
    "vit.embeddings.cls_token", "vit.encoder.layer.0.attention.attention.query.weight" ...
      source   Dosovitskiy et al. 2020

    layers: 0 = 12
    width: values of a patch; 0 = 768; a multiple of heads
    heads: 0 = 12
    hidden: width of the layer after attention; 0 = 4 width
    patch: height and width of a patch, which divide those of the image; 0 = 16
    dropout: rate for embeddings and for the output of each layer; 0 = none
    epsilon: of norms; 0 = 1e-12
    lora: adapters, which alone are trained
    """
    return operate('trm_vit', image, classes,
                   dict(layers=layers, width=width, heads=heads, hidden=hidden, patch=patch, dropout=dropout, epsilon=epsilon, lora=lora))


def language_build(model: str, ids: Value, *, layers: Any = None, width: Any = None, heads: Any = None,
                   kv_heads: Any = None, hidden: Any = None, context: Any = None, vocabulary: Any = None,
                   dropout: Any = None, epsilon: Any = None, rotary_theta: Any = None, untied: Any = None,
                   lazy_embedding: Any = None, experts: Any = None, top_experts: Any = None, balance: Any = None,
                   lora: Any = None, mask: Any = None, masking: Any = None) -> Node:
    """Adds the language model of this name: token ids int32 or int64 [B, T], T at most the context ->
    logits [B, T, vocabulary]. Names, shapes and initial values of the parameters are those of
    transformers: gpt2 "wte.weight", "wpe.weight", "h.0.attn.c_attn.weight" [width, 3 width] ...,
    llama "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight" ... moe is gpt2 with
    experts in place of the layers after attention (trm_mixture_of_experts),
    "h.0.mlp.router.weight", "h.0.mlp.experts.up", "h.0.mlp.experts.down". The output layer uses the
    token embedding unless the options say otherwise. For another name the graph keeps an error that
    lists the names.
      source   Radford et al. 2019 (gpt2); Touvron et al. 2023 (llama); Fedus et al. 2021 (moe);
               Devlin et al. 2018 (bert)

    layers: 0 = 12
    width: values of a position; 0 = 768; a multiple of heads
    heads: 0 = 12; a multiple of kv_heads
    kv_heads: heads of keys and values; 0 = heads
    hidden: width of the layer after attention; 0 = 4 width, llama 8/3 width
    context: most positions; 0 = 1024, bert 512
    vocabulary: tokens; 0 = 50257, bert 30522
    dropout: rate for embeddings and for the output of each layer; 0 = none
    epsilon: of norms; 0 = 1e-5, bert 1e-12
    rotary_theta: llama: base of the angles; 0 = 10000
    untied: llama: the output layer has weights of its own, lm_head.weight
    lazy_embedding: llama, untied: of the token embedding only the rows of the batch are updated, as of other tables (lazy Adam); false: all, as PyTorch does
    experts: moe: of each block; 0 = 8
    top_experts: moe: that compute a token; 0 = 2
    balance: moe: factor of the mean load balance in the training loss; 0 = 0.01
    lora: adapters, which alone are trained
    mask: bert: int32 [B, T]: tokens with 0 are not read as keys; None = all are
    masking: bert: share of a sample's tokens that have targets, where it is known (trm_text_options.masking): the loss takes memory for as many. 0 = all may have
    """
    return operate('trm_language_build', model, ids,
                   dict(layers=layers, width=width, heads=heads, kv_heads=kv_heads, hidden=hidden, context=context, vocabulary=vocabulary, dropout=dropout, epsilon=epsilon, rotary_theta=rotary_theta, untied=untied, lazy_embedding=lazy_embedding, experts=experts, top_experts=top_experts, balance=balance, lora=lora, mask=mask, masking=masking))


def language_loss(model: str, ids: Value, targets: Value, *, layers: Any = None, width: Any = None, heads: Any = None,
                  kv_heads: Any = None, hidden: Any = None, context: Any = None, vocabulary: Any = None,
                  dropout: Any = None, epsilon: Any = None, rotary_theta: Any = None, untied: Any = None,
                  lazy_embedding: Any = None, experts: Any = None, top_experts: Any = None, balance: Any = None,
                  lora: Any = None, mask: Any = None, masking: Any = None) -> Node:
    """Adds the language model with its mean cross-entropy, without keeping the logits
    (trm_linear_cross_entropy): ids as in trm_language_build -> scalar. In a graph for training, moe
    adds its load balance.
      param    targets: int32 [B, T]: the ids of the next positions, of bert those of masked ones;
               -100 does not count

    layers: 0 = 12
    width: values of a position; 0 = 768; a multiple of heads
    heads: 0 = 12; a multiple of kv_heads
    kv_heads: heads of keys and values; 0 = heads
    hidden: width of the layer after attention; 0 = 4 width, llama 8/3 width
    context: most positions; 0 = 1024, bert 512
    vocabulary: tokens; 0 = 50257, bert 30522
    dropout: rate for embeddings and for the output of each layer; 0 = none
    epsilon: of norms; 0 = 1e-5, bert 1e-12
    rotary_theta: llama: base of the angles; 0 = 10000
    untied: llama: the output layer has weights of its own, lm_head.weight
    lazy_embedding: llama, untied: of the token embedding only the rows of the batch are updated, as of other tables (lazy Adam); false: all, as PyTorch does
    experts: moe: of each block; 0 = 8
    top_experts: moe: that compute a token; 0 = 2
    balance: moe: factor of the mean load balance in the training loss; 0 = 0.01
    lora: adapters, which alone are trained
    mask: bert: int32 [B, T]: tokens with 0 are not read as keys; None = all are
    masking: bert: share of a sample's tokens that have targets, where it is known (trm_text_options.masking): the loss takes memory for as many. 0 = all may have
    """
    return operate('trm_language_loss', model, ids, targets,
                   dict(layers=layers, width=width, heads=heads, kv_heads=kv_heads, hidden=hidden, context=context, vocabulary=vocabulary, dropout=dropout, epsilon=epsilon, rotary_theta=rotary_theta, untied=untied, lazy_embedding=lazy_embedding, experts=experts, top_experts=top_experts, balance=balance, lora=lora, mask=mask, masking=masking))


def widedeep(*, keys: Value, offsets: Any = None, values: Any = None, dense: Any = None, batch: Any = None,
             rows: Any = None, tables: Any = None, width: Any = None, pooling: Any = None, hidden: Any = None,
             bottom: Any = None, cross_layers: Any = None, cross_rank: Any = None, stacked: Any = None,
             wide_dense: Any = None, table_init: Any = None, layer_init: Any = None) -> Node:
    """Adds Wide&Deep: a linear part on keys and dense inputs plus a deep network on the embeddings ->
    logits [N]. Default of hidden: 256, 128.
      source   Cheng et al. 2016

    keys: int64 [N, F]; with bags [K]
    offsets: bags: int64 [N F + 1], keys of bag b begin at offsets[b]; else None
    values: bags: float32 [K], a weight for each key; None: all 1
    dense: float32 [N, D], or None
    batch: N; needed with bags
    rows: rows of the table, the keys of all fields; must be given here or in each of `tables`
    tables: [tables_count], borrowed while the graph is built; NULL = one table of all fields. Keys of each field then begin at 0 (trm_click_options without shared_table). Not with bags
    width: values of a row; 0 = 16
    pooling: of the rows of a bag
    hidden: widths of the ReLU layers before the logit; NULL = the model's
    bottom: DLRM: widths of the layers of the dense inputs, before the one of `width`
    cross_layers: DCNv2; 0 = 3
    cross_rank: DCNv2: matrices U V^T of this rank; 0 = full matrices
    stacked: DCNv2: the deep part reads the output of the cross part; false: it stands beside it
    wide_dense: Wide&Deep, DeepFM: dense inputs go to the wide part, too. Default: on
    table_init: initial values of tables; 0 = TRM_INIT_NORMAL_001
    layer_init: initial values of layers' weights; 0 = Glorot's; biases begin at 0
    """
    return operate('trm_widedeep', dict(keys=keys, offsets=offsets, values=values, dense=dense, batch=batch),
                   dict(rows=rows, tables=tables, width=width, pooling=pooling, hidden=hidden, bottom=bottom, cross_layers=cross_layers, cross_rank=cross_rank, stacked=stacked, wide_dense=wide_dense, table_init=table_init, layer_init=layer_init))


def deepfm(*, keys: Value, offsets: Any = None, values: Any = None, dense: Any = None, batch: Any = None,
           rows: Any = None, tables: Any = None, width: Any = None, pooling: Any = None, hidden: Any = None,
           bottom: Any = None, cross_layers: Any = None, cross_rank: Any = None, stacked: Any = None,
           wide_dense: Any = None, table_init: Any = None, layer_init: Any = None) -> Node:
    """Adds DeepFM: a linear part, a factorisation machine and a deep network that share the embeddings
    -> logits [N]. Default of hidden: 400, 400, 400.
      source   Guo et al. 2017

    keys: int64 [N, F]; with bags [K]
    offsets: bags: int64 [N F + 1], keys of bag b begin at offsets[b]; else None
    values: bags: float32 [K], a weight for each key; None: all 1
    dense: float32 [N, D], or None
    batch: N; needed with bags
    rows: rows of the table, the keys of all fields; must be given here or in each of `tables`
    tables: [tables_count], borrowed while the graph is built; NULL = one table of all fields. Keys of each field then begin at 0 (trm_click_options without shared_table). Not with bags
    width: values of a row; 0 = 16
    pooling: of the rows of a bag
    hidden: widths of the ReLU layers before the logit; NULL = the model's
    bottom: DLRM: widths of the layers of the dense inputs, before the one of `width`
    cross_layers: DCNv2; 0 = 3
    cross_rank: DCNv2: matrices U V^T of this rank; 0 = full matrices
    stacked: DCNv2: the deep part reads the output of the cross part; false: it stands beside it
    wide_dense: Wide&Deep, DeepFM: dense inputs go to the wide part, too. Default: on
    table_init: initial values of tables; 0 = TRM_INIT_NORMAL_001
    layer_init: initial values of layers' weights; 0 = Glorot's; biases begin at 0
    """
    return operate('trm_deepfm', dict(keys=keys, offsets=offsets, values=values, dense=dense, batch=batch),
                   dict(rows=rows, tables=tables, width=width, pooling=pooling, hidden=hidden, bottom=bottom, cross_layers=cross_layers, cross_rank=cross_rank, stacked=stacked, wide_dense=wide_dense, table_init=table_init, layer_init=layer_init))


def dcnv2(*, keys: Value, offsets: Any = None, values: Any = None, dense: Any = None, batch: Any = None,
          rows: Any = None, tables: Any = None, width: Any = None, pooling: Any = None, hidden: Any = None,
          bottom: Any = None, cross_layers: Any = None, cross_rank: Any = None, stacked: Any = None,
          wide_dense: Any = None, table_init: Any = None, layer_init: Any = None) -> Node:
    """Adds DCN-v2: cross layers x(l+1) = x0 * (W x(l) + b) + x(l) on embeddings and dense inputs, and a
    deep network beside or after them -> logits [N]. Default of hidden: 400, 400, 400.
      source   Wang et al. 2021

    keys: int64 [N, F]; with bags [K]
    offsets: bags: int64 [N F + 1], keys of bag b begin at offsets[b]; else None
    values: bags: float32 [K], a weight for each key; None: all 1
    dense: float32 [N, D], or None
    batch: N; needed with bags
    rows: rows of the table, the keys of all fields; must be given here or in each of `tables`
    tables: [tables_count], borrowed while the graph is built; NULL = one table of all fields. Keys of each field then begin at 0 (trm_click_options without shared_table). Not with bags
    width: values of a row; 0 = 16
    pooling: of the rows of a bag
    hidden: widths of the ReLU layers before the logit; NULL = the model's
    bottom: DLRM: widths of the layers of the dense inputs, before the one of `width`
    cross_layers: DCNv2; 0 = 3
    cross_rank: DCNv2: matrices U V^T of this rank; 0 = full matrices
    stacked: DCNv2: the deep part reads the output of the cross part; false: it stands beside it
    wide_dense: Wide&Deep, DeepFM: dense inputs go to the wide part, too. Default: on
    table_init: initial values of tables; 0 = TRM_INIT_NORMAL_001
    layer_init: initial values of layers' weights; 0 = Glorot's; biases begin at 0
    """
    return operate('trm_dcnv2', dict(keys=keys, offsets=offsets, values=values, dense=dense, batch=batch),
                   dict(rows=rows, tables=tables, width=width, pooling=pooling, hidden=hidden, bottom=bottom, cross_layers=cross_layers, cross_rank=cross_rank, stacked=stacked, wide_dense=wide_dense, table_init=table_init, layer_init=layer_init))


def dlrm(*, keys: Value, offsets: Any = None, values: Any = None, dense: Any = None, batch: Any = None,
         rows: Any = None, tables: Any = None, width: Any = None, pooling: Any = None, hidden: Any = None,
         bottom: Any = None, cross_layers: Any = None, cross_rank: Any = None, stacked: Any = None,
         wide_dense: Any = None, table_init: Any = None, layer_init: Any = None) -> Node:
    """Adds DLRM: bottom layers turn the dense inputs into a row of `width`; the inner products of all
    pairs of rows go through the top layers -> logits [N]. Defaults: bottom 512, 256, 64; hidden
    (top) 512, 256.
      source   Naumov et al. 2019

    keys: int64 [N, F]; with bags [K]
    offsets: bags: int64 [N F + 1], keys of bag b begin at offsets[b]; else None
    values: bags: float32 [K], a weight for each key; None: all 1
    dense: float32 [N, D], or None
    batch: N; needed with bags
    rows: rows of the table, the keys of all fields; must be given here or in each of `tables`
    tables: [tables_count], borrowed while the graph is built; NULL = one table of all fields. Keys of each field then begin at 0 (trm_click_options without shared_table). Not with bags
    width: values of a row; 0 = 16
    pooling: of the rows of a bag
    hidden: widths of the ReLU layers before the logit; NULL = the model's
    bottom: DLRM: widths of the layers of the dense inputs, before the one of `width`
    cross_layers: DCNv2; 0 = 3
    cross_rank: DCNv2: matrices U V^T of this rank; 0 = full matrices
    stacked: DCNv2: the deep part reads the output of the cross part; false: it stands beside it
    wide_dense: Wide&Deep, DeepFM: dense inputs go to the wide part, too. Default: on
    table_init: initial values of tables; 0 = TRM_INIT_NORMAL_001
    layer_init: initial values of layers' weights; 0 = Glorot's; biases begin at 0
    """
    return operate('trm_dlrm', dict(keys=keys, offsets=offsets, values=values, dense=dense, batch=batch),
                   dict(rows=rows, tables=tables, width=width, pooling=pooling, hidden=hidden, bottom=bottom, cross_layers=cross_layers, cross_rank=cross_rank, stacked=stacked, wide_dense=wide_dense, table_init=table_init, layer_init=layer_init))


def recommender_build(name: str, *, keys: Value, offsets: Any = None, values: Any = None, dense: Any = None,
                      batch: Any = None, rows: Any = None, tables: Any = None, width: Any = None, pooling: Any = None,
                      hidden: Any = None, bottom: Any = None, cross_layers: Any = None, cross_rank: Any = None,
                      stacked: Any = None, wide_dense: Any = None, table_init: Any = None,
                      layer_init: Any = None) -> Node:
    """Adds the recommender of this name: widedeep, deepfm, dcnv2 or dlrm. For another name the graph
    keeps an error that lists the names.

    keys: int64 [N, F]; with bags [K]
    offsets: bags: int64 [N F + 1], keys of bag b begin at offsets[b]; else None
    values: bags: float32 [K], a weight for each key; None: all 1
    dense: float32 [N, D], or None
    batch: N; needed with bags
    rows: rows of the table, the keys of all fields; must be given here or in each of `tables`
    tables: [tables_count], borrowed while the graph is built; NULL = one table of all fields. Keys of each field then begin at 0 (trm_click_options without shared_table). Not with bags
    width: values of a row; 0 = 16
    pooling: of the rows of a bag
    hidden: widths of the ReLU layers before the logit; NULL = the model's
    bottom: DLRM: widths of the layers of the dense inputs, before the one of `width`
    cross_layers: DCNv2; 0 = 3
    cross_rank: DCNv2: matrices U V^T of this rank; 0 = full matrices
    stacked: DCNv2: the deep part reads the output of the cross part; false: it stands beside it
    wide_dense: Wide&Deep, DeepFM: dense inputs go to the wide part, too. Default: on
    table_init: initial values of tables; 0 = TRM_INIT_NORMAL_001
    layer_init: initial values of layers' weights; 0 = Glorot's; biases begin at 0
    """
    return operate('trm_recommender_build', name,
                   dict(keys=keys, offsets=offsets, values=values, dense=dense, batch=batch),
                   dict(rows=rows, tables=tables, width=width, pooling=pooling, hidden=hidden, bottom=bottom, cross_layers=cross_layers, cross_rank=cross_rank, stacked=stacked, wide_dense=wide_dense, table_init=table_init, layer_init=layer_init))


def network_build(name: str, image: Value, *, classes: Any = None, stem: Any = None, zero_init_residual: Any = None,
                  vit: Any = None) -> Node:
    """Adds the network of this name, as the command line has it: resnet18, resnet34, resnet50,
    resnet101, resnet152, mlp (hidden 512, 256), lenet or vit. For another name the graph keeps an
    error that lists the names.
      param    image: [N, C, H, W]

    classes: 0 = 10
    stem: ResNets: the first layers
    zero_init_residual: ResNets, as in trm_resnet_options
    vit: vit: its options
    """
    return operate('trm_network_build', name, image,
                   dict(classes=classes, stem=stem, zero_init_residual=zero_init_residual, vit=vit))


def softmax_cross_entropy_expand(logits: Value, labels: Value) -> Node:
    """Adds the softmax cross-entropy as small operators (max, sub, exp, sum, div, one-hot, log, mul,
    sum, mul, mean): logits [N, K], labels int32 [N] -> scalar. Value and gradient agree with
    trm_softmax_cross_entropy to 1e-6 while no probability underflows.
      level    expert
    """
    return operate('trm_softmax_cross_entropy_expand', logits, labels)
