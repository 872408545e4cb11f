/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over a set of dimensions: sum, mean, maximum.
 *
 *     axes         bits of an attribute: bit i for dimension i
 *     keep_dims    reduced dimensions keep the extent 1, else they disappear
 *     no axes      all dimensions: the result is a scalar
 *
 * The sum of no elements is 0; their maximum is an error of the graph. Sum and mean have gradients
 * of other operators (reshape and broadcast), the maximum one of its own. */
#include "graph/graph_ir.h"
#include "graph/arguments.h"

#include "base/error.h"

/* Reduced dimensions disappear, or keep the extent 1 with keep_dims. */
static trm_status infer_reduce(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    if (x == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: needs an input", op->name);
    }
    uint32_t axes = op->attrs.reduce.axes;
    if (axes >> x->shape.rank != 0) {
        char text[128];
        return TRMI_FAIL(err, TRM_INVALID, "%s: an axis is outside %s", op->name,
                         trmi_value_text(graph, op->inputs[0], text, sizeof text));
    }
    trm_shape shape = {0};
    for (int32_t i = 0; i < x->shape.rank; i++) {
        bool reduced = axes >> i & 1;
        if (reduced && op->kind == TRMI_OP_REDUCE_MAX && x->shape.dim[i] == 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: the maximum of no elements (dimension %d), one expected",
                             op->name, i);
        }
        if (!reduced || op->attrs.reduce.keep_dims) {
            shape.dim[shape.rank++] = reduced ? 1 : x->shape.dim[i];
        }
    }
    trmi_set_output(graph, op, 0, x->dtype, shape);
    return TRM_OK;
}

/* The gradient has the shape of x. */
static trm_status infer_max_grad(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    const trmi_value *x = trmi_input_of(graph, op, 1);
    trmi_set_output(graph, op, 0, x->dtype, x->shape);
    return TRM_OK;
}

/* Broadcasts dy to the shape of x; reduced dimensions are inserted with extent 1. */
static trm_node broadcast_gradient(trm_graph *graph, const trmi_op *op, trm_node dy) {
    trm_shape x = trmi_input_of(graph, op, 0)->shape, kept = x;
    for (int32_t i = 0; i < x.rank; i++) {
        kept.dim[i] = op->attrs.reduce.axes >> i & 1 ? 1 : x.dim[i];
    }
    trmi_attrs attrs = {.shape = {.shape = x}};
    trm_node column = trm_reshape(graph, dy, kept);
    return trmi_graph_add1(graph, TRMI_OP_BROADCAST, NULL, &column, 1, &attrs);
}

/* dx = dy, repeated along the dimensions that were summed. */
static void grad_sum(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    dx[0] = broadcast_gradient(graph, op, dy[0]);
}
/* Each element gets dy / count. */
static void grad_mean(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    double in = (double)trm_shape_count(&trmi_input_of(graph, op, 0)->shape);
    double out = (double)trm_shape_count(&trmi_output_of(graph, op, 0)->shape);
    dx[0] = broadcast_gradient(graph, op, trm_scale(graph, dy[0], in > 0 ? out / in : 0));
}
/* dx = dy where x equals the maximum, shared evenly among equal elements. */
static void grad_max(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_node inputs[] = {dy[0], {op->inputs[0]}, {op->outputs[0]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_REDUCE_MAX_GRAD, NULL, inputs, 3, &op->attrs);
}

const trmi_op_def trmi_op_reduce_sum = {"reduce_sum", infer_reduce, grad_sum, NULL};
const trmi_op_def trmi_op_reduce_mean = {"reduce_mean", infer_reduce, grad_mean, NULL};
const trmi_op_def trmi_op_reduce_max = {"reduce_max", infer_reduce, grad_max, NULL};
const trmi_op_def trmi_op_reduce_max_grad = {"reduce_max_grad", infer_max_grad, NULL, NULL};

/* Adds a reduction. Negative axes count from the end; no axes: all dimensions. */
static trm_node add_reduction(trm_graph *graph, trmi_op_kind kind, trm_node x, const int32_t *axes,
                              int32_t count, bool keep_dims) {
    int32_t rank = trm_node_shape(graph, x).rank;
    trmi_attrs attrs = {.reduce = {.keep_dims = keep_dims}};
    for (int32_t i = 0; i < count; i++) {
        int32_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        /* an axis out of range sets bit 31, which the shape rule refuses */
        attrs.reduce.axes |= 1u << (axis < 0 || axis > 30 ? 31 : axis);
    }
    if (count == 0) {
        attrs.reduce.axes = (1u << rank) - 1;
    }
    return trmi_graph_add1(graph, kind, NULL, &x, 1, &attrs);
}

trm_node trm_reduce_sum(trm_graph *graph, trm_node x, const int32_t *axes, int32_t count,
                        bool keep_dims) {
    if (count > 0) {
        TRMI_NEED_IN(graph, TRM_NO_NODE, axes);
    }
    return add_reduction(graph, TRMI_OP_REDUCE_SUM, x, axes, count, keep_dims);
}
trm_node trm_reduce_mean(trm_graph *graph, trm_node x, const int32_t *axes, int32_t count,
                         bool keep_dims) {
    if (count > 0) {
        TRMI_NEED_IN(graph, TRM_NO_NODE, axes);
    }
    return add_reduction(graph, TRMI_OP_REDUCE_MEAN, x, axes, count, keep_dims);
}
trm_node trm_reduce_max(trm_graph *graph, trm_node x, const int32_t *axes, int32_t count,
                        bool keep_dims) {
    if (count > 0) {
        TRMI_NEED_IN(graph, TRM_NO_NODE, axes);
    }
    return add_reduction(graph, TRMI_OP_REDUCE_MAX, x, axes, count, keep_dims);
}
