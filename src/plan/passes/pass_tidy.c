/* SPDX-License-Identifier: Apache-2.0 */
/* Small rewrites after differentiation that keep the mathematics: a CAST(bf16 -> fp32) of a weight
 * gradient disappears, and the gradient is made in fp32 directly. With blocks of samples (strict
 * determinism) all sums over rows are made in fp32, and rounded after the sums of all ranks are
 * added. */
#include "plan/passes/pass.h"

/* Returns whether an operator makes weight gradients and can write them in fp32. */
static bool makes_weight_gradient(trmi_op_kind kind) {
    return kind == TRMI_OP_CONV2D_GRAD_WEIGHTS || kind == TRMI_OP_MATMUL ||
           kind == TRMI_OP_REDUCE_SUM;
}

/* Returns whether a backward operator sums over the first dimension of its inputs. */
static bool sums_rows(const trm_graph *g, const trmi_op *op) {
    if (op->phase != TRMI_BACKWARD) {
        return false;
    }
    switch (op->kind) {
    case TRMI_OP_CONV2D_GRAD_WEIGHTS: return true;
    case TRMI_OP_REDUCE_SUM: return (op->attrs.reduce.axes & 1) != 0;
    case TRMI_OP_MATMUL:
        return op->attrs.matmul.transpose_a &&
               (op->attrs.matmul.rows || trmi_input_of(g, op, 0)->shape.rank == 2);
    default: return false;
    }
}

/* Changes the copy of `op` to write float32, and adds a CAST whose output the readers of `op`
 * read. */
static void write_sum_in_float32(trmi_pass *pass, const trmi_op *op) {
    int32_t value = pass->map[op->outputs[0]];
    const trmi_attrs narrow = {.cast = {.dtype = TRM_BFLOAT16}};
    pass->to->values[value].dtype = TRM_FLOAT32;
    pass->to->ops[pass->to->values[value].op].output_dtype = TRM_FLOAT32;
    pass->map[op->outputs[0]] =
        trmi_pass_emit_unary(pass, TRMI_OP_CAST, op->phase, op->name, value, &narrow);
}

/* Removes casts of weight gradients to float32: the operator before writes float32 itself,
 * because its sums have that type anyway. In strict mode sums over rows are written in float32
 * as well, for they are added to those of other blocks. */
trm_status trmi_pass_tidy(trmi_pass *pass, const trmi_plan_options *options,
                          const trmi_roots *roots, trm_error *err) {
    const trm_graph *g = pass->from;
    (void)err;
    for (int32_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        if (op->kind == TRMI_OP_CAST && op->phase == TRMI_BACKWARD) {
            int32_t input = op->inputs[0];
            const trmi_op *made = &g->ops[g->values[input].op];
            bool gradient = false;
            for (int32_t p = 0; p < roots->params_count; p++) {
                gradient = gradient || roots->grads[p] == op->outputs[0];
            }
            if (gradient && pass->uses[input] == 1 && makes_weight_gradient(made->kind) &&
                op->attrs.cast.dtype == TRM_FLOAT32) {
                /* The producer writes float32, and readers of the cast read the producer. */
                int32_t value = pass->map[input];
                pass->to->values[value].dtype = TRM_FLOAT32;
                pass->to->ops[pass->to->values[value].op].output_dtype = TRM_FLOAT32;
                pass->map[op->outputs[0]] = value;
                continue;
            }
        }
        trmi_pass_copy(pass, op);
        if (options->blocks > 0 && sums_rows(g, op) &&
            g->values[op->outputs[0]].dtype == TRM_BFLOAT16) {
            write_sum_in_float32(pass, op);
        }
    }
    return TRM_OK;
}
