/* SPDX-License-Identifier: Apache-2.0 */
/* Expresses a space as a graph with two costs, seconds and bytes, and solves it with
 * plan/solve/solve_front.h.
 *
 *     space                                   solver
 *     node (an operator)                      node
 *     strategy of its class (how it is cut)   state of the node
 *     policy (how parameters are stored,      option of the state: it changes the costs of the
 *     whether the output is recomputed)       node but not those of its edges
 *     edge with a table [from][to]            edge: seconds of a redistribution, bytes that it keeps
 *
 * Nodes of a class share one list of costs and edges share the space's tables, so that the graph of
 * a deep model stays small. The graph is scratch memory; the points of the front are the
 * caller's. */
#include "plan/search/search.h"

#include "base/memory.h"

#include <math.h>

/* Reports that there is no memory. */
static trm_status no_memory(trm_error *err) { return TRMI_NO_MEMORY(err, "to search a plan"); }

/* Computes the costs [strategies][policies] of a class; NULL: no memory. */
static trmi_tradeoff *ways_of(const trmi_space *s, const trmi_space_class *c,
                              const trmi_objective *w, trmi_arena *arena) {
    trmi_tradeoff *list = trmi_arena_alloc(arena, (size_t)c->count * TRMI_POLICIES * sizeof *list);
    for (int32_t i = 0; list != NULL && i < c->count; i++) {
        for (int k = 0; k < TRMI_POLICIES; k++) {
            trmi_node_cost policy =
                trmi_space_node_cost(s, c, i, k + (w->sliced ? TRMI_POLICY_SLICED : 0), w);
            list[i * TRMI_POLICIES + k] = (trmi_tradeoff){policy.seconds, policy.bytes};
        }
    }
    return list;
}

/* Returns the bytes of an edge's table, times the micro-batches that are kept; NULL: none, or no
 * memory. */
static const float *bytes_of(const trmi_space *s, const trmi_space_edge *e, const trmi_objective *w,
                             trmi_arena *arena) {
    const float *bytes = s->bytes[e->table];
    if (bytes == NULL || w->others_kept == 0) {
        return bytes;
    }
    size_t entries = (size_t)trmi_space_class_of(s, e->from)->count *
                     (size_t)trmi_space_class_of(s, e->to)->count;
    float *all = trmi_arena_alloc(arena, entries * sizeof *all);
    for (size_t i = 0; all != NULL && i < entries; i++) {
        all[i] = bytes[i] * (float)(1 + w->others_kept);
    }
    return all;
}

/* Builds the graph: nodes share the costs of their class, edges the tables of the space. */
static trm_status make_graph(const trmi_space *s, const trmi_objective *w, trmi_arena *arena,
                             trmi_front_graph *out, trm_error *err) {
    trmi_tradeoff **classes =
        trmi_arena_alloc(arena, ((size_t)s->classes_count + 1) * sizeof *classes);
    const trmi_tradeoff **nodes =
        trmi_arena_alloc(arena, ((size_t)s->nodes_count + 1) * sizeof *nodes);
    int32_t *states = trmi_arena_alloc(arena, ((size_t)s->nodes_count + 1) * sizeof *states);
    trmi_front_edge *edges = trmi_arena_alloc(arena, ((size_t)s->edges_count + 1) * sizeof *edges);
    const float **bytes = trmi_arena_alloc(arena, ((size_t)s->tables_count + 1) * sizeof *bytes);
    if (bytes == NULL || classes == NULL || nodes == NULL || states == NULL || edges == NULL) {
        return no_memory(err);
    }
    /* Nodes: the states are strategies, the options of a state its policies. */
    for (int64_t k = 0; k < s->classes_count; k++) {
        classes[k] = ways_of(s, &s->classes[k], w, arena);
        if (classes[k] == NULL) {
            return no_memory(err);
        }
    }
    for (int32_t n = 0; n < s->nodes_count; n++) {
        nodes[n] = classes[s->nodes[n].group];
        states[n] = trmi_space_class_of(s, n)->count;
    }
    /* An edge has the seconds of a redistribution, and the bytes that it keeps, once for each
     * table. */
    for (int64_t e = 0; e < s->edges_count; e++) {
        const trmi_space_edge *from = &s->edges[e];
        const float **kept = &bytes[from->table];
        *kept = *kept != NULL ? *kept : bytes_of(s, from, w, arena);
        if (*kept == NULL && s->bytes[from->table] != NULL) {
            return no_memory(err);
        }
        edges[e] = (trmi_front_edge){from->from, from->to, s->tables[from->table], *kept};
    }
    *out = (trmi_front_graph){.nodes_count = s->nodes_count,
                              .edges_count = (int32_t)s->edges_count,
                              .options = TRMI_POLICIES,
                              .states = states,
                              .nodes = nodes,
                              .edges = edges};
    return TRM_OK;
}

/* Contract in search.h. The solver knows nodes with states and options only; this function
 * translates the points of its front back to strategies and policies. */
trm_status trmi_space_front(const trmi_space *s, const trmi_objective *weights, double limit,
                            trmi_arena *arena, trmi_front *out, trmi_choice **points,
                            trm_error *err) {
    trmi_arena scratch = {0};
    trmi_front_graph graph;
    const trmi_front_options options = {.limit = limit};
    TRMI_TRY(trmi_space_go_on(s, err));
    /* states and options from strategies and policies, then their front */
    trm_status status = make_graph(s, weights, &scratch, &graph, err);
    status = status == TRM_OK ? trmi_front_solve(&graph, &options, arena, out, err) : status;
    if (status == TRM_OK) {
        *points = trmi_arena_alloc(arena, ((size_t)out->count + 1) * sizeof **points);
        status = *points != NULL ? TRM_OK : no_memory(err);
    }
    /* states and options back to strategies and policies */
    for (int32_t i = 0; status == TRM_OK && i < out->count; i++) {
        trmi_choice *choice = &(*points)[i];
        if (!trmi_choice_open(choice, s, arena)) {
            status = no_memory(err);
        }
        for (int32_t n = 0; status == TRM_OK && n < s->nodes_count; n++) {
            int policy = out->points[i].option[n];
            choice->strategy[n] = out->points[i].choice[n];
            choice->stores[n] = (uint8_t)trmi_policy_store(policy);
            choice->again[n] = trmi_policy_again(policy);
        }
    }
    trmi_arena_free(&scratch);
    return status;
}
