/* SPDX-License-Identifier: Apache-2.0 */
/* Every operator that has a rule, with sizes, strides, kernels, padding and axes drawn at random,
 * between two elementwise operators and cut by letters drawn at random, against one device
 * (tests/partition_trial.h). Inputs are parameters, and the loss weighs the operator's output by
 * another: its gradient is the output itself, so outputs, gradients and what follows from them in
 * three steps are all compared, tensor by tensor; by turns to rounding, and bit for bit in strict
 * determinism. TRIREME_SHARD_TRIALS=20 tries that many of each operator. */
#include "partition_trial.h"

#include "base/checked.h"

/* ---- drawing --------------------------------------------------------------------------------- */

typedef struct dice {
    uint64_t variant, rolls;
} dice;

static int64_t roll_dice(dice *d, int64_t from, int64_t to) {
    return pick_number(d->variant, d->rolls++, from, to);
}

static trm_node add_values(trm_graph *g, const char *name, trm_shape shape) {
    return trm_parameter(g, name, shape, TRM_INIT_LINEAR);
}

/* A tensor of another operator, cut in its own way. */
static trm_node add_made(trm_graph *g, const char *name, trm_shape shape) {
    return trm_tanh(g, add_values(g, name, shape));
}

static trm_shape some_shape(dice *d, int32_t rank) {
    trm_shape s = {.rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        s.dim[i] = roll_dice(d, 3, 9);
    }
    return s;
}

static trm_node weigh_output(trm_graph *g, trm_node y) {
    return trm_reduce_mean(
        g, trm_mul(g, y, add_values(g, "weights_of_the_loss", trm_node_shape(g, y))), NULL, 0,
        false);
}

static trm_node add_labels(trm_graph *g, int64_t count) {
    return trm_input(g, "label", TRM_INT32, trm_shape_of(count));
}

/* ---- operators ------------------------------------------------------------------------------- */

static trm_shape an_image(dice *d) {
    return trm_shape_of(roll_dice(d, 3, 6), 2 * roll_dice(d, 2, 4), roll_dice(d, 9, 17),
                        roll_dice(d, 9, 17));
}

static trm_node add_convolution(trm_graph *g, dice *d) {
    trm_shape x = an_image(d);
    trm_conv_options o = {.groups = roll_dice(d, 0, 2) == 0 ? 2 : 1};
    int64_t kernel[2], out = 2 * roll_dice(d, 2, 5);
    for (int i = 0; i < 2; i++) {
        kernel[i] = roll_dice(d, 1, 7);
        o.stride[i] = roll_dice(d, 1, 3);
        o.dilation[i] = kernel[i] < 4 ? roll_dice(d, 1, 2) : 1;
        o.pad[2 * i] = roll_dice(d, 0, kernel[i] - 1);
        o.pad[2 * i + 1] = roll_dice(d, 0, kernel[i] - 1);
    }
    trm_node bias = roll_dice(d, 0, 1) ? add_values(g, "bias", trm_shape_of(out)) : TRM_NO_NODE;
    return weigh_output(
        g, trm_conv2d(g, add_made(g, "x", x),
                      add_values(g, "filter",
                                 trm_shape_of(out, x.dim[1] / o.groups, kernel[0], kernel[1])),
                      bias, &o));
}

static trm_node add_pooling(trm_graph *g, dice *d) {
    trm_pool_options o = {.count_padding = roll_dice(d, 0, 1)};
    bool largest = roll_dice(d, 0, 1);
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = roll_dice(d, 1, 5);
        o.stride[i] = roll_dice(d, 1, 3);
        o.pad[2 * i] = roll_dice(d, 0, o.kernel[i] / 2);
        o.pad[2 * i + 1] = roll_dice(d, 0, o.kernel[i] / 2);
    }
    trm_node x = add_made(g, "x", an_image(d));
    return weigh_output(g, largest ? trm_max_pool(g, x, &o) : trm_avg_pool(g, x, &o));
}

static trm_node global_pooling(trm_graph *g, dice *d) {
    return weigh_output(g, trm_global_avg_pool(g, add_made(g, "x", an_image(d))));
}

/* Alone, before a ReLU, after an addition and before a ReLU: the last two are fused. */
static trm_node add_normalization(trm_graph *g, dice *d) {
    trm_shape s = roll_dice(d, 0, 2) ? an_image(d) : some_shape(d, 2);
    trm_shape c = trm_shape_of(s.dim[1]);
    int64_t form = roll_dice(d, 0, 2);
    trm_node y = trm_batch_norm(g, add_made(g, "x", s), trm_parameter(g, "gamma", c, TRM_INIT_ONE),
                                trm_parameter(g, "beta", c, TRM_INIT_NORMAL_001),
                                trm_state(g, "mean", TRM_FLOAT32, c, TRM_INIT_ZERO),
                                trm_state(g, "variance", TRM_FLOAT32, c, TRM_INIT_ONE), NULL);
    y = form == 2 ? trm_add(g, y, add_made(g, "side", s)) : y;
    return weigh_output(g, form > 0 ? trm_relu(g, y) : y);
}

static trm_node add_linear(trm_graph *g, dice *d) {
    trm_shape s = some_shape(d, (int32_t)roll_dice(d, 2, 3));
    int64_t out = roll_dice(d, 3, 9);
    trm_node y = trm_linear(
        g, add_made(g, "x", s), add_values(g, "matrix", trm_shape_of(out, s.dim[s.rank - 1])),
        roll_dice(d, 0, 1) ? add_values(g, "bias", trm_shape_of(out)) : TRM_NO_NODE);
    return weigh_output(g, roll_dice(d, 0, 1) ? trm_relu(g, y) : y);
}

static trm_node add_product(trm_graph *g, dice *d) {
    int64_t n = roll_dice(d, 3, 9), k = roll_dice(d, 3, 9), c = roll_dice(d, 3, 9),
            batch = roll_dice(d, 3, 5);
    bool left = roll_dice(d, 0, 1), right = roll_dice(d, 0, 1), batched = roll_dice(d, 0, 1);
    trm_shape a = left ? trm_shape_of(c, n) : trm_shape_of(n, c),
              b = right ? trm_shape_of(k, c) : trm_shape_of(c, k);
    if (batched) {
        a = trm_shape_of(batch, a.dim[0], a.dim[1]);
        b = trm_shape_of(batch, b.dim[0], b.dim[1]);
    }
    return weigh_output(g, trm_matmul(g, add_made(g, "a", a), add_made(g, "b", b), left, right));
}

static trm_node product_of_any_rank(trm_graph *g, dice *d) {
    int64_t n = roll_dice(d, 3, 9), k = roll_dice(d, 3, 9), c = roll_dice(d, 3, 9),
            b = roll_dice(d, 2, 4);
    trm_node x = add_made(g, "x", trm_shape_of(b, 3, n, c));
    if (roll_dice(d, 0, 1)) {
        return weigh_output(g,
                            trm_linear_by_inputs(g, x, add_values(g, "matrix", trm_shape_of(c, k)),
                                                 add_values(g, "bias", trm_shape_of(k))));
    }
    trm_shape right = roll_dice(d, 0, 1) ? trm_shape_of(3, c, k) : trm_shape_of(b, 3, c, k);
    return weigh_output(g, trm_matmul(g, x, add_made(g, "y", right), false, false));
}

static trm_node row_norm(trm_graph *g, dice *d) {
    trm_shape s = some_shape(d, (int32_t)roll_dice(d, 2, 3)), c = trm_shape_of(s.dim[s.rank - 1]);
    trm_node x = add_made(g, "x", s), gamma = add_values(g, "gamma", c);
    return weigh_output(g, roll_dice(d, 0, 1)
                               ? trm_layer_norm(g, x, gamma, add_values(g, "beta", c), 0)
                               : trm_rms_norm(g, x, gamma, 0));
}

static trm_node add_attention(trm_graph *g, dice *d) {
    int64_t batch = roll_dice(d, 2, 4), queries = roll_dice(d, 3, 9),
            keys = queries + roll_dice(d, 0, 3), groups = roll_dice(d, 1, 4),
            heads = groups * roll_dice(d, 1, 2), width = 2 * roll_dice(d, 1, 4);
    const trm_attention_options o = {.causal = roll_dice(d, 0, 1)};
    if (roll_dice(d, 0, 2) == 0) {
        trm_node qkv = add_made(g, "x", trm_shape_of(batch, queries, (heads + 2 * groups) * width));
        return weigh_output(g, trm_attention_packed(g, qkv, heads, groups, TRM_NO_NODE, &o));
    }
    trm_shape kv = trm_shape_of(batch, keys, groups, width);
    trm_node mask = roll_dice(d, 0, 1) ? trm_input(g, "ids", TRM_INT32, trm_shape_of(batch, keys))
                                       : TRM_NO_NODE;
    trm_node q = trm_rotary(g, add_made(g, "x", trm_shape_of(batch, queries, heads, width)), 0, 2);
    return weigh_output(g,
                        trm_attention(g, q, add_made(g, "y", kv), add_made(g, "z", kv), mask, &o));
}

static trm_node add_mixture(trm_graph *g, dice *d) {
    int64_t count = roll_dice(d, 3, 6), c = roll_dice(d, 3, 6), h = roll_dice(d, 3, 6);
    trm_node balance, x = add_made(g, "x", trm_shape_of(roll_dice(d, 2, 3), roll_dice(d, 3, 9), c));
    trm_experts e = {.router = add_values(g, "router", trm_shape_of(count, c)),
                     .up = add_values(g, "up", trm_shape_of(count, h, c)),
                     .down = add_values(g, "down", trm_shape_of(count, c, h)),
                     .top_k = roll_dice(d, 1, 2)};
    if (roll_dice(d, 0, 1)) {
        e.gate = add_values(g, "gate", trm_shape_of(count, h, c));
    }
    trm_node y = trm_mixture_of_experts(g, x, &e, &balance);
    return trm_add(g, weigh_output(g, y), balance);
}

static trm_node output_loss(trm_graph *g, dice *d) {
    int64_t n = roll_dice(d, 3, 9), c = roll_dice(d, 3, 9);
    trm_xent_options o = {.use_ignore_index = roll_dice(d, 0, 1),
                          .ignore_index = (int32_t)roll_dice(d, 0, 7)};
    bool rows = roll_dice(d, 0, 1);
    int64_t classes = roll_dice(d, 8, 13);
    trm_node x = add_made(g, "x", rows ? trm_shape_of(n, c) : trm_shape_of(2, n, c));
    trm_node t = trm_input(g, "label", TRM_INT32, rows ? trm_shape_of(n) : trm_shape_of(2, n));
    o.bias = roll_dice(d, 0, 1) ? add_values(g, "bias", trm_shape_of(classes)) : TRM_NO_NODE;
    o.counted_share = (double)roll_dice(d, 0, 2) / 4; /* all, or fewer than do: more chunks */
    return trm_linear_cross_entropy(g, trm_scale(g, x, 3),
                                    add_values(g, "matrix", trm_shape_of(classes, c)), t, &o);
}

/* With broadcasting: of leading dimensions, of dimensions of one. */
static trm_node two_by_two(trm_graph *g, dice *d) {
    trm_shape s = some_shape(d, (int32_t)roll_dice(d, 2, 4)), t = s;
    if (roll_dice(d, 0, 1)) {
        t.rank--;
        memmove(t.dim, t.dim + 1, (size_t)t.rank * sizeof t.dim[0]);
    }
    for (int32_t i = 0; i < t.rank; i++) {
        t.dim[i] = roll_dice(d, 0, 2) == 0 ? 1 : t.dim[i];
    }
    trm_node a = add_made(g, "a", s), b = add_made(g, "b", t);
    switch (roll_dice(d, 0, 3)) {
    case 0: return weigh_output(g, trm_add(g, a, b));
    case 1: return weigh_output(g, trm_sub(g, b, a));
    case 2: return weigh_output(g, trm_mul(g, a, b));
    default: return weigh_output(g, trm_div(g, a, trm_exp(g, b)));
    }
}

static trm_node one_by_one(trm_graph *g, dice *d) {
    trm_node x = add_made(g, "x", some_shape(d, (int32_t)roll_dice(d, 1, 4)));
    switch (roll_dice(d, 0, 10)) {
    case 7: return weigh_output(g, trm_gelu(g, x, TRM_GELU_ERF));
    case 8: return weigh_output(g, trm_gelu(g, x, TRM_GELU_TANH));
    case 9: return weigh_output(g, trm_silu(g, x));
    case 10: return weigh_output(g, trm_swiglu(g, x, add_values(g, "up", trm_node_shape(g, x))));
    case 0: return weigh_output(g, trm_relu(g, x));
    case 1: return weigh_output(g, trm_sigmoid(g, x));
    case 2: return weigh_output(g, trm_log(g, trm_exp(g, x)));
    case 3: return weigh_output(g, trm_sqrt(g, trm_exp(g, x)));
    case 4: return weigh_output(g, trm_scale(g, x, -1.7));
    case 5: return weigh_output(g, trm_dropout(g, x, 0.4));
    default: return weigh_output(g, trm_cast(g, trm_cast(g, x, TRM_BFLOAT16), TRM_FLOAT32));
    }
}

static trm_node add_reshape(trm_graph *g, dice *d) {
    trm_shape s = some_shape(d, 4);
    const trm_shape forms[] = {trm_shape_of(s.dim[0] * s.dim[1], s.dim[2], s.dim[3]),
                               trm_shape_of(s.dim[0], s.dim[1] * s.dim[2] * s.dim[3]),
                               trm_shape_of(s.dim[0], 1, s.dim[1], s.dim[2] * s.dim[3]),
                               trm_shape_of(-1),
                               trm_shape_of(s.dim[2], s.dim[0] * s.dim[1], s.dim[3])};
    return weigh_output(g, trm_reshape(g, add_made(g, "x", s), forms[roll_dice(d, 0, 4)]));
}

static trm_node add_transpose(trm_graph *g, dice *d) {
    static const int32_t orders[][4] = {{1, 0},    {2, 0, 1},    {1, 2, 0},
                                        {0, 2, 1}, {0, 2, 3, 1}, {3, 1, 0, 2}};
    static const int32_t ranks[] = {2, 3, 3, 3, 4, 4};
    int64_t which = roll_dice(d, 0, 5);
    return weigh_output(
        g, trm_transpose(g, add_made(g, "x", some_shape(d, ranks[which])), orders[which]));
}

static trm_node add_concat(trm_graph *g, dice *d) {
    int32_t rank = (int32_t)roll_dice(d, 2, 4), axis = (int32_t)roll_dice(d, 0, rank - 1),
            count = (int32_t)roll_dice(d, 2, 3);
    trm_shape s = some_shape(d, rank);
    trm_node all[3];
    static const char *const names[] = {"x", "y", "z"};
    for (int32_t i = 0; i < count; i++) {
        s.dim[axis] = roll_dice(d, 3, 6);
        all[i] = add_made(g, names[i], s);
    }
    return weigh_output(g, trm_concat(g, all, count, axis));
}

static trm_node add_slice(trm_graph *g, dice *d) {
    trm_shape s = some_shape(d, (int32_t)roll_dice(d, 2, 4));
    int64_t begin[TRM_MAX_RANK], size[TRM_MAX_RANK];
    for (int32_t i = 0; i < s.rank; i++) {
        bool all = roll_dice(d, 0, 1);
        begin[i] = all ? 0 : roll_dice(d, 0, 1);
        size[i] = all ? s.dim[i] : roll_dice(d, 2, s.dim[i] - begin[i]);
    }
    return weigh_output(g, trm_slice(g, add_made(g, "x", s), begin, size));
}

static trm_node add_pad(trm_graph *g, dice *d) {
    trm_shape s = some_shape(d, (int32_t)roll_dice(d, 2, 4));
    int64_t before[TRM_MAX_RANK], after[TRM_MAX_RANK];
    for (int32_t i = 0; i < s.rank; i++) {
        bool none = roll_dice(d, 0, 1);
        before[i] = none ? 0 : roll_dice(d, 0, 2);
        after[i] = none ? 0 : roll_dice(d, 0, 2);
    }
    return weigh_output(
        g, trm_pad(g, add_made(g, "x", s), before, after, roll_dice(d, 0, 1) ? 1.5 : 0));
}

static trm_node add_reduction(trm_graph *g, dice *d) {
    trm_shape s = some_shape(d, (int32_t)roll_dice(d, 2, 4));
    int32_t axes[4], count = 0;
    for (int32_t i = 0; i < s.rank; i++) {
        if (roll_dice(d, 0, 1)) {
            axes[count++] = i;
        }
    }
    trm_node x = add_made(g, "x", s);
    bool keep = roll_dice(d, 0, 1);
    int64_t which = roll_dice(d, 0, 2);
    trm_node y = which == 0   ? trm_reduce_sum(g, x, axes, count, keep)
                 : which == 1 ? trm_reduce_mean(g, x, axes, count, keep)
                              : trm_reduce_max(g, x, axes, count, keep);
    return weigh_output(g, y);
}

static trm_node add_softmax(trm_graph *g, dice *d) {
    return weigh_output(
        g, trm_softmax(g, add_made(g, "x", some_shape(d, (int32_t)roll_dice(d, 1, 3)))));
}

static trm_node cross_entropy(trm_graph *g, dice *d) {
    int64_t n = roll_dice(d, 3, 9);
    trm_node x = add_made(g, "x", trm_shape_of(n, roll_dice(d, 8, 13)));
    const trm_xent_options o = {.label_smoothing = roll_dice(d, 0, 1) ? 0.1 : 0,
                                .use_ignore_index = roll_dice(d, 0, 1),
                                .ignore_index = (int32_t)roll_dice(d, 0, 7)};
    return trm_softmax_cross_entropy(g, trm_scale(g, x, 3), add_labels(g, n), &o);
}

static trm_node binary_cross_entropy(trm_graph *g, dice *d) {
    trm_shape s = some_shape(d, (int32_t)roll_dice(d, 1, 3));
    return trm_bce_with_logits(g, add_made(g, "x", s), trm_input(g, "target", TRM_FLOAT32, s));
}

static trm_node add_embedding(trm_graph *g, dice *d) {
    trm_node ids = trm_input(g, "ids", TRM_INT32, some_shape(d, (int32_t)roll_dice(d, 1, 2)));
    trm_node y = trm_embedding(
        g, add_values(g, "table", trm_shape_of(roll_dice(d, 11, 17), roll_dice(d, 3, 6))), ids);
    return weigh_output(g, roll_dice(d, 0, 1) ? trm_tanh(g, y) : y);
}

static trm_node one_hot(trm_graph *g, dice *d) {
    int64_t n = roll_dice(d, 3, 9);
    return weigh_output(g, trm_one_hot(g, add_labels(g, n), roll_dice(d, 8, 11), 0.9,
                                       roll_dice(d, 0, 1) ? 0.05 : 0));
}

/* Bags of any length, empty ones and rows in no bag too, as a constant says; with weights, some of
 * them negative. */
static trm_node add_bags(trm_graph *g, dice *d) {
    int64_t rows = roll_dice(d, 6, 17), count = roll_dice(d, 3, 9), at = roll_dice(d, 0, 2);
    int32_t offsets[16];
    for (int64_t i = 0; i <= count; i++) {
        offsets[i] = (int32_t)at;
        at = trmi_min_i64(rows, at + roll_dice(d, 0, 4));
    }
    trm_node weights = TRM_NO_NODE;
    float values_of[32];
    for (int64_t i = 0; i < rows; i++) {
        values_of[i] = (float)roll_dice(d, -2, 5) + 0.25f;
    }
    if (roll_dice(d, 0, 1)) {
        weights = trm_constant(
            g, &(trm_tensor){.data = values_of, .dtype = TRM_FLOAT32, .shape = trm_shape_of(rows)});
    }
    trm_node bounds = trm_constant(
        g, &(trm_tensor){.data = offsets, .dtype = TRM_INT32, .shape = trm_shape_of(count + 1)});
    return weigh_output(g, trm_bag_pool(g, add_made(g, "x", trm_shape_of(rows, roll_dice(d, 3, 9))),
                                        bounds, weights, (trm_bag_pooling)roll_dice(d, 0, 2)));
}

static trm_node add_pairs(trm_graph *g, dice *d) {
    return weigh_output(g, trm_pair_dots(g, add_made(g, "x", some_shape(d, 3))));
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    trm_node (*make)(trm_graph *g, dice *d);
    int weight; /* trials for each of another's: what has many forms */
} operators[] = {
    {"convolution", add_convolution, 5},
    {"pooling", add_pooling, 3},
    {"global pooling", global_pooling, 1},
    {"normalization", add_normalization, 3},
    {"linear", add_linear, 2},
    {"product", add_product, 3},
    {"product of any rank", product_of_any_rank, 3},
    {"row norm", row_norm, 3},
    {"attention", add_attention, 5},
    {"output loss", output_loss, 4},
    {"mixture", add_mixture, 4},
    {"two by two", two_by_two, 3},
    {"one by one", one_by_one, 5},
    {"reshaping", add_reshape, 2},
    {"transposition", add_transpose, 1},
    {"concatenation", add_concat, 1},
    {"slicing", add_slice, 1},
    {"padding", add_pad, 1},
    {"reduction", add_reduction, 3},
    {"softmax", add_softmax, 1},
    {"cross entropy", cross_entropy, 3},
    {"binary cross entropy", binary_cross_entropy, 1},
    {"embedding", add_embedding, 2},
    {"one hot", one_hot, 1},
    {"pairs", add_pairs, 2},
    {"bags", add_bags, 3},
};
enum { OPERATORS = sizeof operators / sizeof operators[0], OPERATOR_BITS = 8 };

/* variant: the seed and the operator. */
static trm_node build_network(trm_graph *g, uint64_t variant) {
    dice d = {.variant = variant};
    return operators[variant & ((1 << OPERATOR_BITS) - 1)].make(g, &d);
}

static void try_one(shared *all, int which, uint64_t seed) {
    static const char *const meshes[] = {"2", "3", "2x2", "4", "2x3", "2x2x2"};
    static outcome one;
    trm_error err;
    trmi_mesh mesh;
    bool strict = seed % 3 == 2;
    memset(all, 0, sizeof *all);
    memset(&one, 0, sizeof one);
    all->trial = (trial){.network = build_network,
                         .variant = seed << OPERATOR_BITS | (uint64_t)which,
                         .blocks = strict,
                         .mesh = meshes[(seed * 7 + (uint64_t)which) % 6],
                         .backend = seed % 6 == 5 || seed % 3 == 1 ? "ref" : "onednn",
                         .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}};
    CHECK_OK(trmi_mesh_parse(all->trial.mesh, &mesh, &err), err);
    draw_plan(&all->trial, seed);
    CHECK_OK(run_trial(&all->trial, NULL, &one, &err), err);
    ranks_run_joined(trmi_mesh_ranks(&mesh), false, rank_main, all, operators[which].name);
    if (strict) {
        compare_bits(all, &one, trmi_mesh_ranks(&mesh), seed);
    } else {
        compare_outcomes(all, &one, trmi_mesh_ranks(&mesh), seed, 2e-4);
    }
}

static void every_operator_equals_one_device(void **state) {
    (void)state;
    const char *first = getenv("TRIREME_SHARD_FIRST"), *only = getenv("TRIREME_SHARD_OPERATOR");
    uint64_t from = first != NULL ? (uint64_t)atoll(first) : 1;
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int which = 0; which < OPERATORS; which++) {
        for (int64_t i = 0; i < count_trials(1) * operators[which].weight; i++) {
            if (only == NULL || strcmp(only, operators[which].name) == 0) {
                print_message("%s, seed %d\n", operators[which].name, (int)(from + (uint64_t)i));
                try_one(all, which, from + (uint64_t)i);
            }
        }
    }
    munmap(all, sizeof *all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_equals_one_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
