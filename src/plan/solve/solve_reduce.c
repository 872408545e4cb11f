/* SPDX-License-Identifier: Apache-2.0 */
/* Step 1 of plan/solve/solve.h: a cost graph whose nodes with 0, 1 or 2 neighbours are eliminated
 * exactly, one after another. A slot is an edge of this graph: the cost table of a pair of nodes. A
 * cost table is named by its number in trmi_tables. The generation of a table grows with each table
 * that is made of others.
 *
 * trmi_solve_work owns the structure of the graph (slots, lists of slots at each node, steps); cost
 * tables are numbers in the shared trmi_tables. Each elimination appends a step; trmi_work_trace()
 * walks the steps backwards to find the states. Invariants: a pair of live nodes has at most one
 * live slot; a slot has a < b; near[i] lists live slots only. */
#include "plan/solve/solve_reduce.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static trm_status fail_no_memory(trm_error *err) { return TRMI_NO_MEMORY(err, "to search a plan"); }

/* ---- creation and copies ---- */

/* Allocates the arrays of a graph with `nodes` nodes. */
static trm_status allocate_arrays(trmi_solve_work *w, int32_t nodes, trm_error *err) {
    size_t n = (size_t)nodes + 1;
    w->nodes_count = nodes;
    w->states = trmi_alloc(n * sizeof *w->states);
    w->unary = trmi_alloc(n * sizeof *w->unary);
    w->live = trmi_alloc(n * sizeof *w->live);
    w->near = trmi_alloc(n * sizeof *w->near);
    w->near_count = trmi_alloc(n * sizeof *w->near_count);
    w->near_capacity = trmi_alloc(n * sizeof *w->near_capacity);
    w->steps = trmi_alloc(n * sizeof *w->steps);
    bool ok = w->states != NULL && w->unary != NULL && w->live != NULL && w->near != NULL &&
              w->near_count != NULL && w->near_capacity != NULL && w->steps != NULL;
    return ok ? TRM_OK : fail_no_memory(err);
}

/* Contract in solve_reduce.h. May be called on a work that was opened in part. */
void trmi_work_close(trmi_solve_work *w) {
    for (int32_t i = 0; w->near != NULL && i < w->nodes_count; i++) {
        free(w->near[i]);
    }
    trmi_free(w->states);
    trmi_free(w->unary);
    trmi_free(w->live);
    trmi_free(w->near);
    trmi_free(w->near_count);
    trmi_free(w->near_capacity);
    trmi_free(w->steps);
    free(w->slots);
}

/* Adds a slot to the list of a node. False: no memory. */
static bool list_slot(trmi_solve_work *w, int32_t node, int32_t slot) {
    if (!trmi_grow((void **)&w->near[node], &w->near_capacity[node], w->near_count[node] + 1,
                   sizeof **w->near)) {
        return false;
    }
    w->near[node][w->near_count[node]++] = slot;
    return true;
}

/* Removes a slot from the list of a node. */
static void unlist_slot(trmi_solve_work *w, int32_t node, int32_t slot) {
    int32_t count = w->near_count[node], at = 0;
    for (int32_t i = 0; i < count; i++) {
        w->near[node][at] = w->near[node][i];
        at += w->near[node][i] != slot;
    }
    w->near_count[node] = at;
}

int32_t trmi_work_slot(const trmi_solve_work *w, int32_t a, int32_t b) {
    for (int32_t i = 0; i < w->near_count[a]; i++) {
        if (trmi_slot_other(&w->slots[w->near[a][i]], a) == b) {
            return w->near[a][i];
        }
    }
    return -1;
}

/* Returns the number of the slot's table with the states of node `row` as rows; -1 = no memory. */
static int32_t make_table(const trmi_solve_work *w, int32_t slot, int32_t row) {
    const trmi_solve_edge *s = &w->slots[slot];
    return s->a == row ? s->table
                       : trmi_tables_make(w->tables, TRMI_TABLE_TRANSPOSE, s->table, 0, 0);
}

/* Adds a table [a][b] between two nodes: to their slot if they have one, else in a new slot. *slot:
 * that slot; *fresh: it is new.
 *   errors  NOMEM */
static trm_status add_table(trmi_solve_work *w, int32_t a, int32_t b, int32_t table, int32_t *slot,
                            bool *fresh, trm_error *err) {
    if (a > b) { /* a slot has a < b: exchange the nodes */
        int32_t c = a;
        a = b;
        b = c;
        table = trmi_tables_make(w->tables, TRMI_TABLE_TRANSPOSE, table, 0, 0);
    }
    int32_t at = trmi_work_slot(w, a, b);
    *fresh = at < 0;
    if (at >= 0) {
        int32_t sum =
            table < 0 ? -1
                      : trmi_tables_make(w->tables, TRMI_TABLE_ADD, w->slots[at].table, table, 0);
        w->slots[at].table = sum;
        *slot = at;
        return sum < 0 ? fail_no_memory(err) : TRM_OK;
    }
    at = (int32_t)w->slots_count;
    if (table < 0 || !trmi_grow((void **)&w->slots, &w->slots_capacity, at + 1, sizeof *w->slots)) {
        return fail_no_memory(err);
    }
    w->slots[w->slots_count++] = (trmi_solve_edge){a, b, table, true};
    *slot = at;
    return list_slot(w, a, at) && list_slot(w, b, at) ? TRM_OK : fail_no_memory(err);
}

/* Contract in solve_reduce.h. Tables of the caller's are leaves: they are named, not copied. */
trm_status trmi_work_open(trmi_solve_work *w, trmi_tables *tables, const trmi_cost_graph *graph,
                          trm_error *err) {
    memset(w, 0, sizeof *w);
    w->tables = tables;
    TRMI_TRY(allocate_arrays(w, graph->nodes_count, err));
    for (int32_t i = 0; i < graph->nodes_count; i++) {
        w->states[i] = graph->states[i];
        w->live[i] = true;
        w->unary[i] = trmi_tables_leaf(tables, graph->nodes[i], 1, graph->states[i]);
        if (w->unary[i] < 0) {
            return fail_no_memory(err);
        }
    }
    w->live_count = graph->nodes_count;
    /* edges between the same two nodes share a slot */
    for (int32_t i = 0; i < graph->edges_count; i++) {
        const trmi_cost_edge *e = &graph->edges[i];
        int32_t table =
                    trmi_tables_leaf(tables, e->table, graph->states[e->a], graph->states[e->b]),
                slot;
        bool fresh;
        TRMI_TRY(add_table(w, e->a, e->b, table, &slot, &fresh, err));
    }
    return TRM_OK;
}

/* Contract in solve_reduce.h. Copies what is live; the steps of `from` are not repeated. */
trm_status trmi_work_copy(trmi_solve_work *w, const trmi_solve_work *from, trm_error *err) {
    memset(w, 0, sizeof *w);
    w->tables = from->tables;
    w->last_first = from->last_first;
    TRMI_TRY(allocate_arrays(w, from->nodes_count, err));
    size_t n = (size_t)from->nodes_count;
    memcpy(w->states, from->states, n * sizeof *w->states);
    memcpy(w->unary, from->unary, n * sizeof *w->unary);
    memcpy(w->live, from->live, n * sizeof *w->live);
    w->live_count = from->live_count;
    for (int64_t i = 0; i < from->slots_count; i++) {
        const trmi_solve_edge *s = &from->slots[i];
        int32_t slot;
        bool fresh;
        if (s->live) {
            TRMI_TRY(add_table(w, s->a, s->b, s->table, &slot, &fresh, err));
        }
    }
    return TRM_OK;
}

/* ---- elimination ---- */

/* Removes a slot from the graph. */
static void drop_slot(trmi_solve_work *w, int32_t slot) {
    w->slots[slot].live = false;
    unlist_slot(w, w->slots[slot].a, slot);
    unlist_slot(w, w->slots[slot].b, slot);
}

/* Marks a node without slots as eliminated. */
static void drop_node(trmi_solve_work *w, int32_t node) {
    w->live[node] = false;
    w->live_count--;
}

/* Eliminates a node with one neighbour: its best cost for each state of the neighbour is added to
 * the neighbour's own costs. */
static trm_status eliminate_one(trmi_solve_work *w, int32_t node, trmi_reduced *step,
                                trm_error *err) {
    step->near_count = 1;
    step->slot[0] = w->near[node][0];
    step->near[0] = trmi_slot_other(&w->slots[step->slot[0]], node);
    step->table[0] = make_table(w, step->slot[0], step->near[0]);
    if (step->table[0] < 0) {
        return fail_no_memory(err);
    }
    step->product = trmi_tables_make(w->tables, TRMI_TABLE_FOLD, step->table[0], step->unary,
                                     w->unary[step->near[0]]);
    drop_slot(w, step->slot[0]);
    w->unary[step->near[0]] = step->product;
    return step->product < 0 ? fail_no_memory(err) : TRM_OK;
}

/* Eliminates a node with two neighbours: the (min,+) product of its two tables becomes a table
 * between the neighbours. near[0] < near[1], so that equal blocks make equal products. */
static trm_status eliminate_two(trmi_solve_work *w, int32_t node, trmi_reduced *step,
                                trm_error *err) {
    step->near_count = 2;
    for (int i = 0; i < 2; i++) {
        step->slot[i] = w->near[node][i];
        step->near[i] = trmi_slot_other(&w->slots[step->slot[i]], node);
    }
    if (step->near[0] > step->near[1]) {
        int32_t near = step->near[0], slot = step->slot[0];
        step->near[0] = step->near[1];
        step->slot[0] = step->slot[1];
        step->near[1] = near;
        step->slot[1] = slot;
    }
    step->table[0] = make_table(w, step->slot[0], step->near[0]);
    step->table[1] = make_table(w, step->slot[1], node);
    if (step->table[0] < 0 || step->table[1] < 0) {
        return fail_no_memory(err);
    }
    /* the new table takes the place of the two slots */
    step->product = trmi_tables_make(w->tables, TRMI_TABLE_PRODUCT, step->table[0], step->unary,
                                     step->table[1]);
    drop_slot(w, step->slot[0]);
    drop_slot(w, step->slot[1]);
    return step->product < 0 ? fail_no_memory(err)
                             : add_table(w, step->near[0], step->near[1], step->product,
                                         &step->joined, &step->fresh, err);
}

/* Returns the number of table entries that eliminating a node reads; INFINITY if the node is not
 * live or has more than `most` neighbours. *generation: the largest generation of its tables. */
static double count_entries(const trmi_solve_work *w, int32_t node, int32_t most,
                            int32_t *generation) {
    if (!w->live[node] || w->near_count[node] > most) {
        return INFINITY;
    }
    double work = w->states[node];
    *generation = w->tables->items[w->unary[node]].generation;
    for (int32_t i = 0; i < w->near_count[node]; i++) {
        const trmi_solve_edge *s = &w->slots[w->near[node][i]];
        int32_t age = w->tables->items[s->table].generation;
        work *= w->states[trmi_slot_other(s, node)];
        *generation = age > *generation ? age : *generation;
    }
    return work;
}

/* Returns the node to eliminate next; -1 = none. Among nodes with at most four times the least
 * work, it is the one whose tables have the smallest generation. So equal blocks of a network are
 * folded separately and in the same way, and their products are found in trmi_tables. */
static int32_t next_node(const trmi_solve_work *w, int32_t most) {
    int32_t best = -1, best_generation = 0, generation = 0;
    double least = INFINITY, best_work = INFINITY;
    for (int32_t i = 0; i < w->nodes_count; i++) {
        double work = count_entries(w, i, most, &generation);
        least = work < least ? work : least;
    }
    for (int32_t i = 0; least < INFINITY && i < w->nodes_count; i++) {
        double work = count_entries(w, i, most, &generation);
        bool cheap = work <= 4 * least;
        bool earlier =
            generation < best_generation || (generation == best_generation && work < best_work);
        bool equal = generation == best_generation && work == best_work;
        if (cheap && (best < 0 || earlier || (equal && w->last_first))) {
            best = i;
            best_generation = generation;
            best_work = work;
        }
    }
    return best;
}

/* Contract in solve_reduce.h. Nodes with fewest neighbours go first, which keeps tables of
 * pairs. */
trm_status trmi_work_reduce(trmi_solve_work *w, int32_t most, trm_error *err) {
    for (int32_t node; (node = next_node(w, most)) >= 0;) {
        trmi_reduced *step = &w->steps[w->steps_count];
        *step = (trmi_reduced){.node = node, .unary = w->unary[node]};
        if (w->near_count[node] == 1) {
            TRMI_TRY(eliminate_one(w, node, step, err));
        } else if (w->near_count[node] == 2) {
            TRMI_TRY(eliminate_two(w, node, step, err));
        }
        drop_node(w, node);
        w->steps_count++;
    }
    return TRM_OK;
}

/* Contract in solve_reduce.h. The row of the fixed state becomes a cost of each neighbour. */
trm_status trmi_work_fix(trmi_solve_work *w, int32_t node, int32_t state, trm_error *err) {
    while (w->near_count[node] > 0) {
        int32_t slot = w->near[node][0], other = trmi_slot_other(&w->slots[slot], node);
        int32_t table = make_table(w, slot, node);
        int32_t sum =
            table < 0 ? -1
                      : trmi_tables_make(w->tables, TRMI_TABLE_ROW, table, state, w->unary[other]);
        if (sum < 0) {
            return fail_no_memory(err);
        }
        w->unary[other] = sum;
        drop_slot(w, slot);
    }
    drop_node(w, node);
    return TRM_OK;
}

/* ---- states of the eliminated nodes ---- */

/* Returns the cheapest state of an eliminated node, given the states of its neighbours. Ties go to
 * the lowest state. */
static int32_t best_state(const trmi_solve_work *w, const trmi_reduced *step,
                          const int32_t *choice) {
    const trmi_tables *t = w->tables;
    const float *u = trmi_tables_data(t, step->unary), *a = NULL, *b = NULL;
    int32_t states = w->states[step->node], best = 0;
    int32_t stride = 0;
    if (step->near_count > 0) {
        a = trmi_tables_data(t, step->table[0]) + (int64_t)choice[step->near[0]] * states;
    }
    if (step->near_count > 1) {
        b = trmi_tables_data(t, step->table[1]) + choice[step->near[1]];
        stride = w->states[step->near[1]];
    }
    float least = INFINITY;
    for (int32_t j = 0; j < states; j++) {
        float cost = (a != NULL ? a[j] + u[j] : u[j]) + (b != NULL ? b[(int64_t)j * stride] : 0);
        if (cost < least) {
            least = cost;
            best = j;
        }
    }
    return best;
}

void trmi_work_trace(const trmi_solve_work *w, int32_t *choice) {
    for (int32_t i = w->steps_count - 1; i >= 0; i--) {
        choice[w->steps[i].node] = best_state(w, &w->steps[i], choice);
    }
}

/* Contract in solve_reduce.h. Nodes without neighbours are left with their least cost. */
double trmi_work_constant(const trmi_solve_work *w) {
    double sum = 0;
    for (int32_t i = 0; i < w->steps_count; i++) {
        const trmi_reduced *step = &w->steps[i];
        if (step->near_count == 0) {
            const float *u = trmi_tables_data(w->tables, step->unary);
            float least = INFINITY;
            for (int32_t j = 0; j < w->states[step->node]; j++) {
                least = u[j] < least ? u[j] : least;
            }
            sum += (double)least;
        }
    }
    return sum;
}
