/* SPDX-License-Identifier: Apache-2.0 */
/* Translates the operators of transformers into ONNX nodes (opset 17, which has none of them as a
 * whole):
 *
 *      RMS_NORM, GELU, SILU, SWIGLU      a few nodes on elements
 *      ROTARY                            halves of heads, turned by tables of cosines and sines
 *      ATTENTION                         heads first, MatMul, bias of hidden keys, Softmax, MatMul
 *      TOP_K, EXPERT_LINEAR              the choice of experts, and all experts' products
 *
 * Invariant: each function's last node has the name of the operator's output. */
#include "train/export/onnx_nodes.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Adds an RMS norm, x / sqrt(mean(x x) + epsilon) * gamma: opset 17 has no operator for it. */
trm_status trmi_onnx_add_rms_norm(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const char *in = trmi_onnx_input_name(x, op, 0),
               *square = trmi_onnx_name_between(x, op, "square"),
               *mean = trmi_onnx_name_between(x, op, "mean"),
               *sum = trmi_onnx_name_between(x, op, "sum"),
               *root = trmi_onnx_name_between(x, op, "root"),
               *normed = trmi_onnx_name_between(x, op, "normed"),
               *epsilon = trmi_onnx_add_number(x, op->attrs.layer_norm.epsilon);
    const int64_t last = -1;
    const trmi_onnx_attribute axes = trmi_onnx_ints("axes", &last, 1);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    trmi_onnx_add_step(x, "Mul", in, in, square, NULL);
    trmi_onnx_add_step(x, "ReduceMean", square, NULL, mean, &axes);
    trmi_onnx_add_step(x, "Add", mean, epsilon, sum, NULL);
    trmi_onnx_add_step(x, "Sqrt", sum, NULL, root, NULL);
    trmi_onnx_add_step(x, "Div", in, root, normed, NULL);
    trmi_onnx_add_step(x, "Mul", normed, trmi_onnx_input_name(x, op, 1), x->names[op->outputs[0]],
                       NULL);
    return TRM_OK;
}

/* Adds a GELU: x Phi(x) by Erf, or by Tanh, x / 2 (1 + tanh u). */
trm_status trmi_onnx_add_gelu(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    bool by_tanh = op->attrs.gelu.tanh;
    const double root = 0.79788456080286535588;
    const char *in = trmi_onnx_input_name(x, op, 0),
               *inner = trmi_onnx_name_between(x, op, "inner"),
               *bent = trmi_onnx_name_between(x, op, "bent"),
               *one = trmi_onnx_name_between(x, op, "one"),
               *share = trmi_onnx_name_between(x, op, "share"),
               *square = trmi_onnx_name_between(x, op, "square"),
               *cube = trmi_onnx_name_between(x, op, "cube"),
               *slope = trmi_onnx_name_between(x, op, "slope");
    const char *ones = trmi_onnx_add_number(x, 1), *half = trmi_onnx_add_number(x, 0.5),
               *factor = trmi_onnx_add_number(x, by_tanh ? root : 0.70710678118654752440),
               *third = by_tanh ? trmi_onnx_add_number(x, root * 0.044715) : "";
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    if (by_tanh) { /* u = x (root + 0.044715 root x^2) */
        trmi_onnx_add_step(x, "Mul", in, in, square, NULL);
        trmi_onnx_add_step(x, "Mul", square, third, cube, NULL);
        trmi_onnx_add_step(x, "Add", cube, factor, slope, NULL);
        trmi_onnx_add_step(x, "Mul", in, slope, inner, NULL);
    } else {
        trmi_onnx_add_step(x, "Mul", in, factor, inner, NULL);
    }
    trmi_onnx_add_step(x, by_tanh ? "Tanh" : "Erf", inner, NULL, bent, NULL);
    trmi_onnx_add_step(x, "Add", bent, ones, one, NULL);
    trmi_onnx_add_step(x, "Mul", one, half, share, NULL);
    trmi_onnx_add_step(x, "Mul", in, share, x->names[op->outputs[0]], NULL);
    return TRM_OK;
}

/* Adds a SiLU, x sigmoid(x); of SWIGLU its product with the second input. */
trm_status trmi_onnx_add_silu(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    bool gated = op->kind == TRMI_OP_SWIGLU;
    const char *in = trmi_onnx_input_name(x, op, 0), *gate = trmi_onnx_name_between(x, op, "gate"),
               *y = x->names[op->outputs[0]],
               *silu = gated ? trmi_onnx_name_between(x, op, "silu") : y;
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    trmi_onnx_add_step(x, "Sigmoid", in, NULL, gate, NULL);
    trmi_onnx_add_step(x, "Mul", in, gate, silu, NULL);
    if (gated) {
        trmi_onnx_add_step(x, "Mul", silu, trmi_onnx_input_name(x, op, 1), y, NULL);
    }
    return TRM_OK;
}

/* Adds the part [begin, end) of a value along an axis and returns its name; NULL without memory. */
static const char *slice_value(trmi_onnx *x, const trmi_op *op, const char *of, const char *what,
                               const int64_t range[2], int64_t axis) {
    const char *name = trmi_onnx_name_between(x, op, what),
               *from = trmi_onnx_add_integers(x, &range[0], 1),
               *to = trmi_onnx_add_integers(x, &range[1], 1),
               *along = trmi_onnx_add_integers(x, &axis, 1);
    const char *names[] = {of, from, to, along};
    if (name != NULL && from != NULL && to != NULL && along != NULL) {
        trmi_onnx_add_node(x->model, &(trmi_onnx_node){.op = "Slice",
                                                       .inputs = names,
                                                       .input_count = 4,
                                                       .outputs = &name,
                                                       .output_count = 1});
    }
    return name;
}

/* Adds a rotary embedding, x cos + (-second half, first half) sin. The tables [T, 1, ..., D / 2]
 * are constants of the file, so positions are fixed at export; cosines and sines are computed in
 * double. */
trm_status trmi_onnx_add_rotary(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const trm_shape *shape = &trmi_input_of(x->graph, op, 0)->shape;
    int32_t last = shape->rank - 1;
    int64_t positions = shape->dim[1], half = shape->dim[last] / 2;
    trm_shape table = {.rank = last, .dim = {positions}};
    for (int32_t i = 1; i < last; i++) {
        table.dim[i] = i == last - 1 ? half : 1;
    }
    /* one row for each position, one column for each pair of elements */
    float *cosines, *sines;
    TRMI_TRY(
        TRMI_NEW_IN(err, &x->arena, cosines, positions * half + 1, "to export '%s'", op->name));
    TRMI_TRY(TRMI_NEW_IN(err, &x->arena, sines, positions * half + 1, "to export '%s'", op->name));
    for (int64_t i = 0; i < positions * half; i++) {
        double angle = (double)(op->attrs.rotary.begin + i / half) *
                       pow(op->attrs.rotary.theta, -(double)(i % half) / (double)half);
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
    const int64_t low[] = {0, half}, high[] = {half, 2 * half};
    /* Turn two halves a and b: (a cos - b sin, b cos + a sin). */
    const char *in = trmi_onnx_input_name(x, op, 0),
               *a = slice_value(x, op, in, "first", low, last),
               *b = slice_value(x, op, in, "second", high, last),
               *ac = trmi_onnx_name_between(x, op, "ac"), *bs = trmi_onnx_name_between(x, op, "bs"),
               *bc = trmi_onnx_name_between(x, op, "bc"), *as = trmi_onnx_name_between(x, op, "as"),
               *left = trmi_onnx_name_between(x, op, "left"),
               *right = trmi_onnx_name_between(x, op, "right");
    const char *c = trmi_onnx_add_constant(x, TRM_FLOAT32, &table, cosines),
               *s = trmi_onnx_add_constant(x, TRM_FLOAT32, &table, sines);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    const trmi_onnx_attribute axis = trmi_onnx_int("axis", last);
    trmi_onnx_add_step(x, "Mul", a, c, ac, NULL);
    trmi_onnx_add_step(x, "Mul", b, s, bs, NULL);
    trmi_onnx_add_step(x, "Mul", b, c, bc, NULL);
    trmi_onnx_add_step(x, "Mul", a, s, as, NULL);
    trmi_onnx_add_step(x, "Sub", ac, bs, left, NULL);
    trmi_onnx_add_step(x, "Add", bc, as, right, NULL);
    trmi_onnx_add_step(x, "Concat", left, right, x->names[op->outputs[0]], &axis);
    return TRM_OK;
}

/* Adds the reordering of q, k or v from [B, T, heads D] or [B, T, heads, D] to [B, heads, T, D],
 * and for k to [B, heads, D, T]; key heads are repeated for the query heads that share them.
 * NULL without memory. */
static const char *heads_first(trmi_onnx *x, const trmi_op *op, const char *of, const char *what,
                               const int64_t sizes[4], int64_t group) {
    static const int64_t forward[] = {0, 2, 1, 3}, turned_order[] = {0, 2, 3, 1};
    bool keys = what[0] == 'k';
    char text[40];
    snprintf(text, sizeof text, "%s/wide", what);
    const char *wide = trmi_onnx_name_between(x, op, text);
    snprintf(text, sizeof text, "%s/repeated", what);
    const char *repeated = trmi_onnx_name_between(x, op, text);
    snprintf(text, sizeof text, "%s/joined", what);
    const char *joined = trmi_onnx_name_between(x, op, text);
    snprintf(text, sizeof text, "%s/heads", what);
    const char *name = trmi_onnx_name_between(x, op, text);
    const int64_t five[] = {-1, sizes[1], sizes[2], 1, sizes[3]},
                  four[] = {-1, sizes[1], sizes[2] * group, sizes[3]},
                  times[] = {1, 1, 1, group, 1};
    bool repeats = group > 1;
    const char *as_five = repeats ? trmi_onnx_add_integers(x, five, 5) : "",
               *as_four = trmi_onnx_add_integers(x, four, 4),
               *by = repeats ? trmi_onnx_add_integers(x, times, 5) : "";
    const trmi_onnx_attribute perm = trmi_onnx_ints("perm", keys ? turned_order : forward, 4);
    if (wide == NULL || repeated == NULL || joined == NULL || name == NULL || as_five == NULL ||
        as_four == NULL || by == NULL) {
        return NULL;
    }
    /* grouped heads: a dimension for the group, repeated, then joined with the heads */
    if (repeats) {
        trmi_onnx_add_step(x, "Reshape", of, as_five, wide, NULL);
        trmi_onnx_add_step(x, "Tile", wide, by, repeated, NULL);
        trmi_onnx_add_step(x, "Reshape", repeated, as_four, joined, NULL);
    } else {
        trmi_onnx_add_step(x, "Reshape", of, as_four, joined, NULL);
    }
    trmi_onnx_add_step(x, "Transpose", joined, NULL, name, &perm);
    return name;
}

/* Returns the name of the constant added to the scores: 0 where query t reads key s, -1e9
 * elsewhere. "" if every query reads all keys. */
static const char *causal_bias(trmi_onnx *x, const trmi_op *op, int64_t queries, int64_t keys,
                               trm_error *err) {
    float *bias;
    if (!op->attrs.attention.causal) {
        return "";
    }
    if (TRMI_NEW_IN(err, &x->arena, bias, queries * keys + 1, "to export '%s'", op->name) !=
        TRM_OK) {
        return NULL;
    }
    for (int64_t i = 0; i < queries * keys; i++) {
        bias[i] = i % keys <= op->attrs.attention.begin + i / keys ? 0 : -1e9f;
    }
    trm_shape shape = trm_shape_of(queries, keys);
    return trmi_onnx_add_constant(x, TRM_FLOAT32, &shape, bias);
}

/* Adds what is added to the scores of masked keys: (mask - 1) * 1e30, [N, 1, 1, S]. Returns its
 * name.
 *   errors  NOMEM */
static trm_status add_hidden_keys(trmi_onnx *x, const trmi_op *op, int64_t keys, const char **out,
                                  trm_error *err) {
    const trmi_onnx_attribute to = trmi_onnx_int("to", 1);
    const int64_t form[] = {-1, 1, 1, keys};
    const char *real = trmi_onnx_name_between(x, op, "mask"),
               *less = trmi_onnx_name_between(x, op, "mask.less"),
               *large = trmi_onnx_name_between(x, op, "mask.large"),
               *hidden = trmi_onnx_name_between(x, op, "mask.hidden"),
               *one = trmi_onnx_add_number(x, 1), *factor = trmi_onnx_add_number(x, 1e30F),
               *shape = trmi_onnx_add_integers(x, form, 4);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    trmi_onnx_add_step(x, "Cast", trmi_onnx_input_name(x, op, 3), NULL, real, &to);
    trmi_onnx_add_step(x, "Sub", real, one, less, NULL);
    trmi_onnx_add_step(x, "Mul", less, factor, large, NULL);
    trmi_onnx_add_step(x, "Reshape", large, shape, hidden, NULL);
    *out = hidden;
    return TRM_OK;
}

/* Adds attention, softmax(scale q k^T + bias) v, for all heads at once.
 *   errors  NOMEM */
trm_status trmi_onnx_add_attention(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const trm_shape *q = &trmi_input_of(x->graph, op, 0)->shape;
    /* q, k and v are one input (packed) or three */
    bool packed = op->inputs[1] == 0;
    const trm_shape *k = packed ? q : &trmi_input_of(x->graph, op, 1)->shape;
    int64_t heads = packed ? op->attrs.attention.heads : q->dim[2],
            groups = packed ? op->attrs.attention.kv_heads : k->dim[2],
            width = packed ? q->dim[2] / (heads + 2 * groups) : q->dim[3];
    const int64_t own[] = {-1, q->dim[1], heads, width}, other[] = {-1, k->dim[1], groups, width};
    const char *parts[3], *names[] = {"q", "k", "v"};
    int64_t ends[] = {0, heads * width, (heads + groups) * width, (heads + 2 * groups) * width};
    for (int i = 0; i < 3; i++) {
        parts[i] = packed
                       ? slice_value(x, op, trmi_onnx_input_name(x, op, 0), names[i], &ends[i], 2)
                       : trmi_onnx_input_name(x, op, i);
        parts[i] = parts[i] == NULL ? NULL
                                    : heads_first(x, op, parts[i], names[i], i == 0 ? own : other,
                                                  i == 0 ? 1 : heads / groups);
    }
    const char *scores = trmi_onnx_name_between(x, op, "scores"),
               *scaled = trmi_onnx_name_between(x, op, "scaled"),
               *biased = trmi_onnx_name_between(x, op, "biased"),
               *shares = trmi_onnx_name_between(x, op, "shares"),
               *mixed = trmi_onnx_name_between(x, op, "mixed"),
               *back = trmi_onnx_name_between(x, op, "back"),
               *scale = trmi_onnx_add_number(x, op->attrs.attention.scale);
    const char *bias = causal_bias(x, op, q->dim[1], k->dim[1], err);
    /* the result has the form of q */
    int64_t result[] = {-1, q->dim[1], packed ? heads * width : heads, width};
    const char *form = trmi_onnx_add_integers(x, result, packed ? 3 : 4);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    static const int64_t order[] = {0, 2, 1, 3};
    const trmi_onnx_attribute perm = trmi_onnx_ints("perm", order, 4),
                              axis = trmi_onnx_int("axis", -1);
    trmi_onnx_add_step(x, "MatMul", parts[0], parts[1], scores, NULL);
    trmi_onnx_add_step(x, "Mul", scores, scale, scaled, NULL);
    if (bias[0] != '\0') {
        trmi_onnx_add_step(x, "Add", scaled, bias, biased, NULL);
    }
    const char *last = bias[0] != '\0' ? biased : scaled;
    if (op->inputs[3] != 0) {
        const char *masked = trmi_onnx_name_between(x, op, "masked"), *hidden = NULL;
        TRMI_TRY(add_hidden_keys(x, op, k->dim[1], &hidden, err));
        trmi_onnx_add_step(x, "Add", last, hidden, masked, NULL);
        last = masked;
    }
    trmi_onnx_add_step(x, "Softmax", last, NULL, shares, &axis);
    trmi_onnx_add_step(x, "MatMul", shares, parts[2], mixed, NULL);
    trmi_onnx_add_step(x, "Transpose", mixed, NULL, back, &perm);
    trmi_onnx_add_step(x, "Reshape", back, form, x->names[op->outputs[0]], NULL);
    return TRM_OK;
}

/* Adds a TopK, and a Cast of its columns: ONNX has them as int64, the operator as int32. */
trm_status trmi_onnx_add_top_k(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const char *columns = trmi_onnx_name_between(x, op, "columns"),
               *k = trmi_onnx_add_integers(x, &op->attrs.top_k.k, 1);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    const trmi_onnx_attribute to = trmi_onnx_int("to", 6);
    trmi_onnx_add_node(
        x->model, &(trmi_onnx_node){.op = "TopK",
                                    .name = op->name,
                                    .inputs = (const char *[]){trmi_onnx_input_name(x, op, 0), k},
                                    .input_count = 2,
                                    .outputs = (const char *[]){x->names[op->outputs[0]], columns},
                                    .output_count = 2});
    trmi_onnx_add_step(x, "Cast", columns, NULL, x->names[op->outputs[1]], &to);
    return TRM_OK;
}

/* Adds the products of rows with the weights of their experts: a Gather selects the weights
 * [rows, out, in], a batched MatMul multiplies them. */
trm_status trmi_onnx_add_expert_linear(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const int64_t last = -1;
    const char *weights = trmi_onnx_name_between(x, op, "weights"),
               *column = trmi_onnx_name_between(x, op, "column"),
               *product = trmi_onnx_name_between(x, op, "product"),
               *axis = trmi_onnx_add_integers(x, &last, 1);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    trmi_onnx_add_step(x, "Gather", trmi_onnx_input_name(x, op, 1), trmi_onnx_input_name(x, op, 2),
                       weights, NULL);
    trmi_onnx_add_step(x, "Unsqueeze", trmi_onnx_input_name(x, op, 0), axis, column, NULL);
    trmi_onnx_add_step(x, "MatMul", weights, column, product, NULL);
    trmi_onnx_add_step(x, "Squeeze", product, axis, x->names[op->outputs[0]], NULL);
    return TRM_OK;
}
