/* SPDX-License-Identifier: Apache-2.0 */
/* Translates each operator of an evaluation graph into one or a few ONNX nodes (opset 17).
 *
 * Operators that ONNX has under another name are rows of PLAIN; the others have a function each
 * that converts attributes and layouts. A batch dimension written into a shape (reshape) becomes
 * -1, so that the file works for every batch size. Gradients and training operators have no
 * translation. */
#include "train/export/onnx_map.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- helpers --------------------------------------------------------------------------------- */

/* Returns the name of the operator's input `i`, "" for one that is absent (ONNX's mark for
 * optional inputs). */
static const char *input_name(const trmi_onnx *x, const trmi_op *op, int i) {
    return i < op->inputs_count && op->inputs[i] != 0 ? x->names[op->inputs[i]] : "";
}

/* Adds a node that stands for the operator: its output has the name of the operator's first output.
 * ONNX omits optional inputs at the end, so those are removed. */
static void add_named_node(trmi_onnx *x, const trmi_op *op, trmi_onnx_node *node) {
    const char *output = x->names[op->outputs[0]];
    while (node->input_count > 0 && node->inputs[node->input_count - 1][0] == '\0') {
        node->input_count--;
    }
    node->name = op->name;
    node->outputs = &output;
    node->output_count = 1;
    trmi_onnx_add_node(x->model, node);
}

/* Adds such a node of kind `kind` whose inputs are the operator's first `inputs` inputs. */
static void add_op_node(trmi_onnx *x, const trmi_op *op, const char *kind, int inputs,
                        const trmi_onnx_attribute *attributes, int attribute_count) {
    const char *names[8];
    int count = 0;
    while (count < inputs && count < 8) {
        names[count] = input_name(x, op, count);
        count++;
    }
    add_named_node(x, op,
                   &(trmi_onnx_node){.op = kind,
                                     .inputs = names,
                                     .input_count = count,
                                     .attributes = attributes,
                                     .attribute_count = attribute_count});
}

/* Adds a constant (a copy of `data`) to the model and returns its name; NULL without memory. */
static const char *add_constant(trmi_onnx *x, trm_dtype dtype, const trm_shape *shape,
                                const void *data) {
    trm_tensor t = {.dtype = dtype, .shape = *shape};
    const char *name = trmi_arena_printf(&x->arena, "constant.%lld", (long long)x->constants++);
    t.data = trmi_arena_alloc(&x->arena, (size_t)trm_tensor_bytes(&t));
    if (name == NULL || t.data == NULL) {
        return NULL;
    }
    memcpy(t.data, data, (size_t)trm_tensor_bytes(&t));
    trmi_onnx_add_initializer(x->model, name, &t);
    return name;
}

/* Adds a constant vector of int64, for shapes and axes. */
static const char *add_integers(trmi_onnx *x, const int64_t *values, int64_t count) {
    trm_shape shape = trm_shape_of(count);
    return add_constant(x, TRM_INT64, &shape, values);
}

/* Adds a constant float scalar. */
static const char *add_number(trmi_onnx *x, double value) {
    float f = (float)value;
    trm_shape scalar = {.rank = 0};
    return add_constant(x, TRM_FLOAT32, &scalar, &f);
}

/* Adds a node with one input of the operator and the constants `extra`.
 *   errors  NOMEM: a constant is NULL */
static trm_status with_constants(trmi_onnx *x, const trmi_op *op, const char *kind,
                                 const char *const *extra, int count, trm_error *err) {
    const char *names[8] = {input_name(x, op, 0)};
    for (int i = 0; i < count; i++) {
        if (extra[i] == NULL) {
            return TRMI_NO_MEMORY(err, "for the constants of '%s'", op->name);
        }
        names[1 + i] = extra[i];
    }
    add_named_node(x, op, &(trmi_onnx_node){.op = kind, .inputs = names, .input_count = 1 + count});
    return TRM_OK;
}

static trm_status fail_unsupported(const trmi_op *op, trm_error *err) {
    return TRMI_FAIL(err, TRM_UNSUPPORTED, "'%s': operator %s has no form in ONNX here", op->name,
                     trmi_op_def_of(op)->name);
}

/* Adds `shape` as a constant; with `open_batch` a first dimension equal to the batch becomes -1
 * (inferred by ONNX). */
static const char *target_shape(trmi_onnx *x, const trm_shape *shape, bool open_batch) {
    int64_t dims[TRM_MAX_RANK];
    for (int32_t i = 0; i < shape->rank; i++) {
        dims[i] = shape->dim[i];
    }
    if (open_batch && shape->rank > 0 && dims[0] == x->batch) {
        dims[0] = -1;
    }
    return add_integers(x, dims, shape->rank);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Reorders paddings: Trireme has top, bottom, left, right; ONNX has top, left, bottom, right. */
static void onnx_pads(const int64_t pad[4], int64_t out[4]) {
    out[0] = pad[0];
    out[1] = pad[2];
    out[2] = pad[1];
    out[3] = pad[3];
}

/* Adds a Conv with strides, dilations, paddings and groups; the bias is its optional third
 * input. */
static void add_conv(trmi_onnx *x, const trmi_op *op) {
    int64_t pads[4];
    onnx_pads(op->attrs.conv.pad, pads);
    const trmi_onnx_attribute attributes[] = {
        trmi_onnx_ints("strides", op->attrs.conv.stride, 2),
        trmi_onnx_ints("dilations", op->attrs.conv.dilation, 2), trmi_onnx_ints("pads", pads, 4),
        trmi_onnx_int("group", op->attrs.conv.groups)};
    add_op_node(x, op, "Conv", 3, attributes, 4);
}

/* Adds a MaxPool or AveragePool; only the latter counts padding or not. */
static void add_pool(trmi_onnx *x, const trmi_op *op) {
    int64_t pads[4];
    onnx_pads(op->attrs.pool.pad, pads);
    bool average = op->kind == TRMI_OP_AVG_POOL;
    const trmi_onnx_attribute attributes[] = {
        trmi_onnx_ints("kernel_shape", op->attrs.pool.kernel, 2),
        trmi_onnx_ints("strides", op->attrs.pool.stride, 2), trmi_onnx_ints("pads", pads, 4),
        trmi_onnx_int("count_include_pad", op->attrs.pool.count_padding)};
    add_op_node(x, op, average ? "AveragePool" : "MaxPool", 1, attributes, average ? 4 : 3);
}

/* Adds global average pooling as two nodes, because ONNX keeps the spatial dimensions: [N, C, H,
 * W] -> GlobalAveragePool -> [N, C, 1, 1] -> Flatten -> [N, C]. */
static trm_status add_global_pool(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const char *input = input_name(x, op, 0), *output = x->names[op->outputs[0]];
    const char *middle = trmi_arena_printf(&x->arena, "%s/pooled", output);
    if (middle == NULL) {
        return TRMI_NO_MEMORY(err, "for '%s'", op->name);
    }
    const trmi_onnx_attribute axis = trmi_onnx_int("axis", 1);
    trmi_onnx_add_node(x->model, &(trmi_onnx_node){.op = "GlobalAveragePool",
                                                   .inputs = &input,
                                                   .input_count = 1,
                                                   .outputs = &middle,
                                                   .output_count = 1});
    trmi_onnx_add_node(x->model, &(trmi_onnx_node){.op = "Flatten",
                                                   .name = op->name,
                                                   .inputs = &middle,
                                                   .input_count = 1,
                                                   .outputs = &output,
                                                   .output_count = 1,
                                                   .attributes = &axis,
                                                   .attribute_count = 1});
    return TRM_OK;
}

/* Returns a name for a value between the nodes of one operator; NULL without memory. */
static const char *name_between(trmi_onnx *x, const trmi_op *op, const char *what) {
    return trmi_arena_printf(&x->arena, "%s/%s", x->names[op->outputs[0]], what);
}

/* Adds one node of several that make up an operator. Its inputs are `a` and, unless it is NULL,
 * `b`. */
static void add_node(trmi_onnx *x, const char *kind, const char *a, const char *b,
                     const char *output, const trmi_onnx_attribute *attribute) {
    const char *names[] = {a, b};
    int count = b == NULL ? 1 : 2;
    trmi_onnx_add_node(x->model, &(trmi_onnx_node){.op = kind,
                                                   .inputs = names,
                                                   .input_count = count,
                                                   .outputs = &output,
                                                   .output_count = 1,
                                                   .attributes = attribute,
                                                   .attribute_count = attribute != NULL});
}

/* Adds the transpose of an input's last two dimensions and returns its name; NULL without
 * memory. */
static const char *transpose_input(trmi_onnx *x, const trmi_op *op, int input, const char *what) {
    const char *name = name_between(x, op, what);
    int64_t order[TRM_MAX_RANK];
    int32_t rank = trmi_input_of(x->graph, op, input)->shape.rank;
    for (int32_t i = 0; i < rank; i++) {
        order[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    }
    const trmi_onnx_attribute perm = trmi_onnx_ints("perm", order, rank);
    if (name != NULL) {
        add_node(x, "Transpose", input_name(x, op, input), NULL, name, &perm);
    }
    return name;
}

/* Adds a linear layer: Gemm for two dimensions, MatMul and Add for more. */
static trm_status add_linear(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    bool inputs_first = op->attrs.matmul.inputs_first;
    const char *bias = input_name(x, op, 2), *y = x->names[op->outputs[0]];
    if (trmi_input_of(x->graph, op, 0)->shape.rank == 2) {
        const trmi_onnx_attribute transpose = trmi_onnx_int("transB", !inputs_first);
        add_op_node(x, op, "Gemm", 3, &transpose, 1);
        return TRM_OK;
    }
    const char *w = inputs_first ? input_name(x, op, 1) : transpose_input(x, op, 1, "turned");
    const char *product = bias[0] != '\0' ? name_between(x, op, "product") : y;
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    add_node(x, "MatMul", input_name(x, op, 0), w, product, NULL);
    if (bias[0] != '\0') {
        add_node(x, "Add", product, bias, y, NULL);
    }
    return TRM_OK;
}

/* Adds a matrix product: MatMul, or Gemm if an operand is transposed (rank 2 only). */
static trm_status add_matmul(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    bool a = op->attrs.matmul.transpose_a, b = op->attrs.matmul.transpose_b;
    if (!a && !b) {
        add_op_node(x, op, "MatMul", 2, NULL, 0);
        return TRM_OK;
    }
    if (trmi_input_of(x->graph, op, 0)->shape.rank != 2) {
        const char *left = a ? transpose_input(x, op, 0, "left") : input_name(x, op, 0),
                   *right = b ? transpose_input(x, op, 1, "right") : input_name(x, op, 1);
        TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
        add_node(x, "MatMul", left, right, x->names[op->outputs[0]], NULL);
        return TRM_OK;
    }
    const trmi_onnx_attribute attributes[] = {trmi_onnx_int("transA", a),
                                              trmi_onnx_int("transB", b)};
    add_op_node(x, op, "Gemm", 2, attributes, 2);
    return TRM_OK;
}

/* Adds the pairwise dot products of DLRM, [N, V, W] -> [N, V(V - 1)/2]. Four nodes: the product
 * of the rows with themselves [N, V, V] (Transpose, MatMul), flattened to [N, V * V] (Reshape),
 * then the elements i > j, row by row (Gather). */
static trm_status add_pair_dots(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const trm_shape *shape = &trmi_input_of(x->graph, op, 0)->shape;
    const int64_t rows = shape->dim[1], pairs = rows * (rows - 1) / 2, flat[2] = {-1, rows * rows};
    static const int64_t order[3] = {0, 2, 1};
    const char *input = input_name(x, op, 0), *output = x->names[op->outputs[0]];
    const char *turned = trmi_arena_printf(&x->arena, "%s/turned", output),
               *products = trmi_arena_printf(&x->arena, "%s/products", output),
               *row = trmi_arena_printf(&x->arena, "%s/row", output);
    /* places of the elements i > j in the flattened product */
    int64_t *places;
    TRMI_TRY(TRMI_NEW_IN(err, &x->arena, places, pairs + 1, "to export '%s'", op->name));
    for (int64_t i = 1, at = 0; i < rows; i++) {
        for (int64_t j = 0; j < i; j++) {
            places[at++] = i * rows + j;
        }
    }
    const char *as_row[] = {products, add_integers(x, flat, 2)};
    const char *taken[] = {row, add_integers(x, places, pairs)};
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    const trmi_onnx_attribute perm = trmi_onnx_ints("perm", order, 3),
                              axis = trmi_onnx_int("axis", 1);
    const trmi_onnx_node nodes[] = {
        {.op = "Transpose",
         .inputs = &input,
         .input_count = 1,
         .outputs = &turned,
         .output_count = 1,
         .attributes = &perm,
         .attribute_count = 1},
        {.op = "MatMul",
         .inputs = (const char *[]){input, turned},
         .input_count = 2,
         .outputs = &products,
         .output_count = 1},
        {.op = "Reshape", .inputs = as_row, .input_count = 2, .outputs = &row, .output_count = 1},
        {.op = "Gather",
         .name = op->name,
         .inputs = taken,
         .input_count = 2,
         .outputs = &output,
         .output_count = 1,
         .attributes = &axis,
         .attribute_count = 1}};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        trmi_onnx_add_node(x->model, &nodes[i]);
    }
    return TRM_OK;
}

/* ---- transformers ---------------------------------------------------------------------------- */

/* Adds an RMS norm, x / sqrt(mean(x x) + epsilon) * gamma: opset 17 has no operator for it. */
static trm_status add_rms_norm(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const char *in = input_name(x, op, 0), *square = name_between(x, op, "square"),
               *mean = name_between(x, op, "mean"), *sum = name_between(x, op, "sum"),
               *root = name_between(x, op, "root"), *normed = name_between(x, op, "normed"),
               *epsilon = add_number(x, op->attrs.layer_norm.epsilon);
    const int64_t last = -1;
    const trmi_onnx_attribute axes = trmi_onnx_ints("axes", &last, 1);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    add_node(x, "Mul", in, in, square, NULL);
    add_node(x, "ReduceMean", square, NULL, mean, &axes);
    add_node(x, "Add", mean, epsilon, sum, NULL);
    add_node(x, "Sqrt", sum, NULL, root, NULL);
    add_node(x, "Div", in, root, normed, NULL);
    add_node(x, "Mul", normed, input_name(x, op, 1), x->names[op->outputs[0]], NULL);
    return TRM_OK;
}

/* Adds a GELU: x Phi(x) by Erf, or by Tanh, x / 2 (1 + tanh u). */
static trm_status add_gelu(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    bool by_tanh = op->attrs.gelu.tanh;
    const double root = 0.79788456080286535588;
    const char *in = input_name(x, op, 0), *inner = name_between(x, op, "inner"),
               *bent = name_between(x, op, "bent"), *one = name_between(x, op, "one"),
               *share = name_between(x, op, "share"), *square = name_between(x, op, "square"),
               *cube = name_between(x, op, "cube"), *slope = name_between(x, op, "slope");
    const char *ones = add_number(x, 1), *half = add_number(x, 0.5),
               *factor = add_number(x, by_tanh ? root : 0.70710678118654752440),
               *third = by_tanh ? add_number(x, root * 0.044715) : "";
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    if (by_tanh) { /* u = x (root + 0.044715 root x^2) */
        add_node(x, "Mul", in, in, square, NULL);
        add_node(x, "Mul", square, third, cube, NULL);
        add_node(x, "Add", cube, factor, slope, NULL);
        add_node(x, "Mul", in, slope, inner, NULL);
    } else {
        add_node(x, "Mul", in, factor, inner, NULL);
    }
    add_node(x, by_tanh ? "Tanh" : "Erf", inner, NULL, bent, NULL);
    add_node(x, "Add", bent, ones, one, NULL);
    add_node(x, "Mul", one, half, share, NULL);
    add_node(x, "Mul", in, share, x->names[op->outputs[0]], NULL);
    return TRM_OK;
}

/* Adds a SiLU, x sigmoid(x); of SWIGLU its product with the second input. */
static trm_status add_silu(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    bool gated = op->kind == TRMI_OP_SWIGLU;
    const char *in = input_name(x, op, 0), *gate = name_between(x, op, "gate"),
               *y = x->names[op->outputs[0]], *silu = gated ? name_between(x, op, "silu") : y;
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    add_node(x, "Sigmoid", in, NULL, gate, NULL);
    add_node(x, "Mul", in, gate, silu, NULL);
    if (gated) {
        add_node(x, "Mul", silu, input_name(x, op, 1), y, NULL);
    }
    return TRM_OK;
}

/* Adds the part [begin, end) of a value along an axis and returns its name; NULL without memory. */
static const char *slice_value(trmi_onnx *x, const trmi_op *op, const char *of, const char *what,
                               const int64_t range[2], int64_t axis) {
    const char *name = name_between(x, op, what), *from = add_integers(x, &range[0], 1),
               *to = add_integers(x, &range[1], 1), *along = add_integers(x, &axis, 1);
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
static trm_status add_rotary(trmi_onnx *x, const trmi_op *op, trm_error *err) {
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
    const char *in = input_name(x, op, 0), *a = slice_value(x, op, in, "first", low, last),
               *b = slice_value(x, op, in, "second", high, last), *ac = name_between(x, op, "ac"),
               *bs = name_between(x, op, "bs"), *bc = name_between(x, op, "bc"),
               *as = name_between(x, op, "as"), *left = name_between(x, op, "left"),
               *right = name_between(x, op, "right");
    const char *c = add_constant(x, TRM_FLOAT32, &table, cosines),
               *s = add_constant(x, TRM_FLOAT32, &table, sines);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    const trmi_onnx_attribute axis = trmi_onnx_int("axis", last);
    add_node(x, "Mul", a, c, ac, NULL);
    add_node(x, "Mul", b, s, bs, NULL);
    add_node(x, "Mul", b, c, bc, NULL);
    add_node(x, "Mul", a, s, as, NULL);
    add_node(x, "Sub", ac, bs, left, NULL);
    add_node(x, "Add", bc, as, right, NULL);
    add_node(x, "Concat", left, right, x->names[op->outputs[0]], &axis);
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
    const char *wide = name_between(x, op, text);
    snprintf(text, sizeof text, "%s/repeated", what);
    const char *repeated = name_between(x, op, text);
    snprintf(text, sizeof text, "%s/joined", what);
    const char *joined = name_between(x, op, text);
    snprintf(text, sizeof text, "%s/heads", what);
    const char *name = name_between(x, op, text);
    const int64_t five[] = {-1, sizes[1], sizes[2], 1, sizes[3]},
                  four[] = {-1, sizes[1], sizes[2] * group, sizes[3]},
                  times[] = {1, 1, 1, group, 1};
    bool repeats = group > 1;
    const char *as_five = repeats ? add_integers(x, five, 5) : "",
               *as_four = add_integers(x, four, 4), *by = repeats ? add_integers(x, times, 5) : "";
    const trmi_onnx_attribute perm = trmi_onnx_ints("perm", keys ? turned_order : forward, 4);
    if (wide == NULL || repeated == NULL || joined == NULL || name == NULL || as_five == NULL ||
        as_four == NULL || by == NULL) {
        return NULL;
    }
    /* grouped heads: a dimension for the group, repeated, then joined with the heads */
    if (repeats) {
        add_node(x, "Reshape", of, as_five, wide, NULL);
        add_node(x, "Tile", wide, by, repeated, NULL);
        add_node(x, "Reshape", repeated, as_four, joined, NULL);
    } else {
        add_node(x, "Reshape", of, as_four, joined, NULL);
    }
    add_node(x, "Transpose", joined, NULL, name, &perm);
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
    return add_constant(x, TRM_FLOAT32, &shape, bias);
}

/* Adds what is added to the scores of masked keys: (mask - 1) * 1e30, [N, 1, 1, S]. Returns its
 * name.
 *   errors  NOMEM */
static trm_status add_hidden_keys(trmi_onnx *x, const trmi_op *op, int64_t keys, const char **out,
                                  trm_error *err) {
    const trmi_onnx_attribute to = trmi_onnx_int("to", 1);
    const int64_t form[] = {-1, 1, 1, keys};
    const char *real = name_between(x, op, "mask"), *less = name_between(x, op, "mask.less"),
               *large = name_between(x, op, "mask.large"),
               *hidden = name_between(x, op, "mask.hidden"), *one = add_number(x, 1),
               *factor = add_number(x, 1e30F), *shape = add_integers(x, form, 4);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    add_node(x, "Cast", input_name(x, op, 3), NULL, real, &to);
    add_node(x, "Sub", real, one, less, NULL);
    add_node(x, "Mul", less, factor, large, NULL);
    add_node(x, "Reshape", large, shape, hidden, NULL);
    *out = hidden;
    return TRM_OK;
}

/* Adds attention, softmax(scale q k^T + bias) v, for all heads at once.
 *   errors  NOMEM */
static trm_status add_attention(trmi_onnx *x, const trmi_op *op, trm_error *err) {
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
        parts[i] = packed ? slice_value(x, op, input_name(x, op, 0), names[i], &ends[i], 2)
                          : input_name(x, op, i);
        parts[i] = parts[i] == NULL ? NULL
                                    : heads_first(x, op, parts[i], names[i], i == 0 ? own : other,
                                                  i == 0 ? 1 : heads / groups);
    }
    const char *scores = name_between(x, op, "scores"), *scaled = name_between(x, op, "scaled"),
               *biased = name_between(x, op, "biased"), *shares = name_between(x, op, "shares"),
               *mixed = name_between(x, op, "mixed"), *back = name_between(x, op, "back"),
               *scale = add_number(x, op->attrs.attention.scale);
    const char *bias = causal_bias(x, op, q->dim[1], k->dim[1], err);
    /* the result has the form of q */
    int64_t result[] = {-1, q->dim[1], packed ? heads * width : heads, width};
    const char *form = add_integers(x, result, packed ? 3 : 4);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    static const int64_t order[] = {0, 2, 1, 3};
    const trmi_onnx_attribute perm = trmi_onnx_ints("perm", order, 4),
                              axis = trmi_onnx_int("axis", -1);
    add_node(x, "MatMul", parts[0], parts[1], scores, NULL);
    add_node(x, "Mul", scores, scale, scaled, NULL);
    if (bias[0] != '\0') {
        add_node(x, "Add", scaled, bias, biased, NULL);
    }
    const char *last = bias[0] != '\0' ? biased : scaled;
    if (op->inputs[3] != 0) {
        const char *masked = name_between(x, op, "masked"), *hidden = NULL;
        TRMI_TRY(add_hidden_keys(x, op, k->dim[1], &hidden, err));
        add_node(x, "Add", last, hidden, masked, NULL);
        last = masked;
    }
    add_node(x, "Softmax", last, NULL, shares, &axis);
    add_node(x, "MatMul", shares, parts[2], mixed, NULL);
    add_node(x, "Transpose", mixed, NULL, back, &perm);
    add_node(x, "Reshape", back, form, x->names[op->outputs[0]], NULL);
    return TRM_OK;
}

/* Adds a TopK, and a Cast of its columns: ONNX has them as int64, the operator as int32. */
static trm_status add_top_k(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const char *columns = name_between(x, op, "columns"),
               *k = add_integers(x, &op->attrs.top_k.k, 1);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    const trmi_onnx_attribute to = trmi_onnx_int("to", 6);
    trmi_onnx_add_node(
        x->model, &(trmi_onnx_node){.op = "TopK",
                                    .name = op->name,
                                    .inputs = (const char *[]){input_name(x, op, 0), k},
                                    .input_count = 2,
                                    .outputs = (const char *[]){x->names[op->outputs[0]], columns},
                                    .output_count = 2});
    add_node(x, "Cast", columns, NULL, x->names[op->outputs[1]], &to);
    return TRM_OK;
}

/* Adds the products of rows with the weights of their experts: a Gather selects the weights
 * [rows, out, in], a batched MatMul multiplies them. */
static trm_status add_expert_linear(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const int64_t last = -1;
    const char *weights = name_between(x, op, "weights"), *column = name_between(x, op, "column"),
               *product = name_between(x, op, "product"), *axis = add_integers(x, &last, 1);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    add_node(x, "Gather", input_name(x, op, 1), input_name(x, op, 2), weights, NULL);
    add_node(x, "Unsqueeze", input_name(x, op, 0), axis, column, NULL);
    add_node(x, "MatMul", weights, column, product, NULL);
    add_node(x, "Squeeze", product, axis, x->names[op->outputs[0]], NULL);
    return TRM_OK;
}

/* ---- shape and reduction --------------------------------------------------------------------- */

/* Adds a Transpose with the operator's order of dimensions. */
static void add_transpose(trmi_onnx *x, const trmi_op *op) {
    int64_t order[TRM_MAX_RANK];
    int32_t rank = trmi_input_of(x->graph, op, 0)->shape.rank;
    for (int32_t i = 0; i < rank; i++) {
        order[i] = op->attrs.transpose.order[i];
    }
    const trmi_onnx_attribute attribute = trmi_onnx_ints("perm", order, rank);
    add_op_node(x, op, "Transpose", 1, &attribute, 1);
}

/* Adds a Slice. A dimension that is taken whole gets an open end, so that the batch may differ. */
static trm_status add_slice(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    int64_t ends[TRM_MAX_RANK], axes[TRM_MAX_RANK];
    const trm_shape *shape = &trmi_input_of(x->graph, op, 0)->shape;
    for (int32_t i = 0; i < shape->rank; i++) {
        bool whole = op->attrs.slice.begin[i] == 0 && op->attrs.slice.size[i] == shape->dim[i];
        ends[i] = whole ? INT64_MAX : op->attrs.slice.begin[i] + op->attrs.slice.size[i];
        axes[i] = i;
    }
    const char *extra[] = {add_integers(x, op->attrs.slice.begin, shape->rank),
                           add_integers(x, ends, shape->rank), add_integers(x, axes, shape->rank)};
    return with_constants(x, op, "Slice", extra, 3, err);
}

/* Adds a Pad with a constant value; ONNX has all paddings before, then all paddings after. */
static trm_status add_pad(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    int64_t pads[2 * TRM_MAX_RANK];
    int32_t rank = trmi_input_of(x->graph, op, 0)->shape.rank;
    for (int32_t i = 0; i < rank; i++) {
        pads[i] = op->attrs.pad.before[i];
        pads[rank + i] = op->attrs.pad.after[i];
    }
    const char *extra[] = {add_integers(x, pads, 2 * (int64_t)rank),
                           add_number(x, op->attrs.pad.value)};
    return with_constants(x, op, "Pad", extra, 2, err);
}

/* Adds a OneHot along the last axis; ONNX takes the values as [off, on]. */
static trm_status add_one_hot(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    float values[2] = {(float)op->attrs.one_hot.off, (float)op->attrs.one_hot.on};
    trm_shape pair = trm_shape_of(2), one = trm_shape_of(1);
    int32_t narrow = (int32_t)op->attrs.one_hot.classes;
    bool wide = trmi_input_of(x->graph, op, 0)->dtype == TRM_INT64;
    /* The depth has the dtype of the labels: ONNX Runtime has no kernel for a mixture. */
    const char *depth = wide ? add_integers(x, &op->attrs.one_hot.classes, 1)
                             : add_constant(x, TRM_INT32, &one, &narrow);
    const char *extra[] = {depth, add_constant(x, TRM_FLOAT32, &pair, values)};
    return with_constants(x, op, "OneHot", extra, 2, err);
}

/* Adds a reduction over the axes of the operator's bit mask. */
static trm_status add_reduce(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    int64_t axes[TRM_MAX_RANK], count = 0;
    for (int32_t i = 0; i < TRM_MAX_RANK; i++) {
        if (op->attrs.reduce.axes >> i & 1) {
            axes[count++] = i;
        }
    }
    trmi_onnx_attribute attributes[] = {trmi_onnx_int("keepdims", op->attrs.reduce.keep_dims),
                                        trmi_onnx_ints("axes", axes, count)};
    if (op->kind != TRMI_OP_REDUCE_SUM) { /* opset 17: only ReduceSum takes its axes as an input */
        add_op_node(x, op, op->kind == TRMI_OP_REDUCE_MEAN ? "ReduceMean" : "ReduceMax", 1,
                    attributes, 2);
        return TRM_OK;
    }
    const char *extra = add_integers(x, axes, count);
    if (extra == NULL) {
        return TRMI_NO_MEMORY(err, "for '%s'", op->name);
    }
    const char *names[] = {input_name(x, op, 0), extra};
    add_named_node(x, op,
                   &(trmi_onnx_node){.op = "ReduceSum",
                                     .inputs = names,
                                     .input_count = 2,
                                     .attributes = attributes,
                                     .attribute_count = 1});
    return TRM_OK;
}

/* Adds a Cast; dtypes are translated into ONNX's numbers (TensorProto.DataType). */
static trm_status add_cast(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    static const int64_t types[] = {
        [TRM_FLOAT32] = 1, [TRM_FLOAT64] = 11, [TRM_BFLOAT16] = 16, [TRM_FLOAT16] = 10,
        [TRM_INT8] = 3,    [TRM_UINT8] = 2,    [TRM_INT32] = 6,     [TRM_INT64] = 7};
    trm_dtype dtype = op->attrs.cast.dtype;
    if ((size_t)dtype >= sizeof types / sizeof types[0] || types[dtype] == 0) {
        return fail_unsupported(op, err);
    }
    const trmi_onnx_attribute to = trmi_onnx_int("to", types[dtype]);
    add_op_node(x, op, "Cast", 1, &to, 1);
    return TRM_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* An operator that needs no attributes in ONNX. */
typedef struct plain {
    trmi_op_kind kind;
    const char *name;
    int inputs;
} plain;

/* Operators that are the same in both, without attributes. */
static const plain PLAIN[] = {
    {TRMI_OP_ADD, "Add", 2},          {TRMI_OP_SUB, "Sub", 2},
    {TRMI_OP_MUL, "Mul", 2},          {TRMI_OP_DIV, "Div", 2},
    {TRMI_OP_RELU, "Relu", 1},        {TRMI_OP_SIGMOID, "Sigmoid", 1},
    {TRMI_OP_TANH, "Tanh", 1},        {TRMI_OP_EXP, "Exp", 1},
    {TRMI_OP_LOG, "Log", 1},          {TRMI_OP_SQRT, "Sqrt", 1},
    {TRMI_OP_EMBEDDING, "Gather", 2}, {TRMI_OP_DROPOUT, "Identity", 1}, /* evaluation */
};

/* Adds a Reshape or Expand to the operator's shape. */
static trm_status add_shaped(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const trm_shape *shape = &op->attrs.shape.shape;
    bool reshape = op->kind == TRMI_OP_RESHAPE;
    const trm_shape *from = &trmi_input_of(x->graph, op, 0)->shape;
    trm_shape target = *shape;
    if (!reshape && shape->rank > 0 && shape->dim[0] == x->batch) {
        if (from->rank != shape->rank || from->dim[0] != x->batch) {
            return fail_unsupported(op, err); /* Expand cannot leave the batch open */
        }
        target.dim[0] = 1; /* as it is in the input */
    }
    const char *extra = target_shape(x, &target, reshape);
    return with_constants(x, op, reshape ? "Reshape" : "Expand", &extra, 1, err);
}

/* Contract in onnx_map.h. Operators of PLAIN first, then those with attributes or other layouts. */
trm_status trmi_onnx_add_op(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    for (size_t i = 0; i < sizeof PLAIN / sizeof PLAIN[0]; i++) {
        if (PLAIN[i].kind == op->kind) {
            add_op_node(x, op, PLAIN[i].name, PLAIN[i].inputs, NULL, 0);
            return TRM_OK;
        }
    }
    trmi_onnx_attribute attribute;
    const char *extra;
    switch (op->kind) {
    /* convolution and pooling */
    case TRMI_OP_CONV2D: add_conv(x, op); return TRM_OK;
    case TRMI_OP_BATCH_NORM_INFER:
        attribute = trmi_onnx_float("epsilon", (float)op->attrs.norm.epsilon);
        add_op_node(x, op, "BatchNormalization", 5, &attribute, 1);
        return TRM_OK;
    case TRMI_OP_MAX_POOL:
    case TRMI_OP_AVG_POOL: add_pool(x, op); return TRM_OK;
    case TRMI_OP_GLOBAL_AVG_POOL: return add_global_pool(x, op, err);
    /* products, and the layers of transformers */
    case TRMI_OP_LINEAR: return add_linear(x, op, err);
    case TRMI_OP_MATMUL: return add_matmul(x, op, err);
    case TRMI_OP_LAYER_NORM:
        attribute = trmi_onnx_float("epsilon", (float)op->attrs.layer_norm.epsilon);
        add_op_node(x, op, "LayerNormalization", 3, &attribute, 1);
        return TRM_OK;
    case TRMI_OP_RMS_NORM: return add_rms_norm(x, op, err);
    case TRMI_OP_GELU: return add_gelu(x, op, err);
    case TRMI_OP_SILU:
    case TRMI_OP_SWIGLU: return add_silu(x, op, err);
    case TRMI_OP_ROTARY: return add_rotary(x, op, err);
    case TRMI_OP_TOP_K: return add_top_k(x, op, err);
    case TRMI_OP_EXPERT_LINEAR: return add_expert_linear(x, op, err);
    case TRMI_OP_ATTENTION: return add_attention(x, op, err);
    case TRMI_OP_PAIR_DOTS: return add_pair_dots(x, op, err);
    /* one element at a time, or moves of elements */
    case TRMI_OP_SCALE:
        extra = add_number(x, op->attrs.scale.factor);
        return with_constants(x, op, "Mul", &extra, 1, err);
    case TRMI_OP_CAST: return add_cast(x, op, err);
    case TRMI_OP_SOFTMAX:
        attribute = trmi_onnx_int("axis", -1);
        add_op_node(x, op, "Softmax", 1, &attribute, 1);
        return TRM_OK;
    case TRMI_OP_RESHAPE:
    case TRMI_OP_BROADCAST: return add_shaped(x, op, err);
    case TRMI_OP_TRANSPOSE: add_transpose(x, op); return TRM_OK;
    case TRMI_OP_CONCAT:
        attribute = trmi_onnx_int("axis", op->attrs.concat.axis);
        add_op_node(x, op, "Concat", op->inputs_count, &attribute, 1);
        return TRM_OK;
    case TRMI_OP_SLICE: return add_slice(x, op, err);
    case TRMI_OP_PAD: return add_pad(x, op, err);
    case TRMI_OP_ONE_HOT: return add_one_hot(x, op, err);
    case TRMI_OP_REDUCE_SUM:
    case TRMI_OP_REDUCE_MEAN:
    case TRMI_OP_REDUCE_MAX: return add_reduce(x, op, err);
    default: return fail_unsupported(op, err);
    }
}
