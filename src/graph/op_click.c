/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of recommendation models.
 *
 *     bag_pool     rows [K, D], offsets [B + 1], weights [K] or none -> [B, D]
 *                  result b: weighted sum of rows offsets[b] to offsets[b + 1] - 1, divided as the
 *                  pooling says
 *     pair_dots    x [N, V, W] -> [N, V (V - 1) / 2], the inner product of each pair of rows i > j
 *
 * A rank may have a part of the rows of a bag pooling (attrs.bag.some, set by the partition): it
 * then has weights for more rows than its own, and the number of bags is an attribute. */
#include "graph/graph_ir.h"

#include "base/error.h"

/* ---- bags ---- */

/* Reports wrong inputs of a bag pooling. */
static trm_status fail_bag(const trm_graph *graph, const trmi_op *op, trm_error *err) {
    char rows[128] = "nothing", offsets[128] = "nothing";
    if (op->inputs[0] != 0 && op->inputs[1] != 0) {
        trmi_value_text(graph, op->inputs[0], rows, sizeof rows);
        trmi_value_text(graph, op->inputs[1], offsets, sizeof offsets);
    }
    return TRMI_FAIL(
        err, TRM_INVALID,
        "%s: rows [K, D], int offsets [B + 1] and weights [K] expected, found %s and %s", op->name,
        rows, offsets);
}

/* Returns whether a value is a vector of integer offsets. */
static bool is_offsets(const trmi_value *v) {
    return v != NULL && v->shape.rank == 1 && v->shape.dim[0] >= 1 &&
           (v->dtype == TRM_INT32 || v->dtype == TRM_INT64);
}

/* Infers rows [K, D], offsets [B + 1], weights [K] or absent -> [B, D]. */
static trm_status infer_bag(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *rows = trmi_input_of(graph, op, 0), *offsets = trmi_input_of(graph, op, 1);
    const trmi_value *weights = trmi_input_of(graph, op, 2);
    bool weighted = weights != NULL, part = op->attrs.bag.some;
    if (rows == NULL || rows->shape.rank != 2 || !is_offsets(offsets) ||
        (weighted && (weights->shape.rank != 1 || weights->dtype != TRM_FLOAT32 ||
                      weights->shape.dim[0] < rows->shape.dim[0] ||
                      (!part && weights->shape.dim[0] != rows->shape.dim[0])))) {
        return fail_bag(graph, op, err);
    }
    trmi_set_output(
        graph, op, 0, rows->dtype,
        trm_shape_of(part ? op->attrs.bag.bags : offsets->shape.dim[0] - 1, rows->shape.dim[1]));
    return TRM_OK;
}

/* The gradient has a row for each row that was looked up, [rows, width]. */
static trm_status infer_bag_grad(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    const trmi_value *dy = trmi_input_of(graph, op, 0);
    trmi_set_output(graph, op, 0, dy->dtype, trm_shape_of(op->attrs.bag.rows, dy->shape.dim[1]));
    return TRM_OK;
}

/* The gradient of a bag goes to each of its rows; offsets and weights have none. */
static void grad_bag(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trmi_attrs attrs = op->attrs;
    attrs.bag.rows = trmi_input_of(graph, op, 0)->shape.dim[0];
    trm_node inputs[] = {dy[0], {op->inputs[1]}, {op->inputs[2]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_BAG_POOL_GRAD, NULL, inputs, 3, &attrs);
}

const trmi_op_def trmi_op_bag_pool = {"bag_pool", infer_bag, grad_bag, NULL};
const trmi_op_def trmi_op_bag_pool_grad = {"bag_pool_grad", infer_bag_grad, NULL, NULL};

trm_node trm_bag_pool(trm_graph *graph, trm_node rows, trm_node offsets, trm_node weights,
                      trm_bag_pooling pooling) {
    trmi_attrs attrs = {.bag = {.pooling = pooling}};
    return trmi_graph_add1(graph, TRMI_OP_BAG_POOL, NULL, (trm_node[]){rows, offsets, weights}, 3,
                           &attrs);
}

/* ---- pairs ---- */

/* Infers x [N, V, W] -> [N, V (V - 1) / 2]. */
static trm_status infer_pairs(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    if (x == NULL || x->shape.rank != 3 || x->shape.dim[1] < 2) {
        char text[128] = "nothing";
        if (x != NULL) {
            trmi_value_text(graph, op->inputs[0], text, sizeof text);
        }
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: at least two rows a sample, [N, V, W], expected, found %s", op->name,
                         text);
    }
    int64_t v = x->shape.dim[1];
    trmi_set_output(graph, op, 0, x->dtype, trm_shape_of(x->shape.dim[0], v * (v - 1) / 2));
    return TRM_OK;
}

/* The gradient has the shape of x, [N, F, D]. */
static trm_status infer_pairs_grad(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    const trmi_value *x = trmi_input_of(graph, op, 1);
    trmi_set_output(graph, op, 0, x->dtype, x->shape);
    return TRM_OK;
}

/* dx_i = sum over j of dy_ij x_j: the kernel needs dy and x. */
static void grad_pairs(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_node inputs[] = {dy[0], {op->inputs[0]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_PAIR_DOTS_GRAD, NULL, inputs, 2, NULL);
}

/* Counts 2 operations for each pair and column, twice as many backward. */
static trmi_cost cost_pairs(const trm_graph *graph, const trmi_op *op) {
    bool backward = op->kind == TRMI_OP_PAIR_DOTS_GRAD;
    const trm_shape *x = &trmi_input_of(graph, op, backward ? 1 : 0)->shape;
    double rows = (double)x->dim[0], pairs = (double)(x->dim[1] * (x->dim[1] - 1) / 2);
    double elements = (double)trm_shape_count(x) * (backward ? 2 : 1) + rows * pairs;
    return (trmi_cost){.flops = (backward ? 4 : 2) * rows * pairs * (double)x->dim[2],
                       .bytes =
                           elements * (double)trm_dtype_bytes(trmi_output_of(graph, op, 0)->dtype)};
}

const trmi_op_def trmi_op_pair_dots = {"pair_dots", infer_pairs, grad_pairs, cost_pairs};
const trmi_op_def trmi_op_pair_dots_grad = {"pair_dots_grad", infer_pairs_grad, NULL, cost_pairs};

trm_node trm_pair_dots(trm_graph *graph, trm_node x) {
    return trmi_graph_add1(graph, TRMI_OP_PAIR_DOTS, NULL, &x, 1, NULL);
}
