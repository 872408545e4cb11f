/* SPDX-License-Identifier: Apache-2.0 */
/* Each operator of ours as nodes of ONNX. Forward graphs only. */
#include "train/export/onnx_map.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- small tools
 *  ------------------------------------------------------------------------------------ */

static const char *input_name(const trmi_onnx *x, const trmi_op *op, int i) {
    return i < op->inputs_count && op->inputs[i] != 0 ? x->names[op->inputs[i]] : "";
}

/* A node whose first inputs are the operator's, then `extra`. */
static void add(trmi_onnx *x, const trmi_op *op, const char *kind, int inputs,
                const char *const *extra, int extra_count, const trm_onnx_attribute *attributes,
                int attribute_count) {
    const char *names[8];
    int count = 0;
    for (int i = 0; i < inputs && count < 8; i++) {
        names[count++] = input_name(x, op, i);
    }
    for (int i = 0; i < extra_count && count < 8; i++) {
        names[count++] = extra[i];
    }
    while (count > 0 && names[count - 1][0] == '\0') {
        count--; /* optional inputs at the end are left away */
    }
    const char *output = x->names[op->outputs[0]];
    trm_onnx_add_node(x->model, &(trm_onnx_node){.op = kind,
                                                 .name = op->name,
                                                 .inputs = names,
                                                 .input_count = count,
                                                 .outputs = &output,
                                                 .output_count = 1,
                                                 .attributes = attributes,
                                                 .attribute_count = attribute_count});
}

/* A constant of the model; its name, NULL when there is no memory. */
static const char *constant(trmi_onnx *x, trm_dtype dtype, const trm_shape *shape,
                            const void *data) {
    trm_tensor t = {.dtype = dtype, .shape = *shape};
    const char *name = trmi_arena_printf(&x->arena, "constant.%lld", (long long)x->constants++);
    t.data = trmi_arena_alloc(&x->arena, (size_t)trm_tensor_bytes(&t));
    if (name == NULL || t.data == NULL) {
        return NULL;
    }
    memcpy(t.data, data, (size_t)trm_tensor_bytes(&t));
    trm_onnx_add_initializer(x->model, name, &t);
    return name;
}

static const char *integers(trmi_onnx *x, const int64_t *values, int64_t count) {
    trm_shape shape = trm_shape_of(count);
    return constant(x, TRM_INT64, &shape, values);
}

static const char *number(trmi_onnx *x, double value) {
    float f = (float)value;
    trm_shape scalar = {.rank = 0};
    return constant(x, TRM_FLOAT32, &scalar, &f);
}

static trm_status with_constants(trmi_onnx *x, const trmi_op *op, const char *kind,
                                 const char *const *extra, int count, trm_error *err) {
    for (int i = 0; i < count; i++) {
        if (extra[i] == NULL) {
            return TRMI_FAIL(err, TRM_NOMEM, "no memory for the constants of '%s'", op->name);
        }
    }
    add(x, op, kind, 1, extra, count, NULL, 0);
    return TRM_OK;
}

static trm_status unsupported(const trmi_op *op, trm_error *err) {
    return TRMI_FAIL(err, TRM_UNSUPPORTED, "'%s': operator %s has no form in ONNX here", op->name,
                     trmi_op_def_of(op)->name);
}

/* A target shape; the batch becomes "what is left". */
static const char *target_shape(trmi_onnx *x, const trm_shape *shape, bool open_batch) {
    int64_t dims[TRM_MAX_RANK];
    for (int32_t i = 0; i < shape->rank; i++) {
        dims[i] = shape->dim[i];
    }
    if (open_batch && shape->rank > 0 && dims[0] == x->batch) {
        dims[0] = -1;
    }
    return integers(x, dims, shape->rank);
}

/* ---- layers
 *  ------------------------------------------------------------------------------------------ */

/* Ours: top, bottom, left, right. ONNX: top, left, bottom, right. */
static void onnx_pads(const int64_t pad[4], int64_t out[4]) {
    out[0] = pad[0];
    out[1] = pad[2];
    out[2] = pad[1];
    out[3] = pad[3];
}

static void add_conv(trmi_onnx *x, const trmi_op *op) {
    int64_t pads[4];
    onnx_pads(op->attrs.conv.pad, pads);
    const trm_onnx_attribute attributes[] = {trm_onnx_ints("strides", op->attrs.conv.stride, 2),
                                             trm_onnx_ints("dilations", op->attrs.conv.dilation, 2),
                                             trm_onnx_ints("pads", pads, 4),
                                             trm_onnx_int("group", op->attrs.conv.groups)};
    add(x, op, "Conv", 3, NULL, 0, attributes, 4);
}

static void add_pool(trmi_onnx *x, const trmi_op *op) {
    int64_t pads[4];
    onnx_pads(op->attrs.pool.pad, pads);
    bool average = op->kind == TRMI_OP_AVG_POOL;
    const trm_onnx_attribute attributes[] = {
        trm_onnx_ints("kernel_shape", op->attrs.pool.kernel, 2),
        trm_onnx_ints("strides", op->attrs.pool.stride, 2), trm_onnx_ints("pads", pads, 4),
        trm_onnx_int("count_include_pad", op->attrs.pool.count_padding)};
    add(x, op, average ? "AveragePool" : "MaxPool", 1, NULL, 0, attributes, average ? 4 : 3);
}

/* [N, C, H, W] -> [N, C, 1, 1] -> [N, C] */
static trm_status add_global_pool(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const char *input = input_name(x, op, 0), *output = x->names[op->outputs[0]];
    const char *middle = trmi_arena_printf(&x->arena, "%s/pooled", output);
    if (middle == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for '%s'", op->name);
    }
    const trm_onnx_attribute axis = trm_onnx_int("axis", 1);
    trm_onnx_add_node(x->model, &(trm_onnx_node){.op = "GlobalAveragePool",
                                                 .inputs = &input,
                                                 .input_count = 1,
                                                 .outputs = &middle,
                                                 .output_count = 1});
    trm_onnx_add_node(x->model, &(trm_onnx_node){.op = "Flatten",
                                                 .name = op->name,
                                                 .inputs = &middle,
                                                 .input_count = 1,
                                                 .outputs = &output,
                                                 .output_count = 1,
                                                 .attributes = &axis,
                                                 .attribute_count = 1});
    return TRM_OK;
}

static trm_status add_linear(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    if (trmi_input_of(x->graph, op, 0)->shape.rank != 2) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "'%s': a linear layer of rank %d has no form in ONNX here", op->name,
                         trmi_input_of(x->graph, op, 0)->shape.rank);
    }
    const trm_onnx_attribute transpose = trm_onnx_int("transB", 1);
    add(x, op, "Gemm", 3, NULL, 0, &transpose, 1);
    return TRM_OK;
}

static trm_status add_matmul(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    bool a = op->attrs.matmul.transpose_a, b = op->attrs.matmul.transpose_b;
    if (!a && !b) {
        add(x, op, "MatMul", 2, NULL, 0, NULL, 0);
        return TRM_OK;
    }
    if (trmi_input_of(x->graph, op, 0)->shape.rank != 2) {
        return unsupported(op, err);
    }
    const trm_onnx_attribute attributes[] = {trm_onnx_int("transA", a), trm_onnx_int("transB", b)};
    add(x, op, "Gemm", 2, NULL, 0, attributes, 2);
    return TRM_OK;
}

/* [N, V, W] -> [N, V(V - 1)/2]: the dot products of all pairs of rows i > j, row by row, taken out of
 * the product of the rows with themselves. */
static trm_status add_pair_dots(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const trm_shape *shape = &trmi_input_of(x->graph, op, 0)->shape;
    const int64_t rows = shape->dim[1], pairs = rows * (rows - 1) / 2, flat[2] = {-1, rows * rows};
    static const int64_t order[3] = {0, 2, 1};
    const char *input = input_name(x, op, 0), *output = x->names[op->outputs[0]];
    const char *turned = trmi_arena_printf(&x->arena, "%s/turned", output),
               *products = trmi_arena_printf(&x->arena, "%s/products", output),
               *row = trmi_arena_printf(&x->arena, "%s/row", output);
    int64_t *places;
    TRMI_TRY(TRMI_NEW_IN(err, &x->arena, places, pairs + 1, "to export '%s'", op->name));
    for (int64_t i = 1, at = 0; i < rows; i++) {
        for (int64_t j = 0; j < i; j++) {
            places[at++] = i * rows + j;
        }
    }
    const char *as_row[] = {products, integers(x, flat, 2)};
    const char *taken[] = {row, integers(x, places, pairs)};
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &x->arena, "to export '%s'", op->name));
    const trm_onnx_attribute perm = trm_onnx_ints("perm", order, 3), axis = trm_onnx_int("axis", 1);
    const trm_onnx_node nodes[] = {
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
        trm_onnx_add_node(x->model, &nodes[i]);
    }
    return TRM_OK;
}

/* ---- shape and reduction
 *  -------------------------------------------------------------------------------- */

static void add_transpose(trmi_onnx *x, const trmi_op *op) {
    int64_t order[TRM_MAX_RANK];
    int32_t rank = trmi_input_of(x->graph, op, 0)->shape.rank;
    for (int32_t i = 0; i < rank; i++) {
        order[i] = op->attrs.transpose.order[i];
    }
    const trm_onnx_attribute attribute = trm_onnx_ints("perm", order, rank);
    add(x, op, "Transpose", 1, NULL, 0, &attribute, 1);
}

static trm_status add_slice(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    int64_t ends[TRM_MAX_RANK], axes[TRM_MAX_RANK];
    const trm_shape *shape = &trmi_input_of(x->graph, op, 0)->shape;
    for (int32_t i = 0; i < shape->rank; i++) {
        bool whole = op->attrs.slice.begin[i] == 0 && op->attrs.slice.size[i] == shape->dim[i];
        ends[i] = whole ? INT64_MAX : op->attrs.slice.begin[i] + op->attrs.slice.size[i];
        axes[i] = i;
    }
    const char *extra[] = {integers(x, op->attrs.slice.begin, shape->rank),
                           integers(x, ends, shape->rank), integers(x, axes, shape->rank)};
    return with_constants(x, op, "Slice", extra, 3, err);
}

static trm_status add_pad(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    int64_t pads[2 * TRM_MAX_RANK];
    int32_t rank = trmi_input_of(x->graph, op, 0)->shape.rank;
    for (int32_t i = 0; i < rank; i++) {
        pads[i] = op->attrs.pad.before[i];
        pads[rank + i] = op->attrs.pad.after[i];
    }
    const char *extra[] = {integers(x, pads, 2 * (int64_t)rank), number(x, op->attrs.pad.value)};
    return with_constants(x, op, "Pad", extra, 2, err);
}

static trm_status add_one_hot(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    float values[2] = {(float)op->attrs.one_hot.off, (float)op->attrs.one_hot.on};
    trm_shape pair = trm_shape_of(2), one = trm_shape_of(1);
    int32_t narrow = (int32_t)op->attrs.one_hot.classes;
    bool wide = trmi_input_of(x->graph, op, 0)->dtype == TRM_INT64;
    /* Depth in the type of the labels: ONNX Runtime has no kernel for a mixture. */
    const char *depth =
        wide ? integers(x, &op->attrs.one_hot.classes, 1) : constant(x, TRM_INT32, &one, &narrow);
    const char *extra[] = {depth, constant(x, TRM_FLOAT32, &pair, values)};
    return with_constants(x, op, "OneHot", extra, 2, err);
}

static trm_status add_reduce(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    int64_t axes[TRM_MAX_RANK], count = 0;
    for (int32_t i = 0; i < TRM_MAX_RANK; i++) {
        if (op->attrs.reduce.axes >> i & 1) {
            axes[count++] = i;
        }
    }
    trm_onnx_attribute attributes[] = {trm_onnx_int("keepdims", op->attrs.reduce.keep_dims),
                                       trm_onnx_ints("axes", axes, count)};
    if (op->kind != TRMI_OP_REDUCE_SUM) { /* opset 17: only ReduceSum takes its axes as an input */
        add(x, op, op->kind == TRMI_OP_REDUCE_MEAN ? "ReduceMean" : "ReduceMax", 1, NULL, 0,
            attributes, 2);
        return TRM_OK;
    }
    const char *extra = integers(x, axes, count);
    if (extra == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for '%s'", op->name);
    }
    add(x, op, "ReduceSum", 1, &extra, 1, attributes, 1);
    return TRM_OK;
}

static trm_status add_cast(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    static const int64_t types[] = {
        [TRM_FLOAT32] = 1, [TRM_FLOAT64] = 11, [TRM_BFLOAT16] = 16, [TRM_FLOAT16] = 10,
        [TRM_INT8] = 3,    [TRM_UINT8] = 2,    [TRM_INT32] = 6,     [TRM_INT64] = 7};
    trm_dtype dtype = op->attrs.cast.dtype;
    if ((size_t)dtype >= sizeof types / sizeof types[0] || types[dtype] == 0) {
        return unsupported(op, err);
    }
    const trm_onnx_attribute to = trm_onnx_int("to", types[dtype]);
    add(x, op, "Cast", 1, NULL, 0, &to, 1);
    return TRM_OK;
}

/* ---- the table
 *  -------------------------------------------------------------------------------------------- */

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

static trm_status add_shaped(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    const trm_shape *shape = &op->attrs.shape.shape;
    bool reshape = op->kind == TRMI_OP_RESHAPE;
    if (!reshape && shape->rank > 0 && shape->dim[0] == x->batch) {
        return unsupported(op, err); /* Expand cannot leave the batch open */
    }
    const char *extra = target_shape(x, shape, reshape);
    return with_constants(x, op, reshape ? "Reshape" : "Expand", &extra, 1, err);
}

trm_status trmi_onnx_add_op(trmi_onnx *x, const trmi_op *op, trm_error *err) {
    for (size_t i = 0; i < sizeof PLAIN / sizeof PLAIN[0]; i++) {
        if (PLAIN[i].kind == op->kind) {
            add(x, op, PLAIN[i].name, PLAIN[i].inputs, NULL, 0, NULL, 0);
            return TRM_OK;
        }
    }
    trm_onnx_attribute attribute;
    const char *extra;
    switch (op->kind) {
    case TRMI_OP_CONV2D: add_conv(x, op); return TRM_OK;
    case TRMI_OP_BATCH_NORM_INFER:
        attribute = trm_onnx_float("epsilon", (float)op->attrs.norm.epsilon);
        add(x, op, "BatchNormalization", 5, NULL, 0, &attribute, 1);
        return TRM_OK;
    case TRMI_OP_MAX_POOL:
    case TRMI_OP_AVG_POOL: add_pool(x, op); return TRM_OK;
    case TRMI_OP_GLOBAL_AVG_POOL: return add_global_pool(x, op, err);
    case TRMI_OP_LINEAR: return add_linear(x, op, err);
    case TRMI_OP_MATMUL: return add_matmul(x, op, err);
    case TRMI_OP_PAIR_DOTS: return add_pair_dots(x, op, err);
    case TRMI_OP_SCALE:
        extra = number(x, op->attrs.scale.factor);
        return with_constants(x, op, "Mul", &extra, 1, err);
    case TRMI_OP_CAST: return add_cast(x, op, err);
    case TRMI_OP_SOFTMAX:
        attribute = trm_onnx_int("axis", -1);
        add(x, op, "Softmax", 1, NULL, 0, &attribute, 1);
        return TRM_OK;
    case TRMI_OP_RESHAPE:
    case TRMI_OP_BROADCAST: return add_shaped(x, op, err);
    case TRMI_OP_TRANSPOSE: add_transpose(x, op); return TRM_OK;
    case TRMI_OP_CONCAT:
        attribute = trm_onnx_int("axis", op->attrs.concat.axis);
        add(x, op, "Concat", op->inputs_count, NULL, 0, &attribute, 1);
        return TRM_OK;
    case TRMI_OP_SLICE: return add_slice(x, op, err);
    case TRMI_OP_PAD: return add_pad(x, op, err);
    case TRMI_OP_ONE_HOT: return add_one_hot(x, op, err);
    case TRMI_OP_REDUCE_SUM:
    case TRMI_OP_REDUCE_MEAN:
    case TRMI_OP_REDUCE_MAX: return add_reduce(x, op, err);
    default: return unsupported(op, err);
    }
}
