/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of all passes: copies operators into a new graph, emits new ones, renumbers the roots.
 *
 *     old graph --begin--> pass.map (old value -> new value), pass.uses (readers of each old value)
 *                   |
 *                   v  the pass visits the old operators in order, and for each
 *                copies it (trmi_pass_copy), or emits others in its place and fills the map itself,
 *                or leaves it out
 *                   |
 *                   v
 *     new graph <--end--   errors of emitted operators are kept in the new graph and returned here
 *
 * Operators only refer to operators before them, so one visit in order is enough. The old graph is
 * never changed; trmi_pass_run destroys it only when the new one is complete, and after an error
 * the caller still has the old one. */
#include "plan/passes/pass.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* Contract in pass.h. `uses` counts the readers of each value: most passes change only values with
 * a single reader. */
trm_status trmi_pass_begin(trmi_pass *pass, const trm_graph *from, trm_error *err) {
    *pass = (trmi_pass){.from = from};
    TRMI_TRY(trmi_graph_open(from->rows, from->training, &pass->to, err));
    trmi_graph_copy_segments(from, pass->to);
    pass->map = trmi_alloc((size_t)from->values_count * sizeof *pass->map);
    pass->uses = trmi_alloc((size_t)from->values_count * sizeof *pass->uses);
    if (pass->map == NULL || pass->uses == NULL) {
        trmi_pass_cancel(pass);
        return TRMI_NO_MEMORY(err, "to rewrite a graph of %lld operators",
                              (long long)from->ops_count);
    }
    for (int64_t i = 1; i < from->ops_count; i++) {
        const trmi_op *op = &from->ops[i];
        for (int32_t j = 0; j < op->inputs_count; j++) {
            pass->uses[op->inputs[j]]++;
        }
    }
    return TRM_OK;
}

void trmi_pass_cancel(trmi_pass *pass) {
    trmi_free(pass->map);
    trmi_free(pass->uses);
    trm_graph_destroy(pass->to);
    *pass = (trmi_pass){0};
}

/* Contract in pass.h. The builder checks shapes as it does for a user's operators; the phase is
 * restored, so that it need not be set for each operator. */
int32_t trmi_pass_emit(trmi_pass *pass, trmi_op_kind kind, trmi_phase phase, const char *name,
                       const int32_t *inputs, int32_t inputs_count, int32_t outputs,
                       const trmi_attrs *attrs) {
    trm_graph *to = pass->to;
    trm_node *nodes = trmi_arena_alloc(&to->arena, (size_t)(inputs_count + 1) * sizeof *nodes);
    if (nodes == NULL) {
        trm_error err;
        TRMI_NO_MEMORY(&err, "to rewrite %s", name);
        trmi_graph_fail(to, &err);
        return 0;
    }
    for (int32_t i = 0; i < inputs_count; i++) {
        nodes[i] = (trm_node){inputs[i]};
    }
    to->phase = phase;
    int32_t index = trmi_graph_add(to, kind, name, nodes, inputs_count, outputs, attrs);
    to->phase = TRMI_FORWARD;
    return index;
}

int32_t trmi_pass_emit_unary(trmi_pass *pass, trmi_op_kind kind, trmi_phase phase, const char *name,
                             int32_t input, const trmi_attrs *attrs) {
    int32_t index = trmi_pass_emit(pass, kind, phase, name, &input, 1, 1, attrs);
    return index != 0 ? pass->to->ops[index].outputs[0] : 0;
}

int32_t trmi_pass_emit_like(trmi_pass *pass, const trmi_op *op, const int32_t *inputs,
                            int32_t inputs_count, const trmi_attrs *attrs) {
    int32_t index = trmi_pass_emit(pass, op->kind, op->phase, op->name, inputs, inputs_count,
                                   op->outputs_count, attrs);
    trmi_pass_set_origin(pass, index, op->origin);
    if (index != 0 && op->output_dtype != TRM_DTYPE_NONE) {
        trmi_op *made = &pass->to->ops[index];
        made->output_dtype = op->output_dtype;
        pass->to->values[made->outputs[0]].dtype = op->output_dtype;
    }
    return index;
}

/* Contract in pass.h. Index 0 is the operator that failed, which has no origin. */
void trmi_pass_set_origin(trmi_pass *pass, int32_t index, const char *origin) {
    if (index != 0 && origin != NULL) {
        pass->to->ops[index].origin = trmi_arena_strdup(&pass->to->arena, origin);
    }
}

/* Contract in pass.h. The copy keeps name, attributes and origin; inputs are looked up in the
 * map from old to new values. A pass changes a graph by filling the map differently for some
 * values. */
int32_t trmi_pass_copy(trmi_pass *pass, const trmi_op *op) {
    int32_t *inputs =
        trmi_arena_alloc(&pass->to->arena, (size_t)(op->inputs_count + 1) * sizeof *inputs);
    trmi_attrs attrs = op->attrs;
    if (inputs == NULL || !trmi_graph_own_attrs(pass->to, op->kind, &attrs)) {
        trm_error err;
        TRMI_NO_MEMORY(&err, "to rewrite %s", op->name);
        trmi_graph_fail(pass->to, &err);
        return 0;
    }
    for (int32_t i = 0; i < op->inputs_count; i++) {
        inputs[i] = pass->map[op->inputs[i]];
    }
    int32_t index = trmi_pass_emit_like(pass, op, inputs, op->inputs_count, &attrs);
    for (int32_t i = 0; index != 0 && i < op->outputs_count; i++) {
        pass->map[op->outputs[i]] = pass->to->ops[index].outputs[i];
    }
    /* Dtype and shape of a leaf are not derived from inputs. */
    if (index != 0 && trmi_is_leaf(op)) {
        trmi_value *value = &pass->to->values[pass->map[op->outputs[0]]];
        value->dtype = pass->from->values[op->outputs[0]].dtype;
        value->shape = pass->from->values[op->outputs[0]].shape;
    }
    return index;
}

/* Contract in pass.h. The first error of an emitted operator is the error of the pass. */
trm_status trmi_pass_end(trmi_pass *pass, trm_graph **out, trm_error *err) {
    trmi_free(pass->map);
    trmi_free(pass->uses);
    trm_status status = trm_graph_check(pass->to, err);
    if (status != TRM_OK) {
        trm_graph_destroy(pass->to);
        return status;
    }
    *out = pass->to;
    return TRM_OK;
}

/* Renumbers the roots. */
static void map_roots(trmi_roots *roots, const int32_t *map) {
    roots->loss = map[roots->loss];
    for (int32_t i = 0; i < roots->outputs_count; i++) {
        roots->outputs[i] = map[roots->outputs[i]];
    }
    for (int32_t i = 0; i < roots->params_count; i++) {
        roots->params[i] = map[roots->params[i]];
        roots->grads[i] = map[roots->grads[i]];
    }
}

/* Contract in pass.h. The old graph is destroyed only when the new one is complete. */
trm_status trmi_pass_run(trmi_pass_function function, const trmi_plan_options *options,
                         trm_graph **graph, trmi_roots *roots, trm_error *err) {
    trmi_pass pass;
    trm_status status = trmi_pass_begin(&pass, *graph, err);
    if (status == TRM_OK) {
        status = function(&pass, options, roots, err);
    }
    if (status == TRM_OK && pass.to->first_error.status == TRM_OK) {
        map_roots(roots, pass.map);
    }
    if (status != TRM_OK) {
        trmi_pass_cancel(&pass);
        return status;
    }
    trm_graph *rewritten;
    TRMI_TRY(trmi_pass_end(&pass, &rewritten, err));
    trm_graph_destroy(*graph);
    *graph = rewritten;
    return TRM_OK;
}
