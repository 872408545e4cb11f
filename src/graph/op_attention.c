/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled dot-product attention and rotary positions (Vaswani et al. 2017, Su et al. 2021). Queries,
 * keys and values are [B, T, heads, D], or one tensor [B, T, (H + 2 G) D] with the H query heads,
 * the G key heads and the G value heads side by side. Query head h reads key head h / (H / G). The
 * forward operator keeps log_sum_exp [B, H, T] of the scores, from which the gradient makes the
 * scores again (Dao et al. 2022): no tensor has T x T elements. */
#include "graph/graph_ir.h"

#include "base/error.h"

#include <math.h>

/* Extents of an attention. */
typedef struct extents {
    int64_t batch, queries, keys;   /* samples; positions of a sample */
    int64_t heads, kv_heads, width; /* H, G and D of the comment above */
} extents;

/* Returns whether queries, keys and values are one tensor. */
static bool is_packed(const trmi_op *op, int first) { return op->inputs[first + 1] == 0; }

/* Reads the extents from the inputs, of which q is number `first`. False: they do not fit. */
static bool read_extents(const trm_graph *graph, const trmi_op *op, int first, extents *e) {
    const trmi_value *q = trmi_input_of(graph, op, first), *k = trmi_input_of(graph, op, first + 1),
                     *v = trmi_input_of(graph, op, first + 2);
    bool folded = k == NULL && q != NULL && q->shape.rank == 4; /* [B, T, 3, H D] */
    if (q == NULL || (!folded && q->shape.rank != (k == NULL ? 3 : 4))) {
        return false;
    }
    /* Packed: one tensor has all heads of queries, keys and values side by side. Otherwise three
     * tensors, where several heads of queries may share a head of keys and values (grouped queries,
     * Ainslie et al. 2023). */
    const int64_t *dim = q->shape.dim;
    *e = (extents){.batch = dim[0], .queries = dim[1], .keys = dim[1]};
    if (k == NULL) {
        e->heads = op->attrs.attention.heads;
        e->kv_heads = op->attrs.attention.kv_heads;
        int64_t all = e->heads + 2 * e->kv_heads, columns = folded ? dim[2] * dim[3] : dim[2];
        bool fits = e->heads > 0 && e->kv_heads > 0 && columns % all == 0 &&
                    (!folded || (dim[2] == 3 && e->heads == e->kv_heads));
        e->width = fits ? columns / all : 0;
    } else {
        if (v == NULL || k->shape.rank != 4 || !trm_shape_equal(&k->shape, &v->shape) ||
            k->dtype != q->dtype || v->dtype != q->dtype || k->shape.dim[0] != dim[0] ||
            k->shape.dim[3] != dim[3]) {
            return false;
        }
        e->heads = dim[2];
        e->width = dim[3];
        e->keys = k->shape.dim[1];
        e->kv_heads = k->shape.dim[2];
    }
    return e->width > 0 && e->kv_heads > 0 && e->heads % e->kv_heads == 0;
}

/* Refuses an attention whose shapes do not fit, with all of them in the sentence. */
static trm_status refuse_shapes(const trm_graph *graph, const trmi_op *op, trm_error *err) {
    char q[128] = "nothing", k[128] = "nothing", v[128] = "nothing";
    char *const texts[] = {q, k, v};
    for (int i = 0; i < 3; i++) {
        if (op->inputs[i] != 0) {
            trmi_value_text(graph, op->inputs[i], texts[i], sizeof q);
        }
    }
    if (op->inputs[1] == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: [B, T, (heads + 2 key heads) D] with heads a multiple of key heads "
                         "expected, found %s with %lld heads and %lld key heads",
                         op->name, q, (long long)op->attrs.attention.heads,
                         (long long)op->attrs.attention.kv_heads);
    }
    return TRMI_FAIL(err, TRM_INVALID,
                     "%s: queries [B, T, H, D], keys and values [B, S, G, D] of one dtype with H a "
                     "multiple of G expected, found %s, %s and %s",
                     op->name, q, k, v);
}

/* Checks the inputs of an attention and sets its outputs: the result, in the shape of the
 * queries, and the logarithm of each row's sum, which backward needs. */
static trm_status infer_attention(trm_graph *graph, trmi_op *op, trm_error *err) {
    extents e;
    if (!read_extents(graph, op, 0, &e)) {
        return refuse_shapes(graph, op, err);
    }
    const trmi_value *mask = trmi_input_of(graph, op, 3);
    char text[128];
    if (mask != NULL && (mask->dtype != TRM_INT32 || mask->shape.rank != 2 ||
                         mask->shape.dim[0] != e.batch || mask->shape.dim[1] != e.keys)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: a mask int32 [%lld, %lld] expected, found %s",
                         op->name, (long long)e.batch, (long long)e.keys,
                         trmi_value_text(graph, op->inputs[3], text, sizeof text));
    }
    if (!isfinite(op->attrs.attention.scale)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: scale %g, a finite number expected", op->name,
                         op->attrs.attention.scale);
    }
    trm_shape y = trmi_input_of(graph, op, 0)->shape;
    if (is_packed(op, 0)) {
        y.rank = 3;
        y.dim[2] = e.heads * e.width;
    }
    trmi_set_output(graph, op, 0, trmi_input_of(graph, op, 0)->dtype, y);
    trmi_set_output(graph, op, 1, TRM_FLOAT32, trm_shape_of(e.batch, e.heads, e.queries));
    return TRM_OK;
}

/* Sets the outputs, which are like q, k and v. */
static trm_status infer_grad(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    for (int i = 0; i < op->outputs_count; i++) {
        const trmi_value *v = trmi_input_of(graph, op, 1 + i);
        trmi_set_output(graph, op, i, v->dtype, v->shape);
    }
    return TRM_OK;
}

/* Adds one operator with the gradients of q, k and v (packed: of their one tensor). It reads the
 * output and log_sum_exp of forward, and the mask. */
static void grad_attention(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    if (dy[0].id == 0) {
        return;
    }
    trm_node inputs[] = {dy[0],           {op->inputs[0]},  {op->inputs[1]}, {op->inputs[2]},
                         {op->inputs[3]}, {op->outputs[0]}, {op->outputs[1]}};
    int32_t outputs = is_packed(op, 0) ? 1 : 3;
    int32_t index =
        trmi_graph_add(graph, TRMI_OP_ATTENTION_GRAD, NULL, inputs, 7, outputs, &op->attrs);
    for (int32_t i = 0; i < outputs && index != 0; i++) {
        dx[i].id = graph->ops[index].outputs[i];
    }
}

/* Checks the inputs of a join: two results of the same queries, each with other keys, and their
 * log_sum_exp. Sets the outputs, which are like those of one attention over all keys. */
static trm_status infer_join(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *y = trmi_input_of(graph, op, 0), *lse = trmi_input_of(graph, op, 1),
                     *other = trmi_input_of(graph, op, 2), *sums = trmi_input_of(graph, op, 3);
    bool fits = y != NULL && lse != NULL && other != NULL && sums != NULL && y->shape.rank == 4 &&
                lse->shape.rank == 3 && trm_shape_equal(&y->shape, &other->shape) &&
                trm_shape_equal(&lse->shape, &sums->shape);
    if (!fits) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: two results [B, T, H, D] of one shape, each with its sums "
                         "[B, H, T], expected",
                         op->name);
    }
    trmi_set_output(graph, op, 0, y->dtype, y->shape);
    trmi_set_output(graph, op, 1, TRM_FLOAT32, lse->shape);
    return TRM_OK;
}

/* Counts two products over queries and keys in forward (scores, outputs) and five in backward; each
 * tensor is read or written once. */
static trmi_cost cost_attention(const trm_graph *graph, const trmi_op *op) {
    bool gradient = op->kind == TRMI_OP_ATTENTION_GRAD;
    extents e;
    trmi_cost cost = {0};
    if (!read_extents(graph, op, gradient ? 1 : 0, &e)) {
        return cost;
    }
    double pairs = (double)e.queries * (double)e.keys;
    if (op->attrs.attention.causal) { /* query t reads begin + t + 1 keys, at most all */
        double first = (double)op->attrs.attention.begin + 1;
        pairs = fmin(pairs, (double)e.queries * fmax(0, first + ((double)e.queries - 1) / 2));
    }
    cost.flops = (gradient ? 10.0 : 4.0) * (double)(e.batch * e.heads * e.width) * pairs;
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_value *v = trmi_input_of(graph, op, i);
        cost.bytes +=
            v == NULL ? 0 : (double)trm_shape_count(&v->shape) * (double)trm_dtype_bytes(v->dtype);
    }
    for (int32_t i = 0; i < op->outputs_count; i++) {
        const trmi_value *v = trmi_output_of(graph, op, i);
        cost.bytes += (double)trm_shape_count(&v->shape) * (double)trm_dtype_bytes(v->dtype);
    }
    return cost;
}

/* Infers y, which is like x [B, T, ..., D] with D even. */
static trm_status infer_rotary(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    char text[128] = "nothing";
    if (x == NULL || x->shape.rank < 3 || x->shape.dim[x->shape.rank - 1] % 2 != 0) {
        return TRMI_FAIL(
            err, TRM_INVALID, "%s: [B, T, ..., D] with D even expected, found %s", op->name,
            x == NULL ? text : trmi_value_text(graph, op->inputs[0], text, sizeof text));
    }
    if (!(op->attrs.rotary.theta > 0)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: theta %g, a positive number expected", op->name,
                         op->attrs.rotary.theta);
    }
    trmi_set_output(graph, op, 0, x->dtype, x->shape);
    return TRM_OK;
}

/* Builds the gradient: the rotation of dy by the negated angles. */
static void grad_rotary(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trmi_attrs attrs = op->attrs;
    attrs.rotary.inverse = !attrs.rotary.inverse;
    dx[0] = trmi_graph_add1(graph, TRMI_OP_ROTARY, NULL, dy, 1, &attrs);
}

const trmi_op_def trmi_op_attention = {"attention", infer_attention, grad_attention,
                                       cost_attention};
const trmi_op_def trmi_op_attention_grad = {"attention_grad", infer_grad, NULL, cost_attention};
const trmi_op_def trmi_op_attention_join = {"attention_join", infer_join, NULL, NULL};
const trmi_op_def trmi_op_rotary = {"rotary", infer_rotary, grad_rotary, NULL};

/* Adds the operator and returns y. */
static trm_node add_attention(trm_graph *graph, const trm_node inputs[4], trmi_attrs *attrs,
                              int64_t width, const trm_attention_options *options) {
    const trm_attention_options o = options != NULL ? *options : (trm_attention_options){0};
    attrs->attention.causal = o.causal;
    attrs->attention.scale = o.scale != 0 ? o.scale : 1 / sqrt(width > 0 ? (double)width : 1);
    int32_t index = trmi_graph_add(graph, TRMI_OP_ATTENTION, NULL, inputs, 4, 2, attrs);
    if (index == 0) {
        return TRM_NO_NODE;
    }
    /* `begin`: the place of the first query among the keys; queries are the last ones. */
    const trmi_op *op = &graph->ops[index];
    extents e;
    if (o.causal && attrs->attention.begin < 0 && read_extents(graph, op, 0, &e)) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID,
                  "%s: %lld queries of %lld keys: a causal attention has no more queries than keys",
                  op->name, (long long)e.queries, (long long)e.keys);
        trmi_graph_fail(graph, &err);
        return TRM_NO_NODE;
    }
    return (trm_node){op->outputs[0]};
}

/* Contract in trireme/graph.h. `begin` is how many keys lie before the first query: with a cache of
 * keys, new queries see all older keys. */
trm_node trm_attention(trm_graph *graph, trm_node q, trm_node k, trm_node v, trm_node mask,
                       const trm_attention_options *options) {
    trm_shape queries = trm_node_shape(graph, q), keys = trm_node_shape(graph, k);
    trmi_attrs attrs = {.attention = {.begin = keys.dim[1] - queries.dim[1]}};
    if (k.id == 0 && graph != NULL && graph->first_error.status == TRM_OK) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID, "attention: queries, keys and values expected, found no keys");
        trmi_graph_fail(graph, &err);
    }
    return add_attention(graph, (trm_node[]){q, k, v, mask}, &attrs,
                         queries.rank == 4 ? queries.dim[3] : 0, options);
}

trm_node trm_attention_packed(trm_graph *graph, trm_node qkv, int64_t heads, int64_t kv_heads,
                              trm_node mask, const trm_attention_options *options) {
    trm_shape shape = trm_node_shape(graph, qkv);
    int64_t g = kv_heads == 0 ? heads : kv_heads;
    trmi_attrs attrs = {.attention = {.heads = heads, .kv_heads = g}};
    int64_t all = heads > 0 && g > 0 ? heads + 2 * g : 1;
    return add_attention(graph, (trm_node[]){qkv, TRM_NO_NODE, TRM_NO_NODE, mask}, &attrs,
                         shape.rank == 3 ? shape.dim[2] / all : 0, options);
}

trm_node trm_rotary(trm_graph *graph, trm_node x, double theta, int64_t first_position) {
    trmi_attrs attrs = {.rotary = {.theta = theta == 0 ? 10000 : theta, .begin = first_position}};
    return trmi_graph_add1(graph, TRMI_OP_ROTARY, NULL, &x, 1, &attrs);
}
