/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layer on looked-up rows. Rows of one field with equal ids are equal, so the layer computes
 * each product once for each distinct id of a batch. Added by plan/passes/pass_fuse_keyed.c. */
#include "graph/graph_ir.h"

#include "base/error.h"

/* Checks shapes: rows [N, F, D], ids [N, F], weights [O, F * D + M], dense [N, M] or absent. */
static bool shapes_fit(const trmi_value *rows, const trmi_value *ids, const trmi_value *weights,
                       const trmi_value *dense) {
    bool ranks = rows->shape.rank == 3 && ids->shape.rank == 2 && weights->shape.rank == 2;
    if (!ranks || (ids->dtype != TRM_INT32 && ids->dtype != TRM_INT64)) {
        return false;
    }
    const int64_t *r = rows->shape.dim;
    int64_t more = dense == NULL                                           ? 0
                   : dense->shape.rank == 2 && dense->shape.dim[0] == r[0] ? dense->shape.dim[1]
                                                                           : -1;
    return more >= 0 && ids->shape.dim[0] == r[0] && ids->shape.dim[1] == r[1] &&
           weights->shape.dim[1] == r[1] * r[2] + more;
}

/* Infers the layer [N, O], and the groups of equal ids, which backward reads again. */
static trm_status infer_keyed(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *rows = trmi_input_of(graph, op, 0), *ids = trmi_input_of(graph, op, 1);
    const trmi_value *weights = trmi_input_of(graph, op, 2);
    if (rows == NULL || ids == NULL || weights == NULL ||
        !shapes_fit(rows, ids, weights, trmi_input_of(graph, op, 3))) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: rows [N, F, D], ids [N, F], weights [O, F * D + M] and dense [N, M] "
                         "expected",
                         op->name);
    }
    int64_t samples = rows->shape.dim[0], fields = rows->shape.dim[1],
            outputs = weights->shape.dim[0];
    trm_dtype dtype = rows->dtype;
    trmi_set_output(graph, op, 0, dtype, trm_shape_of(samples, outputs));
    trmi_set_output(graph, op, 1, TRM_INT32, trm_shape_of(fields, 2 * samples + 1));
    return TRM_OK;
}

/* Outputs: gradient of the weights, gradient of the rows. */
static trm_status infer_keyed_grad(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    const trmi_value *rows = trmi_input_of(graph, op, 1), *weights = trmi_input_of(graph, op, 2);
    trm_shape rows_shape = rows->shape, weights_shape = weights->shape;
    trm_dtype dtype = rows->dtype;
    trmi_set_output(graph, op, 0, dtype, weights_shape);
    trmi_set_output(graph, op, 1, dtype, rows_shape);
    return TRM_OK;
}

/* Builds the gradients: one operator for weights and rows, a sum for the bias. Ids and dense inputs
 * have none. */
static void grad_keyed(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_node inputs[] = {
        dy[0], {op->inputs[0]}, {op->inputs[2]}, {op->inputs[3]}, {op->outputs[1]}};
    bool biased = op->inputs_count > 4 && op->inputs[4] != 0;
    int32_t index = trmi_graph_add(graph, TRMI_OP_KEYED_LINEAR_GRAD, NULL, inputs, 5, 2, NULL);
    if (index != 0) {
        dx[2] = (trm_node){graph->ops[index].outputs[0]};
        dx[0] = (trm_node){graph->ops[index].outputs[1]};
    }
    if (biased) {
        dx[4] = trm_reduce_sum(graph, dy[0], (const int32_t[]){0}, 1, false);
    }
}

/* Upper bound: counts as if all ids were distinct. */
static trmi_cost cost_keyed(const trm_graph *graph, const trmi_op *op) {
    bool backward = op->kind == TRMI_OP_KEYED_LINEAR_GRAD;
    const trm_shape *rows = &trmi_input_of(graph, op, backward ? 1 : 0)->shape;
    const trm_shape *weights = &trmi_input_of(graph, op, 2)->shape;
    double elements = (double)trm_shape_count(rows) * (backward ? 2 : 1) +
                      (double)trm_shape_count(weights) +
                      (double)rows->dim[0] * (double)weights->dim[0];
    double product = 2 * (double)rows->dim[0] * (double)trm_shape_count(weights);
    return (trmi_cost){.flops = backward ? 2 * product : product,
                       .bytes = elements * (double)sizeof(float)};
}

const trmi_op_def trmi_op_keyed_linear = {"keyed_linear", infer_keyed, grad_keyed, cost_keyed};
const trmi_op_def trmi_op_keyed_linear_grad = {"keyed_linear_grad", infer_keyed_grad, NULL,
                                               cost_keyed};

trm_node trmi_graph_keyed_linear(trm_graph *graph, trm_node rows, trm_node ids, trm_node weights,
                                 trm_node dense, trm_node bias) {
    trm_node inputs[] = {rows, ids, weights, dense, bias};
    int32_t index = trmi_graph_add(graph, TRMI_OP_KEYED_LINEAR, NULL, inputs, 5, 2, NULL);
    return trmi_graph_node(graph, index, 0);
}
