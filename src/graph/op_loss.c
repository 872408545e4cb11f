/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax, and the fused losses softmax cross-entropy (logits [N, K], labels [N]; mean over
 * samples), the same with the linear layer before it, and binary cross-entropy with logits. The
 * cross-entropy passes log_sum_exp and the weight of a sample to its gradient as outputs 1 and
 * 2. */
#include "graph/graph_ir.h"

#include "base/error.h"

/* The output has the shape of x; rows are the last dimension. */
static trm_status infer_softmax(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    if (x == NULL || x->shape.rank < 1) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: [..., K] expected", op->name);
    }
    trmi_set_output(graph, op, 0, x->dtype, x->shape);
    return TRM_OK;
}

/* Infers logits [N, K], labels [N] -> loss (scalar), log_sum_exp [N], weight [1]. */
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

/* The input whose gradient is output 1, 2, 3. */
static const int32_t linear_xent_inputs[] = {0, 1, 3};

/* Infers x [..., C], w [V, C], labels [...], bias [V] or none -> loss (scalar), then d(loss)/dx,
 * d(loss)/dw, d(loss)/dbias, or predicted classes [...]. */
static trm_status infer_linear_xent(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0), *w = trmi_input_of(graph, op, 1),
                     *t = trmi_input_of(graph, op, 2);
    char texts[3][128] = {"nothing", "nothing", "nothing"};
    for (int i = 0; i < 3; i++) {
        if (op->inputs[i] != 0) {
            trmi_value_text(graph, op->inputs[i], texts[i], sizeof texts[i]);
        }
    }
    bool fits = x != NULL && w != NULL && t != NULL && x->shape.rank >= 1 && w->shape.rank == 2 &&
                x->shape.dim[x->shape.rank - 1] == w->shape.dim[1] && t->dtype == TRM_INT32 &&
                t->shape.rank == x->shape.rank - 1;
    for (int32_t i = 0; fits && i < t->shape.rank; i++) {
        fits = t->shape.dim[i] == x->shape.dim[i];
    }
    if (!fits) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: [..., C], weights [V, C] and int32 labels [...] expected, found %s, %s "
            "and %s",
            op->name, texts[0], texts[1], texts[2]);
    }
    const trmi_value *bias = op->inputs_count > 3 ? trmi_input_of(graph, op, 3) : NULL;
    if (op->inputs_count > 3 &&
        (bias == NULL || bias->shape.rank != 1 || bias->shape.dim[0] != w->shape.dim[0])) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: weights %s and a bias of as many rows expected",
                         op->name, texts[1]);
    }
    if (op->attrs.xent.label_smoothing != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: label smoothing %g: this loss has none; use trm_linear and "
                         "trm_softmax_cross_entropy",
                         op->name, op->attrs.xent.label_smoothing);
    }
    double share = op->attrs.xent.counted_share;
    if (!(share >= 0 && share <= 1)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: a share %g of the rows that count, 0 <= share <= 1 expected",
                         op->name, share);
    }
    trmi_set_output(graph, op, 0, TRM_FLOAT32, (trm_shape){0});
    if (op->attrs.xent.predicts) {
        trmi_set_output(graph, op, 1, TRM_INT32, t->shape);
        return TRM_OK;
    }
    for (int i = 1; i < op->outputs_count; i++) {
        const trmi_value *v = trmi_input_of(graph, op, linear_xent_inputs[i - 1]);
        trmi_set_output(graph, op, i, v->dtype, v->shape);
    }
    return TRM_OK;
}

/* The result is like the second input. */
static trm_status infer_as_second(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    const trmi_value *z = trmi_input_of(graph, op, 1);
    trmi_set_output(graph, op, 0, z->dtype, z->shape);
    return TRM_OK;
}

/* Infers logits, targets of one shape -> loss (scalar), the mean over all elements. */
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

/* dx = y (dy - sum of dy y over the row). */
static void grad_softmax(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_node inputs[] = {dy[0], {op->outputs[0]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_SOFTMAX_GRAD, NULL, inputs, 2, NULL);
}
/* dz = weight (softmax(z) - target) dy, from the kept log_sum_exp. */
static void grad_xent(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    if (dy[0].id == 0) {
        return;
    }
    trm_node inputs[] = {
        dy[0], {op->inputs[0]}, {op->inputs[1]}, {op->outputs[1]}, {op->outputs[2]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_SOFTMAX_XENT_GRAD, NULL, inputs, 5, &op->attrs);
}
/* The forward operator made the gradients for d(loss) = 1, while it had the logits; in graphs for
 * evaluation it makes none. */
static void grad_linear_xent(trm_graph *graph, const trmi_op *op, const trm_node *dy,
                             trm_node *dx) {
    bool has_gradients = dy[0].id != 0 && !op->attrs.xent.predicts;
    for (int i = 0; has_gradients && i + 1 < op->outputs_count; i++) {
        trm_node d = {op->outputs[1 + i]};
        dx[linear_xent_inputs[i]] =
            trm_mul(graph, d, trm_cast(graph, dy[0], trm_node_dtype(graph, d)));
    }
}
/* dz = (sigmoid(z) - t) dy / N. */
static void grad_bce(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_node inputs[] = {dy[0], {op->inputs[0]}, {op->inputs[1]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_BCE_LOGITS_GRAD, NULL, inputs, 3, &op->attrs);
}

/* Counts a product for each of the first outputs, which are the logits and, in training, the
 * gradients; and all tensors once. */
static trmi_cost cost_linear_xent(const trm_graph *graph, const trmi_op *op) {
    trmi_cost cost = {0};
    const trm_shape *w = &trmi_input_of(graph, op, 1)->shape;
    int32_t gradients = op->attrs.xent.predicts ? 0 : op->outputs_count - 1;
    double products = gradients < 2 ? 1 + (double)gradients : 3;
    cost.flops = 2.0 * products * (double)w->dim[0] *
                 (double)trm_shape_count(&trmi_input_of(graph, op, 0)->shape);
    for (int i = 0; i < 3; i++) {
        const trmi_value *v = trmi_input_of(graph, op, i);
        double bytes = (double)trm_shape_count(&v->shape) * (double)trm_dtype_bytes(v->dtype);
        cost.bytes += i < gradients ? 2 * bytes : bytes;
    }
    return cost;
}

const trmi_op_def trmi_op_softmax = {"softmax", infer_softmax, grad_softmax, NULL};
const trmi_op_def trmi_op_softmax_grad = {"softmax_grad", infer_as_second, NULL, NULL};
const trmi_op_def trmi_op_softmax_xent = {"softmax_xent", infer_xent, grad_xent, NULL};
const trmi_op_def trmi_op_softmax_xent_grad = {"softmax_xent_grad", infer_as_second, NULL, NULL};
const trmi_op_def trmi_op_linear_xent = {"linear_xent", infer_linear_xent, grad_linear_xent,
                                         cost_linear_xent};
const trmi_op_def trmi_op_bce_logits = {"bce_logits", infer_bce, grad_bce, NULL};
const trmi_op_def trmi_op_bce_logits_grad = {"bce_logits_grad", infer_as_second, NULL, NULL};

trm_node trm_softmax(trm_graph *graph, trm_node x) {
    return trmi_graph_add1(graph, TRMI_OP_SOFTMAX, NULL, &x, 1, NULL);
}

/* Returns the attributes of a cross-entropy; options NULL: all zero. */
static trmi_attrs attrs_of_options(const trm_xent_options *options) {
    trmi_attrs attrs = {.xent = {.label_smoothing = 0}};
    if (options != NULL) {
        attrs.xent.label_smoothing = options->label_smoothing;
        attrs.xent.use_ignore_index = options->use_ignore_index;
        attrs.xent.ignore_index = options->ignore_index;
        attrs.xent.counted_share = options->counted_share;
    }
    return attrs;
}

trm_node trm_softmax_cross_entropy(trm_graph *graph, trm_node logits, trm_node labels,
                                   const trm_xent_options *options) {
    trmi_attrs attrs = attrs_of_options(options);
    trm_node inputs[] = {logits, labels};
    int32_t index = trmi_graph_add(graph, TRMI_OP_SOFTMAX_XENT, NULL, inputs, 2, 3, &attrs);
    return trmi_graph_node(graph, index, 0);
}

/* Returns whether the node is a parameter that is not trained. */
static bool is_frozen(const trm_graph *graph, trm_node node) {
    const trmi_op *parameter = node.id > 0 && graph != NULL && node.id < graph->values_count
                                   ? trmi_parameter_of(graph, node.id)
                                   : NULL;
    return parameter != NULL && !parameter->attrs.leaf.trainable;
}

/* Contract in trireme/graph.h. The operator makes the gradients of weight and bias in forward,
 * while the logits of a chunk are there, so it has outputs for them; not where it predicts, or
 * where they are frozen. */
trm_node trm_linear_cross_entropy(trm_graph *graph, trm_node x, trm_node weight, trm_node labels,
                                  const trm_xent_options *options) {
    trmi_attrs attrs = attrs_of_options(options);
    trm_node inputs[] = {x, weight, labels, options != NULL ? options->bias : TRM_NO_NODE};
    int32_t count = inputs[3].id != 0 ? 4 : 3;
    bool frozen = is_frozen(graph, weight) && (count == 3 || is_frozen(graph, inputs[3]));
    attrs.xent.predicts = !trm_graph_is_training(graph);
    int32_t outputs = attrs.xent.predicts || frozen ? 2 : count;
    int32_t index =
        trmi_graph_add(graph, TRMI_OP_LINEAR_XENT, NULL, inputs, count, outputs, &attrs);
    return trmi_graph_node(graph, index, 0);
}

trm_node trm_bce_with_logits(trm_graph *graph, trm_node logits, trm_node targets) {
    return trmi_graph_add1(graph, TRMI_OP_BCE_LOGITS, NULL, (trm_node[]){logits, targets}, 2, NULL);
}
