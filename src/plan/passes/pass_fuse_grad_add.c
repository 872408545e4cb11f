/* SPDX-License-Identifier: Apache-2.0 */
/* Fuses the addition of two gradients into the gradient of a fused norm. At a fork the gradients of
 * the two branches are added, and only the gradient of the norm before the fork reads the sum; that
 * operator makes its own copy after the ReLU anyway.
 *
 *      da, db -> ADD -> NORM_ACT_GRAD        da, db -> NORM_ACT_GRAD (eighth input)
 *
 * Saves one pass over memory for each residual block. */
#include "plan/passes/pass.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Returns the ADD whose only reader is dy of this operator; NULL: none. */
static const trmi_op *sum_before(const trmi_pass *pass, const trmi_op *op) {
    const trm_graph *g = pass->from;
    if (op->kind != TRMI_OP_NORM_ACT_GRAD || op->inputs_count != 7 || !op->attrs.norm.residual ||
        !op->attrs.norm.from_y) {
        return NULL;
    }
    int32_t dy = op->inputs[0];
    const trmi_op *add = &g->ops[g->values[dy].op];
    bool fits = add->kind == TRMI_OP_ADD && pass->uses[dy] == 1 &&
                trm_shape_equal(&trmi_input_of(g, add, 0)->shape, &g->values[dy].shape) &&
                trm_shape_equal(&trmi_input_of(g, add, 1)->shape, &g->values[dy].shape);
    return fits ? add : NULL;
}

trm_status trmi_pass_fuse_grad_add(trmi_pass *pass, const trmi_plan_options *options,
                                   const trmi_roots *roots, trm_error *err) {
    (void)options;
    (void)roots;
    const trm_graph *g = pass->from;
    bool *skip = calloc((size_t)g->ops_count, sizeof *skip);
    if (skip == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to fuse gradients");
    }
    /* additions that disappear */
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *add = sum_before(pass, &g->ops[i]);
        if (add != NULL) {
            skip[add - g->ops] = true;
        }
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        const trmi_op *add = sum_before(pass, op);
        if (skip[i]) {
            continue;
        }
        if (add == NULL) {
            trmi_pass_copy(pass, op);
            continue;
        }
        /* the fused gradient reads both summands */
        int32_t inputs[8];
        for (int j = 1; j < 7; j++) {
            inputs[j] = pass->map[op->inputs[j]];
        }
        inputs[0] = pass->map[add->inputs[0]];
        inputs[7] = pass->map[add->inputs[1]];
        int32_t index = trmi_pass_emit(pass, op->kind, op->phase, op->name, inputs, 8,
                                       op->outputs_count, &op->attrs);
        trmi_pass_set_origin(pass, index, op->origin);
        for (int j = 0; j < op->outputs_count && index != 0; j++) {
            pass->map[op->outputs[j]] = pass->to->ops[index].outputs[j];
        }
    }
    free(skip);
    return TRM_OK;
}
