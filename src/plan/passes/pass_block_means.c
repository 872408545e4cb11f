/* SPDX-License-Identifier: Apache-2.0 */
/* With blocks of samples (strict determinism) a mean over samples becomes their sum, divided by the
 * number of samples of all ranks. So its gradient does not depend on how many of them a rank has,
 * and the sum is made block by block. LINEAR_XENT, which makes its gradients itself, runs block by
 * block; the loss is the mean of the blocks'. */
#include "plan/passes/pass.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>

/* Marks values that depend on an input, or on rows that servers give for a batch. */
static void mark_inputs(const trm_graph *g, uint8_t *depends) {
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        bool any =
            op->kind == TRMI_OP_INPUT || (op->kind == TRMI_OP_PARAMETER && op->attrs.leaf.remote);
        for (int32_t j = 0; j < op->inputs_count; j++) {
            any = any || depends[op->inputs[j]];
        }
        for (int32_t j = 0; j < op->outputs_count; j++) {
            depends[op->outputs[j]] = any;
        }
    }
}

/* Divides output 0 of the copy of `op` by `count`; later readers read the quotient. */
static void emit_mean(trmi_pass *pass, const trmi_op *op, double count) {
    const trmi_attrs by = {.scale = {.factor = 1 / count}};
    char name[300];
    snprintf(name, sizeof name, "%.280s.mean", op->name);
    int32_t *value = &pass->map[op->outputs[0]];
    *value = trmi_pass_emit_unary(pass, TRMI_OP_SCALE, op->phase, name, *value, &by);
}

/* Writes a mean as a sum and a factor. The number of terms is that of all ranks. */
static void emit_sum(trmi_pass *pass, const trmi_op *op, int32_t ranks) {
    const trmi_value *x = trmi_input_of(pass->from, op, 0), *y = trmi_output_of(pass->from, op, 0);
    double terms = (double)trm_shape_count(&x->shape) / (double)trm_shape_count(&y->shape);
    int32_t sum = trmi_pass_emit_unary(pass, TRMI_OP_REDUCE_SUM, op->phase, op->name,
                                       pass->map[op->inputs[0]], &op->attrs);
    pass->map[op->outputs[0]] = sum;
    if (sum != 0) {
        emit_mean(pass, op, terms * ranks);
    }
}

/* Contract in pass.h. Means that no sample reaches stay as they are. */
trm_status trmi_pass_block_means(trmi_pass *pass, const trmi_plan_options *options,
                                 const trmi_roots *roots, trm_error *err) {
    (void)roots;
    const trm_graph *g = pass->from;
    uint8_t *depends;
    TRMI_TRY(TRMI_NEW(err, depends, (size_t)g->values_count + 1, "to plan"));
    mark_inputs(g, depends);
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        bool mean = op->kind == TRMI_OP_REDUCE_MEAN && (op->attrs.reduce.axes & 1) != 0;
        if (mean && depends[op->inputs[0]]) {
            emit_sum(pass, op, options->block_ranks);
            continue;
        }
        trmi_pass_copy(pass, op);
        if (op->kind == TRMI_OP_LINEAR_XENT) {
            emit_mean(pass, op, (double)options->blocks * options->block_ranks);
        }
    }
    trmi_free(depends);
    return TRM_OK;
}
