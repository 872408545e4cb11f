/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of elementwise operators and dropout, with broadcasting.
 *
 * They define what the operators compute: one scalar function for each operator, in double
 * precision, applied to each element and rounded once. A NaN of x passes the ReLU, so that it is
 * seen. A dropout mask is a function of (seed, step, key, element of the whole tensor), so that
 * backward, other ranks and other thread counts draw the same one. */
#include "exec/ref/ref.h"

#include "base/rng.h"

#include <math.h>

/* Applies f to each pair of elements, broadcast to the shape of the output. */
static trm_status run_binary(const trmi_ref_args *args, double (*f)(double, double)) {
    const trm_tensor *a = &args->inputs[0], *b = &args->inputs[1], *y = &args->outputs[0];
    for (int64_t i = 0; i < trm_shape_count(&y->shape); i++) {
        int64_t at[TRM_MAX_RANK];
        trmi_ref_unravel(&y->shape, i, at);
        trmi_ref_set(y, i,
                     f(trmi_ref_get(a, trmi_ref_broadcast_index(&a->shape, &y->shape, at)),
                       trmi_ref_get(b, trmi_ref_broadcast_index(&b->shape, &y->shape, at))));
    }
    return TRM_OK;
}

/* Applies a function to each element. */
static trm_status run_unary(const trmi_ref_args *args, double (*f)(double)) {
    const trm_tensor *x = &args->inputs[0], *y = &args->outputs[0];
    for (int64_t i = 0; i < trm_shape_count(&y->shape); i++) {
        trmi_ref_set(y, i, f(trmi_ref_get(x, i)));
    }
    return TRM_OK;
}

/* The functions of the operators. Those with two arguments get the inputs in the operator's order;
 * for gradients dy comes first. */
static double add(double a, double b) { return a + b; }
static double sub(double a, double b) { return a - b; }
static double mul(double a, double b) { return a * b; }
static double div_(double a, double b) { return a / b; }
/* Compute gradients: a is dy, b is y. NaN passes the ReLU, so that it is seen. */
static double relu_grad(double a, double b) { return b > 0 || isnan(b) ? a : 0; }
static double sigmoid_grad(double a, double b) { return a * b * (1 - b); }
static double tanh_grad(double a, double b) { return a * (1 - b * b); }
static double relu(double x) { return x < 0 ? 0 : x; }
static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double silu(double x) { return x * sigmoid(x); }
static double silu_grad(double dy, double x) {
    double s = sigmoid(x);
    return dy * s * (1 + x * (1 - s));
}
static double gelu(double x) { return x * 0.5 * erfc(-x * M_SQRT1_2); }
static double gelu_grad(double dy, double x) { /* Phi(x) + x phi(x) */
    return dy * (0.5 * erfc(-x * M_SQRT1_2) + x * exp(-x * x / 2) * 0.5 * M_2_SQRTPI * M_SQRT1_2);
}
/* Returns tanh(u) of u = sqrt(2 / pi) (x + 0.044715 x^3). */
static double gelu_inner(double x) {
    return tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x));
}
static double gelu_tanh(double x) { return 0.5 * x * (1 + gelu_inner(x)); }
static double gelu_tanh_grad(double dy, double x) {
    double t = gelu_inner(x), slope = M_2_SQRTPI * M_SQRT1_2 * (1 + 3 * 0.044715 * x * x);
    return dy * 0.5 * (1 + t + x * (1 - t * t) * slope);
}
/* Computes the gated unit of Shazeer 2020: gate and up are two projections of one input. */
static double swiglu(double gate, double up) { return silu(gate) * up; }
static double copy_value(double x) { return x; }

#define BINARY(row, f)                                                                             \
    trm_status trmi_ref_##row(const trmi_ref_args *args, trm_error *err) {                         \
        (void)err;                                                                                 \
        return run_binary(args, f);                                                                \
    }
#define UNARY(row, f)                                                                              \
    trm_status trmi_ref_##row(const trmi_ref_args *args, trm_error *err) {                         \
        (void)err;                                                                                 \
        return run_unary(args, f);                                                                 \
    }
BINARY(add, add)
BINARY(sub, sub)
BINARY(mul, mul)
BINARY(div, div_)
BINARY(relu_grad, relu_grad)
BINARY(sigmoid_grad, sigmoid_grad)
BINARY(tanh_grad, tanh_grad)
BINARY(silu_grad, silu_grad)
BINARY(swiglu, swiglu)
UNARY(relu, relu)
UNARY(silu, silu)
UNARY(sigmoid, sigmoid)
UNARY(tanh, tanh)
UNARY(exp, exp)
UNARY(log, log)
UNARY(sqrt, sqrt)
UNARY(cast, copy_value)

/* Computes x times the normal distribution function (Hendrycks and Gimpel 2016), exactly or by its
 * approximation with tanh. */
trm_status trmi_ref_gelu(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return run_unary(args, args->attrs->gelu.tanh ? gelu_tanh : gelu);
}
trm_status trmi_ref_gelu_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return run_binary(args, args->attrs->gelu.tanh ? gelu_tanh_grad : gelu_grad);
}

/* Computes dgate = dy up silu'(gate) and dup = dy silu(gate). */
trm_status trmi_ref_swiglu_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *in = args->inputs;
    for (int64_t i = 0; i < trm_shape_count(&in[0].shape); i++) {
        double dy = trmi_ref_get(&in[0], i), gate = trmi_ref_get(&in[1], i);
        trmi_ref_set(&args->outputs[0], i, silu_grad(dy * trmi_ref_get(&in[2], i), gate));
        trmi_ref_set(&args->outputs[1], i, dy * silu(gate));
    }
    return TRM_OK;
}

trm_status trmi_ref_scale(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    for (int64_t i = 0; i < trm_shape_count(&args->outputs[0].shape); i++) {
        trmi_ref_set(&args->outputs[0], i,
                     trmi_ref_get(&args->inputs[0], i) * args->attrs->scale.factor);
    }
    return TRM_OK;
}

/* Returns the number that element i of this part has in the whole tensor, so that the mask does not
 * depend on how the tensor is cut. */
static int64_t whole_index(const trmi_ref_args *args, int64_t i) {
    const trm_shape *shape = &args->outputs[0].shape;
    int64_t at[TRM_MAX_RANK], index = 0;
    const trmi_op_part *part = trmi_part_of(args->attrs);
    if (part->extents[0] == 0) {
        return i;
    }
    trmi_ref_unravel(shape, i, at);
    for (int32_t d = 0; d < shape->rank; d++) {
        index = index * part->extents[d] + at[d] + part->at[d];
    }
    return index;
}

/* Returns the elements of one block of samples of the whole tensor; without blocks more than there
 * are. */
static int64_t elements_of_block(const trmi_ref_args *args) {
    const trm_shape *shape = &args->outputs[0].shape;
    const trmi_op_part *part = trmi_part_of(args->attrs);
    int64_t elements = args->block_rows;
    for (int32_t d = 1; d < shape->rank; d++) {
        elements *= part->extents[0] > 0 ? part->extents[d] : shape->dim[d];
    }
    return args->block_numbers != NULL && elements > 0 ? elements : INT64_MAX;
}

/* Four elements share a Philox block; the mask is a function of (seed, step, key, element). */
trm_status trmi_ref_dropout(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    double rate = args->attrs->dropout.rate, factor = (double)(float)(1 / (1 - rate));
    uint64_t stream = trmi_mix(args->attrs->dropout.key, TRMI_STREAM_DROPOUT);
    int64_t count = trm_shape_count(&args->outputs[0].shape), each = elements_of_block(args);
    for (int64_t i = 0; i < count; i++) {
        /* The element's number is that in the whole tensor or, in strict mode, in its block of
         * samples, so that no cut changes the mask. */
        uint32_t bits[4];
        int64_t element = whole_index(args, i), position = element / each;
        uint64_t seed =
            trmi_mix(trmi_block_seed(args->seed, args->block_numbers, position), args->step);
        element %= each;
        trmi_philox(seed, stream, (uint64_t)(element / 4), bits);
        bool kept = (double)trmi_unit_float(bits[element % 4]) >= rate;
        trmi_ref_set(&args->outputs[0], i, kept ? trmi_ref_get(&args->inputs[0], i) * factor : 0);
    }
    return TRM_OK;
}
