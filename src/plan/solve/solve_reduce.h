/* SPDX-License-Identifier: Apache-2.0 */
/* plan/solve/solve_reduce.h: a cost graph while its nodes are eliminated. Private to plan/solve.
 *
 *      slots   one per pair of nodes that share a table; parallel tables are added into one slot
 *      steps   the eliminated nodes, in order; walked backwards to find their states
 *
 *      before        i --A-- j --B-- k            after     i --A(+)u(+)B-- k       step {j, i, k, A, u, B}
 *
 * Invariant: the cheapest cost of the live graph plus trmi_work_constant() equals the cheapest cost
 * of the original graph. */
#ifndef TRMI_PLAN_SOLVE_REDUCE_H
#define TRMI_PLAN_SOLVE_REDUCE_H

#include "plan/solve/solve_tables.h"

/* The table between two nodes. */
typedef struct trmi_solve_edge {
    int32_t a, b;  /* a < b */
    int32_t table; /* [a][b] */
    bool live;
} trmi_solve_edge;

/* One elimination: the node and the tables that it had. */
typedef struct trmi_reduced {
    int32_t node, near[2], near_count;
    int32_t unary;    /* number of the node's own cost table when it was eliminated */
    int32_t table[2]; /* [near 0][node], [node][near 1] */
    /* slots that were removed; the slot between near[0] and near[1] afterwards */
    int32_t slot[2], joined;
    /* table that was added to `joined`, [near 0][near 1]; with one neighbour: the neighbour's new
     * cost table */
    int32_t product;
    bool fresh; /* `joined` did not exist before */
} trmi_reduced;

/* The graph. live[i] is false once node i is eliminated or fixed. */
typedef struct trmi_solve_work {
    trmi_tables *tables; /* shared by all copies of the graph */
    int32_t nodes_count;
    int32_t *states, *unary; /* [nodes] states; numbers of the nodes' own cost tables */
    bool *live;
    int32_t live_count;
    trmi_solve_edge *slots;
    int64_t slots_count, slots_capacity;
    int32_t **near; /* [nodes] live slots at each node */
    int32_t *near_count;
    int64_t *near_capacity;
    trmi_reduced *steps; /* [nodes] */
    int32_t steps_count;
    /* trmi_solve_options.last_first */
    bool last_first;
} trmi_solve_work;

/* Builds the work graph of `graph`. Table data of the graph is borrowed; edges between the same
 * nodes are added up.   errors  NOMEM; call trmi_work_close() after an error, too. */
trm_status trmi_work_open(trmi_solve_work *work, trmi_tables *tables, const trmi_cost_graph *graph,
                          trm_error *err);
/* Copies the live part of a graph, without its steps. The copy shares the tables.
 *   errors  NOMEM; call trmi_work_close() after an error, too */
trm_status trmi_work_copy(trmi_solve_work *work, const trmi_solve_work *from, trm_error *err);
/* Frees the graph, not its tables. A zeroed graph is fine. */
void trmi_work_close(trmi_solve_work *work);

/* Eliminates nodes with at most `most` (1 or 2) neighbours until none is left.   errors  NOMEM */
trm_status trmi_work_reduce(trmi_solve_work *work, int32_t most, trm_error *err);
/* Fixes a live node in `state` and removes it: its table rows are added to the costs of its
 * neighbours. No step is recorded: the caller keeps the state and adds the node's own cost.
 *   errors  NOMEM */
trm_status trmi_work_fix(trmi_solve_work *work, int32_t node, int32_t state, trm_error *err);
/* Derives the states of the eliminated nodes from those of the live ones. inout choice[nodes] */
void trmi_work_trace(const trmi_solve_work *work, int32_t *choice);
/* Computes, for a graph of which no node is left, the marginals of trmi_solve_marginals() and for
 * each step a lower bound of everything outside the subgraph that the step has folded:
 * rest[step][near 0][near 1], [near 0], or one number.
 *   owns   rest[0 .. steps_count): caller, trmi_free; also after an error. rest may be NULL
 *   errors  NOMEM */
trm_status trmi_work_marginals(const trmi_solve_work *work, float *const *marginal, float **rest,
                               trm_error *err);
/* Returns the summed cost of the nodes that were eliminated without neighbours. */
double trmi_work_constant(const trmi_solve_work *work);

/* Returns the other node of a slot. */
static inline int32_t trmi_slot_other(const trmi_solve_edge *slot, int32_t node) {
    return slot->a == node ? slot->b : slot->a;
}
/* Returns the slot between two nodes; -1 = none. */
int32_t trmi_work_slot(const trmi_solve_work *work, int32_t a, int32_t b);

/* Solves the live nodes by bucket elimination (solve_core.c) and writes their states into `choice`.
 *   width  inout: most neighbours of an eliminated node
 *   errors  UNSUPPORTED: a table would exceed `limit` elements; `work` is unchanged. NOMEM */
trm_status trmi_core_eliminate(trmi_solve_work *work, int64_t limit, int32_t *choice,
                               int32_t *width, trm_error *err);
/* Solves the live nodes by branch and bound (solve_branch.c).
 *   best       inout: best known choice of all nodes, and its cost in best_cost
 *   bound      out: lower bound of the whole graph
 *   branches   out: nodes of the search tree
 *   errors     NOMEM */
trm_status trmi_core_branch(trmi_solve_work *work, const trmi_cost_graph *graph,
                            const trmi_solve_options *options, int32_t *best, double *best_cost,
                            double *bound, int64_t *branches, trm_error *err);

#endif
