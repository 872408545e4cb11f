/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax, and the fused losses softmax cross-entropy (logits [N, K], labels [N]; mean over
 * samples) and binary cross-entropy with logits. The cross-entropy passes log_sum_exp and the
 * weight of a sample to its gradient as outputs 1 and 2. */
#include "graph/graph_ir.h"

#include "base/error.h"

static trm_status infer_softmax(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    if (x == NULL || x->shape.rank < 1) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: [..., K] expected", op->name);
    }
    trmi_set_output(graph, op, 0, x->dtype, x->shape);
    return TRM_OK;
}

/* logits [N, K], labels [N] -> loss (scalar), log_sum_exp [N], weight [1]. */
static trm_status infer_xent(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *z = trmi_input_of(graph, op, 0), *t = trmi_input_of(graph, op, 1);
    char left[128] = "nothing", right[128] = "nothing";
    if (z != NULL && t != NULL) {
        trmi_value_text(graph, op->inputs[0], left, sizeof left);
        trmi_value_text(graph, op->inputs[1], right, sizeof right);
    }
    if (z == NULL || t == NULL || z->shape.rank != 2 || t->shape.rank != 1 ||
        t->dtype != TRM_INT32 || z->shape.dim[0] != t->shape.dim[0]) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: logits [N, K] and int32 labels [N] expected, found %s and %s",
                         op->name, left, right);
    }
    double s = op->attrs.xent.label_smoothing;
    if (!(s >= 0 && s < 1)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: label smoothing %g, 0 <= s < 1 expected", op->name,
                         s);
    }
    int64_t rows = z->shape.dim[0];
    trmi_set_output(graph, op, 0, TRM_FLOAT32, (trm_shape){0});
    trmi_set_output(graph, op, 1, TRM_FLOAT32, trm_shape_of(rows));
    trmi_set_output(graph, op, 2, TRM_FLOAT32, trm_shape_of(1));
    return TRM_OK;
}

/* The result is like the second input. */
static trm_status infer_as_second(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    const trmi_value *z = trmi_input_of(graph, op, 1);
    trmi_set_output(graph, op, 0, z->dtype, z->shape);
    return TRM_OK;
}

/* logits, targets of one shape -> loss (scalar), the mean over all elements. */
static trm_status infer_bce(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *z = trmi_input_of(graph, op, 0), *t = trmi_input_of(graph, op, 1);
    if (z == NULL || t == NULL || !trm_shape_equal(&z->shape, &t->shape) || z->dtype != t->dtype) {
        char left[128] = "nothing", right[128] = "nothing";
        if (z != NULL && t != NULL) {
            trmi_value_text(graph, op->inputs[0], left, sizeof left);
            trmi_value_text(graph, op->inputs[1], right, sizeof right);
        }
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: logits and targets of one shape and dtype expected, found %s and %s",
                         op->name, left, right);
    }
    trmi_set_output(graph, op, 0, TRM_FLOAT32, (trm_shape){0});
    return TRM_OK;
}

static void grad_softmax(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_node inputs[] = {dy[0], {op->outputs[0]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_SOFTMAX_GRAD, NULL, inputs, 2, NULL);
}
static void grad_xent(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    if (dy[0].id == 0) {
        return;
    }
    trm_node inputs[] = {
        dy[0], {op->inputs[0]}, {op->inputs[1]}, {op->outputs[1]}, {op->outputs[2]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_SOFTMAX_XENT_GRAD, NULL, inputs, 5, &op->attrs);
}
static void grad_bce(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_node inputs[] = {dy[0], {op->inputs[0]}, {op->inputs[1]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_BCE_LOGITS_GRAD, NULL, inputs, 3, &op->attrs);
}

const trmi_op_def trmi_op_softmax = {"softmax", infer_softmax, grad_softmax, NULL};
const trmi_op_def trmi_op_softmax_grad = {"softmax_grad", infer_as_second, NULL, NULL};
const trmi_op_def trmi_op_softmax_xent = {"softmax_xent", infer_xent, grad_xent, NULL};
const trmi_op_def trmi_op_softmax_xent_grad = {"softmax_xent_grad", infer_as_second, NULL, NULL};
const trmi_op_def trmi_op_bce_logits = {"bce_logits", infer_bce, grad_bce, NULL};
const trmi_op_def trmi_op_bce_logits_grad = {"bce_logits_grad", infer_as_second, NULL, NULL};

trm_node trm_softmax(trm_graph *graph, trm_node x) {
    return trmi_graph_add1(graph, TRMI_OP_SOFTMAX, NULL, &x, 1, NULL);
}

trm_node trm_softmax_cross_entropy(trm_graph *graph, trm_node logits, trm_node labels,
                                   const trm_xent_options *options) {
    trmi_attrs attrs = {.xent = {.label_smoothing = 0}};
    if (options != NULL) {
        attrs.xent.label_smoothing = options->label_smoothing;
        attrs.xent.use_ignore_index = options->use_ignore_index;
        attrs.xent.ignore_index = options->ignore_index;
    }
    trm_node inputs[] = {logits, labels};
    int32_t index = trmi_graph_add(graph, TRMI_OP_SOFTMAX_XENT, NULL, inputs, 2, 3, &attrs);
    return index == 0 ? TRM_NO_NODE : (trm_node){graph->ops[index].outputs[0]};
}

trm_node trm_bce_with_logits(trm_graph *graph, trm_node logits, trm_node targets) {
    return trmi_graph_add1(graph, TRMI_OP_BCE_LOGITS, NULL, (trm_node[]){logits, targets}, 2, NULL);
}
