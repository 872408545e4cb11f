/* SPDX-License-Identifier: Apache-2.0 */
/* Step 1 of plan/solve/solve.h with lists of (time, memory) points instead of least costs; finds
 * the choices above the convex hull for plan/solve/solve_front.h.
 *
 *      A(i,j) [.: ]  U(j) [: ]  B(j,k) [..]   --every sum of three, over all j-->   R(i,k) [ . ::.]
 *
 * A list keeps only points that no other point beats in both costs and that can still lie within
 * the bound: time + lambda x memory, plus a lower bound of everything else (trmi_work_marginals). A
 * point stores the points that it is the sum of; trace_point() follows these links to find the
 * choice. A list longer than list_limit is thinned; `slack` bounds the time that this can lose. */
#include "plan/solve/solve_front.h"
#include "plan/solve/solve_reduce.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* tolerance for bounds that were computed from float32 tables */
static const double rounding = 4e-6;

/* A partial choice: either one option of one node, or a sum of other points. */
typedef struct point {
    double time, memory;
    int32_t from[3];             /* indices of the points that were added; -1: none */
    int32_t node, state, option; /* node -1: a sum */
} point;

/* A list of points: points[first .. first + count). */
typedef struct list {
    int32_t first, count;
} list;

/* State of one call. */
typedef struct lists {
    const trmi_front_graph *g;
    const trmi_lists_options *o;
    trmi_solve_work work;
    trmi_tables tables;
    float **marginal, **rest;
    /* lists of nodes [nodes][states] and of slots [slots][states of a][states of b] */
    list **unary, **slots;
    /* sums of all components of the graph so far; first -1: none yet */
    list last;
    point *points, *sums; /* points of all lists; points of the list being made */
    int64_t points_count, points_capacity, sums_count, sums_capacity;
    point *merged; /* [merged_capacity] where `sums` are sorted to */
    int64_t merged_capacity;
    double slack, loss; /* time lost by thinning: in all steps, most in a list of this step */
    int64_t *total;     /* points made, against o->work_limit */
    bool stopped;
    trmi_arena memory;
    trm_error *err;
} lists;

static trm_status no_memory(const lists *l) { return TRMI_NO_MEMORY(l->err, "to search a plan"); }

/* ---- lists ---- */

/* Returns whether a choice with this state can lie within the bound. */
static bool is_allowed(const lists *l, int32_t node, int32_t state) {
    return (double)l->marginal[node][state] <= l->o->bound * (1 + rounding);
}

/* Appends a point to the present list. Beyond work_limit it sets `stopped` instead. */
static trm_status push_point(lists *l, const point *p) {
    if (++*l->total > l->o->work_limit) {
        l->stopped = true;
        return TRM_OK;
    }
    TRMI_TRY(TRMI_GROW(l->err, l->sums, l->sums_capacity, l->sums_count + 1, "to search a plan"));
    l->sums[l->sums_count++] = *p;
    return TRM_OK;
}

/* Appends all sums of two lists that can lie within the bound and the limit. rest: lower bound of
 * everything else. */
static trm_status add_lists(lists *l, list a, list b, double rest) {
    double most = l->o->bound * (1 + rounding) - rest;
    for (int32_t i = 0; !l->stopped && i < a.count; i++) {
        for (int32_t k = 0; !l->stopped && k < b.count; k++) {
            const point *x = &l->points[a.first + i], *y = &l->points[b.first + k];
            point sum = {.time = x->time + y->time,
                         .memory = x->memory + y->memory,
                         .from = {a.first + i, b.first + k, -1},
                         .node = -1};
            bool fits = l->o->limit <= 0 || sum.memory <= l->o->limit * (1 + 1e-12);
            if (fits && sum.time + l->o->lambda * sum.memory <= most) {
                TRMI_TRY(push_point(l, &sum));
            }
        }
    }
    return TRM_OK;
}

/* Returns whether a point comes before another one: less memory, then less time. */
static bool is_before(const point *x, const point *y) {
    return x->memory < y->memory || (x->memory == y->memory && x->time <= y->time);
}

/* Merges the runs [0, a) and [a, b) of `from`, each of rising memory, into `to`, and leaves out
 * points that are not faster than all that need less. Returns how many remain. */
static int64_t merge_runs(const point *from, int64_t a, int64_t b, point *to) {
    int64_t kept = 0;
    for (int64_t i = 0, k = a; i < a || k < b;) {
        const point *p =
            k == b || (i < a && is_before(&from[i], &from[k])) ? &from[i++] : &from[k++];
        if (kept == 0 || p->time < to[kept - 1].time) {
            to[kept++] = *p;
        }
    }
    return kept;
}

/* Returns the end of the run that begins at `at`. */
static int64_t find_run(const lists *l, int64_t at) {
    int64_t end = at + 1;
    while (end < l->sums_count && is_before(&l->sums[end - 1], &l->sums[end])) {
        end++;
    }
    return end;
}

/* Merges neighbouring runs of the appended points once; returns the runs that remain. Sums of two
 * lists are appended in runs. */
static int64_t merge_once(lists *l) {
    int64_t runs = 0, kept = 0;
    for (int64_t at = 0; at < l->sums_count; runs++) {
        int64_t middle = find_run(l, at),
                end = middle < l->sums_count ? find_run(l, middle) : middle;
        kept += merge_runs(l->sums + at, middle - at, end - at, l->merged + kept);
        at = end;
    }
    point *swap = l->sums;
    l->sums = l->merged;
    l->merged = swap;
    l->sums_count = kept;
    return runs;
}

/* Turns the appended points into a list: rising memory, falling time; points that another one beats
 * are removed. */
static trm_status take_list(lists *l, list *out) {
    if (l->merged_capacity < l->sums_capacity) {
        trmi_free(l->merged);
        l->merged = trmi_alloc((size_t)l->sums_capacity * sizeof *l->merged);
        l->merged_capacity = l->merged != NULL ? l->sums_capacity : 0;
        TRMI_TRY(l->merged != NULL ? TRM_OK : no_memory(l));
    }
    while (l->sums_count > 0 && merge_once(l) > 1) {
    }
    int64_t kept = l->sums_count;
    /* Thin the list: drop points that gain less time than 1/list_limit of the range. */
    if (kept > l->o->list_limit) {
        double loss = (l->sums[0].time - l->sums[kept - 1].time) / l->o->list_limit;
        int64_t thin = 1;
        for (int64_t i = 1; i < kept; i++) {
            if (l->sums[thin - 1].time - l->sums[i].time > loss) {
                l->sums[thin++] = l->sums[i];
            }
        }
        kept = thin;
        l->loss = fmax(l->loss, loss);
    }
    if (!trmi_grow((void **)&l->points, &l->points_capacity, l->points_count + kept,
                   sizeof *l->points)) {
        return no_memory(l);
    }
    if (kept > 0) {
        memcpy(l->points + l->points_count, l->sums, (size_t)kept * sizeof *l->sums);
    }
    *out = (list){(int32_t)l->points_count, (int32_t)kept};
    l->points_count += kept;
    l->sums_count = 0;
    return l->points_count < INT32_MAX / 2 ? TRM_OK : no_memory(l);
}

/* Returns the list of a slot for state `row` of node `row_node` and state `column` of the other. */
static list *slot_list(const lists *l, int32_t slot, int32_t row_node, int32_t row,
                       int32_t column) {
    const trmi_solve_edge *s = &l->work.slots[slot];
    int32_t a = s->a == row_node ? row : column, b = s->a == row_node ? column : row;
    return &l->slots[slot][(int64_t)a * l->work.states[s->b] + b];
}

/* ---- at the start ---- */

/* Makes the list of each node and state from its options. */
static trm_status first_unary(lists *l) {
    const trmi_front_graph *g = l->g;
    for (int32_t n = 0; n < g->nodes_count; n++) {
        l->unary[n] = trmi_arena_alloc(&l->memory, (size_t)g->states[n] * sizeof **l->unary);
        if (l->unary[n] == NULL) {
            return no_memory(l);
        }
        for (int32_t i = 0; i < g->states[n]; i++) {
            for (int32_t k = 0; is_allowed(l, n, i) && k < g->options; k++) {
                const trmi_tradeoff *t = &g->nodes[n][i * g->options + k];
                if (t->time < INFINITY) {
                    TRMI_TRY(push_point(l, &(point){t->time, t->memory, {-1, -1, -1}, n, i, k}));
                }
            }
            TRMI_TRY(take_list(l, &l->unary[n][i]));
        }
    }
    return TRM_OK;
}

/* Allocates the (empty) lists of a slot. */
static trm_status open_slot(lists *l, int32_t slot) {
    const trmi_solve_edge *s = &l->work.slots[slot];
    size_t entries = (size_t)l->work.states[s->a] * (size_t)l->work.states[s->b];
    l->slots[slot] = trmi_arena_alloc(&l->memory, entries * sizeof **l->slots);
    return l->slots[slot] != NULL ? TRM_OK : no_memory(l);
}

/* Makes the lists of the slots, one point for each pair of states. of: the slot of each edge; edges
 * between the same nodes are added up. */
static trm_status first_edges(lists *l, const int32_t *of) {
    const trmi_front_graph *g = l->g;
    for (int32_t e = 0; e < g->edges_count; e++) {
        const trmi_front_edge *edge = &g->edges[e];
        bool fresh = l->slots[of[e]] == NULL;
        TRMI_TRY(fresh ? open_slot(l, of[e]) : TRM_OK);
        for (int32_t i = 0; i < g->states[edge->a]; i++) {
            for (int32_t k = 0; k < g->states[edge->b]; k++) {
                int64_t at = (int64_t)i * g->states[edge->b] + k;
                list *entry = slot_list(l, of[e], edge->a, i, k);
                double time = (double)edge->time[at],
                       memory = edge->memory != NULL ? (double)edge->memory[at] : 0;
                if (fresh && is_allowed(l, edge->a, i) && is_allowed(l, edge->b, k) &&
                    time < INFINITY) {
                    TRMI_TRY(push_point(l, &(point){time, memory, {-1, -1, -1}, -1, 0, 0}));
                    TRMI_TRY(take_list(l, entry));
                } else if (!fresh && entry->count == 1 && time < INFINITY) {
                    l->points[entry->first].time += time;
                    l->points[entry->first].memory += memory;
                } else {
                    entry->count = 0;
                }
            }
        }
    }
    return TRM_OK;
}

/* ---- eliminations ---- */

/* Eliminates a node without neighbours: its points are added to `last`. rest: one number. */
static trm_status step_none(lists *l, const trmi_reduced *step, const float *rest) {
    list own;
    for (int32_t j = 0; j < l->work.states[step->node]; j++) {
        list u = l->unary[step->node][j];
        for (int32_t k = 0; k < u.count; k++) {
            point p = l->points[u.first + k];
            if (p.time + l->o->lambda * p.memory + (double)*rest <= l->o->bound * (1 + rounding)) {
                TRMI_TRY(
                    push_point(l, &(point){p.time, p.memory, {u.first + k, -1, -1}, -1, 0, 0}));
            }
        }
    }
    TRMI_TRY(take_list(l, &own));
    if (l->last.first < 0) {
        l->last = own;
        return TRM_OK;
    }
    TRMI_TRY(add_lists(l, l->last, own, 0));
    return take_list(l, &l->last);
}

/* Eliminates a node with one neighbour: the sums join the neighbour's lists. rest: [near 0]. */
static trm_status step_one(lists *l, const trmi_reduced *step, const float *rest) {
    int32_t near = step->near[0];
    for (int32_t i = 0; i < l->work.states[near]; i++) {
        list all;
        for (int32_t j = 0; rest[i] < INFINITY && j < l->work.states[step->node]; j++) {
            TRMI_TRY(add_lists(l, *slot_list(l, step->slot[0], near, i, j), l->unary[step->node][j],
                               (double)rest[i]));
        }
        TRMI_TRY(take_list(l, &all));
        TRMI_TRY(add_lists(l, l->unary[near][i], all, 0));
        TRMI_TRY(take_list(l, &l->unary[near][i]));
    }
    return TRM_OK;
}

/* Eliminates a node with two neighbours: the sums become the lists of the slot between them. rest:
 * [near 0][near 1]. */
static trm_status step_two(lists *l, const trmi_reduced *step, const float *rest) {
    int32_t is = l->work.states[step->near[0]], js = l->work.states[step->node],
            ks = l->work.states[step->near[1]];
    list *left = trmi_arena_alloc(&l->memory, (size_t)js * sizeof *left);
    TRMI_TRY(left != NULL && (!step->fresh || open_slot(l, step->joined) == TRM_OK) ? TRM_OK
                                                                                    : no_memory(l));
    for (int32_t i = 0; i < is; i++) {
        /* Join the first edge and the node's own costs, for each of its states. */
        for (int32_t j = 0; j < js; j++) {
            TRMI_TRY(add_lists(l, *slot_list(l, step->slot[0], step->near[0], i, j),
                               l->unary[step->node][j], 0));
            TRMI_TRY(take_list(l, &left[j]));
        }
        for (int32_t k = 0; k < ks; k++) {
            /* Join all ways over the node's states; `beside` is the bound of the rest of the graph,
             * which prunes. */
            list all, *entry = slot_list(l, step->joined, step->near[0], i, k);
            double beside = (double)rest[(int64_t)i * ks + k];
            for (int32_t j = 0; beside < INFINITY && j < js; j++) {
                TRMI_TRY(
                    add_lists(l, left[j], *slot_list(l, step->slot[1], step->node, j, k), beside));
            }
            TRMI_TRY(take_list(l, &all));
            if (!step->fresh) {
                TRMI_TRY(add_lists(l, *entry, all, 0));
                TRMI_TRY(take_list(l, &all));
            }
            *entry = all;
        }
    }
    return TRM_OK;
}

/* Repeats the recorded eliminations with lists and adds up the slack. */
static trm_status eliminate_lists(lists *l) {
    l->last.first = -1;
    for (int32_t s = 0; !l->stopped && s < l->work.steps_count; s++) {
        const trmi_reduced *step = &l->work.steps[s];
        l->loss = 0;
        TRMI_TRY(step->near_count == 0   ? step_none(l, step, l->rest[s])
                 : step->near_count == 1 ? step_one(l, step, l->rest[s])
                                         : step_two(l, step, l->rest[s]));
        l->slack += 3 * l->loss; /* a choice passes through at most three lists in a step */
    }
    return TRM_OK;
}

/* ---- back ---- */

/* Follows the links of point `at` and writes the state and option of each node. stack: work memory.
 */
static void trace_point(const lists *l, int32_t at, trmi_front_point *out, int32_t *stack) {
    int32_t depth = 0;
    stack[depth++] = at;
    while (depth > 0) {
        const point *p = &l->points[stack[--depth]];
        if (p->node >= 0) {
            out->choice[p->node] = p->state;
            out->option[p->node] = (uint8_t)p->option;
        }
        for (int i = 0; i < 3; i++) {
            if (p->from[i] >= 0) {
                stack[depth++] = p->from[i];
            }
        }
    }
}

/* Writes the final list as choices, with time and memory summed anew, into the arena. */
static trm_status write_front(lists *l, trmi_arena *arena, trmi_front_point **out, int32_t *count) {
    size_t nodes = (size_t)l->g->nodes_count + 1;
    int32_t *stack;
    TRMI_TRY(TRMI_NEW_IN(l->err, &l->memory, stack, 64 * (nodes + (size_t)l->g->edges_count),
                         "to search a plan"));
    trmi_front_point *list_of;
    TRMI_TRY(TRMI_NEW_IN(l->err, arena, list_of, (size_t)l->last.count + 1, "to search a plan"));
    for (int32_t i = 0; i < l->last.count; i++) {
        trmi_front_point *p = &list_of[i];
        p->choice = trmi_arena_alloc(arena, nodes * sizeof *p->choice);
        p->option = trmi_arena_alloc(arena, nodes);
        if (p->choice == NULL || p->option == NULL) {
            return no_memory(l);
        }
        trace_point(l, l->last.first + i, p, stack);
        trmi_tradeoff cost = trmi_front_cost(l->g, p->choice, p->option);
        p->time = cost.time;
        p->memory = cost.memory;
    }
    *out = list_of;
    *count = l->last.count;
    return TRM_OK;
}

/* ---- all ---- */

/* Records the eliminations on the weighted graph, then makes the first lists. out *narrow: step 1
 * eliminates the whole graph; otherwise nothing else is prepared. */
static trm_status prepare_lists(lists *l, bool *narrow) {
    const trmi_front_graph *g = l->g;
    trmi_cost_graph scalar;
    size_t nodes = (size_t)g->nodes_count + 1;
    int32_t *of = trmi_arena_alloc(&l->memory, ((size_t)g->edges_count + 1) * sizeof *of);
    TRMI_TRY(trmi_front_scalar(g, 1, l->o->lambda, &l->memory, &scalar, l->err));
    TRMI_TRY(trmi_work_open(&l->work, &l->tables, &scalar, l->err));
    for (int32_t e = 0; of != NULL && e < g->edges_count; e++) {
        of[e] = trmi_work_slot(&l->work, g->edges[e].a, g->edges[e].b);
    }
    TRMI_TRY(trmi_work_reduce(&l->work, 2, l->err));
    *narrow = l->work.live_count == 0;
    /* Take memory for bounds and lists. */
    l->marginal = trmi_arena_alloc(&l->memory, nodes * sizeof *l->marginal);
    l->rest = trmi_arena_alloc(&l->memory, nodes * sizeof *l->rest);
    l->unary = trmi_arena_alloc(&l->memory, nodes * sizeof *l->unary);
    l->slots = trmi_arena_alloc(&l->memory, ((size_t)l->work.slots_count + 1) * sizeof *l->slots);
    bool ok = of != NULL && l->marginal != NULL && l->rest != NULL && l->unary != NULL &&
              l->slots != NULL;
    for (int32_t n = 0; ok && n < g->nodes_count; n++) {
        l->marginal[n] = trmi_arena_alloc(&l->memory, (size_t)g->states[n] * sizeof **l->marginal);
        ok = l->marginal[n] != NULL;
    }
    if (!ok || !*narrow) {
        return ok ? TRM_OK : no_memory(l);
    }
    /* lower bounds of everything else, then the lists of nodes and edges */
    TRMI_TRY(trmi_work_marginals(&l->work, l->marginal, l->rest, l->err));
    TRMI_TRY(first_unary(l));
    l->slack = g->nodes_count * l->loss;
    return first_edges(l, of);
}

/* Contract in solve_front.h. Eliminates nodes as trmi_solve does, but each state keeps a list of
 * (time, memory) points. *done is false, and the caller uses another method, where the graph is
 * not narrow enough or the work exceeds its limit. */
trm_status trmi_front_lists(const trmi_front_graph *graph, const trmi_lists_options *options,
                            trmi_arena *arena, trmi_front_point **out, int32_t *count,
                            double *slack, int64_t *work, bool *done, trm_error *err) {
    int64_t total = 0;
    bool narrow = false;
    lists l = {.g = graph, .o = options, .total = &total, .err = err};
    trmi_tables_open(&l.tables);
    trm_status status = prepare_lists(&l, &narrow);
    status = status == TRM_OK && narrow ? eliminate_lists(&l) : status;
    *done = status == TRM_OK && narrow && !l.stopped && l.last.first >= 0;
    if (*done) {
        status = write_front(&l, arena, out, count);
        *slack = l.slack;
    }
    *work += total;
    for (int32_t s = 0; l.rest != NULL && s < l.work.steps_count; s++) {
        trmi_free(l.rest[s]);
    }
    trmi_work_close(&l.work);
    trmi_tables_close(&l.tables);
    trmi_arena_free(&l.memory);
    free(l.points);
    free(l.sums);
    free(l.merged);
    return status;
}
