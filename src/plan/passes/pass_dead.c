/* SPDX-License-Identifier: Apache-2.0 */
/* Removes operators that no root needs: roots are the loss, outputs, parameters and their
 * gradients. Inputs and states remain even if unused, so that feeding an input is never an error.
 */
#include "plan/passes/pass.h"

#include "base/memory.h"

/* Leaves out operators of which no root needs an output. Inputs, states and parameters stay
 * although nothing reads them, because callers feed and list them by name. */
trm_status trmi_pass_dead(trmi_pass *pass, const trmi_plan_options *options,
                          const trmi_roots *roots, trm_error *err) {
    (void)options;
    const trm_graph *g = pass->from;
    bool *live = trmi_alloc((size_t)g->values_count * sizeof *live);
    if (live == NULL) {
        return TRMI_NO_MEMORY(err, "to find dead code");
    }
    /* Values that the caller reads are live; 0 ("absent") does no harm. */
    live[roots->loss] = true;
    for (int32_t i = 0; i < roots->outputs_count; i++) {
        live[roots->outputs[i]] = true;
    }
    for (int32_t i = 0; i < roots->params_count; i++) {
        live[roots->params[i]] = true;
        live[roots->grads[i]] = true;
    }
    /* Go backwards: an operator is live if one of its outputs is. */
    for (int64_t i = g->ops_count - 1; i > 0; i--) {
        const trmi_op *op = &g->ops[i];
        bool any =
            op->kind == TRMI_OP_INPUT || op->kind == TRMI_OP_STATE || op->kind == TRMI_OP_PARAMETER;
        for (int32_t j = 0; j < op->outputs_count; j++) {
            any = any || live[op->outputs[j]];
        }
        for (int32_t j = 0; j < op->outputs_count && any; j++) {
            live[op->outputs[j]] = true;
        }
        for (int32_t j = 0; any && j < op->inputs_count; j++) {
            live[op->inputs[j]] = op->inputs[j] != 0;
        }
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (live[g->ops[i].outputs[0]]) {
            trmi_pass_copy(pass, &g->ops[i]);
        }
    }
    trmi_free(live);
    return TRM_OK;
}
