/* SPDX-License-Identifier: Apache-2.0 */
/* plan/solve/solve_reduce.h: a cost graph while it shrinks. Between the files of the solver.
 *
 *      slots   one per pair of nodes that share a table; parallel tables are added into one slot
 *      steps   what was eliminated, in order; walked backwards to find the choices
 *
 *      before        i --A-- j --B-- k            after     i --A(+)u(+)B-- k       step {j, i, k, A, u, B}
 */
#ifndef TRMI_PLAN_SOLVE_REDUCE_H
#define TRMI_PLAN_SOLVE_REDUCE_H

#include "plan/solve/solve_tables.h"

typedef struct trmi_solve_slot {
    int32_t a, b;  /* a < b */
    int32_t table; /* [a][b] */
    bool live;
} trmi_solve_slot;

typedef struct trmi_reduced {
    int32_t node, near[2], near_count;
    int32_t unary;           /* of the node when it went */
    int32_t table[2];        /* [near 0][node], [node][near 1] */
    int32_t slot[2], joined; /* slots that went, and the slot of near 0 and 1 afterwards */
    /* what was added to `joined`: [near 0][near 1]; 1 neighbour: the folded vector */
    int32_t product;
    bool fresh; /* `joined` did not exist before */
} trmi_reduced;

typedef struct trmi_solve_work {
    trmi_tables *tables; /* shared by all branches */
    int32_t nodes_count;
    int32_t *states, *unary; /* [nodes] */
    bool *live;
    int32_t live_count;
    trmi_solve_slot *slots;
    int64_t slots_count, slots_capacity;
    int32_t **near; /* [nodes] slots at the node, live ones only */
    int32_t *near_count;
    int64_t *near_capacity;
    trmi_reduced *steps; /* [nodes] */
    int32_t steps_count;
    bool last_first;
} trmi_solve_work;

trm_status trmi_work_open(trmi_solve_work *work, trmi_tables *tables, const trmi_cost_graph *graph,
                          trm_error *err);
/* A copy without the steps of the original. */
trm_status trmi_work_copy(trmi_solve_work *work, const trmi_solve_work *from, trm_error *err);
void trmi_work_close(trmi_solve_work *work);

/* Eliminates every node with at most `most` (1 or 2) neighbours, as long as there is one. */
trm_status trmi_work_reduce(trmi_solve_work *work, int32_t most, trm_error *err);
/* Fixes a live node: its rows are added to the neighbours. No step is noted. */
trm_status trmi_work_fix(trmi_solve_work *work, int32_t node, int32_t state, trm_error *err);
/* The choices of the eliminated nodes, from those of the live ones. */
void trmi_work_trace(const trmi_solve_work *work, int32_t *choice);
/* Of a graph that reduced to nothing: marginals as trmi_solve_marginals, and for each step what
 * everything beside the
 * subgraph that it folds costs at least: rest[step][near 0][near 1], [near 0] or one number.
 *   owns  rest[0 .. steps_count): caller, trmi_free; also after an error. rest may be NULL */
trm_status trmi_work_marginals(const trmi_solve_work *work, float *const *marginal, float **rest,
                               trm_error *err);
/* Sum of what nodes without neighbours cost: steps with near_count 0. */
double trmi_work_constant(const trmi_solve_work *work);

/* The slot's other node, and the slot of two nodes (-1 = none). */
static inline int32_t trmi_slot_other(const trmi_solve_slot *slot, int32_t node) {
    return slot->a == node ? slot->b : slot->a;
}
int32_t trmi_work_slot(const trmi_solve_work *work, int32_t a, int32_t b);

/* solve_core.c: the live nodes of a reduced graph by tables over many neighbours.
 * *width: most neighbours. UNSUPPORTED: a table would exceed `limit`; nothing is changed then. */
trm_status trmi_core_eliminate(trmi_solve_work *work, int64_t limit, int32_t *choice,
                               int32_t *width, trm_error *err);
/* solve_branch.c: the same by branch and bound. `best` holds choice and cost of the best known and
 * is improved; *bound gets a lower bound for the whole. */
trm_status trmi_core_branch(trmi_solve_work *work, const trmi_cost_graph *graph,
                            const trmi_solve_options *options, int32_t *best, double *best_cost,
                            double *bound, int64_t *branches, trm_error *err);

#endif
