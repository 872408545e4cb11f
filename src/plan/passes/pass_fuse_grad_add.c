/* SPDX-License-Identifier: Apache-2.0 */
/* Fuses the addition of two gradients into an operator beside it.
 *
 *      da, db -> ADD -> NORM_ACT_GRAD                 da, db -> NORM_ACT_GRAD (eighth input)
 *      rows, ids -> EMBEDDING_GRAD, dw -> ADD         rows, ids, dw -> EMBEDDING_GRAD (third input)
 *
 * The first is at a fork: the gradients of two branches are added, and only the gradient of the
 * norm before the fork reads the sum; that operator makes its own copy after the ReLU anyway. It
 * saves one pass over memory for each residual block. The second is a table that is also the
 * weights of the output layer: the rows of the batch are added to the gradient of those weights,
 * and no second dense gradient of the table exists. Not with blocks of samples, where each block's
 * sum is a table. */
#include "plan/passes/pass.h"

#include "base/memory.h"

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

/* Returns which input of an ADD is the gradient of a table that nothing else reads, or -1. */
static int table_of_sum(const trmi_pass *pass, const trmi_op *add) {
    const trm_graph *g = pass->from;
    for (int i = 0; i < 2 && add->kind == TRMI_OP_ADD; i++) {
        const trmi_op *maker = trmi_maker_of(g, add->inputs[i]);
        const trmi_value *table = trmi_input_of(g, add, i), *other = trmi_input_of(g, add, 1 - i);
        if (maker->kind == TRMI_OP_EMBEDDING_GRAD && maker->inputs_count == 2 &&
            pass->uses[add->inputs[i]] == 1 && pass->uses[add->inputs[1 - i]] == 1 &&
            table->dtype == TRM_FLOAT32 && other->dtype == TRM_FLOAT32 &&
            trm_shape_equal(&table->shape, &other->shape)) {
            return i;
        }
    }
    return -1;
}

/* Emits the gradient of a table that adds to the other summand. */
static void emit_table(trmi_pass *pass, const trmi_op *add, int which) {
    const trmi_op *table = trmi_maker_of(pass->from, add->inputs[which]);
    const int32_t inputs[] = {pass->map[table->inputs[0]], pass->map[table->inputs[1]],
                              pass->map[add->inputs[1 - which]]};
    int32_t index = trmi_pass_emit_like(pass, table, inputs, 3, &table->attrs);
    if (index != 0) {
        pass->map[add->outputs[0]] = pass->to->ops[index].outputs[0];
    }
}

/* Marks the operators that disappear because `op` does their work. */
static void mark_fused(const trmi_pass *pass, const trmi_op *op, bool tables, bool *skip) {
    const trmi_op *add = sum_before(pass, op);
    int which = tables ? table_of_sum(pass, op) : -1;
    if (add != NULL) {
        skip[add - pass->from->ops] = true;
    }
    if (which >= 0) {
        skip[trmi_maker_of(pass->from, op->inputs[which]) - pass->from->ops] = true;
    }
}

/* Replaces "gradient of a sum of two" by a gradient that reads both summands, and the same for
 * sums of gradients of tables. First all fused sums are marked; then the graph is copied without
 * them. */
trm_status trmi_pass_fuse_grad_add(trmi_pass *pass, const trmi_plan_options *options,
                                   const trmi_roots *roots, trm_error *err) {
    (void)roots;
    const trm_graph *g = pass->from;
    const bool tables = options->blocks == 0;
    bool *skip = trmi_alloc((size_t)g->ops_count * sizeof *skip);
    if (skip == NULL) {
        return TRMI_NO_MEMORY(err, "to fuse gradients");
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        mark_fused(pass, &g->ops[i], tables, skip);
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        const trmi_op *add = sum_before(pass, op);
        int which = tables ? table_of_sum(pass, op) : -1;
        if (skip[i]) {
            continue;
        }
        if (which >= 0) {
            emit_table(pass, op, which);
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
        int32_t index = trmi_pass_emit_like(pass, op, inputs, 8, &op->attrs);
        for (int j = 0; j < op->outputs_count && index != 0; j++) {
            pass->map[op->outputs[j]] = pass->to->ops[index].outputs[j];
        }
    }
    trmi_free(skip);
    return TRM_OK;
}
