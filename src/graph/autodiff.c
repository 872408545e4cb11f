/* SPDX-License-Identifier: Apache-2.0 */
/* Reverse-mode differentiation that adds operators to the graph: one loop over the operators, last
 * to first (Griewank & Walther, Evaluating Derivatives, ch. 3). Each row of the operator table has
 * its own gradient function; this file chains and sums the results. Operators added here have the
 * phase BACKWARD, and the name of their forward operator as origin. */
#include "graph/graph_ir.h"
#include "graph/arguments.h"

#include "base/element.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* Marks needed[v] for every value that depends on one of `nodes`: its gradient must be computed. */
static void mark_needed(const trm_graph *graph, int64_t ops_count, const trm_node *nodes,
                        int32_t count, bool *needed) {
    for (int32_t i = 0; i < count; i++) {
        needed[nodes[i].id] = true;
    }
    for (int64_t i = 1; i < ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        bool any = false;
        for (int32_t j = 0; j < op->inputs_count; j++) {
            any = any || (op->inputs[j] != 0 && needed[op->inputs[j]]);
        }
        for (int32_t j = 0; any && j < op->outputs_count; j++) {
            needed[op->outputs[j]] = true;
        }
    }
}

/* Adds the gradient operators of one operator and sums their results into the gradients of its
 * inputs. */
static void differentiate_op(trm_graph *graph, int64_t index, const bool *needed,
                             trm_node *gradient) {
    /* Copy the operator, because adding operators moves the array. */
    trmi_op op = graph->ops[index];
    trm_node d_outputs[TRMI_OP_OUTPUTS_MAX] = {{0}};
    bool any = false, wanted = false;
    for (int32_t i = 0; i < op.outputs_count; i++) {
        d_outputs[i] = gradient[op.outputs[i]];
        any = any || d_outputs[i].id != 0;
    }
    /* Is a gradient of some input wanted at all? */
    for (int32_t i = 0; i < op.inputs_count; i++) {
        wanted = wanted || (op.inputs[i] != 0 && needed[op.inputs[i]]);
    }
    const trmi_op_def *row = graph->rows[op.kind];
    if (!any || !wanted || row->gradient == NULL) {
        return;
    }
    /* The operator's gradient function adds operators for the gradients of its inputs, ... */
    trm_node *d_inputs =
        trmi_arena_alloc(&graph->arena, (size_t)op.inputs_count * sizeof *d_inputs);
    if (d_inputs == NULL) {
        trm_error err;
        TRMI_NO_MEMORY(&err, "for the gradient of %s", op.name);
        trmi_graph_fail(graph, &err);
        return;
    }
    int64_t first = graph->ops_count;
    row->gradient(graph, &op, d_outputs, d_inputs);
    for (int64_t i = first; i < graph->ops_count; i++) {
        graph->ops[i].origin = op.name;
    }
    for (int32_t i = 0; i < op.inputs_count; i++) {
        /* ... and each of them is added to what other readers of the input have contributed. */
        int32_t input = op.inputs[i];
        if (input == 0 || d_inputs[i].id == 0 || !needed[input] ||
            !trmi_dtype_is_float(graph->values[input].dtype)) {
            continue;
        }
        gradient[input] =
            gradient[input].id == 0 ? d_inputs[i] : trm_add(graph, gradient[input], d_inputs[i]);
    }
}

/* Contract in trireme/graph.h. Reverse mode: walks the operators backwards from the loss, and
 * adds up the gradients of each value that leads from `nodes` to the loss. The seed is a
 * constant, marked so that loss scaling can find it. */
void trm_gradients(trm_graph *graph, trm_node loss, const trm_node *nodes, int32_t count,
                   trm_node *grads) {
    if (graph == NULL || count > 0) {
        TRMI_NEED_IN(graph, , nodes, grads);
        memset(grads, 0, (size_t)count * sizeof *grads);
    }
    /* Check the arguments. After an error of the builder all gradients are "no node". */
    trm_error err;
    if (graph->first_error.status != TRM_OK) {
        return;
    }
    if (loss.id <= 0 || loss.id >= graph->values_count ||
        trm_shape_count(&graph->values[loss.id].shape) != 1) {
        TRMI_FAIL(&err, TRM_INVALID, "gradients need a scalar loss, found %s",
                  loss.id > 0 && loss.id < graph->values_count ? "a tensor" : "no node");
        trmi_graph_fail(graph, &err);
        return;
    }
    for (int32_t i = 0; i < count; i++) {
        if (nodes[i].id < 0 || nodes[i].id >= graph->values_count) {
            TRMI_FAIL(&err, TRM_INVALID,
                      "gradients: node %d of those to differentiate by is not a node of this graph",
                      i);
            trmi_graph_fail(graph, &err);
            return;
        }
    }
    /* values added below are gradients and need none themselves */
    int64_t values_count = graph->values_count, ops_count = graph->values[loss.id].op + 1;
    trmi_arena arena = {0};
    bool *needed;
    trm_node *gradient;
    if (TRMI_NEW_IN(&err, &arena, needed, values_count, "to differentiate") != TRM_OK ||
        TRMI_NEW_IN(&err, &arena, gradient, values_count, "to differentiate") != TRM_OK) {
        trmi_graph_fail(graph, &err);
        goto done;
    }
    mark_needed(graph, ops_count, nodes, count, needed);
    /* names of gradient operators have no scope */
    char scope[sizeof graph->scope];
    memcpy(scope, graph->scope, sizeof scope);
    graph->scope[0] = '\0';
    graph->phase = TRMI_BACKWARD;
    /* The gradient of the loss is 1, in the loss's type and shape. */
    trm_shape loss_shape = graph->values[loss.id].shape;
    trm_node seed = trm_scalar(graph, 1.0);
    if (seed.id > 0) {
        graph->ops[graph->values[seed.id].op].attrs.constant.seed = true;
    }
    trm_node one = trm_cast(graph, seed, graph->values[loss.id].dtype);
    gradient[loss.id] = loss_shape.rank == 0 ? one : trm_reshape(graph, one, loss_shape);
    /* Operators are in topological order: when one is reached, all readers of its outputs have
     * added their parts, so the gradients of its outputs are complete. */
    for (int64_t i = ops_count - 1; i > 0 && graph->first_error.status == TRM_OK; i--) {
        differentiate_op(graph, i, needed, gradient);
    }
    graph->phase = TRMI_FORWARD;
    memcpy(graph->scope, scope, sizeof scope);
    for (int32_t i = 0; i < count; i++) {
        grads[i] = gradient[nodes[i].id];
    }
done:
    trmi_arena_free(&arena);
}
