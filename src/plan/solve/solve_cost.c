/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the cost of a choice as one number, as time and memory, and as one weighted number.
 *
 * The file also turns a graph with two costs (plan/solve/solve_front.h) into a graph with the
 * single cost a x time + b x memory, which trmi_solve() can solve. Weighted tables are float32;
 * times and memory are summed in double.
 *
 * Invariant: nodes and edges that share a table share one in the weighted graph, too, because
 * trmi_solve() recognises equal tables by their address. */
#include "plan/solve/solve_front.h"

#include "base/memory.h"

#include <math.h>

/* Contract in solve.h. Sums are in double: tables are float32, and thousands of them are added. */
double trmi_solve_cost(const trmi_cost_graph *g, const int32_t *choice) {
    double sum = 0;
    for (int32_t i = 0; i < g->nodes_count; i++) {
        sum += (double)g->nodes[i][choice[i]];
    }
    for (int32_t i = 0; i < g->edges_count; i++) {
        const trmi_cost_edge *e = &g->edges[i];
        sum += (double)e->table[(int64_t)choice[e->a] * g->states[e->b] + choice[e->b]];
    }
    return sum;
}

/* Contract in solve_front.h. Edges without a table of bytes cost time only. */
trmi_tradeoff trmi_front_cost(const trmi_front_graph *g, const int32_t *choice,
                              const uint8_t *option) {
    trmi_tradeoff sum = {0, 0};
    for (int32_t n = 0; n < g->nodes_count; n++) {
        const trmi_tradeoff *at = &g->nodes[n][choice[n] * g->options + option[n]];
        sum.time += at->time;
        sum.memory += at->memory;
    }
    for (int32_t i = 0; i < g->edges_count; i++) {
        const trmi_front_edge *e = &g->edges[i];
        int64_t at = (int64_t)choice[e->a] * g->states[e->b] + choice[e->b];
        sum.time += (double)e->time[at];
        sum.memory += e->memory != NULL ? (double)e->memory[at] : 0;
    }
    return sum;
}

/* Returns a x time + b x memory; INFINITY where the option is not possible. */
static double weigh_tradeoff(const trmi_tradeoff *t, double a, double b) {
    return t->time < INFINITY ? a * t->time + b * t->memory : INFINITY;
}

int32_t trmi_front_best(const trmi_front_graph *g, int32_t n, int32_t state, double a, double b) {
    const trmi_tradeoff *list = &g->nodes[n][state * g->options];
    int32_t best = 0;
    for (int32_t k = 1; k < g->options; k++) {
        best = weigh_tradeoff(&list[k], a, b) < weigh_tradeoff(&list[best], a, b) ? k : best;
    }
    return best;
}

/* Returns the table of an edge for the weighted cost: the given table where it can be used as it
 * is, otherwise a new one in the arena. NULL: no memory. */
static const float *scaled_edge(const trmi_front_graph *g, const trmi_front_edge *e, double a,
                                double b, trmi_arena *arena) {
    int64_t entries = (int64_t)g->states[e->a] * g->states[e->b];
    if (a == 1 && (b == 0 || e->memory == NULL)) {
        return e->time;
    }
    float *table = trmi_arena_alloc(arena, (size_t)entries * sizeof *table);
    for (int64_t i = 0; table != NULL && i < entries; i++) {
        table[i] = e->time[i] < INFINITY
                       ? (float)(a * (double)e->time[i] +
                                 (e->memory != NULL ? b * (double)e->memory[i] : 0))
                       : INFINITY;
    }
    return table;
}

/* Builds the graph of the weighted cost (see the header). Nodes and edges that share a table in `g`
 * also share one in `out`: trmi_solve() recognises equal tables by their address. */
trm_status trmi_front_scalar(const trmi_front_graph *g, double a, double b, trmi_arena *arena,
                             trmi_cost_graph *out, trm_error *err) {
    const float **nodes = trmi_arena_alloc(arena, ((size_t)g->nodes_count + 1) * sizeof *nodes);
    trmi_cost_edge *edges = trmi_arena_alloc(arena, ((size_t)g->edges_count + 1) * sizeof *edges);
    if (nodes == NULL || edges == NULL) {
        return TRMI_NO_MEMORY(err, "to search a plan");
    }
    /* A node costs, in each state, as much as its cheapest option. */
    for (int32_t n = 0; n < g->nodes_count; n++) {
        for (int32_t k = 0; k < n && nodes[n] == NULL; k++) {
            nodes[n] = g->nodes[k] == g->nodes[n] ? nodes[k] : NULL;
        }
        float *own =
            nodes[n] == NULL ? trmi_arena_alloc(arena, (size_t)g->states[n] * sizeof *own) : NULL;
        for (int32_t i = 0; own != NULL && i < g->states[n]; i++) {
            own[i] = (float)weigh_tradeoff(
                &g->nodes[n][i * g->options + trmi_front_best(g, n, i, a, b)], a, b);
        }
        nodes[n] = nodes[n] == NULL ? own : nodes[n];
        if (nodes[n] == NULL) {
            return TRMI_NO_MEMORY(err, "to search a plan");
        }
    }
    /* An edge has a table; that of an earlier, equal edge is reused. */
    for (int32_t i = 0; i < g->edges_count; i++) {
        const trmi_front_edge *e = &g->edges[i];
        const float *table = NULL;
        for (int32_t k = 0; k < i && table == NULL; k++) {
            table = g->edges[k].time == e->time && g->edges[k].memory == e->memory ? edges[k].table
                                                                                   : NULL;
        }
        table = table != NULL ? table : scaled_edge(g, e, a, b, arena);
        if (table == NULL) {
            return TRMI_NO_MEMORY(err, "to search a plan");
        }
        edges[i] = (trmi_cost_edge){e->a, e->b, table};
    }
    *out = (trmi_cost_graph){.nodes_count = g->nodes_count,
                             .edges_count = g->edges_count,
                             .states = g->states,
                             .nodes = nodes,
                             .edges = edges};
    return TRM_OK;
}
