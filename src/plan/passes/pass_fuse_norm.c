/* SPDX-License-Identifier: Apache-2.0 */
/* Fuses batch norm, the addition of a residual and ReLU into one operator, before differentiation,
 * so that the gradient is one operator, too.
 *
 *      x -> BATCH_NORM -> [ADD residual ->] [RELU ->] y      x, [residual] -> NORM_ACT -> y
 *
 * A BATCH_NORM alone becomes a NORM_ACT, too: one family of kernels serves all. The fused operator
 * is emitted in the place of the last operator of the chain, where the residual is known. Nothing
 * is fused if another operator reads a value inside the chain. */
#include "plan/passes/pass.h"

#include "base/memory.h"

/* A norm and the operators that follow it. */
typedef struct chain {
    int32_t norm; /* operators of `from`; 0 = none */
    int32_t add;
    int32_t relu;
    int32_t last;     /* the one at whose place the fused operator is emitted */
    int32_t residual; /* value of `from` */
} chain;

/* Returns whether an operator is a batch norm. */
static bool is_norm(const trmi_op *op) {
    return op->kind == TRMI_OP_BATCH_NORM || op->kind == TRMI_OP_BATCH_NORM_INFER;
}

/* Returns the reader of a value that is read once and is no root; 0 otherwise. */
static int32_t find_only_reader(const trmi_pass *pass, const int32_t *reader, const bool *root,
                                int32_t value) {
    return pass->uses[value] == 1 && !root[value] ? reader[value] : 0;
}

/* Finds the chain of a norm. claimed: operators that belong to another chain. */
static chain find_chain(const trmi_pass *pass, const int32_t *reader, const bool *root,
                        const int32_t *claimed, int32_t norm) {
    const trm_graph *g = pass->from;
    chain c = {.norm = norm, .last = norm};
    int32_t y = g->ops[norm].outputs[0];
    int32_t next = find_only_reader(pass, reader, root, y);
    if (next != 0 && g->ops[next].kind == TRMI_OP_ADD && claimed[next] == 0) {
        const trmi_op *add = &g->ops[next];
        int32_t other = add->inputs[0] == y ? add->inputs[1] : add->inputs[0];
        int32_t after = find_only_reader(pass, reader, root, add->outputs[0]);
        /* an addition is fused only if a ReLU follows */
        if (trm_shape_equal(&g->values[other].shape, &g->values[y].shape) && after != 0 &&
            g->ops[after].kind == TRMI_OP_RELU) {
            c.add = next;
            c.residual = other;
            c.relu = c.last = after;
        }
    } else if (next != 0 && g->ops[next].kind == TRMI_OP_RELU) {
        c.relu = c.last = next;
    }
    return c;
}

/* Emits the fused operator and maps its outputs. */
static void emit_fused(trmi_pass *pass, const chain *c) {
    const trm_graph *g = pass->from;
    const trmi_op *norm = &g->ops[c->norm];
    const trmi_op *last = &g->ops[c->last];
    int32_t inputs[6];
    for (int i = 0; i < 5; i++) {
        inputs[i] = pass->map[norm->inputs[i]];
    }
    inputs[5] = c->residual != 0 ? pass->map[c->residual] : 0;
    trmi_attrs attrs = norm->attrs;
    attrs.norm.relu = c->relu != 0;
    attrs.norm.residual = c->residual != 0;
    bool train = norm->kind == TRMI_OP_BATCH_NORM;
    int32_t index =
        trmi_pass_emit(pass, train ? TRMI_OP_NORM_ACT : TRMI_OP_NORM_ACT_INFER, norm->phase,
                       norm->name, inputs, c->residual != 0 ? 6 : 5, train ? 3 : 1, &attrs);
    if (index == 0) {
        return;
    }
    const trmi_op *fused = &pass->to->ops[index];
    pass->map[last->outputs[0]] = fused->outputs[0];
    for (int i = 1; i < norm->outputs_count && train; i++) {
        pass->map[norm->outputs[i]] = fused->outputs[i];
    }
}

/* Returns whether statistics are read: by a user who differentiated the graph without the planner.
 */
static bool has_read_statistics(const trmi_pass *pass, const trmi_op *norm) {
    bool read = false;
    for (int i = 1; i < norm->outputs_count; i++) {
        read = read || pass->uses[norm->outputs[i]] > 0;
    }
    return read;
}

/* Replaces chains norm -> add -> ReLU by one operator. `claimed` says which chain an operator
 * belongs to, so that an addition of two norms joins one of them only. The fused operator is
 * emitted at the place of the chain's last one, where all its inputs exist. */
trm_status trmi_pass_fuse_norm(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err) {
    (void)options;
    const trm_graph *g = pass->from;
    trm_status status = TRM_OK;
    int32_t *reader = trmi_alloc((size_t)g->values_count * sizeof *reader);
    bool *root = trmi_alloc((size_t)g->values_count * sizeof *root);
    int32_t *claimed = trmi_alloc((size_t)g->ops_count * sizeof *claimed); /* op -> its norm */
    chain *ends = trmi_alloc((size_t)g->ops_count * sizeof *ends);         /* last op -> chain */
    if (reader == NULL || root == NULL || claimed == NULL || ends == NULL) {
        status = TRMI_NO_MEMORY(err, "to fuse norms");
        goto done;
    }
    /* loss and outputs must remain; then the (last) reader of each value */
    root[roots->loss] = true;
    for (int32_t i = 0; i < roots->outputs_count; i++) {
        root[roots->outputs[i]] = true;
    }
    for (int32_t i = 1; i < g->ops_count; i++) {
        for (int32_t j = 0; j < g->ops[i].inputs_count; j++) {
            reader[g->ops[i].inputs[j]] = i;
        }
    }
    /* find all chains */
    for (int32_t i = 1; i < g->ops_count; i++) {
        if (!is_norm(&g->ops[i]) || has_read_statistics(pass, &g->ops[i])) {
            continue;
        }
        chain c = find_chain(pass, reader, root, claimed, i);
        claimed[c.norm] = i;
        claimed[c.add] = i;
        claimed[c.relu] = i;
        claimed[0] = 0;
        ends[c.last] = c;
    }
    for (int32_t i = 1; i < g->ops_count; i++) {
        if (ends[i].norm != 0) {
            emit_fused(pass, &ends[i]);
        } else if (claimed[i] == 0) {
            trmi_pass_copy(pass, &g->ops[i]);
        }
    }
done:
    trmi_free(reader);
    trmi_free(root);
    trmi_free(claimed);
    trmi_free(ends);
    return status;
}
