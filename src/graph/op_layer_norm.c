/* SPDX-License-Identifier: Apache-2.0 */
/* Norms over the last dimension of each row.
 *
 *     layer_norm   y = gamma (x - mean) / sqrt(variance + epsilon) + beta    2 statistics a row
 *     rms_norm     y = gamma x / sqrt(mean of x^2 + epsilon)                 1 statistic a row
 *
 * The statistics of the rows are outputs 1 and 2, in float32 whatever the type of x; the gradient
 * reads them. gamma and beta are [C]. */
#include "graph/graph_ir.h"

#include "base/error.h"

/* Returns the shape of one number for each row of x. */
static trm_shape rows_of(const trm_shape *x) {
    trm_shape shape = *x;
    shape.rank--;
    return shape;
}

/* Infers x [..., C], gamma [C] and, of a layer norm, beta [C] -> y like x, statistics [...]. */
static trm_status infer_norm(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    char text[128];
    if (x == NULL || x->shape.rank < 1 || x->shape.dim[x->shape.rank - 1] < 1) {
        return TRMI_FAIL(
            err, TRM_INVALID, "%s: [..., C] with C of at least 1 expected, found %s", op->name,
            x == NULL ? "nothing" : trmi_value_text(graph, op->inputs[0], text, sizeof text));
    }
    for (int32_t i = 1; i < op->inputs_count; i++) {
        const trmi_value *p = trmi_input_of(graph, op, i);
        if (p == NULL || p->shape.rank != 1 || p->shape.dim[0] != x->shape.dim[x->shape.rank - 1]) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: input %d: [%lld] expected, found %s", op->name,
                             i, (long long)x->shape.dim[x->shape.rank - 1],
                             p == NULL ? "nothing"
                                       : trmi_value_text(graph, op->inputs[i], text, sizeof text));
        }
    }
    if (!(op->attrs.layer_norm.epsilon > 0)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: epsilon %g, a positive number expected", op->name,
                         op->attrs.layer_norm.epsilon);
    }
    trm_shape shape = x->shape, rows = rows_of(&shape);
    trmi_set_output(graph, op, 0, x->dtype, shape);
    for (int32_t i = 1; i < op->outputs_count; i++) {
        trmi_set_output(graph, op, i, TRM_FLOAT32, rows);
    }
    return TRM_OK;
}

/* Infers dy, x, gamma, statistics -> dx like x, dgamma and dbeta [C]. */
static trm_status infer_grad(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    const trmi_value *x = trmi_input_of(graph, op, 1), *gamma = trmi_input_of(graph, op, 2);
    trm_dtype dtype = gamma->dtype;
    trm_shape channels = gamma->shape;
    trmi_set_output(graph, op, 0, x->dtype, x->shape);
    for (int32_t i = 1; i < op->outputs_count; i++) {
        trmi_set_output(graph, op, i, dtype, channels);
    }
    return TRM_OK;
}

/* Adds the gradient operator: dy, x, gamma and all statistics. */
static void grad_norm(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    if (dy[0].id == 0) {
        return;
    }
    bool rms = op->kind == TRMI_OP_RMS_NORM;
    trm_node inputs[] = {dy[0], {op->inputs[0]}, {op->inputs[1]}, {op->outputs[1]}, {0}};
    if (!rms) {
        inputs[4].id = op->outputs[2];
    }
    int32_t outputs = rms ? 2 : 3;
    int32_t index = trmi_graph_add(graph, rms ? TRMI_OP_RMS_NORM_GRAD : TRMI_OP_LAYER_NORM_GRAD,
                                   NULL, inputs, rms ? 4 : 5, outputs, &op->attrs);
    for (int32_t i = 0; i < outputs && index != 0; i++) {
        dx[i].id = graph->ops[index].outputs[i];
    }
}

/* Counts about 8 operations for each element; all tensors once. */
static trmi_cost cost_norm(const trm_graph *graph, const trmi_op *op) {
    trmi_cost cost = {0};
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_value *v = trmi_input_of(graph, op, i);
        cost.bytes += (double)trm_shape_count(&v->shape) * (double)trm_dtype_bytes(v->dtype);
    }
    for (int32_t i = 0; i < op->outputs_count; i++) {
        const trmi_value *v = trmi_output_of(graph, op, i);
        cost.bytes += (double)trm_shape_count(&v->shape) * (double)trm_dtype_bytes(v->dtype);
    }
    cost.flops = 8.0 * (double)trm_shape_count(&trmi_output_of(graph, op, 0)->shape);
    return cost;
}

const trmi_op_def trmi_op_layer_norm = {"layer_norm", infer_norm, grad_norm, cost_norm};
const trmi_op_def trmi_op_layer_norm_grad = {"layer_norm_grad", infer_grad, NULL, cost_norm};
const trmi_op_def trmi_op_rms_norm = {"rms_norm", infer_norm, grad_norm, cost_norm};
const trmi_op_def trmi_op_rms_norm_grad = {"rms_norm_grad", infer_grad, NULL, cost_norm};

/* Adds the operator and returns y. */
static trm_node add_norm(trm_graph *graph, trmi_op_kind kind, const trm_node *inputs, int32_t count,
                         double epsilon) {
    trmi_attrs attrs = {.layer_norm = {.epsilon = epsilon == 0 ? 1e-5 : epsilon}};
    int32_t index = trmi_graph_add(graph, kind, NULL, inputs, count, count, &attrs);
    return trmi_graph_node(graph, index, 0);
}

trm_node trm_layer_norm(trm_graph *graph, trm_node x, trm_node gamma, trm_node beta,
                        double epsilon) {
    return add_norm(graph, TRMI_OP_LAYER_NORM, (trm_node[]){x, gamma, beta}, 3, epsilon);
}

trm_node trm_rms_norm(trm_graph *graph, trm_node x, trm_node gamma, double epsilon) {
    return add_norm(graph, TRMI_OP_RMS_NORM, (trm_node[]){x, gamma}, 2, epsilon);
}
