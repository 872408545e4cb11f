/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the space of plans (plan/search/search.h).
 *
 * Nodes are the forward operators of the graph, except leaves and casts of parameters. Equal
 * operators form a class; strategies and their costs are computed once per class. Edges are the
 * values between nodes; equal edges share one table with the seconds of redistributing the value
 * forward and its gradient backward. Sharing tables is what makes the solver fast
 * (plan/solve/solve_tables.h). trmi_space_create() is the only entry point; afterwards a space does
 * not change. */
#include "plan/search/space_class.h"

#include "plan/partition/operator_loops.h"

#include "base/element.h"
#include "base/error.h"
#include "base/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Meshes with so many axes leave out unusual strategies, see is_usual() in space_class.c. */
enum { BOUNDED_AXES = 4 };

/* ---- nodes ---- */

/* Makes an operator the owner of the parameters, and of their casts, that no earlier one reads. */
static void note_owner(const trmi_space_building *b, const trmi_op *op, int32_t *owners) {
    const trm_graph *g = b->s->graph;
    int32_t index = (int32_t)(op - g->ops);
    for (int32_t k = 0; k < op->inputs_count && op->kind != TRMI_OP_CAST; k++) {
        const trmi_op *parameter = trmi_parameter_of(g, op->inputs[k]);
        if (parameter != NULL) {
            int32_t *cast = &owners[op->inputs[k]], *own = &owners[parameter->outputs[0]];
            *cast = *cast == 0 ? index : *cast;
            *own = *own == 0 ? index : *own;
        }
    }
}

/* Numbers the nodes and finds for each value whether a gradient flows through it and whether
 * backward reads it. */
static trm_status count_nodes(trmi_space_building *b) {
    trmi_space *s = b->s;
    const trm_graph *g = s->graph;
    int32_t count = 0;
    b->s->node_of = trmi_arena_alloc(&s->arena, (size_t)g->ops_count * sizeof *b->s->node_of);
    b->s->moving = trmi_arena_alloc(&s->arena, (size_t)g->values_count);
    b->repeats = trmi_arena_alloc(&s->arena, (size_t)g->ops_count * sizeof *b->repeats);
    b->dropped = trmi_arena_alloc(&s->arena, (size_t)g->ops_count * sizeof *b->dropped);
    b->read = trmi_arena_alloc(&s->arena, (size_t)g->values_count * sizeof *b->read);
    int32_t *owners = trmi_arena_alloc(&s->arena, (size_t)g->values_count * sizeof *owners);
    s->owners = owners;
    if (owners == NULL || b->s->node_of == NULL || b->s->moving == NULL || b->repeats == NULL ||
        b->dropped == NULL || b->read == NULL) {
        return TRMI_NO_MEMORY(b->err, "for the space of plans");
    }
    trmi_partition_repeatable(g, b->repeats);
    /* segments contain the sums of their blocks */
    s->costs.rules.ranks = trmi_mesh_ranks(&s->mesh);
    s->costs.rules.sums = s->costs.rules.sums && !s->costs.rules.segments;
    trmi_partition_rule(g, s->costs.rules, b->dropped);
    /* operators are in topological order: inputs are done before their readers */
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        bool moves = op->kind == TRMI_OP_PARAMETER && op->attrs.leaf.trainable;
        for (int32_t k = 0; k < op->inputs_count; k++) {
            moves = moves || b->s->moving[op->inputs[k]];
            b->read[op->inputs[k]] = b->read[op->inputs[k]] || op->phase == TRMI_BACKWARD;
        }
        note_owner(b, op, owners);
        for (int32_t k = 0; k < op->outputs_count; k++) {
            trm_dtype dtype = trmi_output_of(g, op, k)->dtype;
            b->s->moving[op->outputs[k]] =
                moves && trmi_dtype_is_float(dtype) && op->phase == TRMI_FORWARD;
        }
        /* the cast of a parameter has no node: it has the spread that its reader needs */
        bool cast = op->kind == TRMI_OP_CAST && trmi_parameter_of(g, op->outputs[0]) != NULL;
        s->casts = s->casts || cast;
        b->s->node_of[i] = !trmi_is_leaf(op) && !cast && op->phase == TRMI_FORWARD ? count++ : -1;
    }
    s->nodes = trmi_arena_alloc(&s->arena, ((size_t)count + 1) * sizeof *s->nodes);
    s->nodes_count = count;
    return s->nodes != NULL ? TRM_OK : TRMI_NO_MEMORY(b->err, "for the space of plans");
}

/* Finds the gradient operators of a node by the name of their origin: counts them, then lists them.
 */
static trm_status find_backward(trmi_space_building *b, trmi_space_node *node) {
    const trm_graph *g = b->s->graph;
    const char *name = g->ops[node->op].name;
    for (int pass = 0; pass < 2; pass++) {
        int32_t count = 0;
        for (int64_t i = node->op + 1; i < g->ops_count; i++) {
            const trmi_op *op = &g->ops[i];
            if (op->phase == TRMI_BACKWARD && op->origin != NULL && strcmp(op->origin, name) == 0) {
                if (pass == 1) {
                    node->backward[count] = (int32_t)i;
                }
                count++;
            }
        }
        if (pass == 0) {
            node->backward =
                trmi_arena_alloc(&b->s->arena, ((size_t)count + 1) * sizeof *node->backward);
        }
        node->backward_count = count;
        if (node->backward == NULL) {
            return TRMI_NO_MEMORY(b->err, "for the space of plans");
        }
    }
    return TRM_OK;
}

/* Finds which outputs of a node backward reads, and whether the first one may be or is recomputed.
 */
static void find_read(trmi_space_building *b, trmi_space_node *node) {
    const trm_graph *g = b->s->graph;
    const trmi_op *op = &g->ops[node->op];
    for (int32_t k = 0; k < op->outputs_count; k++) {
        node->read |= (uint8_t)(b->read[op->outputs[k]] ? 1 << k : 0);
    }
    node->dropped = b->dropped[node->op] && (node->read & 1);
    node->repeats = b->repeats[node->op] && !node->dropped;
    for (int32_t k = 0; node->dropped && b->s->costs.rules.sums && k < op->inputs_count; k++) {
        int32_t layer = op->inputs[k] != 0 ? g->values[op->inputs[k]].op : 0;
        bool sum = op->kind == TRMI_OP_ADD && g->ops[layer].kind == TRMI_OP_LINEAR;
        node->layer = sum && b->dropped[layer] ? 1 + k : node->layer;
    }
}

/* Finds the pinned strategy of a node.   errors  INVALID: not possible on this mesh */
static trm_status pin_strategy(trmi_space_building *b, trmi_space_node *node,
                               const trmi_partition_plan *pins) {
    const trmi_op *op = &b->s->graph->ops[node->op];
    const trmi_partition_choice *choice =
        pins != NULL ? trmi_partition_plan_find(pins, op->name) : NULL;
    node->pinned = -1;
    if (choice == NULL || !choice->pinned) {
        return TRM_OK;
    }
    /* the number of the pinned letters among the strategies */
    trmi_strategy *list;
    int32_t count;
    TRMI_TRY(trmi_partition_strategies(b->s->graph, op, &b->s->mesh, &b->s->arena, &list, &count,
                                       b->err));
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(list[i].letters, choice->letters) == 0) {
            node->pinned = i;
            return TRM_OK;
        }
    }
    return TRMI_FAIL(b->err, TRM_INVALID,
                     "operator %s is pinned to '%s', which it cannot be on this mesh", op->name,
                     choice->letters);
}

/* Fills in all nodes and their classes. */
static trm_status make_nodes(trmi_space_building *b, const trmi_partition_plan *pins) {
    const trm_graph *g = b->s->graph;
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (b->s->node_of[i] >= 0) {
            trmi_space_node *node = &b->s->nodes[b->s->node_of[i]];
            node->op = (int32_t)i;
            TRMI_TRY(find_backward(b, node));
            find_read(b, node);
            TRMI_TRY(pin_strategy(b, node, pins));
            TRMI_TRY(trmi_space_find_class(b, node));
        }
    }
    return TRM_OK;
}

/* ---- edges ---- */

/* Makes room for one more edge table. False: no memory. */
static bool room_for_table(trmi_space *s) {
    int64_t capacity = s->tables_capacity;
    return trmi_grow((void **)&s->tables, &capacity, s->tables_count + 1, sizeof *s->tables) &&
           trmi_grow((void **)&s->bytes, &s->tables_capacity, s->tables_count + 1,
                     sizeof *s->bytes);
}

/* Contract in search.h. The layer's output must be what the sum reads, without a message. */
bool trmi_space_sum(const trmi_space *s, const trmi_space_edge *e, int32_t i, int32_t k,
                    double *seconds) {
    const trmi_space_class *from = trmi_space_class_of(s, e->from),
                           *to = trmi_space_class_of(s, e->to);
    const trmi_spread source = trmi_space_source(s, e, i);
    const bool again = e->sum && !e->ends && to->saved[k] > 0 &&
                       trmi_spread_equal(&source, &to->strategies[k].inputs[e->input]);
    *seconds = again ? from->forward[i] + to->again[k] : 0;
    return again;
}

/* Computes for each pair of strategies the bytes kept in addition to what the producer keeps: the
 * reader's form of the value, if backward reads it and it differs from the producer's; and the sum
 * of a layer that is not computed again with these. *out NULL: nothing is kept. False: no
 * memory. */
static bool kept_bytes(trmi_space_building *b, const trmi_space_edge *e, float **out) {
    trmi_space *s = b->s;
    const trmi_space_class *from = trmi_space_class_of(s, e->from),
                           *to = trmi_space_class_of(s, e->to);
    *out = NULL;
    const bool sum = e->sum && !e->ends;
    if (!e->kept && !sum) {
        return true;
    }
    float *bytes =
        trmi_arena_alloc(&s->arena, (size_t)from->count * (size_t)to->count * sizeof *bytes);
    /* a reader with the producer's form keeps nothing more */
    for (int32_t k = 0; bytes != NULL && k < to->count; k++) {
        const trmi_spread *read = &to->strategies[k].inputs[e->input];
        float own = (float)trmi_space_bytes(s, e->value, read);
        for (int32_t i = 0; i < from->count; i++) {
            trmi_spread source = trmi_space_source(s, e, i);
            float *to_keep = &bytes[(size_t)i * (size_t)to->count + (size_t)k];
            double seconds;
            *to_keep = !e->kept || trmi_spread_equal(&source, read) ? 0 : own;
            *to_keep += sum && !trmi_space_sum(s, e, i, k, &seconds) ? (float)to->saved[k] : 0;
        }
    }
    *out = bytes;
    return bytes != NULL;
}

/* Computes the table of an edge: seconds of redistributing the value from the producer's spread to
 * the reader's, plus the gradient's way back. */
static trm_status fill_edge(trmi_space_building *b, trmi_space_edge *e) {
    trmi_space *s = b->s;
    const trmi_value *v = &s->graph->values[e->value];
    const trmi_space_class *from = trmi_space_class_of(s, e->from),
                           *to = trmi_space_class_of(s, e->to);
    TRMI_TRY(trmi_space_go_on(s, b->err));
    const trmi_price_table *t = trmi_space_find_prices(b, &v->shape, v->dtype);
    size_t entries = (size_t)from->count * (size_t)to->count;
    float *table = t != NULL ? trmi_arena_alloc(&s->arena, entries * sizeof *table) : NULL,
          *bytes = NULL;
    int32_t *numbers = trmi_alloc(2 * (size_t)to->count * sizeof *numbers);
    if (table == NULL || numbers == NULL || !kept_bytes(b, e, &bytes) || !room_for_table(s)) {
        trmi_free(numbers);
        return t == NULL ? TRM_NOMEM : TRMI_NO_MEMORY(b->err, "for the space of plans");
    }
    /* numbers of the reader's spreads: of the value, of its gradient */
    for (int32_t k = 0; k < to->count; k++) {
        const trmi_spread *read = &to->strategies[k].inputs[e->input];
        trmi_spread made = trmi_space_sent_back(s, e, k);
        numbers[k] = trmi_price_number(t, &s->mesh, read);
        numbers[to->count + k] = trmi_price_number(t, &s->mesh, &made);
    }
    /* Price, for each pair of strategies, the route of the value plus that of the gradient. */
    for (int32_t i = 0; i < from->count; i++) {
        trmi_spread source = trmi_space_source(s, e, i), returned = trmi_space_returned(s, e, i);
        int32_t out = trmi_price_number(t, &s->mesh, &source),
                back = trmi_price_number(t, &s->mesh, &returned);
        float *row = table + (size_t)i * (size_t)to->count;
        for (int32_t k = 0; k < to->count; k++) {
            int32_t in = numbers[k], gradient = numbers[to->count + k];
            row[k] = out < 0 || in < 0 ? INFINITY : t->seconds[(int64_t)out * t->count + in];
            if (e->gradient) {
                row[k] += back < 0 || gradient < 0
                              ? INFINITY
                              : t->seconds[(int64_t)gradient * t->count + back];
            }
            double again;
            row[k] += trmi_space_sum(s, e, i, k, &again) ? (float)again : 0;
        }
    }
    trmi_free(numbers);
    e->table = (int32_t)s->tables_count;
    s->bytes[s->tables_count] = bytes;
    s->tables[s->tables_count++] = table;
    return TRM_OK;
}

/* Returns which output of its operator a value is. */
static int32_t output_of(const trm_graph *g, int32_t value) { return g->values[value].output; }

/* Finds the table of an equal edge (same classes, input, output and flags), or makes a new one; of
 * a sum also that of a stage that ends behind it. */
static trm_status find_table(trmi_space_building *b, trmi_space_edge *e) {
    trmi_space *s = b->s;
    int32_t output = output_of(s->graph, e->value);
    for (int64_t i = 0; i < s->edges_count; i++) {
        const trmi_space_edge *o = &s->edges[i];
        bool same = s->nodes[o->from].group == s->nodes[e->from].group &&
                    s->nodes[o->to].group == s->nodes[e->to].group && o->input == e->input &&
                    o->tied == e->tied && o->gradient == e->gradient && o->kept == e->kept &&
                    o->sum == e->sum && output_of(s->graph, o->value) == output;
        if (same) {
            e->table = o->table;
            e->end_table = o->end_table;
            return TRM_OK;
        }
    }
    if (e->sum) {
        trmi_space_edge end = *e;
        end.ends = true;
        TRMI_TRY(fill_edge(b, &end));
        e->end_table = end.table;
    }
    return fill_edge(b, e);
}

/* Returns whether an operator reads a value. */
static bool reads_value(const trmi_op *op, int32_t value) {
    for (int32_t i = 0; i < op->inputs_count; i++) {
        if (op->inputs[i] == value) {
            return true;
        }
    }
    return false;
}

/* Adds an edge to the space. */
static trm_status add_edge(trmi_space_building *b, trmi_space_edge e) {
    trmi_space *s = b->s;
    TRMI_TRY(find_table(b, &e));
    if (!trmi_grow((void **)&s->edges, &s->edges_capacity, s->edges_count + 1, sizeof *s->edges)) {
        return TRMI_NO_MEMORY(b->err, "for the space of plans");
    }
    s->edges[s->edges_count++] = e;
    return TRM_OK;
}

/* Returns whether backward of a node reads a value. */
static bool is_kept(const trmi_space_building *b, int32_t node, int32_t value) {
    const trmi_space_node *of = &b->s->nodes[node];
    for (int32_t k = 0; k < of->backward_count; k++) {
        if (reads_value(&b->s->graph->ops[of->backward[k]], value)) {
            return true;
        }
    }
    return false;
}

/* Adds an edge from the owner of a parameter to node `n`, if that reads it as input `i`, too. */
static trm_status add_tied_edge(trmi_space_building *b, int32_t n, int32_t i) {
    const trmi_space *s = b->s;
    const trmi_op *to = trmi_space_op(s, n),
                  *parameter = trmi_parameter_of(s->graph, to->inputs[i]);
    if (parameter == NULL || trmi_space_owns(s, to, parameter->outputs[0])) {
        return TRM_OK;
    }
    trmi_space_edge e = {.from = b->s->node_of[s->owners[parameter->outputs[0]]],
                         .to = n,
                         .value = parameter->outputs[0],
                         .input = i,
                         .gradient = trmi_space_trains(s, parameter),
                         .kept = is_kept(b, n, to->inputs[i])};
    const trmi_op *owner = trmi_space_op(s, e.from);
    for (int32_t k = owner->inputs_count - 1; k >= 0; k--) {
        e.tied = trmi_parameter_of(s->graph, owner->inputs[k]) == parameter ? 1 + k : e.tied;
    }
    return add_edge(b, e);
}

/* Makes all edges, ordered by their reader and its inputs; search_measure.c relies on this order.
 */
static trm_status make_edges(trmi_space_building *b) {
    trmi_space *s = b->s;
    const trm_graph *g = s->graph;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_op *op = trmi_space_op(s, n);
        for (int32_t i = 0; i < op->inputs_count; i++) {
            int32_t from = op->inputs[i] != 0 ? b->s->node_of[g->values[op->inputs[i]].op] : -1;
            if (from < 0) {
                TRMI_TRY(add_tied_edge(b, n, i));
                continue;
            }
            /* The value is kept: a gradient operator of the reader reads it, too. */
            trmi_space_edge e = {.from = from, .to = n, .value = op->inputs[i], .input = i};
            e.gradient = b->s->moving[op->inputs[i]] && s->nodes[n].backward_count > 0;
            /* A sum that is computed again reads its other summand again, too. */
            e.sum = s->nodes[n].layer == 1 + i;
            e.kept = is_kept(b, n, op->inputs[i]) || (s->nodes[n].layer > 0 && !e.sum);
            TRMI_TRY(add_edge(b, e));
        }
    }
    return TRM_OK;
}

/* ---- life ---- */

/* Strict determinism: finds the sums over samples. */
static trm_status mark_blocks(trmi_space *s, trm_error *err) {
    int64_t samples;
    if (s->costs.blocks == 0) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_block_samples(s->graph, s->costs.blocks, &samples, err));
    return trmi_mark_blocks(s->graph, samples, &s->arena, &s->marks, err);
}

/* Finds the casts that are not made. */
static trm_status mark_rounded(trmi_space *s, trm_error *err) {
    bool *rounded;
    if (s->costs.rounding == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(TRMI_NEW_IN(err, &s->arena, rounded, s->graph->values_count, "for a space of plans"));
    trmi_plan_rounded(s->graph, s->costs.rounding, rounded);
    s->rounded = rounded;
    s->costs.rounding = NULL;
    return TRM_OK;
}

/* Contract in search.h. A node is an operator, its states are strategies; operators of one kind
 * with equal shapes share a class, which is priced once. */
trm_status trmi_space_open(const trm_graph *graph, const trmi_mesh *mesh,
                           const trmi_search_costs *costs, const trmi_partition_plan *pins,
                           trmi_space **out, trm_error *err) {
    trm_error own;
    double begin = trmi_os_now();
    trmi_space *s;
    TRMI_TRY(TRMI_NEW(err, s, 1, "for the space of plans"));
    s->graph = graph;
    s->mesh = *mesh;
    s->costs = costs != NULL ? *costs : (trmi_search_costs){.slots = 1, .overlap = 1, .fuse = true};
    s->prices = s->costs.prices != NULL ? *s->costs.prices : (trmi_prices){0};
    s->bounded = mesh->axes >= BOUNDED_AXES && pins == NULL;
    /* nodes get their numbers first; classes and edges refer to them */
    trmi_space_building b = {.s = s, .err = err != NULL ? err : &own};
    trmi_space_find_update_lines(s);
    trm_status status = mark_rounded(s, err);
    status = status == TRM_OK ? mark_blocks(s, err) : status;
    status = status == TRM_OK ? count_nodes(&b) : status;
    status = status == TRM_OK ? make_nodes(&b, pins) : status;
    if (status != TRM_OK) {
        trmi_space_destroy(s);
        return status;
    }
    s->seconds = trmi_os_now() - begin;
    *out = s;
    return TRM_OK;
}

/* Contract in search.h. An edge has the price of moving a value between the strategies of its two
 * ends. */
trm_status trmi_space_connect(trmi_space *s, trm_error *err) {
    trm_error own;
    double begin = trmi_os_now();
    trmi_space_building b = {.s = s, .err = err != NULL ? err : &own};
    if (s->connected) {
        return TRM_OK;
    }
    TRMI_TRY(make_edges(&b));
    s->connected = true;
    s->seconds += trmi_os_now() - begin;
    return TRM_OK;
}

/* Contract in search.h. Opening makes nodes and classes, connecting makes edges and their
 * tables. */
trm_status trmi_space_create(const trm_graph *graph, const trmi_mesh *mesh,
                             const trmi_search_costs *costs, const trmi_partition_plan *pins,
                             trmi_space **out, trm_error *err) {
    trmi_space *s;
    TRMI_TRY(trmi_space_open(graph, mesh, costs, pins, &s, err));
    trm_status status = trmi_space_connect(s, err);
    if (status != TRM_OK) {
        trmi_space_destroy(s);
        return status;
    }
    *out = s;
    return TRM_OK;
}

void trmi_space_destroy(trmi_space *s) {
    if (s != NULL) {
        free(s->classes);
        free(s->edges);
        free(s->tables);
        free(s->bytes);
        free(s->prices_of);
        trmi_arena_free(&s->arena);
        trmi_free(s);
    }
}
