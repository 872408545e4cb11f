/* SPDX-License-Identifier: Apache-2.0 */
/* Builds graphs: appends operators and values in topological order, keeps the first error, gives
 * names by scope. An operator is appended only if the shape rule of its row accepts it. Also copies
 * graphs and prints them.
 *
 *   ops[1..]     operator: kind, name, attributes, inputs (ids of values), outputs (ids of values)
 *   values[1..]  value: shape, type, the operator that makes it and which of its outputs it is
 *   scope        "encoder.layer.3.": what the next name begins with
 *   segments     scopes that were marked: parts that can be recomputed or put on a stage
 *
 * Invariants: index and id 0 mean none. The inputs of an operator have smaller ids than its
 * outputs, so a walk in the order of the array is a topological one. After its first error a graph
 * ignores all further calls and the builders return node 0, so that a builder of networks checks
 * once, at its end. Names, inputs and attachments lie in the graph's arena and live as long as the
 * graph. */
#include "graph/graph_ir.h"
#include "graph/arguments.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Contract in graph_ir.h. Entry 0 of both arrays is reserved, so that 0 can mean none. */
trm_status trmi_graph_open(const trmi_op_def *const *rows, bool training, trm_graph **out,
                           trm_error *err) {
    trm_graph *graph = trmi_alloc(sizeof *graph);
    if (graph == NULL ||
        !trmi_grow((void **)&graph->ops, &graph->ops_capacity, 64, sizeof *graph->ops) ||
        !trmi_grow((void **)&graph->values, &graph->values_capacity, 64, sizeof *graph->values)) {
        trm_graph_destroy(graph);
        return TRMI_NO_MEMORY(err, "for a graph");
    }
    graph->rows = rows;
    graph->training = training;
    graph->ops_count = 1; /* 0 means none */
    graph->values_count = 1;
    *out = graph;
    return TRM_OK;
}

void trm_graph_destroy(trm_graph *graph) {
    if (graph == NULL) {
        return;
    }
    free(graph->ops);
    free(graph->values);
    free(graph->segments);
    trmi_arena_free(&graph->arena);
    trmi_free(graph);
}

trm_status trm_graph_check(const trm_graph *graph, trm_error *err) {
    TRMI_NEED(err, graph);
    if (graph->first_error.status != TRM_OK && err != NULL) {
        *err = graph->first_error;
    }
    return (trm_status)graph->first_error.status;
}

bool trm_graph_is_training(const trm_graph *graph) {
    TRMI_NEED_OR(false, NULL, graph);
    return graph->training;
}

void trmi_graph_fail(trm_graph *graph, const trm_error *err) {
    if (graph != NULL && graph->first_error.status == TRM_OK) {
        graph->first_error = *err;
    }
}

/* Contract in trireme/graph.h. The scope is one text, "a.b.", and a stack of the lengths before
 * each part. */
void trm_graph_push_scope(trm_graph *graph, const char *format, ...) {
    TRMI_NEED_IN(graph, , format);
    size_t used = strlen(graph->scope);
    if (graph->scopes_count == TRMI_SCOPES_MAX) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID, "scope '%.100s': at most %d scopes may be open", graph->scope,
                  TRMI_SCOPES_MAX);
        trmi_graph_fail(graph, &err);
        return;
    }
    graph->scopes[graph->scopes_count++] = (uint16_t)used;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(graph->scope + used, sizeof graph->scope - used, format, args);
    va_end(args);
    if (length < 0 || used + (size_t)length + 2 > sizeof graph->scope) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID, "scope '%.100s...': names may have %zu characters",
                  graph->scope, sizeof graph->scope - 2);
        trmi_graph_fail(graph, &err);
        graph->scope[used] = '\0';
        return;
    }
    memcpy(graph->scope + used + (size_t)length, ".", 2);
}

void trm_graph_pop_scope(trm_graph *graph) {
    TRMI_NEED_OR(, NULL, graph);
    if (graph->scopes_count == 0) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID, "trm_graph_pop_scope: no scope is open; it needs a push");
        trmi_graph_fail(graph, &err);
        return;
    }
    graph->scope[graph->scopes[--graph->scopes_count]] = '\0';
}

/* Reports that a graph has no memory. */
static trm_status out_of_memory(trm_error *err) { return TRMI_NO_MEMORY(err, "for the graph"); }

/* ---- segments ---- */

/* Adds a segment. Errors are kept by the graph. */
static void add_segment(trm_graph *graph, const char *scope) {
    const char *copy = trmi_arena_strdup(&graph->arena, scope);
    if (copy == NULL || !trmi_grow((void **)&graph->segments, &graph->segments_capacity,
                                   graph->segments_count + 1, sizeof *graph->segments)) {
        trm_error err;
        out_of_memory(&err);
        trmi_graph_fail(graph, &err);
        return;
    }
    graph->segments[graph->segments_count++] = copy;
}

/* Contract in trireme/graph.h. A scope that is marked twice is one segment. */
void trm_graph_mark_segment(trm_graph *graph) {
    TRMI_NEED_OR(, NULL, graph);
    if (graph->scopes_count == 0) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID, "trm_graph_mark_segment: no scope is open; it needs a push");
        trmi_graph_fail(graph, &err);
        return;
    }
    for (int64_t i = 0; i < graph->segments_count; i++) {
        if (strcmp(graph->segments[i], graph->scope) == 0) {
            return;
        }
    }
    add_segment(graph, graph->scope);
}

/* Contract in graph_ir.h. Segments may be nested; the innermost one counts. 0 stands for none. */
int32_t trmi_segment_of(const trm_graph *graph, const char *name) {
    size_t longest = 0;
    int32_t found = 0;
    for (int64_t i = 0; i < graph->segments_count; i++) {
        size_t length = strlen(graph->segments[i]);
        if (length > longest && strncmp(name, graph->segments[i], length) == 0) {
            longest = length;
            found = (int32_t)i + 1;
        }
    }
    return found;
}

void trmi_graph_copy_segments(const trm_graph *from, trm_graph *to) {
    for (int64_t i = 0; i < from->segments_count; i++) {
        add_segment(to, from->segments[i]);
    }
}

/* Returns whether a node is a value of the graph. */
static bool is_value(const trm_graph *graph, trm_node node) {
    return node.id > 0 && node.id < graph->values_count;
}

trm_shape trm_node_shape(const trm_graph *graph, trm_node node) {
    TRMI_NEED_OR((trm_shape){0}, NULL, graph);
    return is_value(graph, node) ? graph->values[node.id].shape : (trm_shape){0};
}

trm_dtype trm_node_dtype(const trm_graph *graph, trm_node node) {
    TRMI_NEED_OR(TRM_DTYPE_NONE, NULL, graph);
    return is_value(graph, node) ? graph->values[node.id].dtype : TRM_DTYPE_NONE;
}

/* Contract in graph_ir.h. The number of an output is written where an operator has several. */
const char *trmi_value_text(const trm_graph *graph, int32_t id, char *text, size_t size) {
    char shape[96];
    const trmi_value *value = &graph->values[id];
    const trmi_op *op = &graph->ops[value->op];
    trm_shape_format(&value->shape, shape, sizeof shape);
    if (value->output > 0) {
        snprintf(text, size, "%s:%d %s %s", op->name, value->output, shape,
                 trm_dtype_name(value->dtype));
    } else {
        snprintf(text, size, "%s %s %s", op->name, shape, trm_dtype_name(value->dtype));
    }
    return text;
}

/* Returns the scoped name of a new operator; without a name, the row's name and a counter. */
static const char *name_of(trm_graph *graph, trmi_op_kind kind, const char *name) {
    if (name != NULL) {
        return trmi_arena_printf(&graph->arena, "%s%s", graph->scope, name);
    }
    int64_t number = graph->unnamed[kind]++;
    return trmi_arena_printf(&graph->arena, "%s%s%s%" PRId64, graph->scope,
                             graph->phase == TRMI_BACKWARD ? "d." : "", graph->rows[kind]->name,
                             number);
}

/* Appends an operator and its values; shapes are not set yet.   errors  NOMEM */
static trm_status append_op(trm_graph *graph, const trmi_op *op, int32_t *index, trm_error *err) {
    if (!trmi_grow((void **)&graph->ops, &graph->ops_capacity, graph->ops_count + 1,
                   sizeof *graph->ops) ||
        !trmi_grow((void **)&graph->values, &graph->values_capacity,
                   graph->values_count + TRMI_OP_OUTPUTS_MAX, sizeof *graph->values)) {
        return out_of_memory(err);
    }
    *index = (int32_t)graph->ops_count++;
    trmi_op *added = &graph->ops[*index];
    *added = *op;
    for (int32_t i = 0; i < op->outputs_count; i++) {
        int32_t id = (int32_t)graph->values_count++;
        graph->values[id] = (trmi_value){.op = *index, .output = i};
        added->outputs[i] = id;
    }
    return TRM_OK;
}

bool trmi_shape_possible(const trm_shape *shape) {
    int64_t count = trm_shape_count(shape);
    return count >= 0 && count < INT64_MAX / 64;
}

/* Checks the shapes of the outputs: they can be impossible although those of the inputs are
 * possible, e.g. the broadcast of two long vectors. */
static trm_status check_outputs(const trm_graph *graph, int32_t index, trm_error *err) {
    const trmi_op *op = &graph->ops[index];
    for (int32_t i = 0; i < op->outputs_count; i++) {
        const trmi_value *v = &graph->values[op->outputs[i]];
        if (!trmi_shape_possible(&v->shape)) {
            char text[96];
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: its result of shape %s has more elements than any memory",
                             op->name, trm_shape_format(&v->shape, text, sizeof text));
        }
    }
    return TRM_OK;
}

/* Copies bytes into the graph's arena; NULL: no memory. */
static const void *keep_bytes(trm_graph *graph, const void *data, size_t bytes) {
    void *copy = trmi_arena_alloc(&graph->arena, bytes);
    if (copy != NULL && bytes > 0) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

/* Copies what is attached to an operator into the graph's arena. False: no memory. */
static bool keep_attached(trm_graph *graph, trmi_attrs *attrs) {
    const trmi_attachment *from = attrs->attached;
    attrs->attached = from != NULL ? keep_bytes(graph, from, from->bytes) : NULL;
    return from == NULL || attrs->attached != NULL;
}

/* Contract in graph_ir.h. A graph with an error ignores all further calls, so that a builder of
 * networks needs one check at its end. */
int32_t trmi_graph_add(trm_graph *graph, trmi_op_kind kind, const char *name,
                       const trm_node *inputs, int32_t inputs_count, int32_t outputs,
                       const trmi_attrs *attrs) {
    if (graph == NULL || graph->first_error.status != TRM_OK) {
        return 0;
    }
    trm_error err;
    trmi_op op = {.kind = kind,
                  .phase = graph->phase,
                  .inputs_count = inputs_count,
                  .outputs_count = outputs};
    if (attrs != NULL) {
        op.attrs = *attrs;
    }
    op.name = name_of(graph, kind, name);
    op.inputs = trmi_arena_alloc(&graph->arena, (size_t)(inputs_count + 1) * sizeof *op.inputs);
    if (op.name == NULL || op.inputs == NULL || !keep_attached(graph, &op.attrs)) {
        out_of_memory(&err);
        trmi_graph_fail(graph, &err);
        return 0;
    }
    /* inputs must be values of this graph */
    for (int32_t i = 0; i < inputs_count; i++) {
        if (inputs[i].id < 0 || inputs[i].id >= graph->values_count) {
            TRMI_FAIL(&err, TRM_INVALID, "%s: input %d is not a node of this graph", op.name, i);
            trmi_graph_fail(graph, &err);
            return 0;
        }
        op.inputs[i] = inputs[i].id;
    }
    int32_t index = 0;
    int64_t values_before = graph->values_count;
    if (append_op(graph, &op, &index, &err) != TRM_OK) {
        trmi_graph_fail(graph, &err);
        return 0;
    }
    /* the shape rule decides; after an error the operator is removed again */
    if (graph->rows[kind]->infer(graph, &graph->ops[index], &err) != TRM_OK ||
        check_outputs(graph, index, &err) != TRM_OK) {
        graph->ops_count--;
        graph->values_count = values_before;
        trmi_graph_fail(graph, &err);
        return 0;
    }
    return index;
}

trm_node trmi_graph_add1(trm_graph *graph, trmi_op_kind kind, const char *name,
                         const trm_node *inputs, int32_t inputs_count, const trmi_attrs *attrs) {
    int32_t index = trmi_graph_add(graph, kind, name, inputs, inputs_count, 1, attrs);
    return trmi_graph_node(graph, index, 0);
}

/* Contract in graph_ir.h. Undoes broadcasting: what was repeated forward is summed backward. */
trm_node trmi_sum_to(trm_graph *graph, trm_node x, const trm_shape *shape) {
    trm_shape from = trm_node_shape(graph, x);
    if (trm_shape_equal(&from, shape)) {
        return x;
    }
    trmi_attrs sum = {.reduce = {.keep_dims = true}}, reshape = {.shape = {.shape = *shape}};
    for (int32_t i = 0; i < from.rank; i++) {
        int32_t at = i - (from.rank - shape->rank);
        if (at < 0 || (shape->dim[at] == 1 && from.dim[i] != 1)) {
            sum.reduce.axes |= 1u << i;
        }
    }
    if (sum.reduce.axes != 0) {
        x = trmi_graph_add1(graph, TRMI_OP_REDUCE_SUM, NULL, &x, 1, &sum);
    }
    return trmi_graph_add1(graph, TRMI_OP_RESHAPE, NULL, &x, 1, &reshape);
}

void trmi_set_output(trm_graph *graph, trmi_op *op, int output, trm_dtype dtype, trm_shape shape) {
    trmi_value *value = &graph->values[op->outputs[output]];
    value->dtype = dtype;
    value->shape = shape;
}

/* Contract in graph_ir.h. Attributes are structs that are copied as bytes; only these kinds have
 * pointers in them. */
bool trmi_graph_own_attrs(trm_graph *graph, trmi_op_kind kind, trmi_attrs *attrs) {
    if (kind == TRMI_OP_CONSTANT) {
        attrs->constant.data =
            keep_bytes(graph, attrs->constant.data, (size_t)attrs->constant.bytes);
        return attrs->constant.data != NULL;
    }
    if ((kind == TRMI_OP_PARAMETER || kind == TRMI_OP_INPUT) && attrs->leaf.keys != NULL) {
        attrs->leaf.keys = trmi_arena_strdup(&graph->arena, attrs->leaf.keys);
        return attrs->leaf.keys != NULL;
    }
    return true;
}

/* Contract in graph_ir.h. Indices stay the same; texts and arrays become the clone's own. */
trm_status trmi_graph_clone(const trm_graph *graph, trm_graph **out, trm_error *err) {
    trm_graph *copy;
    TRMI_TRY(trmi_graph_open(graph->rows, graph->training, &copy, err));
    if (!trmi_grow((void **)&copy->ops, &copy->ops_capacity, graph->ops_count, sizeof *copy->ops) ||
        !trmi_grow((void **)&copy->values, &copy->values_capacity, graph->values_count,
                   sizeof *copy->values)) {
        goto no_memory;
    }
    /* Values have no pointers, so that a copy of the array is enough; operators have names, inputs
     * and attributes in the arena, which the copy gets of its own. */
    memcpy(copy->values, graph->values, (size_t)graph->values_count * sizeof *copy->values);
    copy->values_count = graph->values_count;
    copy->ops_count = graph->ops_count;
    memcpy(copy->unnamed, graph->unnamed, sizeof copy->unnamed);
    copy->first_error = graph->first_error;
    trmi_graph_copy_segments(graph, copy);
    for (int64_t i = 1; i < graph->ops_count; i++) {
        const trmi_op *from = &graph->ops[i];
        trmi_op *to = &copy->ops[i];
        *to = *from;
        to->name = trmi_arena_strdup(&copy->arena, from->name);
        to->inputs =
            trmi_arena_alloc(&copy->arena, (size_t)(from->inputs_count + 1) * sizeof *to->inputs);
        if (to->name == NULL || to->inputs == NULL) {
            goto no_memory;
        }
        memcpy(to->inputs, from->inputs, (size_t)from->inputs_count * sizeof *to->inputs);
        to->origin = from->origin != NULL ? trmi_arena_strdup(&copy->arena, from->origin) : NULL;
        if (!trmi_graph_own_attrs(copy, to->kind, &to->attrs) || !keep_attached(copy, &to->attrs) ||
            (from->origin != NULL && to->origin == NULL)) {
            goto no_memory;
        }
    }
    *out = copy;
    return TRM_OK;
no_memory:
    trm_graph_destroy(copy);
    return out_of_memory(err);
}

/* Contract in graph_ir.h. Without a rule of its own an operator is priced as one that only moves
 * memory: all inputs read, all outputs written once, no FLOPs. */
trmi_cost trmi_op_cost(const trm_graph *graph, const trmi_op *op) {
    if (graph->rows[op->kind]->cost != NULL) {
        return graph->rows[op->kind]->cost(graph, op);
    }
    trmi_cost cost = {0};
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_value *value = trmi_input_of(graph, op, i);
        if (value != NULL) {
            cost.bytes +=
                (double)trm_shape_count(&value->shape) * (double)trm_dtype_bytes(value->dtype);
        }
    }
    for (int32_t i = 0; i < op->outputs_count; i++) {
        const trmi_value *value = trmi_output_of(graph, op, i);
        cost.bytes +=
            (double)trm_shape_count(&value->shape) * (double)trm_dtype_bytes(value->dtype);
    }
    return cost;
}

/* Contract in trireme/graph.h. A line is: first output with type and shape = kind(names of the
 * inputs). */
char *trm_graph_to_string(const trm_graph *graph) {
    TRMI_NEED_OR(NULL, NULL, graph);
    trmi_text text = {0};
    char value[256];
    for (int64_t i = 1; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        trmi_text_printf(&text,
                         "%s =", trmi_value_text(graph, op->outputs[0], value, sizeof value));
        trmi_text_printf(&text, " %s(", graph->rows[op->kind]->name);
        for (int32_t j = 0; j < op->inputs_count; j++) {
            int32_t id = op->inputs[j];
            trmi_text_printf(&text, "%s%s", j ? ", " : "",
                             id == 0 ? "-" : graph->ops[graph->values[id].op].name);
        }
        trmi_text_printf(&text, ")\n");
    }
    if (text.failed) {
        trmi_text_free(&text);
        return NULL;
    }
    return text.data != NULL ? text.data : calloc(1, 1);
}
