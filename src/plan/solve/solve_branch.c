/* SPDX-License-Identifier: Apache-2.0 */
/* Step 3 of plan/solve/solve.h: branch and bound for graphs that are too wide for tables.
 *
 *      work --reduce--> tables small enough?  yes: exact
 *                           no: dual bound >= best?  yes: prune
 *                               no: fix the node with most neighbours in each of its states, in the
 *                                   order of their bounds
 *
 * The dual: every edge gives parts of its costs to its two nodes (messages m). For any m
 *      sum_i min(u_i + m_i)  +  sum_e min(table_e - m_a - m_b)   <=   the cheapest choice.
 * Entries are clamped to what a choice better than the best known one can contain, so that the
 * bound stays valid and finite in the presence of illegal (INFINITY) entries.
 *
 * trmi_solve() calls trmi_core_branch() after steps 1 and 2. Tables that a branch makes are
 * released when the branch is left. The tree is limited by a count, so that every machine finds the
 * same result; beyond the limit the bounds of unvisited branches are used, so that the bound stays
 * true. */
#include "plan/solve/solve_reduce.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* Passes over all edges in which messages of the dual are improved. */
enum { SWEEPS = 30 };

/* State of one search. */
typedef struct branch {
    const trmi_cost_graph *graph;
    int64_t table_limit, branch_limit, branches;
    /* [nodes] states of the present branch; states of the best choice found */
    int32_t *choice, *best;
    double best_cost;
} branch;

/* A level of the tree: the graph with one more node fixed. */
typedef struct level level;
struct level {
    trmi_solve_work *work;
    const level *above;
    /* cost of the nodes that are fixed or eliminated without neighbours, at this and all higher
     * levels */
    double fixed;
};

static trm_status no_memory(trm_error *err) { return TRMI_NO_MEMORY(err, "to search a plan"); }

/* ---- dual bound ---- */

/* The messages of one dual bound. */
typedef struct dual {
    const trmi_solve_work *work;
    trmi_arena memory;
    double **belief;       /* [nodes][states] own costs + messages of all edges */
    double *(*message)[2]; /* [slots] message to node a, to node b */
    /* an entry counts as at most the least one of its table plus this */
    double slack;
} dual;

/* Returns the least of `count` entries. */
static double least_of(const float *data, int64_t count) {
    float least = INFINITY;
    for (int64_t i = 0; i < count; i++) {
        least = data[i] < least ? data[i] : least;
    }
    return (double)least;
}

/* Returns the entry, at most `most`. */
static double clamp_entry(float entry, double most) {
    return (double)entry < most ? (double)entry : most;
}

/* Adds the least entry to *base and the range of the finite entries to *range. */
static void add_extremes(const float *data, int64_t count, double *base, double *range) {
    double least = least_of(data, count), most = least;
    for (int64_t i = 0; i < count; i++) {
        most = data[i] < INFINITY && (double)data[i] > most ? (double)data[i] : most;
    }
    *base += least;
    *range += most - least;
}

/* Computes *base, the sum of the least entries of all live tables (a lower bound), and *range, the
 * sum of their largest finite excess over these. */
static void sum_extremes(const trmi_solve_work *w, double *base, double *range) {
    *base = *range = 0;
    for (int32_t i = 0; i < w->nodes_count; i++) {
        if (w->live[i]) {
            add_extremes(trmi_tables_data(w->tables, w->unary[i]), w->states[i], base, range);
        }
    }
    for (int64_t i = 0; i < w->slots_count; i++) {
        const trmi_solve_edge *s = &w->slots[i];
        if (s->live) {
            add_extremes(trmi_tables_data(w->tables, s->table),
                         (int64_t)w->states[s->a] * w->states[s->b], base, range);
        }
    }
}

/* Allocates the messages (zero) and sets the beliefs to the clamped own costs. */
static trm_status dual_open(dual *d, const trmi_solve_work *w, double slack, trm_error *err) {
    memset(d, 0, sizeof *d);
    d->work = w;
    d->slack = slack;
    TRMI_TRY(
        TRMI_NEW_IN(err, &d->memory, d->belief, (size_t)w->nodes_count + 1, "to search a plan"));
    TRMI_TRY(
        TRMI_NEW_IN(err, &d->memory, d->message, (size_t)w->slots_count + 1, "to search a plan"));
    /* Beliefs begin with a node's own costs, ... */
    for (int32_t i = 0; i < w->nodes_count; i++) {
        if (!w->live[i]) {
            continue;
        }
        const float *u = trmi_tables_data(w->tables, w->unary[i]);
        double most = least_of(u, w->states[i]) + slack;
        d->belief[i] = trmi_arena_alloc(&d->memory, (size_t)w->states[i] * sizeof **d->belief);
        if (d->belief[i] == NULL) {
            return no_memory(err);
        }
        for (int32_t j = 0; j < w->states[i]; j++) {
            d->belief[i][j] = clamp_entry(u[j], most);
        }
    }
    /* ... and add the messages from each edge to both of its nodes. */
    for (int64_t i = 0; i < w->slots_count; i++) {
        const trmi_solve_edge *s = &w->slots[i];
        if (s->live) {
            d->message[i][0] =
                trmi_arena_alloc(&d->memory, (size_t)w->states[s->a] * sizeof(double));
            d->message[i][1] =
                trmi_arena_alloc(&d->memory, (size_t)w->states[s->b] * sizeof(double));
            if (d->message[i][0] == NULL || d->message[i][1] == NULL) {
                return no_memory(err);
            }
        }
    }
    return TRM_OK;
}

/* Updates the messages of one edge (MPLP): each node gets half of the min-marginal of the edge. */
static void pass_edge(dual *d, int64_t slot) {
    const trmi_solve_work *w = d->work;
    const trmi_solve_edge *s = &w->slots[slot];
    const float *table = trmi_tables_data(w->tables, s->table);
    int32_t rows = w->states[s->a], columns = w->states[s->b];
    double most = least_of(table, (int64_t)rows * columns) + d->slack;
    double *ba = d->belief[s->a], *bb = d->belief[s->b], *ma = d->message[slot][0],
           *mb = d->message[slot][1];
    /* take the old messages out of both beliefs */
    for (int32_t i = 0; i < rows; i++) {
        ba[i] -= ma[i];
        ma[i] = INFINITY;
    }
    for (int32_t j = 0; j < columns; j++) {
        bb[j] -= mb[j];
        mb[j] = INFINITY;
    }
    /* Find the min-marginals of the edge, in both directions. */
    for (int32_t i = 0; i < rows; i++) {
        const float *row = table + (int64_t)i * columns;
        for (int32_t j = 0; j < columns; j++) {
            double entry = clamp_entry(row[j], most), to_a = entry + bb[j], to_b = entry + ba[i];
            ma[i] = to_a < ma[i] ? to_a : ma[i];
            mb[j] = to_b < mb[j] ? to_b : mb[j];
        }
    }
    /* Give half to each node. */
    for (int32_t i = 0; i < rows; i++) {
        ma[i] = (ma[i] - ba[i]) / 2;
        ba[i] += ma[i];
    }
    for (int32_t j = 0; j < columns; j++) {
        mb[j] = (mb[j] - bb[j]) / 2;
        bb[j] += mb[j];
    }
}

/* Returns the dual bound for the present messages: least beliefs + least remainders of edges. */
static double dual_value(const dual *d) {
    const trmi_solve_work *w = d->work;
    double sum = 0;
    /* Take each node at its cheapest. */
    for (int32_t i = 0; i < w->nodes_count; i++) {
        double least = INFINITY;
        for (int32_t j = 0; w->live[i] && j < w->states[i]; j++) {
            least = d->belief[i][j] < least ? d->belief[i][j] : least;
        }
        sum += w->live[i] ? least : 0;
    }
    /* each edge at its cheapest entry, less what its messages have moved to the nodes */
    for (int64_t i = 0; i < w->slots_count; i++) {
        const trmi_solve_edge *s = &w->slots[i];
        if (!s->live) {
            continue;
        }
        const float *table = trmi_tables_data(w->tables, s->table);
        int32_t rows = w->states[s->a], columns = w->states[s->b];
        double least = INFINITY, most = least_of(table, (int64_t)rows * columns) + d->slack;
        for (int32_t a = 0; a < rows; a++) {
            for (int32_t b = 0; b < columns; b++) {
                double left = clamp_entry(table[(int64_t)a * columns + b], most) -
                              d->message[i][0][a] - d->message[i][1][b];
                least = left < least ? left : least;
            }
        }
        sum += least;
    }
    return sum;
}

/* Improves the dual bound by sweeps over all edges until it reaches `enough` (the branch can be
 * pruned), improves by less than 1e-5, or SWEEPS are done. Returns the bound. */
static double dual_run(dual *d, double enough) {
    double before = -INFINITY, value = dual_value(d);
    for (int sweep = 0; sweep < SWEEPS && value < enough && value - before > 1e-5 * fabs(value);
         sweep++) {
        for (int64_t i = 0; i < d->work->slots_count; i++) {
            if (d->work->slots[i].live) {
                pass_edge(d, i);
            }
        }
        before = value;
        value = dual_value(d);
    }
    return value;
}

/* ---- coordinate descent ---- */

/* Computes the cost of node i in state j with all other nodes as in `choice`: the number of illegal
 * entries, and the sum of the legal ones. */
static void local_cost(const trmi_cost_graph *g, const int32_t *choice, int32_t i, int32_t j,
                       int *illegal, double *sum) {
    float u = g->nodes[i][j];
    *illegal = u == INFINITY;
    *sum = u == INFINITY ? 0 : (double)u;
    for (int32_t k = 0; k < g->edges_count; k++) {
        const trmi_cost_edge *e = &g->edges[k];
        if (e->a == i || e->b == i) {
            int64_t a = e->a == i ? j : choice[e->a], b = e->b == i ? j : choice[e->b];
            float entry = e->table[a * g->states[e->b] + b];
            *illegal += entry == INFINITY;
            *sum += entry == INFINITY ? 0 : (double)entry;
        }
    }
}

/* Improves `choice` by coordinate descent: changes one node at a time as long as the number of
 * illegal entries, or the cost, falls. Keeps the result if it is the best so far. */
static void descend_coordinates(branch *b, int32_t *choice) {
    const trmi_cost_graph *g = b->graph;
    for (bool moved = true; moved;) {
        moved = false;
        for (int32_t i = 0; i < g->nodes_count; i++) {
            int illegal, least_illegal;
            double sum, least;
            /* Try the node's present state, then all others. */
            local_cost(g, choice, i, choice[i], &least_illegal, &least);
            for (int32_t j = 0, now = choice[i]; j < g->states[i]; j++) {
                local_cost(g, choice, i, j, &illegal, &sum);
                bool better = illegal < least_illegal ||
                              (illegal == least_illegal && sum < least * (1 - 1e-9));
                if (j != now && better) {
                    choice[i] = j;
                    least = sum;
                    least_illegal = illegal;
                    moved = true;
                }
            }
        }
    }
    double cost = trmi_solve_cost(g, choice);
    if (cost < b->best_cost) {
        b->best_cost = cost;
        memcpy(b->best, choice, (size_t)g->nodes_count * sizeof *choice);
    }
}

/* ---- the tree ---- */

/* Derives the states of all nodes from those of the live nodes of `at`, level by level, and keeps
 * the choice if it is the best so far. */
static void finish_choice(branch *b, const level *at) {
    for (; at != NULL; at = at->above) {
        trmi_work_trace(at->work, b->choice);
    }
    double cost = trmi_solve_cost(b->graph, b->choice);
    if (cost < b->best_cost) {
        b->best_cost = cost;
        memcpy(b->best, b->choice, (size_t)b->graph->nodes_count * sizeof *b->best);
    }
}

/* Returns the live node with most neighbours; fixing it simplifies the graph most. */
static int32_t widest_node(const trmi_solve_work *w) {
    int32_t best = -1;
    for (int32_t i = 0; i < w->nodes_count; i++) {
        if (w->live[i] && (best < 0 || w->near_count[i] > w->near_count[best])) {
            best = i;
        }
    }
    return best;
}

static trm_status descend_tree(branch *b, const level *above, double *bound, trm_error *err);

/* Fixes `node` of above->work in `state`, eliminates small nodes and searches the subtree. out
 * *bound: lower bound of the subtree. Tables made here are released. */
static trm_status search_child(branch *b, const level *above, int32_t node, int32_t state,
                               double *bound, trm_error *err) {
    trmi_solve_work work;
    int64_t mark = above->work->tables->count;
    trm_status status = trmi_work_copy(&work, above->work, err);
    level own = {.work = &work, .above = above, .fixed = above->fixed};
    if (status == TRM_OK) {
        own.fixed += (double)trmi_tables_data(work.tables, work.unary[node])[state];
        b->choice[node] = state;
        status = trmi_work_fix(&work, node, state, err);
    }
    if (status == TRM_OK) {
        status = trmi_work_reduce(&work, 2, err);
    }
    if (status == TRM_OK) {
        own.fixed += trmi_work_constant(&work);
        status = descend_tree(b, &own, bound, err);
    }
    trmi_work_close(&work);
    trmi_tables_release(above->work->tables, mark);
    return status;
}

/* Searches the subtrees of all states of `node`, cheapest bound first. belief: dual costs of the
 * states; own: dual bound of the parent. out *bound: least bound of all states. */
static trm_status each_state(branch *b, const level *at, int32_t node, const double *belief,
                             double own, double *bound, trm_error *err) {
    int32_t states = at->work->states[node];
    double least = INFINITY, all = INFINITY;
    bool *done;
    TRMI_TRY(TRMI_NEW(err, done, states, "to search a plan"));
    for (int32_t j = 0; j < states; j++) {
        least = belief[j] < least ? belief[j] : least;
    }
    trm_status status = TRM_OK;
    /* states that cannot beat the best plan known are not entered */
    for (int32_t k = 0; status == TRM_OK && k < states; k++) {
        int32_t state = -1;
        for (int32_t j = 0; j < states; j++) {
            state = !done[j] && (state < 0 || belief[j] < belief[state]) ? j : state;
        }
        done[state] = true;
        /* This bound of the state is valid without a new dual: only the term of `node` changes. */
        double below = own - least + belief[state];
        if (below < b->best_cost && b->branches < b->branch_limit) {
            double deeper;
            status = search_child(b, at, node, state, &deeper, err);
            below = status == TRM_OK && deeper > below ? deeper : below;
        }
        all = below < all ? below : all;
    }
    trmi_free(done);
    *bound = all;
    return status;
}

/* Searches one node of the tree. out *bound: lower bound of all choices in it. */
static trm_status descend_tree(branch *b, const level *at, double *bound, trm_error *err) {
    b->branches++;
    *bound = at->fixed;
    if (at->fixed >= b->best_cost) {
        return TRM_OK; /* also when nothing legal is left */
    }
    /* exact, if tables are small enough */
    int32_t width = 0;
    trm_status status = trmi_core_eliminate(at->work, b->table_limit, b->choice, &width, err);
    if (status == TRM_OK) {
        finish_choice(b, at);
        double cost = trmi_solve_cost(b->graph, b->choice);
        *bound = cost > at->fixed ? cost : at->fixed;
        return TRM_OK;
    }
    if (status != TRM_UNSUPPORTED) {
        return status;
    }
    /* trivial bound: the least entry of each table */
    dual d;
    double base, range;
    sum_extremes(at->work, &base, &range);
    if (at->fixed + base >= b->best_cost) {
        *bound = at->fixed + base;
        return TRM_OK;
    }
    /* Clamp the dual bound at what a better choice can contain, or at the range of legal
     * entries. */
    double room = b->best_cost - at->fixed - base;
    range = range * 1.001 + 1e-9;
    status = dual_open(&d, at->work, room < range ? room : range, err);
    if (status == TRM_OK) {
        double own = at->fixed + dual_run(&d, b->best_cost - at->fixed);
        *bound = own;
        if (own < b->best_cost) {
            int32_t node = widest_node(at->work);
            status = each_state(b, at, node, d.belief[node], own, bound, err);
            *bound = *bound > own ? *bound : own;
        }
    }
    trmi_arena_free(&d.memory);
    return status;
}

/* Contract in solve_reduce.h. Good first plans matter more than the order of branches, because
 * each branch above the best known cost is cut: coordinate descent gives two of them. */
trm_status trmi_core_branch(trmi_solve_work *work, const trmi_cost_graph *graph,
                            const trmi_solve_options *options, int32_t *best, double *best_cost,
                            double *bound, int64_t *branches, trm_error *err) {
    branch b = {.graph = graph,
                .table_limit = options->table_limit > 0 ? options->table_limit : 32 << 20,
                .branch_limit = options->branch_limit > 0 ? options->branch_limit : 20000,
                .best = best,
                .best_cost = *best_cost};
    TRMI_TRY(TRMI_NEW(err, b.choice, (size_t)graph->nodes_count + 1, "to search a plan"));
    /* Find first upper bounds by descent from the given start, and from the cheapest own costs. */
    if (options->start != NULL) {
        memcpy(b.choice, options->start, (size_t)graph->nodes_count * sizeof *b.choice);
        descend_coordinates(&b, b.choice);
    }
    for (int32_t i = 0; i < graph->nodes_count; i++) {
        b.choice[i] = 0;
        for (int32_t j = 1; j < graph->states[i]; j++) {
            b.choice[i] = graph->nodes[i][j] < graph->nodes[i][b.choice[i]] ? j : b.choice[i];
        }
    }
    descend_coordinates(&b, b.choice);
    level root = {.work = work, .fixed = trmi_work_constant(work)};
    trm_status status = descend_tree(&b, &root, bound, err);
    *best_cost = b.best_cost;
    *branches = b.branches;
    trmi_free(b.choice);
    return status;
}
