/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter of graphs (contracts in interpret.h): one tensor a value; a run calls the
 * reference kernel of each operator in the order of the graph. Tests use it where they want values
 * of a graph without the compiler, for gradients by differences for instance.
 *
 * Every value is kept after a run, in plain layout. With `in_double` all floats are float64,
 * whatever the graph says, so that results are exact enough to compare others with. */
#include "tests/lib/interpret.h"

#include "exec/ref/ref.h"

#include "base/error.h"
#include "base/memory.h"

struct trmi_interpreter {
    const trm_graph *graph;
    trmi_interpret_options options;
    trm_tensor *values; /* by value id */
    trm_tensor *inputs; /* of the operator that runs */
};

static bool is_floating(trm_dtype dtype) {
    return dtype == TRM_FLOAT32 || dtype == TRM_FLOAT64 || dtype == TRM_BFLOAT16 ||
           dtype == TRM_FLOAT16;
}

static trm_status take_values(trmi_interpreter *run, trm_error *err) {
    const trm_graph *g = run->graph;
    int32_t widest = 1;
    run->values = trmi_alloc((size_t)g->values_count * sizeof *run->values);
    for (int64_t i = 1; i < g->ops_count; i++) {
        widest = g->ops[i].inputs_count > widest ? g->ops[i].inputs_count : widest;
    }
    run->inputs = trmi_alloc((size_t)widest * sizeof *run->inputs);
    if (run->values == NULL || run->inputs == NULL) {
        return TRMI_NO_MEMORY(err, "to interpret a graph");
    }
    for (int64_t v = 1; v < g->values_count; v++) {
        trm_tensor *t = &run->values[v];
        t->shape = g->values[v].shape;
        t->dtype = run->options.in_double && is_floating(g->values[v].dtype) ? TRM_FLOAT64
                                                                             : g->values[v].dtype;
        t->data = trmi_alloc((size_t)trm_tensor_bytes(t));
        if (t->data == NULL) {
            return TRMI_NO_MEMORY(err, "to interpret a graph");
        }
        const trmi_op *op = &g->ops[g->values[v].op];
        if (op->kind == TRMI_OP_CONSTANT) {
            trm_tensor constant = {.dtype = g->values[v].dtype, .shape = t->shape};
            constant.data = (void *)(uintptr_t)op->attrs.constant.data;
            for (int64_t i = 0; i < trm_shape_count(&t->shape); i++) {
                trmi_ref_set(t, i, trmi_ref_get(&constant, i));
            }
        }
    }
    return TRM_OK;
}

trm_status trmi_interpreter_create(const trm_graph *graph, const trmi_interpret_options *options,
                                   trmi_interpreter **out, trm_error *err) {
    TRMI_TRY(trm_graph_check(graph, err));
    trmi_interpreter *run;
    TRMI_TRY(TRMI_NEW(err, run, 1, "to interpret a graph"));
    run->graph = graph;
    run->options = options != NULL ? *options : (trmi_interpret_options){.step = 0};
    trm_status status = take_values(run, err);
    if (status != TRM_OK) {
        trmi_interpreter_destroy(run);
        return status;
    }
    *out = run;
    return TRM_OK;
}

void trmi_interpreter_destroy(trmi_interpreter *run) {
    if (run == NULL) {
        return;
    }
    for (int64_t v = 1; run->values != NULL && v < run->graph->values_count; v++) {
        trmi_free(run->values[v].data);
    }
    trmi_free(run->values);
    trmi_free(run->inputs);
    trmi_free(run);
}

trm_status trmi_interpreter_run(trmi_interpreter *run, trm_error *err) {
    const trm_graph *g = run->graph;
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        if (trmi_is_leaf(op)) {
            continue;
        }
        trm_tensor outputs[TRMI_OP_OUTPUTS_MAX];
        for (int32_t j = 0; j < op->inputs_count; j++) {
            run->inputs[j] = run->values[op->inputs[j]]; /* [0] stays absent */
        }
        for (int32_t j = 0; j < op->outputs_count; j++) {
            outputs[j] = run->values[op->outputs[j]];
        }
        trmi_ref_args args = {.row = trmi_op_def_of(op),
                              .attrs = &op->attrs,
                              .inputs_count = op->inputs_count,
                              .outputs_count = op->outputs_count,
                              .inputs = run->inputs,
                              .outputs = outputs,
                              .seed = run->options.seed,
                              .step = run->options.step,
                              .training = g->training};
        TRMI_TRY(trmi_ref_table[op->kind](&args, err));
    }
    return TRM_OK;
}

trm_tensor *trmi_interpreter_value(trmi_interpreter *run, trm_node node) {
    return &run->values[node.id];
}
double trmi_interpreter_get(trmi_interpreter *run, trm_node node, int64_t index) {
    return trmi_ref_get(&run->values[node.id], index);
}
void trmi_interpreter_set(trmi_interpreter *run, trm_node node, int64_t index, double value) {
    trmi_ref_set(&run->values[node.id], index, value);
}
