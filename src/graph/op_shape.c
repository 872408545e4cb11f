/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that move elements and compute nothing: reshape, broadcast, transpose, concat, slice,
 * pad, one_hot. One_hot has no gradient.
 *
 * Their gradients are operators of this file, too: concat by slices, slice by pad, pad by slice,
 * broadcast by a sum, transpose and reshape by themselves. Extents come from users, so sums and
 * products of them are checked for overflow before they become a shape. */
#include "graph/graph_ir.h"
#include "graph/arguments.h"

#include "base/checked.h"
#include "base/error.h"

/* Returns the first input.   errors  INVALID: absent */
static trm_status need_input(const trm_graph *graph, const trmi_op *op, const trmi_value **x,
                             trm_error *err) {
    *x = trmi_input_of(graph, op, 0);
    return *x != NULL ? TRM_OK : TRMI_FAIL(err, TRM_INVALID, "%s: needs an input", op->name);
}

/* One dimension may be -1: it is derived from the number of elements. */
static trm_status infer_reshape(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x;
    TRMI_TRY(need_input(graph, op, &x, err));
    trm_shape *shape = &op->attrs.shape.shape;
    int64_t count = trm_shape_count(&x->shape), known = 1;
    int32_t open = -1;
    char from[96], to[96];
    for (int32_t i = 0; i < shape->rank && i < TRM_MAX_RANK; i++) {
        if (shape->dim[i] == -1 && open < 0) {
            open = i;
        } else if (!trmi_mul_i64(known, shape->dim[i], &known)) {
            known = -1;
        }
    }
    /* The open dimension is what is left of the elements. */
    if (open >= 0 && known > 0 && count % known == 0) {
        shape->dim[open] = count / known;
    }
    if (trm_shape_count(shape) != count) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s does not reshape to %s", op->name,
                         trm_shape_format(&x->shape, from, sizeof from),
                         trm_shape_format(shape, to, sizeof to));
    }
    trmi_set_output(graph, op, 0, x->dtype, *shape);
    return TRM_OK;
}

/* Dimensions are aligned to the right; an extent of 1 can become any extent. */
static trm_status infer_broadcast_to(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x;
    TRMI_TRY(need_input(graph, op, &x, err));
    const trm_shape *to = &op->attrs.shape.shape;
    bool fits = x->shape.rank <= to->rank;
    for (int32_t i = 0; fits && i < x->shape.rank; i++) {
        int64_t d = x->shape.dim[i], wide = to->dim[i + to->rank - x->shape.rank];
        fits = d == wide || d == 1;
    }
    if (!fits) {
        char from[96], wide[96];
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s does not broadcast to %s", op->name,
                         trm_shape_format(&x->shape, from, sizeof from),
                         trm_shape_format(to, wide, sizeof wide));
    }
    trmi_set_output(graph, op, 0, x->dtype, *to);
    return TRM_OK;
}

/* The order must be a permutation of the dimensions. */
static trm_status infer_transpose(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x;
    TRMI_TRY(need_input(graph, op, &x, err));
    trm_shape shape = x->shape;
    uint32_t seen = 0;
    for (int32_t i = 0; i < shape.rank; i++) {
        int32_t from = op->attrs.transpose.order[i];
        if (from < 0 || from >= shape.rank || seen >> from & 1) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: the order is no permutation of %d dimensions",
                             op->name, shape.rank);
        }
        seen |= 1u << from;
        shape.dim[i] = x->shape.dim[from];
    }
    trmi_set_output(graph, op, 0, x->dtype, shape);
    return TRM_OK;
}

/* Infers a concatenation: inputs that differ only along the axis -> their extents added up. */
static trm_status infer_concat(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *first;
    TRMI_TRY(need_input(graph, op, &first, err));
    trm_shape shape = first->shape;
    int32_t axis = op->attrs.concat.axis;
    if (axis < 0 || axis >= shape.rank) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: axis %d of %d dimensions, 0 to %d expected",
                         op->name, axis, shape.rank, shape.rank - 1);
    }
    for (int i = 1; i < op->inputs_count; i++) {
        const trmi_value *x = trmi_input_of(graph, op, i);
        bool fits = x != NULL && x->shape.rank == shape.rank && x->dtype == first->dtype;
        for (int32_t d = 0; fits && d < shape.rank; d++) {
            fits = d == axis || x->shape.dim[d] == shape.dim[d];
        }
        if (!fits) {
            char left[128], right[128];
            return TRMI_FAIL(err, TRM_INVALID, "%s: %s and %s do not join along dimension %d",
                             op->name, trmi_value_text(graph, op->inputs[0], left, sizeof left),
                             trmi_value_text(graph, op->inputs[i], right, sizeof right), axis);
        }
        shape.dim[axis] += x->shape.dim[axis];
    }
    trmi_set_output(graph, op, 0, first->dtype, shape);
    return TRM_OK;
}

/* Checked without overflow: begin and size come from users. */
static trm_status infer_slice(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x;
    TRMI_TRY(need_input(graph, op, &x, err));
    trm_shape shape = x->shape;
    for (int32_t i = 0; i < shape.rank; i++) {
        int64_t begin = op->attrs.slice.begin[i], size = op->attrs.slice.size[i];
        if (begin < 0 || size < 0 || begin > shape.dim[i] || size > shape.dim[i] - begin) {
            char text[96];
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: %lld elements from %lld on of dimension %d are outside %s",
                             op->name, (long long)size, (long long)begin, i,
                             trm_shape_format(&x->shape, text, sizeof text));
        }
        shape.dim[i] = size;
    }
    trmi_set_output(graph, op, 0, x->dtype, shape);
    return TRM_OK;
}

/* Extents grow by the padding before and after. */
static trm_status infer_pad(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x;
    TRMI_TRY(need_input(graph, op, &x, err));
    trm_shape shape = x->shape;
    for (int32_t i = 0; i < shape.rank; i++) {
        int64_t before = op->attrs.pad.before[i], after = op->attrs.pad.after[i];
        if (before < 0 || after < 0 || !trmi_add_i64(shape.dim[i], before, &shape.dim[i]) ||
            !trmi_add_i64(shape.dim[i], after, &shape.dim[i])) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: %lld and %lld elements around dimension %d; 0 or more expected, "
                             "and a size below 2^63",
                             op->name, (long long)before, (long long)after, i);
        }
    }
    trmi_set_output(graph, op, 0, x->dtype, shape);
    return TRM_OK;
}

/* labels [...] -> [..., classes] float32. */
static trm_status infer_one_hot(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x;
    TRMI_TRY(need_input(graph, op, &x, err));
    int64_t classes = op->attrs.one_hot.classes;
    if ((x->dtype != TRM_INT32 && x->dtype != TRM_INT64) || classes < 1 ||
        x->shape.rank >= TRM_MAX_RANK) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: int labels and at least one class expected, found %s and %lld",
                         op->name, trm_dtype_name(x->dtype), (long long)classes);
    }
    trm_shape shape = x->shape;
    shape.dim[shape.rank++] = classes;
    trmi_set_output(graph, op, 0, TRM_FLOAT32, shape);
    return TRM_OK;
}

/* ---- gradients ---- */

/* Gradients move the elements back: concat by slices, slice by pad, pad by slice, broadcast by a
 * sum. */
static void grad_reshape(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    dx[0] = trm_reshape(graph, dy[0], trmi_input_of(graph, op, 0)->shape);
}
/* dx = dy, summed over what was repeated. */
static void grad_broadcast(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_shape shape = trmi_input_of(graph, op, 0)->shape;
    dx[0] = trmi_sum_to(graph, dy[0], &shape);
}
/* dx = dy, transposed by the inverse order. */
static void grad_transpose(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    int32_t back[TRM_MAX_RANK] = {0};
    for (int32_t i = 0; i < trmi_input_of(graph, op, 0)->shape.rank; i++) {
        back[op->attrs.transpose.order[i]] = i;
    }
    dx[0] = trm_transpose(graph, dy[0], back);
}
/* Each input gets its range of dy. */
static void grad_concat(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    int64_t begin[TRM_MAX_RANK] = {0};
    for (int i = 0; i < op->inputs_count; i++) {
        trm_shape shape = trmi_input_of(graph, op, i)->shape;
        dx[i] = trm_slice(graph, dy[0], begin, shape.dim);
        begin[op->attrs.concat.axis] += shape.dim[op->attrs.concat.axis];
    }
}
/* dx = dy, with zeros around it. */
static void grad_slice(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_shape shape = trmi_input_of(graph, op, 0)->shape;
    int64_t after[TRM_MAX_RANK] = {0};
    for (int32_t i = 0; i < shape.rank; i++) {
        after[i] = shape.dim[i] - op->attrs.slice.begin[i] - op->attrs.slice.size[i];
    }
    dx[0] = trm_pad(graph, dy[0], op->attrs.slice.begin, after, 0);
}
/* dx = the inner part of dy. */
static void grad_pad(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_shape shape = trmi_input_of(graph, op, 0)->shape;
    dx[0] = trm_slice(graph, dy[0], op->attrs.pad.before, shape.dim);
}

const trmi_op_def trmi_op_reshape = {"reshape", infer_reshape, grad_reshape, NULL};
const trmi_op_def trmi_op_broadcast = {"broadcast", infer_broadcast_to, grad_broadcast, NULL};
const trmi_op_def trmi_op_transpose = {"transpose", infer_transpose, grad_transpose, NULL};
const trmi_op_def trmi_op_concat = {"concat", infer_concat, grad_concat, NULL};
const trmi_op_def trmi_op_slice = {"slice", infer_slice, grad_slice, NULL};
const trmi_op_def trmi_op_pad = {"pad", infer_pad, grad_pad, NULL};
const trmi_op_def trmi_op_one_hot = {"one_hot", infer_one_hot, NULL, NULL};

/* ---- builders ---- */

trm_node trm_reshape(trm_graph *graph, trm_node x, trm_shape shape) {
    trmi_attrs attrs = {.shape = {.shape = shape}};
    return trmi_graph_add1(graph, TRMI_OP_RESHAPE, NULL, &x, 1, &attrs);
}

trm_node trm_transpose(trm_graph *graph, trm_node x, const int32_t *order) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, order);
    trmi_attrs attrs = {.transpose = {.order = {0}}};
    for (int32_t i = 0; i < trm_node_shape(graph, x).rank; i++) {
        attrs.transpose.order[i] = order[i];
    }
    return trmi_graph_add1(graph, TRMI_OP_TRANSPOSE, NULL, &x, 1, &attrs);
}

trm_node trm_concat(trm_graph *graph, const trm_node *nodes, int32_t count, int32_t axis) {
    if (count > 0) {
        TRMI_NEED_IN(graph, TRM_NO_NODE, nodes);
    }
    int32_t rank = count > 0 ? trm_node_shape(graph, nodes[0]).rank : 0;
    trmi_attrs attrs = {.concat = {.axis = axis < 0 ? axis + rank : axis}};
    return trmi_graph_add1(graph, TRMI_OP_CONCAT, NULL, nodes, count, &attrs);
}

trm_node trm_slice(trm_graph *graph, trm_node x, const int64_t *begin, const int64_t *size) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, begin, size);
    trmi_attrs attrs = {.slice = {.begin = {0}}};
    for (int32_t i = 0; i < trm_node_shape(graph, x).rank; i++) {
        attrs.slice.begin[i] = begin[i];
        attrs.slice.size[i] = size[i];
    }
    return trmi_graph_add1(graph, TRMI_OP_SLICE, NULL, &x, 1, &attrs);
}

trm_node trm_pad(trm_graph *graph, trm_node x, const int64_t *before, const int64_t *after,
                 double value) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, before, after);
    trmi_attrs attrs = {.pad = {.value = value}};
    for (int32_t i = 0; i < trm_node_shape(graph, x).rank; i++) {
        attrs.pad.before[i] = before[i];
        attrs.pad.after[i] = after[i];
    }
    return trmi_graph_add1(graph, TRMI_OP_PAD, NULL, &x, 1, &attrs);
}

trm_node trm_one_hot(trm_graph *graph, trm_node labels, int64_t classes, double on, double off) {
    trmi_attrs attrs = {.one_hot = {.classes = classes, .on = on, .off = off}};
    return trmi_graph_add1(graph, TRMI_OP_ONE_HOT, NULL, &labels, 1, &attrs);
}
