/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation (Ioffe & Szegedy, 2015), alone and fused with the operators that follow:
 *
 *      y = relu(gamma * (x - mean) * inv_std + beta [+ residual])
 *
 * Training operators compute statistics of the batch, pass them to the gradient as outputs 1 and 2,
 * and update the running statistics (their state inputs) in place: running = (1 - momentum) *
 * running + momentum * batch, with the unbiased variance, as PyTorch does. */
#include "graph/graph_ir.h"

#include "base/error.h"

/* Checks that an input is a float32 vector of `channels` elements. */
static trm_status check_vector(const trm_graph *graph, const trmi_op *op, int input,
                               int64_t channels, trm_error *err) {
    const trmi_value *v = trmi_input_of(graph, op, input);
    if (v == NULL || v->shape.rank != 1 || v->shape.dim[0] != channels || v->dtype != TRM_FLOAT32) {
        char text[128] = "nothing";
        if (v != NULL) {
            trmi_value_text(graph, op->inputs[input], text, sizeof text);
        }
        return TRMI_FAIL(err, TRM_INVALID, "%s: input %d: [%lld] float32 expected, found %s",
                         op->name, input, (long long)channels, text);
    }
    return TRM_OK;
}

/* Infers x [N, C, ...], four vectors [C], optional residual -> y, save_mean, save_inv_std. */
static trm_status infer_forward(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    if (x == NULL || x->shape.rank < 2) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: [N, C, ...] expected", op->name);
    }
    if (!(op->attrs.norm.epsilon > 0) ||
        !(op->attrs.norm.momentum >= 0 && op->attrs.norm.momentum <= 1)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: epsilon %g > 0 and 0 <= momentum %g <= 1 expected",
                         op->name, op->attrs.norm.epsilon, op->attrs.norm.momentum);
    }
    int64_t channels = x->shape.dim[1];
    for (int i = 1; i < 5; i++) {
        TRMI_TRY(check_vector(graph, op, i, channels, err));
    }
    const trmi_value *residual = trmi_input_of(graph, op, 5);
    if (residual != NULL &&
        (!trm_shape_equal(&residual->shape, &x->shape) || residual->dtype != x->dtype)) {
        char left[128], right[128];
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s and the residual %s must agree", op->name,
                         trmi_value_text(graph, op->inputs[0], left, sizeof left),
                         trmi_value_text(graph, op->inputs[5], right, sizeof right));
    }
    trm_shape shape = x->shape;
    trmi_set_output(graph, op, 0, x->dtype, shape);
    for (int i = 1; i < op->outputs_count; i++) {
        trmi_set_output(graph, op, i, TRM_FLOAT32, trm_shape_of(channels));
    }
    return TRM_OK;
}

/* Infers x, gamma, beta, save_mean, save_inv_std [, residual] -> y. */
static trm_status infer_apply(trm_graph *graph, trmi_op *op, trm_error *err) {
    return infer_forward(graph, op, err);
}

/* Infers dy, x, ... -> dx, dgamma, dbeta [, dresidual]. Input 7 is a second gradient of y, which
 * the plan fuses into this operator instead of adding both first. */
static trm_status infer_grad(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *dy = trmi_input_of(graph, op, 0), *x = trmi_input_of(graph, op, 1);
    if (dy == NULL || x == NULL || !trm_shape_equal(&dy->shape, &x->shape)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: dy and x of one shape expected", op->name);
    }
    const trmi_value *dy2 = trmi_input_of(graph, op, 7);
    if (dy2 != NULL && !trm_shape_equal(&dy2->shape, &x->shape)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: dy, dy2 and x of one shape expected", op->name);
    }
    trm_shape shape = x->shape;
    trm_dtype dtype = x->dtype;
    int64_t channels = shape.dim[1];
    trmi_set_output(graph, op, 0, dtype, shape);
    trmi_set_output(graph, op, 1, TRM_FLOAT32, trm_shape_of(channels));
    trmi_set_output(graph, op, 2, TRM_FLOAT32, trm_shape_of(channels));
    if (op->outputs_count > 3) {
        trmi_set_output(graph, op, 3, dtype, shape);
    }
    return TRM_OK;
}

/* Adds the operator that makes the gradients of x, gamma and beta from dy, x and the saved
 * statistics. */
static void grad_batch_norm(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    if (dy[0].id == 0) {
        return;
    }
    trm_node inputs[] = {
        dy[0], {op->inputs[0]}, {op->inputs[1]}, {op->outputs[1]}, {op->outputs[2]}};
    int32_t index = trmi_graph_add(graph, TRMI_OP_BATCH_NORM_GRAD, NULL, inputs, 5, 3, &op->attrs);
    for (int i = 0; i < 3 && index != 0; i++) {
        dx[i] = (trm_node){graph->ops[index].outputs[i]};
    }
}

/* Adds the gradient of a fused norm. The ReLU mask is y > 0; without a residual the kernel
 * recomputes it from x, so that y need not be kept. */
static void grad_norm_act(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    if (dy[0].id == 0) {
        return;
    }
    trmi_attrs attrs = op->attrs;
    attrs.norm.from_y = attrs.norm.relu && attrs.norm.residual;
    trm_node inputs[] = {dy[0],           {op->inputs[0]}, {attrs.norm.from_y ? op->outputs[0] : 0},
                         {op->inputs[1]}, {op->inputs[2]}, {op->outputs[1]},
                         {op->outputs[2]}};
    int32_t outputs = attrs.norm.residual ? 4 : 3;
    int32_t index = trmi_graph_add(graph, TRMI_OP_NORM_ACT_GRAD, NULL, inputs, 7, outputs, &attrs);
    for (int i = 0; i < 3 && index != 0; i++) {
        dx[i] = (trm_node){graph->ops[index].outputs[i]};
    }
    if (index != 0 && attrs.norm.residual) {
        dx[5] = (trm_node){graph->ops[index].outputs[3]};
    }
}

/* Builds the gradients of evaluation, where the statistics are constants: y = a x + b for each
 * channel. */
static void grad_infer(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_shape shape = trmi_input_of(graph, op, 0)->shape;
    /* dx = dy gamma / sqrt(var + epsilon); dgamma and dbeta are sums over all but the channels. */
    trm_shape per_channel = {.rank = shape.rank};
    for (int32_t i = 0; i < shape.rank; i++) {
        per_channel.dim[i] = i == 1 ? shape.dim[1] : 1;
    }
    trm_node epsilon = trm_scalar(graph, op->attrs.norm.epsilon);
    trm_node deviation = trm_sqrt(graph, trm_add(graph, (trm_node){op->inputs[4]}, epsilon));
    trm_node factor = trm_div(graph, (trm_node){op->inputs[1]}, deviation);
    dx[0] = trm_mul(graph, dy[0], trm_reshape(graph, factor, per_channel));
    trm_node centred = trm_sub(graph, (trm_node){op->inputs[0]},
                               trm_reshape(graph, (trm_node){op->inputs[3]}, per_channel));
    trm_node hat = trm_div(graph, centred, trm_reshape(graph, deviation, per_channel));
    trm_shape channels = trm_shape_of(shape.dim[1]);
    dx[1] =
        trm_reshape(graph, trmi_sum_to(graph, trm_mul(graph, dy[0], hat), &per_channel), channels);
    dx[2] = trm_reshape(graph, trmi_sum_to(graph, dy[0], &per_channel), channels);
}

/* Counts passes over memory. Forward: statistics, then normalise. Gradient: sums (and the
 * residual's gradient), then apply. */
static trmi_cost cost_norm(const trm_graph *graph, const trmi_op *op) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    double count = (double)trm_shape_count(&x->shape),
           bytes = count * (double)trm_dtype_bytes(x->dtype);
    bool residual = op->attrs.norm.residual;
    int sums = 2 + op->attrs.norm.from_y + (op->inputs_count > 7);
    switch (op->kind) {
    case TRMI_OP_BATCH_NORM:
    case TRMI_OP_NORM_ACT:
        return (trmi_cost){
            .flops = 7 * count, .bytes = bytes * (residual ? 4 : 3), .first_read = bytes};
    case TRMI_OP_BATCH_NORM_GRAD:
    case TRMI_OP_NORM_ACT_GRAD:
        return (trmi_cost){.flops = 11 * count,
                           .bytes = bytes * (sums + residual + 3),
                           .first_read = bytes * sums,
                           .first_written = residual ? bytes : 0};
    default: return (trmi_cost){.flops = 2 * count, .bytes = bytes * (residual ? 3 : 2)};
    }
}

const trmi_op_def trmi_op_batch_norm = {"batch_norm", infer_forward, grad_batch_norm, cost_norm};
const trmi_op_def trmi_op_batch_norm_infer = {"batch_norm_infer", infer_forward, grad_infer,
                                              cost_norm};
const trmi_op_def trmi_op_batch_norm_grad = {"batch_norm_grad", infer_grad, NULL, cost_norm};
const trmi_op_def trmi_op_norm_act = {"norm_act", infer_forward, grad_norm_act, cost_norm};
const trmi_op_def trmi_op_norm_act_apply = {"norm_act_apply", infer_apply, NULL, cost_norm};
const trmi_op_def trmi_op_norm_act_infer = {"norm_act_infer", infer_forward, NULL, cost_norm};
const trmi_op_def trmi_op_norm_act_grad = {"norm_act_grad", infer_grad, NULL, cost_norm};

/* Contract in trireme/graph.h. A graph for prediction uses the running statistics and has no state
 * to update. */
trm_node trm_batch_norm(trm_graph *graph, trm_node x, trm_node gamma, trm_node beta,
                        trm_node running_mean, trm_node running_variance,
                        const trm_norm_options *options) {
    trmi_attrs attrs = {.norm = {.epsilon = 1e-5, .momentum = 0.1}};
    /* zero means the default of PyTorch */
    if (options != NULL) {
        attrs.norm.epsilon = options->epsilon == 0 ? 1e-5 : options->epsilon;
        attrs.norm.momentum = options->momentum == 0 ? 0.1 : options->momentum;
    }
    trm_node inputs[] = {x, gamma, beta, running_mean, running_variance};
    if (!trm_graph_is_training(graph)) {
        return trmi_graph_add1(graph, TRMI_OP_BATCH_NORM_INFER, NULL, inputs, 5, &attrs);
    }
    int32_t index = trmi_graph_add(graph, TRMI_OP_BATCH_NORM, NULL, inputs, 5, 3, &attrs);
    return trmi_graph_node(graph, index, 0);
}
