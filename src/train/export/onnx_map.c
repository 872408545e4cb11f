/* SPDX-License-Identifier: Apache-2.0 */
/* Translates each operator of an evaluation graph into one or a few ONNX nodes (opset 17).
 *
 * Operators that ONNX has under another name are rows of PLAIN; the others have a function each
 * that converts attributes and layouts, those of transformers in onnx_map_transformers.c. A batch
 * dimension written into a shape (reshape) becomes -1, so that the file works for every batch size.
 * Gradients and training operators have no translation. */
#include "train/export/onnx_nodes.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    trmi_onnx_add_op_node(x, op, "Conv", 3, attributes, 4);
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
    trmi_onnx_add_op_node(x, op, average ? "AveragePool" : "MaxPool", 1, attributes,
                          average ? 4 : 3);
}

/* Adds global average pooling as two nodes, because ONNX keeps the spatial dimensions: [N, C, H,
 * W] -> GlobalAveragePool -> [N, C, 1, 1] -> Flatten -> [N, C]. */
static trm_status add_global_pool(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const char *input = trmi_onnx_input_name(x, op, 0), *output = x->names[op->outputs[0]];
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

/* Adds a linear layer: Gemm for two dimensions, MatMul and Add for more. */
static trm_status add_linear(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    bool inputs_first = op->attrs.matmul.inputs_first;
    const char *bias = trmi_onnx_input_name(x, op, 2), *y = x->names[op->outputs[0]];
    if (trmi_input_of(x->graph, op, 0)->shape.rank == 2) {
        const trmi_onnx_attribute transpose = trmi_onnx_int("transB", !inputs_first);
        trmi_onnx_add_op_node(x, op, "Gemm", 3, &transpose, 1);
        return TRM_OK;
    }
    const char *w = inputs_first ? trmi_onnx_input_name(x, op, 1)
                                 : trmi_onnx_transpose_input(x, op, 1, "turned");
    const char *product = bias[0] != '\0' ? trmi_onnx_name_between(x, op, "product") : y;
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    trmi_onnx_add_step(x, "MatMul", trmi_onnx_input_name(x, op, 0), w, product, NULL);
    if (bias[0] != '\0') {
        trmi_onnx_add_step(x, "Add", product, bias, y, NULL);
    }
    return TRM_OK;
}

/* Adds a matrix product: MatMul, or Gemm if an operand is transposed (rank 2 only). */
static trm_status add_matmul(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    bool a = op->attrs.matmul.transpose_a, b = op->attrs.matmul.transpose_b;
    if (!a && !b) {
        trmi_onnx_add_op_node(x, op, "MatMul", 2, NULL, 0);
        return TRM_OK;
    }
    if (trmi_input_of(x->graph, op, 0)->shape.rank != 2) {
        const char *left = a ? trmi_onnx_transpose_input(x, op, 0, "left")
                             : trmi_onnx_input_name(x, op, 0),
                   *right = b ? trmi_onnx_transpose_input(x, op, 1, "right")
                              : trmi_onnx_input_name(x, op, 1);
        TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
        trmi_onnx_add_step(x, "MatMul", left, right, x->names[op->outputs[0]], NULL);
        return TRM_OK;
    }
    const trmi_onnx_attribute attributes[] = {trmi_onnx_int("transA", a),
                                              trmi_onnx_int("transB", b)};
    trmi_onnx_add_op_node(x, op, "Gemm", 2, attributes, 2);
    return TRM_OK;
}

/* Adds the pairwise dot products of DLRM, [N, V, W] -> [N, V(V - 1)/2]. Four nodes: the product
 * of the rows with themselves [N, V, V] (Transpose, MatMul), flattened to [N, V * V] (Reshape),
 * then the elements i > j, row by row (Gather). */
static trm_status add_pair_dots(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const trm_shape *shape = &trmi_input_of(x->graph, op, 0)->shape;
    const int64_t rows = shape->dim[1], pairs = rows * (rows - 1) / 2, flat[2] = {-1, rows * rows};
    static const int64_t order[3] = {0, 2, 1};
    const char *input = trmi_onnx_input_name(x, op, 0), *output = x->names[op->outputs[0]];
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
    const char *as_row[] = {products, trmi_onnx_add_integers(x, flat, 2)};
    const char *taken[] = {row, trmi_onnx_add_integers(x, places, pairs)};
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

/* ---- shape and reduction --------------------------------------------------------------------- */

/* Adds a Transpose with the operator's order of dimensions. */
static void add_transpose(trmi_onnx *x, const trmi_op *op) {
    int64_t order[TRM_MAX_RANK];
    int32_t rank = trmi_input_of(x->graph, op, 0)->shape.rank;
    for (int32_t i = 0; i < rank; i++) {
        order[i] = op->attrs.transpose.order[i];
    }
    const trmi_onnx_attribute attribute = trmi_onnx_ints("perm", order, rank);
    trmi_onnx_add_op_node(x, op, "Transpose", 1, &attribute, 1);
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
    const char *extra[] = {trmi_onnx_add_integers(x, op->attrs.slice.begin, shape->rank),
                           trmi_onnx_add_integers(x, ends, shape->rank),
                           trmi_onnx_add_integers(x, axes, shape->rank)};
    return trmi_onnx_add_with_constants(x, op, "Slice", extra, 3, err);
}

/* Adds a Pad with a constant value; ONNX has all paddings before, then all paddings after. */
static trm_status add_pad(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    int64_t pads[2 * TRM_MAX_RANK];
    int32_t rank = trmi_input_of(x->graph, op, 0)->shape.rank;
    for (int32_t i = 0; i < rank; i++) {
        pads[i] = op->attrs.pad.before[i];
        pads[rank + i] = op->attrs.pad.after[i];
    }
    const char *extra[] = {trmi_onnx_add_integers(x, pads, 2 * (int64_t)rank),
                           trmi_onnx_add_number(x, op->attrs.pad.value)};
    return trmi_onnx_add_with_constants(x, op, "Pad", extra, 2, err);
}

/* Adds a OneHot along the last axis; ONNX takes the values as [off, on]. */
static trm_status add_one_hot(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    float values[2] = {(float)op->attrs.one_hot.off, (float)op->attrs.one_hot.on};
    trm_shape pair = trm_shape_of(2), one = trm_shape_of(1);
    int32_t narrow = (int32_t)op->attrs.one_hot.classes;
    bool wide = trmi_input_of(x->graph, op, 0)->dtype == TRM_INT64;
    /* The depth has the dtype of the labels: ONNX Runtime has no kernel for a mixture. */
    const char *depth = wide ? trmi_onnx_add_integers(x, &op->attrs.one_hot.classes, 1)
                             : trmi_onnx_add_constant(x, TRM_INT32, &one, &narrow);
    const char *extra[] = {depth, trmi_onnx_add_constant(x, TRM_FLOAT32, &pair, values)};
    return trmi_onnx_add_with_constants(x, op, "OneHot", extra, 2, err);
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
        trmi_onnx_add_op_node(x, op, op->kind == TRMI_OP_REDUCE_MEAN ? "ReduceMean" : "ReduceMax",
                              1, attributes, 2);
        return TRM_OK;
    }
    const char *extra = trmi_onnx_add_integers(x, axes, count);
    if (extra == NULL) {
        return TRMI_NO_MEMORY(err, "for '%s'", op->name);
    }
    const char *names[] = {trmi_onnx_input_name(x, op, 0), extra};
    trmi_onnx_add_named_node(x, op,
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
        return trmi_onnx_fail_unsupported(op, err);
    }
    const trmi_onnx_attribute to = trmi_onnx_int("to", types[dtype]);
    trmi_onnx_add_op_node(x, op, "Cast", 1, &to, 1);
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

/* Adds `shape` as a constant; with `open_batch` a first dimension equal to the batch becomes -1
 * (inferred by ONNX). */
static const char *target_shape(trmi_onnx *x, const trm_shape *shape, bool open_batch) {
    int64_t dims[TRM_MAX_RANK] = {0};
    for (int32_t i = 0; i < shape->rank; i++) {
        dims[i] = shape->dim[i];
    }
    if (open_batch && shape->rank > 0 && dims[0] == x->batch) {
        dims[0] = -1;
    }
    return trmi_onnx_add_integers(x, dims, shape->rank);
}

/* Adds a Reshape or Expand to the operator's shape. */
static trm_status add_shaped(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const trm_shape *shape = &op->attrs.shape.shape;
    bool reshape = op->kind == TRMI_OP_RESHAPE;
    const trm_shape *from = &trmi_input_of(x->graph, op, 0)->shape;
    trm_shape target = *shape;
    if (!reshape && shape->rank > 0 && shape->dim[0] == x->batch) {
        if (from->rank != shape->rank || from->dim[0] != x->batch) {
            return trmi_onnx_fail_unsupported(op, err); /* Expand cannot leave the batch open */
        }
        target.dim[0] = 1; /* as it is in the input */
    }
    const char *extra = target_shape(x, &target, reshape);
    return trmi_onnx_add_with_constants(x, op, reshape ? "Reshape" : "Expand", &extra, 1, err);
}

/* Contract in onnx_map.h. Operators of PLAIN first, then those with attributes or other layouts. */
trm_status trmi_onnx_add_op(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    for (size_t i = 0; i < sizeof PLAIN / sizeof PLAIN[0]; i++) {
        if (PLAIN[i].kind == op->kind) {
            trmi_onnx_add_op_node(x, op, PLAIN[i].name, PLAIN[i].inputs, NULL, 0);
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
        trmi_onnx_add_op_node(x, op, "BatchNormalization", 5, &attribute, 1);
        return TRM_OK;
    case TRMI_OP_MAX_POOL:
    case TRMI_OP_AVG_POOL: add_pool(x, op); return TRM_OK;
    case TRMI_OP_GLOBAL_AVG_POOL: return add_global_pool(x, op, err);
    /* products, and the layers of transformers */
    case TRMI_OP_LINEAR: return add_linear(x, op, err);
    case TRMI_OP_MATMUL: return add_matmul(x, op, err);
    case TRMI_OP_LAYER_NORM:
        attribute = trmi_onnx_float("epsilon", (float)op->attrs.layer_norm.epsilon);
        trmi_onnx_add_op_node(x, op, "LayerNormalization", 3, &attribute, 1);
        return TRM_OK;
    case TRMI_OP_RMS_NORM: return trmi_onnx_add_rms_norm(x, op, err);
    case TRMI_OP_GELU: return trmi_onnx_add_gelu(x, op, err);
    case TRMI_OP_SILU:
    case TRMI_OP_SWIGLU: return trmi_onnx_add_silu(x, op, err);
    case TRMI_OP_ROTARY: return trmi_onnx_add_rotary(x, op, err);
    case TRMI_OP_TOP_K: return trmi_onnx_add_top_k(x, op, err);
    case TRMI_OP_EXPERT_LINEAR: return trmi_onnx_add_expert_linear(x, op, err);
    case TRMI_OP_ATTENTION: return trmi_onnx_add_attention(x, op, err);
    case TRMI_OP_PAIR_DOTS: return add_pair_dots(x, op, err);
    /* one element at a time, or moves of elements */
    case TRMI_OP_SCALE:
        extra = trmi_onnx_add_number(x, op->attrs.scale.factor);
        return trmi_onnx_add_with_constants(x, op, "Mul", &extra, 1, err);
    case TRMI_OP_CAST: return add_cast(x, op, err);
    case TRMI_OP_SOFTMAX:
        attribute = trmi_onnx_int("axis", -1);
        trmi_onnx_add_op_node(x, op, "Softmax", 1, &attribute, 1);
        return TRM_OK;
    case TRMI_OP_RESHAPE:
    case TRMI_OP_BROADCAST: return add_shaped(x, op, err);
    case TRMI_OP_TRANSPOSE: add_transpose(x, op); return TRM_OK;
    case TRMI_OP_CONCAT:
        attribute = trmi_onnx_int("axis", op->attrs.concat.axis);
        trmi_onnx_add_op_node(x, op, "Concat", op->inputs_count, &attribute, 1);
        return TRM_OK;
    case TRMI_OP_SLICE: return add_slice(x, op, err);
    case TRMI_OP_PAD: return add_pad(x, op, err);
    case TRMI_OP_ONE_HOT: return add_one_hot(x, op, err);
    case TRMI_OP_REDUCE_SUM:
    case TRMI_OP_REDUCE_MEAN:
    case TRMI_OP_REDUCE_MAX: return add_reduce(x, op, err);
    default: return trmi_onnx_fail_unsupported(op, err);
    }
}
