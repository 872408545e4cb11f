/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators of one or two inputs, with broadcasting, in any layout; dropout.
 *
 * All tensors in one layout without broadcasting are one flat run; otherwise a nest of strided
 * runs. */
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/ops/memory_kernels.h"
#include "exec/cpu/gemm/nest.h"

#include "base/element.h"
#include "base/error.h"
#include "base/format/half.h"
#include "base/memory.h"
#include "base/rng.h"

enum {
    PIECE = 8192, /* elements: 32 KB of each operand */
    GATHER = 512  /* elements copied at a time where an operand's inner stride is neither 0 nor 1 */
};

/* Filled by bind; base is set by each run. */
typedef struct eltwise_state {
    const trmi_memory_kernels *kernels;
    trmi_nest nest; /* operands: y, a [, b] */
    int kind;       /* trmi_unary or trmi_binary */
    float factor;
    bool half[TRMI_NEST_OPERANDS];
    /* base addresses of the present run */
    char *base[TRMI_NEST_OPERANDS];
} eltwise_state;

/* Returns the kernel of an operator with one input; -1: there is none. */
static int unary_kind(trmi_op_kind kind, const trmi_attrs *attrs) {
    switch (kind) {
    case TRMI_OP_GELU: return attrs->gelu.tanh ? TRMI_UNARY_GELU_TANH : TRMI_UNARY_GELU;
    case TRMI_OP_SILU: return TRMI_UNARY_SILU;
    case TRMI_OP_CAST: return TRMI_UNARY_COPY;
    case TRMI_OP_RELU: return TRMI_UNARY_RELU;
    case TRMI_OP_SIGMOID: return TRMI_UNARY_SIGMOID;
    case TRMI_OP_TANH: return TRMI_UNARY_TANH;
    case TRMI_OP_EXP: return TRMI_UNARY_EXP;
    case TRMI_OP_LOG: return TRMI_UNARY_LOG;
    case TRMI_OP_SQRT: return TRMI_UNARY_SQRT;
    case TRMI_OP_SCALE: return TRMI_UNARY_SCALE;
    default: return -1;
    }
}

/* Returns the kernel of an operator with two inputs; -1: there is none. */
static int binary_kind(trmi_op_kind kind, const trmi_attrs *attrs) {
    switch (kind) {
    case TRMI_OP_GELU_GRAD:
        return attrs->gelu.tanh ? TRMI_BINARY_GELU_TANH_GRAD : TRMI_BINARY_GELU_GRAD;
    case TRMI_OP_SILU_GRAD: return TRMI_BINARY_SILU_GRAD;
    case TRMI_OP_SWIGLU: return TRMI_BINARY_SWIGLU;
    case TRMI_OP_ADD: return TRMI_BINARY_ADD;
    case TRMI_OP_SUB: return TRMI_BINARY_SUB;
    case TRMI_OP_MUL: return TRMI_BINARY_MUL;
    case TRMI_OP_DIV: return TRMI_BINARY_DIV;
    case TRMI_OP_RELU_GRAD: return TRMI_BINARY_RELU_GRAD;
    case TRMI_OP_SIGMOID_GRAD: return TRMI_BINARY_SIGMOID_GRAD;
    case TRMI_OP_TANH_GRAD: return TRMI_BINARY_TANH_GRAD;
    default: return -1;
    }
}

/* ---- what the plan needs to know (ops.h) ----------------------------------------------------- */

/* Contract in ops.h. Inputs that an operator may lack are 0 and count as fast. */
bool trmi_memory_fast_dtypes(const trm_graph *graph, const trmi_op *op) {
    bool fast = true;
    for (int32_t i = 0; i < op->inputs_count; i++) {
        fast = fast && (op->inputs[i] == 0 ||
                        trmi_dtype_is_fast(trmi_value_of(graph, op->inputs[i])->dtype));
    }
    for (int32_t i = 0; i < op->outputs_count; i++) {
        fast = fast && trmi_dtype_is_fast(trmi_output_of(graph, op, i)->dtype);
    }
    return fast;
}

/* CAST converts; every other kind has one dtype. */
static bool one_dtype(const trm_graph *graph, const trmi_op *op) {
    bool same = true;
    for (int32_t i = 0; i < op->inputs_count; i++) {
        same = same && trmi_input_of(graph, op, i)->dtype == trmi_output_of(graph, op, 0)->dtype;
    }
    return same || op->kind == TRMI_OP_CAST;
}

bool trmi_onednn_eltwise_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                                  trmi_layout layout) {
    (void)state;
    return layout == TRMI_PLAIN || (layout == TRMI_CHANNELS_LAST &&
                                    trmi_memory_fast_dtypes(graph, op) && one_dtype(graph, op));
}

bool trmi_onednn_eltwise_in_place(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                                  int input) {
    (void)state;
    const trmi_value *x = trmi_input_of(graph, op, input), *y = trmi_output_of(graph, op, 0);
    /* each piece is read before it is written, and outputs depend on the same element only */
    return x->dtype == y->dtype && trmi_dtype_is_fast(x->dtype) &&
           trm_shape_equal(&x->shape, &y->shape);
}

/* ---- run ------------------------------------------------------------------------------------- */

/* Returns the address of an element of an operand. */
static char *element_at(const eltwise_state *s, int operand, int64_t offset) {
    return s->base[operand] + offset * (s->half[operand] ? 2 : 4);
}

/* Copies `n` elements of a strided operand to a contiguous buffer. */
static void gather_operand(const eltwise_state *s, int operand, int64_t offset, int64_t stride,
                           int64_t n, void *out) {
    const char *base = element_at(s, operand, offset);
    for (int64_t i = 0; i < n; i++) {
        if (s->half[operand]) {
            ((uint16_t *)out)[i] = ((const uint16_t *)base)[i * stride];
        } else {
            ((float *)out)[i] = ((const float *)base)[i * stride];
        }
    }
}

/* Computes one run of a unary operator; strided operands are gathered first. */
static void unary_body(const void *context, const int64_t *offset, int64_t count) {
    const eltwise_state *s = context;
    int64_t step = s->nest.stride[1][s->nest.rank - 1], piece = step == 1 ? count : GATHER;
    for (int64_t at = 0; at < count; at += piece) {
        float copy[GATHER];
        int64_t n = count - at < piece ? count - at : piece;
        const void *x = element_at(s, 1, offset[1] + at);
        if (step != 1) { /* another layout */
            gather_operand(s, 1, offset[1] + at * step, step, n, copy);
            x = copy;
        }
        s->kernels->unary[s->kind](x, element_at(s, 0, offset[0] + at), n, s->half[1], s->half[0],
                                   s->factor);
    }
}

/* Computes a binary operator for a run of elements. A broadcast operand has stride 0. */
static void binary_body(const void *context, const int64_t *offset, int64_t count) {
    const eltwise_state *s = context;
    int32_t inner = s->nest.rank - 1;
    int64_t step_a = s->nest.stride[1][inner], step_b = s->nest.stride[2][inner];
    /* Kernels take contiguous or single elements. A strided operand is copied first, a piece at a
     * time. */
    bool dense = step_a <= 1 && step_b <= 1;
    int64_t piece = dense ? count : GATHER;
    for (int64_t at = 0; at < count; at += piece) {
        float copies[2][GATHER];
        int64_t n = count - at < piece ? count - at : piece;
        const void *in[2];
        for (int o = 1; o <= 2; o++) {
            int64_t step = s->nest.stride[o][inner];
            in[o - 1] = element_at(s, o, offset[o] + at * step);
            if (step > 1) {
                gather_operand(s, o, offset[o] + at * step, step, n, copies[o - 1]);
                in[o - 1] = copies[o - 1];
            }
        }
        s->kernels->binary[s->kind](in[0], in[1], element_at(s, 0, offset[0] + at), n, step_a != 0,
                                    step_b != 0, s->half[0]);
    }
}

/* Returns whether an operand is one number, which every element of the output reads. */
static bool is_number(const trmi_nest *n, int operand) {
    for (int32_t d = 0; d < n->rank; d++) {
        if (n->stride[operand][d] != 0) {
            return false;
        }
    }
    return true;
}

/* Returns the bound state with the addresses of this run. */
static eltwise_state state_of_run(const trmi_kernel *k, const trmi_kernel_env *env) {
    eltwise_state s = *(const eltwise_state *)k->state;
    s.base[0] = trmi_kernel_output(k, env, 0);
    for (int o = 1; o < s.nest.operands; o++) {
        s.base[o] = trmi_kernel_input(k, env, o - 1);
    }
    return s;
}

/* Returns whether the output is there already: another operand in its place, times 1. So are the
 * gradients that a loss's operator made, where the loss has no scale. */
static bool changes_nothing(const trmi_kernel *k, const trmi_kernel_env *env) {
    eltwise_state s = state_of_run(k, env);
    for (int o = 1; o <= 2 && s.nest.operands == 3 && s.kind == TRMI_BINARY_MUL; o++) {
        if (s.base[3 - o] == s.base[0] && is_number(&s.nest, o) && !is_number(&s.nest, 3 - o) &&
            trmi_load_float(s.base[o], 0, s.half[o]) == 1) {
            return true;
        }
    }
    return false;
}

/* Runs a unary or binary operator. */
static trm_status run_eltwise(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    eltwise_state s = state_of_run(k, env);
    if (!changes_nothing(k, env)) {
        trmi_nest_run(&s.nest, PIECE, s.nest.operands == 2 ? unary_body : binary_body, &s);
    }
    return TRM_OK;
}

/* Runs dropout, forward or backward: the mask is computed again from seed, step and element. */
static trm_status run_dropout(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const eltwise_state *s = k->state;
    const trmi_attrs *attrs = k->step->attrs;
    /* Masks of a block of samples depend on its number, wherever it is. */
    int64_t blocks = k->step->blocks > 0 ? k->step->blocks : 1;
    const int32_t *numbers = k->step->blocks > 0 ? env->block_numbers : NULL;
    int64_t count = trm_shape_count(&trmi_kernel_output_buffer(k, 0)->shape) / blocks,
            pieces = (count + PIECE - 1) / PIECE;
    uint64_t stream = trmi_mix(attrs->dropout.key, TRMI_STREAM_DROPOUT);
    uint64_t step = trmi_dropout_step(env);
    const char *x = trmi_kernel_input(k, env, 0);
    char *y = trmi_kernel_output(k, env, 0);
    int64_t bytes = s->half[0] ? 2 : 4;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < blocks * pieces; i++) {
        int64_t block = i / pieces, at = i % pieces * PIECE, from = block * count + at;
        int64_t n = count - at < PIECE ? count - at : PIECE;
        s->kernels->dropout(x + from * bytes, y + from * bytes, at, n, s->half[0],
                            trmi_mix(trmi_block_seed(env->seed, numbers, block), step), stream,
                            attrs->dropout.rate);
    }
    return TRM_OK;
}

/* ---- bind ------------------------------------------------------------------------------------ */

void trmi_memory_destroy_state(trmi_kernel *kernel) { trmi_free(kernel->state); }

void *trmi_memory_state(trmi_kernel *kernel, size_t bytes, trm_error *err) {
    kernel->state = trmi_alloc(bytes);
    kernel->destroy = trmi_memory_destroy_state;
    if (kernel->state == NULL) {
        TRMI_NO_MEMORY(err, "for the kernel of %s", kernel->step->name);
    }
    return kernel->state;
}

trm_status trmi_memory_unsupported(const trmi_kernel *kernel, trm_error *err) {
    return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: no fast kernel for these dtypes",
                     kernel->step->name);
}

/* Binds an element-wise kernel. Operand 0 of the nest is the output. All operands have the output's
 * type, except for a cast; broadcast dimensions have stride 0. */
trm_status trmi_onednn_bind_eltwise(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    trmi_op_kind kind = kernel->step->op_kind;
    const trmi_attrs *attrs = kernel->step->attrs;
    int unary = unary_kind(kind, attrs), binary = binary_kind(kind, attrs),
        operands = unary >= 0 ? 2 : 3;
    const trmi_buffer *y = trmi_kernel_output_buffer(kernel, 0);
    int64_t strides[TRMI_NEST_OPERANDS][TRM_MAX_RANK];
    bool half[TRMI_NEST_OPERANDS] = {y->dtype == TRM_BFLOAT16};
    trmi_buffer_strides(y, strides[0]);
    for (int o = 1; o < operands; o++) {
        const trmi_buffer *x = trmi_kernel_input_buffer(kernel, o - 1);
        if (!trmi_dtype_is_fast(x->dtype) || !trmi_dtype_is_fast(y->dtype) ||
            (x->dtype != y->dtype && kind != TRMI_OP_CAST)) {
            return trmi_memory_unsupported(kernel, err);
        }
        half[o] = x->dtype == TRM_BFLOAT16;
        trmi_broadcast_strides(x, &y->shape, strides[o]);
    }
    /* Make the state, and the loops over the output. */
    eltwise_state *s = trmi_memory_state(kernel, sizeof *s, err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    *s = (eltwise_state){.kernels = trmi_memory_kernels_best(),
                         .kind = unary >= 0 ? unary : binary,
                         .half = {half[0], half[1], half[2]}};
    if (kind == TRMI_OP_SCALE) {
        s->factor = (float)kernel->step->attrs->scale.factor;
    }
    trmi_nest_make(&s->nest, &y->shape, operands, strides);
    kernel->run = run_eltwise;
    kernel->leaves = changes_nothing;
    return TRM_OK;
}

/* Kernels that depend on the position of an element in the plain layout. */
bool trmi_onednn_plain_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                                trmi_layout layout) {
    (void)state;
    (void)graph;
    (void)op;
    return layout == TRMI_PLAIN;
}

/* Binds dropout. A rank that has a part of the tensor needs the mask of the whole tensor's indices,
 * which the reference kernel computes. */
trm_status trmi_onednn_bind_dropout(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    const trmi_buffer *y = trmi_kernel_output_buffer(kernel, 0);
    bool part = trmi_part_of(kernel->step->attrs)->extents[0] > 0;
    if (!trmi_dtype_is_fast(y->dtype) || part) { /* of a part: by the whole tensor's indices */
        return trmi_memory_unsupported(kernel, err);
    }
    eltwise_state *s = trmi_memory_state(kernel, sizeof *s, err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    *s = (eltwise_state){.kernels = trmi_memory_kernels_best(), .half = {y->dtype == TRM_BFLOAT16}};
    kernel->run = run_dropout;
    return TRM_OK;
}
