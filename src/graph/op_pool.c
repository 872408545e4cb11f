/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling over windows of [N, C, H, W], and over the whole image [N, C, H, W] -> [N, C].
 *
 *     H' = (H + pads - kernel) / stride + 1, rounded down; W' likewise
 *
 * The gradients carry the shape of x as an attribute, because several shapes give one output.
 * Neither positions of maxima nor numbers of elements are kept: the gradient's kernel finds them
 * again. */
#include "graph/graph_ir.h"
#include "graph/arguments.h"

#include "base/error.h"

/* Infers x [N, C, H, W] -> [N, C, H', W']. Pads must be smaller than the kernel, so that every
 * window has a pixel. */
static trm_status infer_pool(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    char text[128];
    if (x == NULL || x->shape.rank != 4) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: [N,C,H,W] expected, found %s", op->name,
                         x == NULL ? "nothing"
                                   : trmi_value_text(graph, op->inputs[0], text, sizeof text));
    }
    trm_shape shape = x->shape;
    for (int d = 0; d < 2; d++) {
        int64_t kernel = op->attrs.pool.kernel[d], stride = op->attrs.pool.stride[d];
        int64_t before = op->attrs.pool.pad[2 * d], after = op->attrs.pool.pad[2 * d + 1];
        /* larger extents could overflow in sums */
        int64_t most = x->shape.dim[2 + d] > INT32_MAX ? 0 : INT32_MAX;
        if (kernel < 1 || stride < 1 || before < 0 || after < 0 || before >= kernel ||
            after >= kernel || kernel > most || stride > most ||
            x->shape.dim[2 + d] + before + after < kernel) {
            return TRMI_FAIL(
                err, TRM_INVALID,
                "%s: kernel %lld, stride %lld, pads %lld and %lld do not fit %s (pads must "
                "be smaller than the kernel)",
                op->name, (long long)kernel, (long long)stride, (long long)before, (long long)after,
                trmi_value_text(graph, op->inputs[0], text, sizeof text));
        }
        shape.dim[2 + d] = (x->shape.dim[2 + d] + before + after - kernel) / stride + 1;
    }
    trmi_set_output(graph, op, 0, x->dtype, shape);
    return TRM_OK;
}

/* The gradient has the shape of x, which the attributes carry. */
static trm_status infer_pool_grad(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    trmi_set_output(graph, op, 0, trmi_input_of(graph, op, 0)->dtype,
                    trm_shape_make(4, op->attrs.pool.shape));
    return TRM_OK;
}

/* [N, C, H, W] -> [N, C]. */
static trm_status infer_global(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    if (x == NULL || x->shape.rank != 4 || x->shape.dim[2] * x->shape.dim[3] < 1) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: [N,C,H,W] with at least one pixel expected",
                         op->name);
    }
    trmi_set_output(graph, op, 0, x->dtype, trm_shape_of(x->shape.dim[0], x->shape.dim[1]));
    return TRM_OK;
}

/* Sets the shape of x, which the gradient operator returns. */
static void with_shape(trmi_attrs *attrs, const trm_graph *graph, const trmi_op *op) {
    for (int i = 0; i < 4; i++) {
        attrs->pool.shape[i] = trmi_input_of(graph, op, 0)->shape.dim[i];
    }
}

/* The positions of the maxima are not kept: the gradient kernel finds them again. */
static void grad_max(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trmi_attrs attrs = op->attrs;
    with_shape(&attrs, graph, op);
    trm_node inputs[] = {dy[0], {op->inputs[0]}, {op->outputs[0]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_MAX_POOL_GRAD, NULL, inputs, 3, &attrs);
}

/* dx = dy / elements of the window, for each window that an element is in. */
static void grad_avg(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trmi_attrs attrs = op->attrs;
    with_shape(&attrs, graph, op);
    trmi_op_kind kind =
        op->kind == TRMI_OP_AVG_POOL ? TRMI_OP_AVG_POOL_GRAD : TRMI_OP_GLOBAL_AVG_POOL_GRAD;
    dx[0] = trmi_graph_add1(graph, kind, NULL, dy, 1, &attrs);
}

const trmi_op_def trmi_op_max_pool = {"max_pool", infer_pool, grad_max, NULL};
const trmi_op_def trmi_op_max_pool_grad = {"max_pool_grad", infer_pool_grad, NULL, NULL};
const trmi_op_def trmi_op_avg_pool = {"avg_pool", infer_pool, grad_avg, NULL};
const trmi_op_def trmi_op_avg_pool_grad = {"avg_pool_grad", infer_pool_grad, NULL, NULL};
const trmi_op_def trmi_op_global_avg_pool = {"global_avg_pool", infer_global, grad_avg, NULL};
const trmi_op_def trmi_op_global_avg_pool_grad = {"global_avg_pool_grad", infer_pool_grad, NULL,
                                                  NULL};

/* Adds a pooling; a stride of 0 means the kernel's extent. */
static trm_node add_pool(trm_graph *graph, trmi_op_kind kind, trm_node x,
                         const trm_pool_options *options) {
    trmi_attrs attrs = {.pool = {.kernel = {0}}};
    if (options != NULL) {
        attrs.pool.count_padding = options->count_padding;
        for (int i = 0; i < 2; i++) {
            attrs.pool.kernel[i] = options->kernel[i];
            attrs.pool.stride[i] =
                options->stride[i] == 0 ? options->kernel[i] : options->stride[i];
        }
        for (int i = 0; i < 4; i++) {
            attrs.pool.pad[i] = options->pad[i];
        }
    }
    return trmi_graph_add1(graph, kind, NULL, &x, 1, &attrs);
}

trm_node trm_max_pool(trm_graph *graph, trm_node x, const trm_pool_options *options) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, options);
    return add_pool(graph, TRMI_OP_MAX_POOL, x, options);
}
trm_node trm_avg_pool(trm_graph *graph, trm_node x, const trm_pool_options *options) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, options);
    return add_pool(graph, TRMI_OP_AVG_POOL, x, options);
}
trm_node trm_global_avg_pool(trm_graph *graph, trm_node x) {
    return trmi_graph_add1(graph, TRMI_OP_GLOBAL_AVG_POOL, NULL, &x, 1, NULL);
}
