/* SPDX-License-Identifier: Apache-2.0 */
/* Takes embedding tables out of a graph (graph/detach.h), so that servers keep them:
 *
 *     before   table (parameter) --+
 *                                  +--> embedding --> rows --> ...
 *              ids (input) --------+
 *
 *     after    table, no reader: a constant that the next dead-code pass drops
 *              ids, which tell what to pull
 *              rows (leaf "table#rowsN"): pulled before the step; their gradients are pushed --> ...
 *
 * Operators are changed in place, so that values and their readers remain valid: the operator that
 * looked up rows becomes the leaf that holds them, with the same value. A table leaves only if it
 * is trained row by row and nothing but look-ups reads it. */
#include "graph/detach.h"

#include "base/memory.h"

#include <string.h>

/* Returns whether an operator looks up rows of a table. */
static bool is_gather_of(const trm_graph *graph, const trmi_op *op, int32_t table) {
    return op->kind == TRMI_OP_EMBEDDING && op->inputs[0] == table &&
           graph->values[op->inputs[1]].shape.rank < TRM_MAX_RANK;
}

/* Returns how many look-ups read a table; -1 if another operator reads it. */
static int32_t gathers_of(const trm_graph *graph, int32_t table) {
    int32_t found = 0;
    for (int64_t i = 1; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        for (int32_t j = 0; j < op->inputs_count; j++) {
            if (op->inputs[j] != table) {
                continue;
            }
            if (j != 0 || !is_gather_of(graph, op, table)) {
                return -1;
            }
            found++;
        }
    }
    return found;
}

/* Contract in detach.h. A table can leave the program if it is trained row by row and only
 * gathers read it. */
trm_status trmi_graph_find_tables(const trm_graph *graph, trmi_detached **out, int32_t *count,
                                  trm_error *err) {
    trmi_detached *list = trmi_alloc((size_t)graph->ops_count * sizeof *list);
    int32_t n = 0;
    for (int64_t i = 1; list != NULL && i < graph->ops_count; i++) {
        const trmi_op *leaf = &graph->ops[i];
        /* what is not updated row by row stays a dense variable */
        if (leaf->kind != TRMI_OP_PARAMETER || leaf->attrs.leaf.all_rows ||
            !leaf->attrs.leaf.trainable || gathers_of(graph, leaf->outputs[0]) <= 0) {
            continue;
        }
        /* Each gather gets an entry: a table that is read twice has two leaves. */
        const trm_shape *shape = &graph->values[leaf->outputs[0]].shape;
        for (int64_t j = i + 1; j < graph->ops_count; j++) {
            const trmi_op *op = &graph->ops[j];
            if (!is_gather_of(graph, op, leaf->outputs[0])) {
                continue;
            }
            const trmi_value *ids = &graph->values[op->inputs[1]];
            list[n++] = (trmi_detached){.table = leaf->name,
                                        .rows = shape->dim[0],
                                        .width = (int32_t)shape->dim[1],
                                        .init = leaf->attrs.leaf.init,
                                        .ids = {op->inputs[1]},
                                        .count = trm_shape_count(&ids->shape),
                                        .id_dtype = ids->dtype};
        }
    }
    if (list == NULL) {
        return TRMI_NO_MEMORY(err, "for a list of embedding tables");
    }
    *out = list;
    *count = n;
    return TRM_OK;
}

/* Content of the constants that replace removed leaves. */
static const uint8_t nothing[8];

/* Turns a look-up into a leaf; its value and readers remain. Returns the name of the leaf. */
static const char *replace_lookup(trm_graph *graph, int64_t index, const char *table) {
    trmi_op *op = &graph->ops[index];
    const trmi_op *ids = &graph->ops[graph->values[op->inputs[1]].op];
    const trmi_op *parameter = &graph->ops[graph->values[op->inputs[0]].op];
    op->kind = graph->training ? TRMI_OP_PARAMETER : TRMI_OP_INPUT;
    op->name = trmi_arena_printf(&graph->arena, "%s#rows%lld", table, (long long)index);
    op->inputs_count = 0;
    op->attrs = (trmi_attrs){.leaf = {.init = TRM_INIT_ZERO,
                                      .trainable = true,
                                      .undecayed = parameter->attrs.leaf.undecayed,
                                      .remote = true,
                                      .keys = ids->kind == TRMI_OP_INPUT ? ids->name : NULL}};
    return op->name;
}

/* Turns an operator into a constant without readers; the next pass drops it. */
static void make_nothing(trmi_op *op) {
    op->kind = TRMI_OP_CONSTANT;
    op->attrs = (trmi_attrs){.constant = {.data = nothing, .bytes = sizeof nothing}};
}

/* Contract in detach.h. The constants have a few bytes, whatever the shapes of their values:
 * nothing reads them. */
void trmi_graph_drop_parameters(trm_graph *graph) {
    for (int64_t i = 1; i < graph->ops_count; i++) {
        trmi_op *op = &graph->ops[i];
        if (op->kind == TRMI_OP_PARAMETER || op->kind == TRMI_OP_STATE) {
            make_nothing(op);
        }
    }
}

/* Contract in detach.h. First each gather becomes a leaf; then the tables, which no operator reads
 * any more, become constants without readers. */
void trmi_graph_detach_tables(trm_graph *graph, trmi_detached *list, int32_t count) {
    for (int32_t k = 0; k < count; k++) {
        for (int64_t i = 1; i < graph->ops_count; i++) {
            trmi_op *op = &graph->ops[i];
            if (op->kind == TRMI_OP_EMBEDDING && op->inputs[1] == list[k].ids.id &&
                strcmp(graph->ops[graph->values[op->inputs[0]].op].name, list[k].table) == 0) {
                list[k].leaf = replace_lookup(graph, i, list[k].table);
                break;
            }
        }
    }
    for (int64_t i = 1; i < graph->ops_count; i++) {
        trmi_op *op = &graph->ops[i];
        bool detached = false;
        for (int32_t k = 0; k < count && !detached && op->kind == TRMI_OP_PARAMETER; k++) {
            detached = strcmp(op->name, list[k].table) == 0;
        }
        if (detached) {
            make_nothing(op);
        }
    }
}
