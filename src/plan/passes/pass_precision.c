/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision (allow_mix_precision of guide 000), on the forward graph: inserts casts around
 * operators that compute in bf16; differentiation reverses the casts. Three kinds of operators:
 *
 *      bf16     convolution, linear, matmul: float inputs are cast to bf16 (weights too, not the bias)
 *      follow   norm, pooling, ReLU, add, reshapes...: bf16 in, bf16 out; statistics stay fp32
 *      fp32     all others, the loss above all: bf16 inputs are cast back
 *
 * Parameters stay fp32 masters; the gradient of a weight is made in fp32 (pass_tidy.c). */
#include "plan/passes/pass.h"

#include "trireme/graph.h"

/* Returns whether an operator computes in bf16. */
static bool computes_in_bf16(trmi_op_kind kind) {
    return kind == TRMI_OP_CONV2D || kind == TRMI_OP_LINEAR || kind == TRMI_OP_MATMUL;
}

/* Returns the inputs of a following operator that carry the image, as bits; the other ones (gamma,
 * beta ...) stay fp32. 0: the operator does not follow. */
static uint32_t followed_inputs(trmi_op_kind kind) {
    switch (kind) {
    case TRMI_OP_NORM_ACT:
    case TRMI_OP_NORM_ACT_INFER:
    case TRMI_OP_BATCH_NORM:
    case TRMI_OP_BATCH_NORM_INFER: return 1u | 1u << 5; /* x and the residual */
    case TRMI_OP_LAYER_NORM:
    case TRMI_OP_RMS_NORM:
    case TRMI_OP_LINEAR_XENT: /* its weights stay fp32, so that it makes their gradient in fp32 */
    case TRMI_OP_EXPERT_LINEAR:
    case TRMI_OP_GELU:
    case TRMI_OP_SILU:
    case TRMI_OP_ROTARY:
    case TRMI_OP_BROADCAST:
    case TRMI_OP_MAX_POOL:
    case TRMI_OP_AVG_POOL:
    case TRMI_OP_GLOBAL_AVG_POOL:
    case TRMI_OP_RELU:
    case TRMI_OP_RESHAPE:
    case TRMI_OP_TRANSPOSE:
    case TRMI_OP_SLICE:
    case TRMI_OP_DROPOUT: return 1u;
    case TRMI_OP_SWIGLU:
    case TRMI_OP_ADD: return 3u;
    case TRMI_OP_ATTENTION: return 7u;
    case TRMI_OP_CONCAT: return ~0u;
    default: return 0;
    }
}

/* Returns the value cast to a dtype; values that are not fp32 or bf16 are not cast. */
static int32_t cast_to(trmi_pass *pass, const trmi_op *op, int32_t value, trm_dtype dtype) {
    trm_dtype now = pass->to->values[value].dtype;
    if (now == dtype || (now != TRM_FLOAT32 && now != TRM_BFLOAT16)) {
        return value;
    }
    /* Use an earlier cast of the same value again. */
    for (int64_t i = pass->to->ops_count - 1; i > 0; i--) {
        const trmi_op *earlier = &pass->to->ops[i];
        if (earlier->kind == TRMI_OP_CAST && earlier->inputs[0] == value &&
            earlier->attrs.cast.dtype == dtype) {
            return earlier->outputs[0];
        }
    }
    trmi_attrs attrs = {.cast = {.dtype = dtype}};
    char *name = trmi_arena_printf(&pass->to->arena, "%s.cast",
                                   pass->to->ops[pass->to->values[value].op].name);
    int32_t cast = trmi_pass_emit_unary(pass, TRMI_OP_CAST, op->phase, name, value, &attrs);
    return cast != 0 ? cast : value;
}

/* Returns the dtype in which an operator computes. */
static trm_dtype wanted_dtype(const trmi_pass *pass, const trmi_op *op, uint32_t follow) {
    if (computes_in_bf16(op->kind)) {
        return TRM_BFLOAT16;
    }
    bool any = false;
    for (int32_t i = 0; i < op->inputs_count && follow != 0; i++) {
        int32_t mapped = pass->map[op->inputs[i]];
        any = any || ((follow >> (i < 31 ? i : 31) & 1) && mapped != 0 &&
                      pass->to->values[mapped].dtype == TRM_BFLOAT16);
    }
    return any ? TRM_BFLOAT16 : TRM_FLOAT32;
}

/* Inserts the casts of mixed precision. Each operator has a type that it computes with; inputs
 * of another type are cast, and the map points to the casts only while that operator is copied. */
trm_status trmi_pass_precision(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err) {
    const trm_graph *g = pass->from;
    (void)err;
    (void)options;
    (void)roots;
    for (int32_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        uint32_t follow = followed_inputs(op->kind);
        trm_dtype dtype = wanted_dtype(pass, op, follow);
        int32_t saved[8];
        int32_t inputs = op->inputs_count < 8 ? op->inputs_count : 8;
        /* the map points to the casts while this operator is copied */
        for (int32_t j = 0; j < inputs; j++) {
            int32_t value = op->inputs[j];
            saved[j] = pass->map[value];
            /* Data and weights of a product get its type; biases, gamma and beta stay in
             * float32. */
            bool data = computes_in_bf16(op->kind) || follow == 0 || (follow >> j & 1);
            bool bias = computes_in_bf16(op->kind) && j == 2;
            trm_dtype to = bias || (follow != 0 && !(follow >> j & 1)) ? TRM_FLOAT32 : dtype;
            if (saved[j] != 0 && op->kind != TRMI_OP_CAST && (data || to == TRM_FLOAT32)) {
                pass->map[value] = cast_to(pass, op, saved[j], to);
            }
        }
        trmi_pass_copy(pass, op);
        for (int32_t j = inputs - 1; j >= 0; j--) {
            pass->map[op->inputs[j]] = saved[j];
        }
    }
    return TRM_OK;
}
