/* SPDX-License-Identifier: Apache-2.0 */
/* Communication as operators of a partitioned graph, and the operators of exact sums. The partition
 * (plan/shard) adds them after differentiation, so they have no gradients. */
#include "graph/graph_ir.h"

#include "base/error.h"

static trm_status infer_all_reduce(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    if (x == NULL || op->attrs.all_reduce.axes == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: an input and mesh axes expected", op->name);
    }
    trmi_set_output(graph, op, 0, x->dtype, x->shape);
    return TRM_OK;
}

static trm_status infer_exchange(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    const trmi_exchange_attrs *what = op->attrs.exchange.what;
    bool fits = x != NULL && what != NULL && what->self >= 0 && what->self < what->members &&
                x->shape.rank == what->held.rank;
    trm_shape shape = {.rank = fits ? what->held.rank : 0};
    for (int32_t d = 0; fits && d < shape.rank; d++) {
        const trmi_box *wants = &what->wants[what->self];
        fits = what->held.end[d] - what->held.begin[d] == x->shape.dim[d] &&
               wants->end[d] >= wants->begin[d];
        shape.dim[d] = wants->end[d] - wants->begin[d];
    }
    if (!fits) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the input is not the part that its boxes say",
                         op->name);
    }
    trmi_set_output(graph, op, 0, x->dtype, shape);
    return TRM_OK;
}

static trm_status infer_largest(trm_graph *graph, trmi_op *op, trm_error *err) {
    if (trmi_input_of(graph, op, 0) == NULL || op->inputs_count > 2) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: one or two inputs expected", op->name);
    }
    trmi_set_output(graph, op, 0, TRM_FLOAT32, trm_shape_of(2));
    return TRM_OK;
}

static trm_status infer_exact_sum(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_exact *what = op->attrs.exact.what;
    const trmi_value *largest = trmi_input_of(graph, op, op->inputs_count - 1);
    if (what == NULL || largest == NULL || trm_shape_count(&largest->shape) != 2) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: the operator's inputs and their magnitudes expected", op->name);
    }
    trmi_set_output(graph, op, 0, TRM_INT64, what->shape);
    return TRM_OK;
}

static trm_status infer_exact_round(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_exact *what = op->attrs.exact.what;
    const trmi_value *sums = trmi_input_of(graph, op, 0);
    if (what == NULL || sums == NULL || sums->dtype != TRM_INT64 || op->inputs_count < 2) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: sums and magnitudes expected", op->name);
    }
    trmi_set_output(graph, op, 0, what->dtype, sums->shape);
    return TRM_OK;
}

const trmi_op_def trmi_op_largest = {"largest", infer_largest, NULL, NULL};
const trmi_op_def trmi_op_exact_sum = {"exact_sum", infer_exact_sum, NULL, NULL};
const trmi_op_def trmi_op_exact_round = {"exact_round", infer_exact_round, NULL, NULL};
const trmi_op_def trmi_op_all_reduce = {"all_reduce", infer_all_reduce, NULL, NULL};
const trmi_op_def trmi_op_exchange = {"exchange", infer_exchange, NULL, NULL};
