/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a graph for TensorBoard's graph tab, with operators grouped by the layers in their
 * names. */
#include "train/export/graph_events.h"

#include "base/memory.h"
#include "graph/graph_ir.h"

#include <string.h>

/* Returns a copy of an operator's name with dots replaced by slashes, TensorBoard's separator of
 * groups: "layer1.0.conv1.weight" -> "layer1/0/conv1/weight". NULL without memory. */
static char *group_name(trmi_arena *arena, const char *name) {
    char *text = trmi_arena_strdup(arena, name);
    for (char *c = text; c != NULL && *c != '\0'; c++) {
        *c = *c == '.' ? '/' : *c;
    }
    return text;
}

/* Describes one operator as a node: name, kind, inputs, shape of the first output. Returns false
 * without memory. */
static bool make_node(const trm_graph *graph, const trmi_op *op, trmi_arena *arena, char **names,
                      trm_graph_event_node *node) {
    const char **inputs = trmi_arena_alloc(arena, (size_t)(op->inputs_count + 1) * sizeof *inputs);
    int64_t count = 0;
    if (inputs == NULL) {
        return false;
    }
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_value *value = trmi_input_of(graph, op, i);
        if (value != NULL) {
            inputs[count++] = names[value->op];
        }
    }
    *node = (trm_graph_event_node){.name = names[op - graph->ops],
                                   .op = trmi_op_def_of(op)->name,
                                   .inputs = inputs,
                                   .input_count = count};
    if (op->outputs_count > 0) {
        node->output_shape = &trmi_output_of(graph, op, 0)->shape;
    }
    return true;
}

/* Contract in graph_events.h. All names first, because an operator refers to the names of its
 * inputs. */
trm_status trmi_graph_event(const trm_graph *graph, trm_events *events, trm_error *err) {
    trmi_arena arena = {0};
    size_t room = (size_t)graph->ops_count + 1;
    char **names = trmi_arena_alloc(&arena, room * sizeof *names);
    trm_graph_event_node *nodes = trmi_arena_alloc(&arena, room * sizeof *nodes);
    bool ok = names != NULL && nodes != NULL;
    int64_t count = 0;
    for (int64_t i = 1; ok && i < graph->ops_count; i++) {
        names[i] = group_name(&arena, graph->ops[i].name);
        ok = names[i] != NULL;
    }
    for (int64_t i = 1; ok && i < graph->ops_count; i++) {
        ok = make_node(graph, &graph->ops[i], &arena, names, &nodes[count++]);
    }
    trm_status status = ok ? trm_events_graph(events, nodes, count, err)
                           : TRMI_NO_MEMORY(err, "for the graph's record");
    trmi_arena_free(&arena);
    return status;
}
