/* SPDX-License-Identifier: Apache-2.0 */
/* Computes a linear layer on looked-up rows once for each id instead of once for each sample.
 *
 *      table, ids --EMBEDDING-- rows [N, F, D] --RESHAPE--\
 *                                             dense [N, M] -- CONCAT -- LINEAR     KEYED_LINEAR(rows, ids, w, dense, bias)
 *
 * In a batch of clicks most ids occur many times, the common ones thousands of times. Rows on
 * parameter servers (graph/detach.h) are supported, too: their leaf names the input with the keys.
 * The pass runs before differentiation, because the gradient of the rows is also one sum for each
 * id. If other operators read the CONCAT, it remains. */
#include "plan/passes/pass.h"

#include <string.h>

/* Samples of a batch from which ids repeat often enough. */
enum { LEAST_SAMPLES = 256 };

/* Returns whether a value is float32. */
static bool is_float32(const trm_graph *g, int32_t value) {
    return g->values[value].dtype == TRM_FLOAT32;
}

/* Returns the input with a name; 0: none. */
static int32_t input_named(const trm_graph *g, const char *name) {
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (g->ops[i].kind == TRMI_OP_INPUT && strcmp(g->ops[i].name, name) == 0) {
            return g->ops[i].outputs[0];
        }
    }
    return 0;
}

/* Returns the ids of looked-up rows; 0: unknown. */
static int32_t ids_of(const trm_graph *g, int32_t rows) {
    const trmi_op *op = &g->ops[g->values[rows].op];
    bool leaf =
        (op->kind == TRMI_OP_PARAMETER || op->kind == TRMI_OP_INPUT) && op->attrs.leaf.keys != NULL;
    int32_t ids = leaf                            ? input_named(g, op->attrs.leaf.keys)
                  : op->kind == TRMI_OP_EMBEDDING ? op->inputs[1]
                                                  : 0;
    const trm_shape *r = &g->values[rows].shape, *k = &g->values[ids].shape;
    return ids != 0 && r->rank == 3 && k->rank == 2 && k->dim[0] == r->dim[0] &&
                   k->dim[1] == r->dim[1]
               ? ids
               : 0;
}

/* Finds rows and ids of the layer's input, and the dense columns beside them (0: none). False: the
 * input has another form. */
static bool read_input(const trm_graph *g, int32_t x, int32_t *rows, int32_t *ids, int32_t *dense) {
    const trmi_op *concat = trmi_made_by(g, x, TRMI_OP_CONCAT);
    *dense = 0;
    if (concat != NULL) {
        if (concat->inputs_count != 2 || concat->attrs.concat.axis != 1 ||
            trmi_made_by(g, concat->inputs[1], TRMI_OP_INPUT) == NULL ||
            !is_float32(g, concat->inputs[1])) {
            return false;
        }
        *dense = concat->inputs[1];
        x = concat->inputs[0];
    }
    const trmi_op *reshape = trmi_made_by(g, x, TRMI_OP_RESHAPE);
    if (reshape == NULL || !is_float32(g, reshape->inputs[0]) || g->values[x].shape.rank != 2) {
        return false;
    }
    *rows = reshape->inputs[0];
    *ids = ids_of(g, *rows);
    return *ids != 0 && g->values[x].shape.dim[0] == g->values[*rows].shape.dim[0];
}

/* Emits a KEYED_LINEAR in place of a LINEAR, if it applies. */
static bool fuse_linear(trmi_pass *pass, const trmi_op *op) {
    const trm_graph *g = pass->from;
    int32_t rows, ids, dense;
    if (op->kind != TRMI_OP_LINEAR || op->attrs.matmul.relu || op->attrs.matmul.inputs_first ||
        !is_float32(g, op->outputs[0]) || g->values[op->outputs[0]].shape.dim[0] < LEAST_SAMPLES ||
        !read_input(g, op->inputs[0], &rows, &ids, &dense)) {
        return false;
    }
    int32_t bias = op->inputs_count > 2 ? op->inputs[2] : 0;
    const int32_t inputs[] = {pass->map[rows], pass->map[ids], pass->map[op->inputs[1]],
                              pass->map[dense], pass->map[bias]};
    int32_t index =
        trmi_pass_emit(pass, TRMI_OP_KEYED_LINEAR, op->phase, op->name, inputs, 5, 2, &op->attrs);
    pass->map[op->outputs[0]] = index == 0 ? 0 : pass->to->ops[index].outputs[0];
    return true;
}

/* Contract in pass.h. Operators that lose their last reader are removed by a later pass. */
trm_status trmi_pass_fuse_keyed(trmi_pass *pass, const trmi_plan_options *options,
                                const trmi_roots *roots, trm_error *err) {
    (void)options;
    (void)roots;
    (void)err;
    for (int64_t i = 1; i < pass->from->ops_count; i++) {
        if (!fuse_linear(pass, &pass->from->ops[i])) {
            trmi_pass_copy(pass, &pass->from->ops[i]);
        }
    }
    return TRM_OK;
}
