/* SPDX-License-Identifier: Apache-2.0 */
/* Small rewrites after differentiation that keep the mathematics: a CAST(bf16 -> fp32) of a weight
 * gradient disappears, and the gradient is made in fp32 directly. */
#include "plan/passes/pass.h"

/* Returns whether an operator makes weight gradients and can write them in fp32. */
static bool makes_weight_gradient(trmi_op_kind kind) {
    return kind == TRMI_OP_CONV2D_GRAD_WEIGHTS || kind == TRMI_OP_MATMUL ||
           kind == TRMI_OP_REDUCE_SUM;
}

trm_status trmi_pass_tidy(trmi_pass *pass, const trmi_plan_options *options,
                          const trmi_roots *roots, trm_error *err) {
    const trm_graph *g = pass->from;
    (void)options;
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
                int32_t value = pass->map[input];
                pass->to->values[value].dtype = TRM_FLOAT32;
                pass->to->ops[pass->to->values[value].op].output_dtype = TRM_FLOAT32;
                pass->map[op->outputs[0]] = value;
                continue;
            }
        }
        trmi_pass_copy(pass, op);
    }
    return TRM_OK;
}
