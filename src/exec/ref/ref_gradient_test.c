/* SPDX-License-Identifier: Apache-2.0 */
/* Every gradient of the op table against central differences, in double precision over random legal
 * shapes: loss = sum(r * f(x)), d(loss)/dx from the graph, (loss(x + h) - loss(x - h)) / 2h beside
 * it. Where the differences at h and h/2 disagree there is a kink between them; few such may be. */
#include "check.h"

#include "tests/lib/interpret.h"

#include "base/rng.h"

#include <math.h>

/* ---- a case under construction --------------------------------------------------------------- */

enum { INPUTS_MAX = 8, PROBES = 24 };

typedef enum values { ANY, POSITIVE, DISTINCT, IDS } values;

typedef struct bench {
    trm_graph *graph;
    uint64_t seed, drawn;
    trm_node leaves[INPUTS_MAX]; /* everything that is fed */
    values kinds[INPUTS_MAX];
    bool fixed[INPUTS_MAX];    /* no gradient is asked for */
    int64_t limit[INPUTS_MAX]; /* IDS: below this */
    int count;
} bench;

static int64_t draw_number(bench *b, int64_t low, int64_t high) {
    return low + (int64_t)trmi_bounded(trmi_random_u32(b->seed, TRMI_STREAM_TEST, b->drawn++),
                                       (uint32_t)(high - low + 1));
}

static trm_node leaf_of(bench *b, trm_dtype dtype, trm_shape shape, values kind, bool fixed) {
    char name[16];
    snprintf(name, sizeof name, "x%d", b->count);
    trm_node node = trm_input(b->graph, name, dtype, shape);
    b->leaves[b->count] = node;
    b->kinds[b->count] = kind;
    b->fixed[b->count] = fixed || dtype == TRM_INT32 || dtype == TRM_INT64;
    b->count++;
    return node;
}
static trm_node add_variable(bench *b, trm_shape shape) {
    return leaf_of(b, TRM_FLOAT32, shape, ANY, false);
}
static trm_node of_kind(bench *b, trm_shape shape, values kind) {
    return leaf_of(b, TRM_FLOAT32, shape, kind, false);
}
static trm_node add_ids(bench *b, trm_shape shape, int64_t limit, trm_dtype dtype) {
    b->limit[b->count] = limit;
    return leaf_of(b, dtype, shape, IDS, true);
}
static trm_shape random_shape(bench *b, int low, int high, int64_t most) {
    trm_shape shape = {.rank = (int32_t)draw_number(b, low, high)};
    for (int32_t i = 0; i < shape.rank; i++) {
        shape.dim[i] = draw_number(b, 1, most);
    }
    return shape;
}

static void fill_leaves(bench *b, trmi_interpreter *run) {
    for (int i = 0; i < b->count; i++) {
        int64_t count = trm_shape_count(&trmi_interpreter_value(run, b->leaves[i])->shape);
        for (int64_t j = 0; j < count; j++) {
            uint64_t at = (uint64_t)i << 32 | (uint64_t)j;
            double u = (double)trmi_unit_float(trmi_random_u32(b->seed, 5, at));
            double value = 2 * u - 1;
            if (b->kinds[i] == POSITIVE) {
                value = 0.5 + u;
            } else if (b->kinds[i] == DISTINCT) {
                value = 0.01 * ((double)trmi_permute(b->seed, 6, (uint64_t)count, (uint64_t)j) -
                                (double)count / 2 + 0.3);
            } else if (b->kinds[i] == IDS) {
                value = (double)((int64_t)(u * (double)b->limit[i]));
            }
            trmi_interpreter_set(run, b->leaves[i], j, value);
        }
    }
}

/* ---- the operators --------------------------------------------------------------------------- */

typedef trm_node (*builder)(bench *b);

static trm_node build_binary(bench *b, trm_node (*f)(trm_graph *, trm_node, trm_node),
                             values second) {
    trm_shape x = random_shape(b, 0, 4, 3), y = x;
    int drop =
        (int)draw_number(b, 0, x.rank); /* y lacks the first `drop` dimensions, others may be 1 */
    y.rank = x.rank - drop;
    for (int32_t i = 0; i < y.rank; i++) {
        y.dim[i] = draw_number(b, 0, 2) == 0 ? 1 : x.dim[i + drop];
    }
    trm_node wide = of_kind(b, x, second == POSITIVE ? POSITIVE : ANY);
    trm_node narrow = of_kind(b, y, second);
    return draw_number(b, 0, 1) ? f(b->graph, wide, narrow) : f(b->graph, narrow, wide);
}
static trm_node build_add(bench *b) { return build_binary(b, trm_add, ANY); }
static trm_node build_sub(bench *b) { return build_binary(b, trm_sub, ANY); }
static trm_node build_mul(bench *b) { return build_binary(b, trm_mul, ANY); }
static trm_node build_divide(bench *b) { return build_binary(b, trm_div, POSITIVE); }

#define UNARY(name, kind)                                                                          \
    static trm_node build_##name(bench *b) {                                                       \
        return trm_##name(b->graph, of_kind(b, random_shape(b, 0, 4, 4), kind));                   \
    }
UNARY(relu, DISTINCT)
UNARY(sigmoid, ANY)
UNARY(tanh, ANY)
UNARY(exp, ANY)
UNARY(log, POSITIVE)
UNARY(sqrt, POSITIVE)
static trm_node build_softmax(bench *b) {
    return trm_softmax(b->graph, add_variable(b, random_shape(b, 1, 4, 4)));
}
static trm_node build_scale(bench *b) {
    return trm_scale(b->graph, add_variable(b, random_shape(b, 0, 3, 4)), -1.7);
}
static trm_node build_power(bench *b) { /* 5, -3, 2.5 */
    trm_node x = of_kind(b, random_shape(b, 0, 3, 3), POSITIVE);
    return trm_add(b->graph, trm_power(b->graph, x, 5),
                   trm_mul(b->graph, trm_power(b->graph, x, -3), trm_power(b->graph, x, 2.5)));
}
static trm_node build_cast(bench *b) {
    trm_node half = trm_cast(b->graph, add_variable(b, random_shape(b, 1, 3, 4)), TRM_BFLOAT16);
    return trm_cast(b->graph, half, TRM_FLOAT32);
}
static trm_node build_dropout(bench *b) {
    return trm_dropout(b->graph, add_variable(b, random_shape(b, 1, 3, 5)), 0.3);
}

static trm_node build_conv(bench *b) {
    int64_t groups = draw_number(b, 1, 2);
    trm_conv_options o = {.groups = groups};
    for (int i = 0; i < 2; i++) {
        o.stride[i] = draw_number(b, 1, 2);
        o.dilation[i] = draw_number(b, 1, 2);
    }
    for (int i = 0; i < 4; i++) {
        o.pad[i] = draw_number(b, 0, 2);
    }
    trm_node x = add_variable(b, trm_shape_of(draw_number(b, 1, 2), groups * draw_number(b, 1, 2),
                                              draw_number(b, 5, 7), draw_number(b, 5, 7)));
    int64_t in = trm_node_shape(b->graph, x).dim[1] / groups, out = groups * draw_number(b, 1, 2);
    trm_node w = add_variable(b, trm_shape_of(out, in, draw_number(b, 1, 3), draw_number(b, 1, 3)));
    trm_node bias = draw_number(b, 0, 1) ? add_variable(b, trm_shape_of(out)) : TRM_NO_NODE;
    return trm_conv2d(b->graph, x, w, bias, &o);
}
static trm_node build_linear(bench *b) {
    trm_shape shape = random_shape(b, 1, 3, 4);
    int64_t in = shape.dim[shape.rank - 1], out = draw_number(b, 1, 4);
    trm_node x = add_variable(b, shape), w = add_variable(b, trm_shape_of(out, in));
    trm_node bias = draw_number(b, 0, 1) ? add_variable(b, trm_shape_of(out)) : TRM_NO_NODE;
    return trm_linear(b->graph, x, w, bias);
}
static trm_node build_matmul(bench *b) {
    bool ta = draw_number(b, 0, 1), tb = draw_number(b, 0, 1);
    int64_t batch = draw_number(b, 0, 2), m = draw_number(b, 1, 4), k = draw_number(b, 1, 4),
            n = draw_number(b, 1, 4);
    int64_t p[] = {batch, ta ? k : m, ta ? m : k}, q[] = {batch, tb ? n : k, tb ? k : n};
    trm_node x = add_variable(b, batch ? trm_shape_make(3, p) : trm_shape_make(2, p + 1));
    trm_node y = add_variable(b, batch ? trm_shape_make(3, q) : trm_shape_make(2, q + 1));
    return trm_matmul(b->graph, x, y, ta, tb);
}

/* Leading dimensions of both, of one only, or of 1. */
static trm_node build_matmul_any(bench *b) {
    bool ta = draw_number(b, 0, 1), tb = draw_number(b, 0, 1);
    int64_t m = draw_number(b, 1, 3), k = draw_number(b, 1, 3), n = draw_number(b, 1, 3);
    trm_shape p = trm_shape_of(2, 3, ta ? k : m, ta ? m : k),
              q = trm_shape_of(tb ? n : k, tb ? k : n);
    if (draw_number(b, 0, 1)) {
        q = trm_shape_of(draw_number(b, 0, 1) ? 1 : 2, draw_number(b, 0, 1) ? 1 : 3, q.dim[0],
                         q.dim[1]);
    }
    trm_node x = add_variable(b, p), y = add_variable(b, q);
    return trm_matmul(b->graph, x, y, ta, tb);
}
static trm_node build_linear_by_inputs(bench *b) {
    trm_shape shape = random_shape(b, 1, 3, 4);
    int64_t in = shape.dim[shape.rank - 1], out = draw_number(b, 1, 4);
    trm_node x = add_variable(b, shape), w = add_variable(b, trm_shape_of(in, out));
    return trm_linear_by_inputs(
        b->graph, x, w, draw_number(b, 0, 1) ? add_variable(b, trm_shape_of(out)) : TRM_NO_NODE);
}
static trm_node build_layer_norm(bench *b) {
    trm_shape shape = random_shape(b, 1, 4, 4);
    shape.dim[shape.rank - 1] = draw_number(b, 3, 6);
    trm_shape channels = trm_shape_of(shape.dim[shape.rank - 1]);
    trm_node x = add_variable(b, shape), gamma = add_variable(b, channels),
             beta = add_variable(b, channels);
    return trm_layer_norm(b->graph, x, gamma, beta, 1e-2);
}
static trm_node build_rms_norm(bench *b) {
    trm_shape shape = random_shape(b, 1, 4, 4);
    trm_node x = add_variable(b, shape),
             gamma = add_variable(b, trm_shape_of(shape.dim[shape.rank - 1]));
    return trm_rms_norm(b->graph, x, gamma, 1e-2);
}
static trm_node build_gelu(bench *b) {
    return trm_gelu(b->graph, trm_scale(b->graph, add_variable(b, random_shape(b, 0, 4, 4)), 3),
                    TRM_GELU_ERF);
}
static trm_node build_gelu_tanh(bench *b) {
    return trm_gelu(b->graph, trm_scale(b->graph, add_variable(b, random_shape(b, 0, 4, 4)), 3),
                    TRM_GELU_TANH);
}
static trm_node build_silu(bench *b) {
    return trm_silu(b->graph, trm_scale(b->graph, add_variable(b, random_shape(b, 0, 4, 4)), 3));
}
static trm_node build_swiglu(bench *b) {
    trm_shape shape = random_shape(b, 1, 3, 4);
    trm_node gate = add_variable(b, shape), up = add_variable(b, shape);
    return trm_swiglu(b->graph, gate, up);
}
static trm_node build_rotary(bench *b) {
    trm_shape shape = trm_shape_of(draw_number(b, 1, 2), draw_number(b, 1, 4), draw_number(b, 1, 2),
                                   2 * draw_number(b, 1, 3));
    return trm_rotary(b->graph, add_variable(b, shape), draw_number(b, 0, 1) ? 0 : 100,
                      draw_number(b, 0, 5));
}
static trm_node build_attention(bench *b) {
    int64_t batch = draw_number(b, 1, 2), queries = draw_number(b, 1, 4),
            keys = queries + draw_number(b, 0, 2);
    int64_t kv_heads = draw_number(b, 1, 2), heads = kv_heads * draw_number(b, 1, 2),
            width = draw_number(b, 1, 3);
    trm_node q = add_variable(b, trm_shape_of(batch, queries, heads, width));
    trm_node k = add_variable(b, trm_shape_of(batch, keys, kv_heads, width));
    trm_node v = add_variable(b, trm_shape_of(batch, keys, kv_heads, width));
    trm_node mask =
        draw_number(b, 0, 1) ? add_ids(b, trm_shape_of(batch, keys), 2, TRM_INT32) : TRM_NO_NODE;
    const trm_attention_options o = {.causal = draw_number(b, 0, 1),
                                     .scale = draw_number(b, 0, 1) ? 0 : 1.5};
    return trm_attention(b->graph, q, k, v, mask, &o);
}
static trm_node build_attention_packed(bench *b) {
    int64_t batch = draw_number(b, 1, 2), keys = draw_number(b, 1, 4),
            kv_heads = draw_number(b, 1, 2), heads = kv_heads * draw_number(b, 1, 2);
    trm_node qkv =
        add_variable(b, trm_shape_of(batch, keys, (heads + 2 * kv_heads) * draw_number(b, 1, 3)));
    trm_node mask =
        draw_number(b, 0, 1) ? add_ids(b, trm_shape_of(batch, keys), 2, TRM_INT32) : TRM_NO_NODE;
    const trm_attention_options o = {.causal = draw_number(b, 0, 1)};
    return trm_attention_packed(b->graph, qkv, heads, kv_heads, mask, &o);
}

static trm_node build_top_k(bench *b) {
    trm_shape shape = random_shape(b, 1, 3, 4);
    trm_node columns;
    return trm_top_values(b->graph, of_kind(b, shape, DISTINCT),
                          draw_number(b, 1, shape.dim[shape.rank - 1]), &columns);
}
static trm_node build_expert_linear(bench *b) {
    trm_shape rows = random_shape(b, 0, 2, 3), shape = rows;
    int64_t experts = draw_number(b, 1, 3);
    shape.dim[shape.rank++] = draw_number(b, 1, 3);
    trm_node x = add_variable(b, shape),
             w = add_variable(
                 b, trm_shape_of(experts, draw_number(b, 1, 3), shape.dim[shape.rank - 1]));
    return trm_expert_linear(b->graph, x, w, add_ids(b, rows, experts, TRM_INT32));
}
static trm_node build_experts(bench *b) {
    int64_t count = draw_number(b, 2, 3), width = draw_number(b, 1, 3),
            hidden = draw_number(b, 1, 3);
    trm_node x = add_variable(b, trm_shape_of(draw_number(b, 1, 2), 2, width)), balance;
    trm_experts e = {.router = add_variable(b, trm_shape_of(count, width)),
                     .up = add_variable(b, trm_shape_of(count, hidden, width)),
                     .down = add_variable(b, trm_shape_of(count, width, hidden)),
                     .top_k = draw_number(b, 1, 2),
                     .normalize = draw_number(b, 0, 1) ? TRM_OFF : TRM_DEFAULT};
    if (draw_number(b, 0, 1)) {
        e.gate = add_variable(b, trm_shape_of(count, hidden, width));
    }
    trm_node y = trm_mixture_of_experts(b->graph, x, &e, &balance);
    return trm_add(b->graph, y, balance);
}

static trm_node norm_inputs(bench *b, trm_node inputs[6], bool residual) {
    trm_shape shape = random_shape(b, 2, 4, 4);
    shape.dim[0] = draw_number(b, 3, 4);
    trm_shape channels = trm_shape_of(shape.dim[1]);
    inputs[0] = add_variable(b, shape);
    inputs[1] = of_kind(b, channels, POSITIVE);
    inputs[2] = add_variable(b, channels);
    inputs[3] = leaf_of(b, TRM_FLOAT32, channels, ANY, true);
    inputs[4] = leaf_of(b, TRM_FLOAT32, channels, POSITIVE, true);
    inputs[5] = residual ? add_variable(b, shape) : TRM_NO_NODE;
    return inputs[0];
}
static trm_node build_batch_norm(bench *b) {
    trm_node in[6];
    norm_inputs(b, in, false);
    return trm_batch_norm(b->graph, in[0], in[1], in[2], in[3], in[4], NULL);
}
static trm_node build_batch_norm_infer(bench *b) {
    b->graph->training = false;
    trm_node y = build_batch_norm(b);
    b->graph->training = true;
    return y;
}
static trm_node norm_act_of(bench *b, bool relu_too, bool residual) {
    trm_node in[6];
    norm_inputs(b, in, residual);
    trmi_attrs attrs = {
        .norm = {.epsilon = 1e-3, .momentum = 0.1, .relu = relu_too, .residual = residual}};
    int32_t op = trmi_graph_add(b->graph, TRMI_OP_NORM_ACT, NULL, in, residual ? 6 : 5, 3, &attrs);
    return trmi_graph_node(b->graph, op, 0);
}
static trm_node build_norm_act(bench *b) { return norm_act_of(b, false, false); }
static trm_node build_norm_act_relu(bench *b) { return norm_act_of(b, true, false); }
static trm_node build_norm_act_residual(bench *b) { return norm_act_of(b, true, true); }

static trm_pool_options random_pool(bench *b) {
    trm_pool_options o = {.count_padding = draw_number(b, 0, 1)};
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = draw_number(b, 1, 3);
        o.stride[i] = draw_number(b, 0, 2);
        o.pad[2 * i] = draw_number(b, 0, o.kernel[i] - 1);
        o.pad[2 * i + 1] = draw_number(b, 0, o.kernel[i] - 1);
    }
    return o;
}
static trm_node add_image(bench *b, values kind) {
    return of_kind(b,
                   trm_shape_of(draw_number(b, 1, 2), draw_number(b, 1, 2), draw_number(b, 3, 6),
                                draw_number(b, 3, 6)),
                   kind);
}
static trm_node build_max_pool(bench *b) {
    trm_pool_options o = random_pool(b);
    return trm_max_pool(b->graph, add_image(b, DISTINCT), &o);
}
static trm_node build_avg_pool(bench *b) {
    trm_pool_options o = random_pool(b);
    return trm_avg_pool(b->graph, add_image(b, ANY), &o);
}
static trm_node build_global_avg_pool(bench *b) {
    return trm_global_avg_pool(b->graph, add_image(b, ANY));
}

static trm_node build_reshape(bench *b) {
    return trm_reshape(b->graph, add_variable(b, trm_shape_of(2, 3, draw_number(b, 1, 4))),
                       trm_shape_of(-1, 2));
}
static trm_node build_transpose(bench *b) {
    trm_shape shape = random_shape(b, 1, 5, 3);
    int32_t order[TRM_MAX_RANK];
    for (int32_t i = 0; i < shape.rank; i++) {
        order[i] = (int32_t)trmi_permute(b->seed, 8, (uint64_t)shape.rank, (uint64_t)i);
    }
    return trm_transpose(b->graph, add_variable(b, shape), order);
}
static trm_node build_concat(bench *b) {
    trm_shape shape = random_shape(b, 1, 4, 3);
    int32_t axis = (int32_t)draw_number(b, 0, shape.rank - 1),
            count = (int32_t)draw_number(b, 1, 4);
    trm_node nodes[4];
    for (int32_t i = 0; i < count; i++) {
        shape.dim[axis] = draw_number(b, 1, 3);
        nodes[i] = add_variable(b, shape);
    }
    return trm_concat(b->graph, nodes, count, draw_number(b, 0, 1) ? axis : axis - shape.rank);
}
static trm_node build_slice(bench *b) {
    trm_shape shape = random_shape(b, 1, 4, 4);
    int64_t begin[TRM_MAX_RANK], size[TRM_MAX_RANK];
    for (int32_t i = 0; i < shape.rank; i++) {
        begin[i] = draw_number(b, 0, shape.dim[i] - 1);
        size[i] = draw_number(b, 1, shape.dim[i] - begin[i]);
    }
    return trm_slice(b->graph, add_variable(b, shape), begin, size);
}
static trm_node build_pad(bench *b) {
    trm_shape shape = random_shape(b, 1, 4, 3);
    int64_t before[TRM_MAX_RANK], after[TRM_MAX_RANK];
    for (int32_t i = 0; i < shape.rank; i++) {
        before[i] = draw_number(b, 0, 2);
        after[i] = draw_number(b, 0, 2);
    }
    return trm_pad(b->graph, add_variable(b, shape), before, after, 0.5);
}
static trm_node build_broadcast(bench *b) {
    trm_node x = add_variable(b, trm_shape_of(draw_number(b, 1, 3), 1));
    trmi_attrs attrs = {.shape = {.shape = trm_shape_of(2, trm_node_shape(b->graph, x).dim[0], 4)}};
    return trmi_graph_add1(b->graph, TRMI_OP_BROADCAST, NULL, &x, 1, &attrs);
}
static trm_node build_reduction(bench *b, values kind,
                                trm_node (*f)(trm_graph *, trm_node, const int32_t *, int32_t,
                                              bool)) {
    trm_shape shape = random_shape(b, 1, 4, 4);
    int32_t axes[TRM_MAX_RANK], count = 0;
    for (int32_t i = 0; i < shape.rank; i++) {
        if (draw_number(b, 0, 1)) {
            axes[count++] = draw_number(b, 0, 1) ? i : i - shape.rank;
        }
    }
    return f(b->graph, of_kind(b, shape, kind), axes, count, draw_number(b, 0, 1));
}
static trm_node build_reduce_sum(bench *b) { return build_reduction(b, ANY, trm_reduce_sum); }
static trm_node build_reduce_mean(bench *b) { return build_reduction(b, ANY, trm_reduce_mean); }
static trm_node build_reduce_max(bench *b) { return build_reduction(b, DISTINCT, trm_reduce_max); }

static trm_node build_xent(bench *b) {
    int64_t rows = draw_number(b, 1, 5), classes = draw_number(b, 2, 5);
    trm_xent_options o = {.label_smoothing = draw_number(b, 0, 1) ? 0.1 : 0,
                          .use_ignore_index = draw_number(b, 0, 1),
                          .ignore_index = 1};
    trm_node z = add_variable(b, trm_shape_of(rows, classes));
    return trm_softmax_cross_entropy(b->graph, z,
                                     add_ids(b, trm_shape_of(rows), classes, TRM_INT32), &o);
}
static trm_node build_linear_xent(bench *b) {
    trm_shape labels = random_shape(b, 0, 2, 3), shape = labels;
    int64_t classes = draw_number(b, 2, 5);
    shape.dim[shape.rank++] = draw_number(b, 1, 4);
    trm_node x = add_variable(b, shape),
             w = add_variable(b, trm_shape_of(classes, shape.dim[shape.rank - 1]));
    trm_xent_options o = {.use_ignore_index = draw_number(b, 0, 1), .ignore_index = 1};
    o.bias = draw_number(b, 0, 1) ? add_variable(b, trm_shape_of(classes)) : TRM_NO_NODE;
    return trm_linear_cross_entropy(b->graph, x, w, add_ids(b, labels, classes, TRM_INT32), &o);
}
/* One parameter as table and as output layer: its two gradients are added. */
static trm_node build_tied(bench *b) {
    int64_t rows = draw_number(b, 2, 5), width = draw_number(b, 1, 4), count = draw_number(b, 1, 4);
    trm_node table = add_variable(b, trm_shape_of(rows, width));
    trm_node x = trm_embedding(b->graph, table, add_ids(b, trm_shape_of(count), rows, TRM_INT32));
    return trm_linear_cross_entropy(b->graph, trm_tanh(b->graph, x), table,
                                    add_ids(b, trm_shape_of(count), rows, TRM_INT32), NULL);
}
static trm_node build_bce(bench *b) {
    trm_shape shape = random_shape(b, 1, 3, 4);
    trm_node z = add_variable(b, shape);
    return trm_bce_with_logits(b->graph, z, leaf_of(b, TRM_FLOAT32, shape, POSITIVE, true));
}
static trm_node build_embedding(bench *b) {
    int64_t rows = draw_number(b, 2, 5);
    trm_node table = add_variable(b, trm_shape_of(rows, draw_number(b, 1, 4)));
    trm_dtype dtype = draw_number(b, 0, 1) ? TRM_INT32 : TRM_INT64;
    return trm_embedding(b->graph, table, add_ids(b, random_shape(b, 1, 2, 4), rows, dtype));
}
/* Bags of 2, 0, 1, ... rows; rows behind the last bag belong to none. */
static trm_node build_bag_pool(bench *b) {
    int64_t ends[6] = {0}, bags = draw_number(b, 1, 5), used = 0;
    for (int64_t i = 0; i < bags; i++) {
        ends[i + 1] = used += draw_number(b, 0, 3);
    }
    int64_t rows = used + draw_number(b, 1, 2);
    trm_tensor tensor = {.data = ends, .dtype = TRM_INT64, .shape = trm_shape_of(bags + 1)};
    trm_node offsets = trm_constant(b->graph, &tensor);
    trm_node weights = draw_number(b, 0, 1)
                           ? leaf_of(b, TRM_FLOAT32, trm_shape_of(rows), POSITIVE, true)
                           : TRM_NO_NODE;
    trm_node x = add_variable(b, trm_shape_of(rows, draw_number(b, 1, 4)));
    return trm_bag_pool(b->graph, x, offsets, weights, (trm_bag_pooling)draw_number(b, 0, 2));
}
static trm_node build_pair_dots(bench *b) {
    return trm_pair_dots(b->graph,
                         add_variable(b, trm_shape_of(draw_number(b, 1, 3), draw_number(b, 2, 5),
                                                      draw_number(b, 1, 4))));
}

static trm_node build_keyed_linear(bench *b) {
    int64_t samples = draw_number(b, 1, 6), fields = draw_number(b, 1, 3),
            width = draw_number(b, 1, 3), dense = draw_number(b, 0, 2);
    trm_node table = add_variable(b, trm_shape_of(4, width));
    trm_node keys =
        add_ids(b, trm_shape_of(samples, fields), 4, draw_number(b, 0, 1) ? TRM_INT32 : TRM_INT64);
    int64_t outputs = draw_number(b, 1, 3);
    return trmi_graph_keyed_linear(
        b->graph, trm_embedding(b->graph, table, keys), keys,
        add_variable(b, trm_shape_of(outputs, fields * width + dense)),
        dense > 0 ? leaf_of(b, TRM_FLOAT32, trm_shape_of(samples, dense), ANY, true) : TRM_NO_NODE,
        draw_number(b, 0, 1) ? add_variable(b, trm_shape_of(outputs)) : TRM_NO_NODE);
}

/* y = x^2 + x z by hand. */
static trm_status custom_infer(const trm_custom_op *self, const trm_tensor *in, int32_t count,
                               trm_tensor *out, trm_error *err) {
    out[0].shape = in[0].shape;
    out[0].dtype = in[0].dtype;
    return TRM_OK;
}
static trm_status custom_run(const trm_custom_op *self, const trm_tensor *in, int32_t count,
                             trm_tensor *out, trm_error *err) {
    const double *x = in[0].data, *z = in[1].data; /* the test runs in double */
    for (int64_t i = 0; i < trm_shape_count(&in[0].shape); i++) {
        ((double *)out[0].data)[i] = x[i] * x[i] + x[i] * z[i];
    }
    return TRM_OK;
}
static void custom_gradient(const trm_custom_op *self, trm_graph *g, const trm_node *in,
                            int32_t count, const trm_node *out, const trm_node *dy, trm_node *dx) {
    dx[0] = trm_mul(g, dy[0], trm_add(g, trm_scale(g, in[0], 2), in[1]));
    dx[1] = trm_mul(g, dy[0], in[0]);
}
static const trm_custom_op square_plus = {.name = "square_plus",
                                          .outputs = 1,
                                          .infer = custom_infer,
                                          .run = custom_run,
                                          .gradient = custom_gradient};
static trm_node build_custom(bench *b) {
    trm_shape shape = random_shape(b, 1, 3, 4);
    trm_node in[] = {add_variable(b, shape), add_variable(b, shape)}, out;
    trm_custom(b->graph, &square_plus, in, 2, &out);
    return out;
}

/* A value used twice, and a chain: the sums of the reverse sweep. */
static trm_node build_diamond(bench *b) {
    trm_node x = add_variable(b, trm_shape_of(2, 3)), y = trm_sigmoid(b->graph, x);
    return trm_mul(b->graph, trm_add(b->graph, y, trm_exp(b->graph, x)), trm_sub(b->graph, x, y));
}

/* ---- the check ------------------------------------------------------------------------------- */

static double loss_at(bench *b, trmi_interpreter *run, trm_node loss, trm_node x, int64_t i,
                      double by) {
    trm_error err;
    fill_leaves(b, run); /* states too: batch-norm moves them */
    trmi_interpreter_set(run, x, i, trmi_interpreter_get(run, x, i) + by);
    CHECK_OK(trmi_interpreter_run(run, &err), err);
    return trmi_interpreter_get(run, loss, 0);
}

static void probe_gradient(const char *name, bench *b, trmi_interpreter *run, trm_node loss,
                           trm_node x, const double *gradient, int64_t count, int *kinks,
                           int *probes) {
    const double h = 1e-5;
    for (int p = 0; p < PROBES; p++) {
        int64_t i = count <= PROBES ? p : draw_number(b, 0, count - 1);
        if (i >= count) {
            break;
        }
        double wide = (loss_at(b, run, loss, x, i, h) - loss_at(b, run, loss, x, i, -h)) / (2 * h);
        double near =
            (loss_at(b, run, loss, x, i, h / 2) - loss_at(b, run, loss, x, i, -h / 2)) / h;
        double scale_of = 1 + fabs(near);
        ++*probes;
        if (fabs(wide - near) > 1e-5 * scale_of) {
            ++*kinks;
        } else if (fabs(near - gradient[i]) > 2e-6 * scale_of) {
            fail_msg("%s, seed %d: d/dx%d[%d] is %.12g, the difference quotient %.12g", name,
                     (int)b->seed, x.id, (int)i, gradient[i], near);
        }
    }
}

static void check_gradient(const char *name, builder build, uint64_t seed, int *kinks,
                           int *probes) {
    trm_error err;
    bench b = {.seed = seed};
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &b.graph, &err), err);
    trm_node y = build(&b);
    int varied = b.count;
    CHECK_OK(trm_graph_check(b.graph, &err), err);
    trm_node r = leaf_of(&b, TRM_FLOAT32, trm_node_shape(b.graph, y), ANY, true);
    trm_node loss = trm_reduce_sum(b.graph, trm_mul(b.graph, y, r), NULL, 0, false);
    trm_node asked[INPUTS_MAX], grads[INPUTS_MAX];
    int count = 0;
    for (int i = 0; i < varied; i++) {
        if (!b.fixed[i]) {
            asked[count++] = b.leaves[i];
        }
    }
    trm_gradients(b.graph, loss, asked, count, grads);
    CHECK_OK(trm_graph_check(b.graph, &err), err);
    trmi_interpreter *run;
    CHECK_OK(trmi_interpreter_create(
                 b.graph, &(trmi_interpret_options){.in_double = true, .seed = 3}, &run, &err),
             err);
    for (int i = 0; i < count; i++) {
        trm_shape shape = trm_node_shape(b.graph, asked[i]),
                  got = trm_node_shape(b.graph, grads[i]);
        assert_true(trm_shape_equal(&shape, &got));
        int64_t elements = trm_shape_count(&shape);
        double *gradient = malloc((size_t)elements * sizeof *gradient);
        loss_at(&b, run, loss, asked[i], 0, 0);
        for (int64_t j = 0; j < elements; j++) {
            gradient[j] = trmi_interpreter_get(run, grads[i], j);
        }
        probe_gradient(name, &b, run, loss, asked[i], gradient, elements, kinks, probes);
        free(gradient);
    }
    trmi_interpreter_destroy(run);
    trm_graph_destroy(b.graph);
}

typedef struct entry {
    const char *name;
    builder build;
} entry;
#define E(f)                                                                                       \
    { #f, build_##f }
static const entry entries[] = {E(add),
                                E(sub),
                                E(mul),
                                E(divide),
                                E(relu),
                                E(sigmoid),
                                E(tanh),
                                E(exp),
                                E(log),
                                E(sqrt),
                                E(scale),
                                E(power),
                                E(cast),
                                E(dropout),
                                E(conv),
                                E(linear),
                                E(matmul),
                                E(matmul_any),
                                E(linear_by_inputs),
                                E(layer_norm),
                                E(rms_norm),
                                E(gelu),
                                E(gelu_tanh),
                                E(silu),
                                E(swiglu),
                                E(rotary),
                                E(attention),
                                E(attention_packed),
                                E(top_k),
                                E(expert_linear),
                                E(experts),
                                E(linear_xent),
                                E(tied),
                                E(batch_norm),
                                E(batch_norm_infer),
                                E(norm_act),
                                E(norm_act_relu),
                                E(norm_act_residual),
                                E(max_pool),
                                E(avg_pool),
                                E(global_avg_pool),
                                E(reshape),
                                E(transpose),
                                E(concat),
                                E(slice),
                                E(pad),
                                E(broadcast),
                                E(reduce_sum),
                                E(reduce_mean),
                                E(reduce_max),
                                E(softmax),
                                E(xent),
                                E(bce),
                                E(embedding),
                                E(bag_pool),
                                E(pair_dots),
                                E(keyed_linear),
                                E(custom),
                                E(diamond)};

static void gradients_are_difference_quotients(void **state) {
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        int kinks = 0, probes = 0;
        for (uint64_t seed = 1; seed <= 12; seed++) {
            check_gradient(entries[e].name, entries[e].build, seed, &kinks, &probes);
        }
        if (kinks * 50 > probes || probes < 12) {
            fail_msg("%s: %d kinks in %d probes", entries[e].name, kinks, probes);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_difference_quotients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
