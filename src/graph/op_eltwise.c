/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators: shape rules, gradients, rows of the operator table, builders. Shapes
 * follow NumPy broadcasting; gradients are summed back to the shape of each input.
 *
 * A gradient reads y where it can be computed from it (ReLU, sigmoid, tanh, exp, sqrt) and x
 * otherwise (GELU, SiLU, log), because what no gradient reads is not kept in memory until backward.
 * Kernels are in exec/ref/ref_eltwise.c and exec/cpu/ops/eltwise.c. */
#include "graph/graph_ir.h"
#include "graph/arguments.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>

/* The largest whole power that is made of products. */
enum { POWER_MAX = 64 };

/* ---- shape rules ---- */

/* Computes the broadcast shape of two inputs.   errors  INVALID, with both shapes */
static trm_status broadcast_shapes(const trm_graph *graph, const trmi_op *op, trm_shape *out,
                                   trm_error *err) {
    const trm_shape *a = &trmi_input_of(graph, op, 0)->shape;
    const trm_shape *b = &trmi_input_of(graph, op, 1)->shape;
    int32_t rank = a->rank > b->rank ? a->rank : b->rank;
    *out = (trm_shape){.rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        int64_t x = i < rank - a->rank ? 1 : a->dim[i - (rank - a->rank)];
        int64_t y = i < rank - b->rank ? 1 : b->dim[i - (rank - b->rank)];
        if (x != y && x != 1 && y != 1) {
            char left[128], right[128];
            return TRMI_FAIL(err, TRM_INVALID, "%s: %s and %s do not broadcast (dimension %d)",
                             op->name, trmi_value_text(graph, op->inputs[0], left, sizeof left),
                             trmi_value_text(graph, op->inputs[1], right, sizeof right), i);
        }
        out->dim[i] = x == 1 ? y : x;
    }
    return TRM_OK;
}

/* Infers the output of two inputs of one dtype, broadcast to one shape. */
static trm_status infer_binary(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *a = trmi_input_of(graph, op, 0), *b = trmi_input_of(graph, op, 1);
    if (a == NULL || b == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: needs two inputs", op->name);
    }
    if (a->dtype != b->dtype) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: dtypes %s and %s differ; use trm_cast", op->name,
                         trm_dtype_name(a->dtype), trm_dtype_name(b->dtype));
    }
    trm_shape shape;
    TRMI_TRY(broadcast_shapes(graph, op, &shape, err));
    trmi_set_output(graph, op, 0, a->dtype, shape);
    return TRM_OK;
}

/* Checks that all inputs have the shape of the first one (gradients: dy, y). */
static trm_status infer_same(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    if (x == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: needs an input", op->name);
    }
    for (int i = 1; i < op->inputs_count; i++) {
        const trmi_value *other = trmi_input_of(graph, op, i);
        if (other == NULL || !trm_shape_equal(&other->shape, &x->shape)) {
            char left[128], right[128];
            return TRMI_FAIL(err, TRM_INVALID, "%s: %s and %s must have one shape", op->name,
                             trmi_value_text(graph, op->inputs[0], left, sizeof left),
                             trmi_value_text(graph, op->inputs[i], right, sizeof right));
        }
    }
    trmi_set_output(graph, op, 0, x->dtype, x->shape);
    return TRM_OK;
}

/* The output has the shape of x and the type of the attribute. */
static trm_status infer_cast(trm_graph *graph, trmi_op *op, trm_error *err) {
    TRMI_TRY(infer_same(graph, op, err));
    if (trm_dtype_bytes(op->attrs.cast.dtype) == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: unknown dtype %d", op->name,
                         (int)op->attrs.cast.dtype);
    }
    graph->values[op->outputs[0]].dtype = op->attrs.cast.dtype;
    return TRM_OK;
}

/* The output has the shape of x. At rate 1 the scale 1 / (1 - rate) would be infinite. */
static trm_status infer_dropout(trm_graph *graph, trmi_op *op, trm_error *err) {
    if (!(op->attrs.dropout.rate >= 0 && op->attrs.dropout.rate < 1)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: rate %g, 0 <= rate < 1 expected", op->name,
                         op->attrs.dropout.rate);
    }
    return infer_same(graph, op, err);
}

/* Every output has the shape of the first input. */
static trm_status infer_swiglu(trm_graph *graph, trmi_op *op, trm_error *err) {
    TRMI_TRY(infer_same(graph, op, err));
    const trmi_value *x = trmi_input_of(graph, op, 0);
    for (int i = 1; i < op->outputs_count; i++) {
        trmi_set_output(graph, op, i, x->dtype, x->shape);
    }
    return TRM_OK;
}

/* Counts one operation for each element of the output. */
static trmi_cost cost_eltwise(const trm_graph *graph, const trmi_op *op) {
    trmi_cost cost = {0};
    for (int i = 0; i < op->inputs_count; i++) {
        const trmi_value *value = trmi_input_of(graph, op, i);
        cost.bytes += value == NULL ? 0
                                    : (double)trm_shape_count(&value->shape) *
                                          (double)trm_dtype_bytes(value->dtype);
    }
    const trmi_value *out = trmi_output_of(graph, op, 0);
    double count = (double)trm_shape_count(&out->shape);
    cost.bytes += op->outputs_count * count * (double)trm_dtype_bytes(out->dtype);
    cost.flops = count;
    return cost;
}

/* ---- gradients ---- */

/* Returns a value as the builders take it. */
static trm_node node_of(int32_t id) { return (trm_node){id}; }

/* Sums a gradient to the shape of an input. */
static trm_node to_input(trm_graph *graph, const trmi_op *op, int input, trm_node gradient) {
    trm_shape shape = trmi_input_of(graph, op, input)->shape;
    return trmi_sum_to(graph, gradient, &shape);
}

/* Gradients, with y the output, dy its gradient. add: da = dy, db = dy. */
static void grad_add(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    dx[0] = to_input(graph, op, 0, dy[0]);
    dx[1] = to_input(graph, op, 1, dy[0]);
}

/* da = dy, db = -dy. */
static void grad_sub(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    dx[0] = to_input(graph, op, 0, dy[0]);
    dx[1] = to_input(graph, op, 1, trm_neg(graph, dy[0]));
}

/* da = dy b, db = dy a. */
static void grad_mul(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    dx[0] = to_input(graph, op, 0, trm_mul(graph, dy[0], node_of(op->inputs[1])));
    dx[1] = to_input(graph, op, 1, trm_mul(graph, dy[0], node_of(op->inputs[0])));
}

/* Builds the gradients of y = a / b: da = dy / b, db = -dy * y / b. */
static void grad_div(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_node b = node_of(op->inputs[1]), y = node_of(op->outputs[0]);
    trm_node da = trm_div(graph, dy[0], b);
    dx[0] = to_input(graph, op, 0, da);
    dx[1] = to_input(graph, op, 1, trm_neg(graph, trm_mul(graph, da, y)));
}

/* Adds a gradient operator that reads dy and y. */
static void grad_from_y(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx,
                        trmi_op_kind kind) {
    trm_node inputs[] = {dy[0], node_of(op->outputs[0])};
    dx[0] = trmi_graph_add1(graph, kind, NULL, inputs, 2, NULL);
}
/* dx = dy where y > 0. */
static void grad_relu(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    grad_from_y(graph, op, dy, dx, TRMI_OP_RELU_GRAD);
}
/* dx = dy y (1 - y). */
static void grad_sigmoid(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    grad_from_y(graph, op, dy, dx, TRMI_OP_SIGMOID_GRAD);
}
/* dx = dy (1 - y^2). */
static void grad_tanh(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    grad_from_y(graph, op, dy, dx, TRMI_OP_TANH_GRAD);
}
/* Adds a gradient operator that reads dy and x. */
static void grad_from_x(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx,
                        trmi_op_kind kind) {
    trm_node inputs[] = {dy[0], node_of(op->inputs[0])};
    dx[0] = trmi_graph_add1(graph, kind, NULL, inputs, 2, &op->attrs);
}
/* dx = dy (Phi(x) + x phi(x)); the kernel computes both from x. */
static void grad_gelu(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    grad_from_x(graph, op, dy, dx, TRMI_OP_GELU_GRAD);
}
/* dx = dy s (1 + x (1 - s)), s = sigmoid(x). */
static void grad_silu(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    grad_from_x(graph, op, dy, dx, TRMI_OP_SILU_GRAD);
}
/* y = silu(gate) up: one operator makes both gradients, because they share sigmoid(gate). */
static void grad_swiglu(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_node inputs[] = {dy[0], node_of(op->inputs[0]), node_of(op->inputs[1])};
    int32_t index = trmi_graph_add(graph, TRMI_OP_SWIGLU_GRAD, NULL, inputs, 3, 2, NULL);
    for (int i = 0; i < 2 && index != 0; i++) {
        dx[i] = node_of(graph->ops[index].outputs[i]);
    }
}
/* dx = dy y. */
static void grad_exp(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    dx[0] = trm_mul(graph, dy[0], node_of(op->outputs[0]));
}
/* dx = dy / x. */
static void grad_log(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    dx[0] = trm_div(graph, dy[0], node_of(op->inputs[0]));
}
/* dx = dy / (2 y). */
static void grad_sqrt(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    dx[0] = trm_scale(graph, trm_div(graph, dy[0], node_of(op->outputs[0])), 0.5);
}
/* dx = factor dy. */
static void grad_scale(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    dx[0] = trm_scale(graph, dy[0], op->attrs.scale.factor);
}
/* dx = dy in the type of x. */
static void grad_cast(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    dx[0] = trm_cast(graph, dy[0], trmi_input_of(graph, op, 0)->dtype);
}
/* The gradient applies the same mask, which is a function of the key and not of the input. */
static void grad_dropout(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    dx[0] = trmi_graph_add1(graph, TRMI_OP_DROPOUT, NULL, dy, 1, &op->attrs);
}

/* ---- rows ---- */

const trmi_op_def trmi_op_add = {"add", infer_binary, grad_add, cost_eltwise};
const trmi_op_def trmi_op_sub = {"sub", infer_binary, grad_sub, cost_eltwise};
const trmi_op_def trmi_op_mul = {"mul", infer_binary, grad_mul, cost_eltwise};
const trmi_op_def trmi_op_div = {"div", infer_binary, grad_div, cost_eltwise};
const trmi_op_def trmi_op_relu = {"relu", infer_same, grad_relu, cost_eltwise};
const trmi_op_def trmi_op_relu_grad = {"relu_grad", infer_same, NULL, cost_eltwise};
const trmi_op_def trmi_op_sigmoid = {"sigmoid", infer_same, grad_sigmoid, cost_eltwise};
const trmi_op_def trmi_op_sigmoid_grad = {"sigmoid_grad", infer_same, NULL, cost_eltwise};
const trmi_op_def trmi_op_tanh = {"tanh", infer_same, grad_tanh, cost_eltwise};
const trmi_op_def trmi_op_tanh_grad = {"tanh_grad", infer_same, NULL, cost_eltwise};
const trmi_op_def trmi_op_gelu = {"gelu", infer_same, grad_gelu, cost_eltwise};
const trmi_op_def trmi_op_gelu_grad = {"gelu_grad", infer_same, NULL, cost_eltwise};
const trmi_op_def trmi_op_silu = {"silu", infer_same, grad_silu, cost_eltwise};
const trmi_op_def trmi_op_silu_grad = {"silu_grad", infer_same, NULL, cost_eltwise};
const trmi_op_def trmi_op_swiglu = {"swiglu", infer_swiglu, grad_swiglu, cost_eltwise};
const trmi_op_def trmi_op_swiglu_grad = {"swiglu_grad", infer_swiglu, NULL, cost_eltwise};
const trmi_op_def trmi_op_exp = {"exp", infer_same, grad_exp, cost_eltwise};
const trmi_op_def trmi_op_log = {"log", infer_same, grad_log, cost_eltwise};
const trmi_op_def trmi_op_sqrt = {"sqrt", infer_same, grad_sqrt, cost_eltwise};
const trmi_op_def trmi_op_scale = {"scale", infer_same, grad_scale, cost_eltwise};
const trmi_op_def trmi_op_cast = {"cast", infer_cast, grad_cast, cost_eltwise};
const trmi_op_def trmi_op_dropout = {"dropout", infer_dropout, grad_dropout, cost_eltwise};

/* ---- builders ---- */

/* Adds an operator with two inputs. */
static trm_node add_binary(trm_graph *graph, trmi_op_kind kind, trm_node a, trm_node b) {
    return trmi_graph_add1(graph, kind, NULL, (trm_node[]){a, b}, 2, NULL);
}
trm_node trm_add(trm_graph *graph, trm_node a, trm_node b) {
    return add_binary(graph, TRMI_OP_ADD, a, b);
}
trm_node trm_sub(trm_graph *graph, trm_node a, trm_node b) {
    return add_binary(graph, TRMI_OP_SUB, a, b);
}
trm_node trm_mul(trm_graph *graph, trm_node a, trm_node b) {
    return add_binary(graph, TRMI_OP_MUL, a, b);
}
trm_node trm_div(trm_graph *graph, trm_node a, trm_node b) {
    return add_binary(graph, TRMI_OP_DIV, a, b);
}

/* Adds an operator of one input without attributes. */
static trm_node add_unary(trm_graph *graph, trmi_op_kind kind, trm_node x) {
    return trmi_graph_add1(graph, kind, NULL, &x, 1, NULL);
}
trm_node trm_relu(trm_graph *graph, trm_node x) { return add_unary(graph, TRMI_OP_RELU, x); }
trm_node trm_sigmoid(trm_graph *graph, trm_node x) { return add_unary(graph, TRMI_OP_SIGMOID, x); }
trm_node trm_tanh(trm_graph *graph, trm_node x) { return add_unary(graph, TRMI_OP_TANH, x); }
trm_node trm_silu(trm_graph *graph, trm_node x) { return add_unary(graph, TRMI_OP_SILU, x); }
trm_node trm_gelu(trm_graph *graph, trm_node x, trm_gelu_form form) {
    trmi_attrs attrs = {.gelu = {.tanh = form == TRM_GELU_TANH}};
    return trmi_graph_add1(graph, TRMI_OP_GELU, NULL, &x, 1, &attrs);
}
trm_node trm_swiglu(trm_graph *graph, trm_node gate, trm_node up) {
    return add_binary(graph, TRMI_OP_SWIGLU, gate, up);
}
trm_node trm_exp(trm_graph *graph, trm_node x) { return add_unary(graph, TRMI_OP_EXP, x); }
trm_node trm_log(trm_graph *graph, trm_node x) { return add_unary(graph, TRMI_OP_LOG, x); }
trm_node trm_sqrt(trm_graph *graph, trm_node x) { return add_unary(graph, TRMI_OP_SQRT, x); }
trm_node trm_neg(trm_graph *graph, trm_node x) { return trm_scale(graph, x, -1.0); }

trm_node trm_scale(trm_graph *graph, trm_node x, double factor) {
    trmi_attrs attrs = {.scale = {.factor = factor}};
    return trmi_graph_add1(graph, TRMI_OP_SCALE, NULL, &x, 1, &attrs);
}

/* Contract in trireme/graph.h. An even power is the square of its half. */
trm_node trm_power(trm_graph *graph, trm_node x, double power) {
    TRMI_NEED_OR(TRM_NO_NODE, NULL, graph);
    if (power == 0.5) {
        return trm_sqrt(graph, x);
    }
    if (power != floor(power) || fabs(power) > POWER_MAX) {
        return trm_exp(graph, trm_scale(graph, trm_log(graph, x), power));
    }
    if (power == 1) {
        return x;
    }
    if (power <= 0) {
        const trm_node one = trm_scalar(graph, 1);
        return power < 0 ? trm_div(graph, one, trm_power(graph, x, -power))
                         : trm_add(graph, trm_scale(graph, x, 0), one);
    }
    trm_node half = trm_power(graph, x, floor(power / 2)), even = trm_mul(graph, half, half);
    return fmod(power, 2) == 0 ? even : trm_mul(graph, even, x);
}

trm_node trm_cast(trm_graph *graph, trm_node x, trm_dtype dtype) {
    if (trm_node_dtype(graph, x) == dtype) {
        return x;
    }
    trmi_attrs attrs = {.cast = {.dtype = dtype}};
    return trmi_graph_add1(graph, TRMI_OP_CAST, NULL, &x, 1, &attrs);
}

/* Contract in trireme/graph.h. Graphs for prediction have no dropout at all. */
trm_node trm_dropout(trm_graph *graph, trm_node x, double rate) {
    TRMI_NEED_OR(TRM_NO_NODE, NULL, graph);
    if (!graph->training) {
        return x;
    }
    /* the key is the number of the dropout in the graph, so it does not depend on other operators
     */
    trmi_attrs attrs = {
        .dropout = {.rate = rate, .key = (uint64_t)graph->unnamed[TRMI_OP_DROPOUT] + 1}};
    return trmi_graph_add1(graph, TRMI_OP_DROPOUT, NULL, &x, 1, &attrs);
}
