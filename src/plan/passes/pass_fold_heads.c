/* SPDX-License-Identifier: Apache-2.0 */
/* Makes queries, keys and values that one layer computes side by side a dimension of their own, so
 * that ranks can cut their columns by heads:
 *
 *      w [I, 3 H D], bias [3 H D]  ->  w [I, 3, H D], bias [3, H D]
 *      LINEAR -> [B, T, 3 H D]         LINEAR -> [B, T, 3, H D] --ATTENTION--> [B, T, H D]
 *
 * All bytes stay where they are: a cut of the last dimension takes the same heads of all three.
 * Only shapes change, and callers see those of their own graph (own_leaves and unfold_outputs of
 * plan.c). A layer is folded if nothing but the attention reads it, its parameters have no other
 * reader, and their initial values do not depend on their shape. */
#include "plan/passes/pass.h"

#include "base/error.h"
#include "base/memory.h"

/* Returns the parameter that only one operator reads; 0: none. */
static int32_t find_own_parameter(const trmi_pass *pass, const trmi_op *op, int i) {
    int32_t value = i < op->inputs_count ? op->inputs[i] : 0;
    const trmi_op *maker = trmi_maker_of(pass->from, value);
    bool own = value != 0 && maker->kind == TRMI_OP_PARAMETER && pass->uses[value] == 1;
    int init = own ? (int)maker->attrs.leaf.init : 0;
    bool plain = init == TRM_INIT_ZERO || init == TRM_INIT_ONE || init >= TRM_INIT_NORMAL_001;
    return own && plain ? value : 0;
}

/* Marks the parameters of the layer that makes the packed input of an attention. */
static void mark_layer(const trmi_pass *pass, const trmi_op *attention, bool *folded) {
    const trm_graph *g = pass->from;
    int32_t value = attention->inputs[0];
    const trmi_op *layer = trmi_maker_of(g, value);
    bool packed = attention->inputs[1] == 0 &&
                  attention->attrs.attention.heads == attention->attrs.attention.kv_heads;
    bool fits = packed && layer->kind == TRMI_OP_LINEAR && layer->attrs.matmul.inputs_first &&
                pass->uses[value] == 1 && g->values[value].shape.rank == 3;
    int32_t weights = fits ? find_own_parameter(pass, layer, 1) : 0;
    bool biased = fits && layer->inputs_count > 2 && layer->inputs[2] != 0;
    int32_t bias = biased ? find_own_parameter(pass, layer, 2) : 0;
    if (weights != 0 && (bias != 0 || !biased)) {
        folded[weights] = folded[bias] = true;
    }
}

/* Gives the weights of packed attention layers one dimension more, so that queries, keys and
 * values can be cut separately (mark_layer finds the layers). */
trm_status trmi_pass_fold_heads(trmi_pass *pass, const trmi_plan_options *options,
                                const trmi_roots *roots, trm_error *err) {
    (void)options, (void)roots;
    const trm_graph *g = pass->from;
    bool *folded = trmi_alloc((size_t)g->values_count * sizeof *folded);
    if (folded == NULL) {
        return TRMI_NO_MEMORY(err, "to fold heads");
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (g->ops[i].kind == TRMI_OP_ATTENTION) {
            mark_layer(pass, &g->ops[i], folded);
        }
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        int32_t made = trmi_pass_copy(pass, op);
        if (made != 0 && op->kind == TRMI_OP_PARAMETER && folded[op->outputs[0]]) {
            /* [..., 3 heads width] becomes [..., 3, heads width]: the same elements in memory. */
            trm_shape *shape = &pass->to->values[pass->to->ops[made].outputs[0]].shape;
            int32_t last = shape->rank++;
            shape->dim[last] = shape->dim[last - 1] / 3;
            shape->dim[last - 1] = 3;
        }
    }
    trmi_free(folded);
    return TRM_OK;
}
