/* SPDX-License-Identifier: Apache-2.0 */
/* plan/solve/solve.h: the cheapest choice in a pairwise cost graph, with a proof.
 *
 *      node  = a decision with a few states, each with a cost           u[i]
 *      edge  = two decisions that cost something together               e[i][j], INFINITY = illegal
 *      cost  = sum of all u at the chosen states + sum of all e there
 *
 *      1  nodes with 0, 1 or 2 neighbours are eliminated exactly: what they would choose is folded into
 *         the neighbours; a chain is a (min,+) product   C[i][k] = min_j  A[i][j] + u[j] + B[j][k]
 *      2  what remains is eliminated with tables over more neighbours while these are small enough:
 *         non-serial dynamic programming (Bertele & Brioschi 1972) in min-fill order
 *      3  beyond that: branch and bound. Lower bound: a dual of the linear relaxation by message passing
 *         (MPLP, Globerson & Jaakkola 2007); upper bound: coordinate descent
 *
 * Equal tables (the same pointer) are multiplied once, so that repeated blocks cost nothing; the
 * decisions stay free. Ties go to the lowest state, whatever the CPU: all ranks find the same plan
 * by themselves.
 */
#ifndef TRMI_PLAN_SOLVE_H
#define TRMI_PLAN_SOLVE_H

#include "trireme/base.h"

typedef struct trmi_cost_edge {
    int32_t a, b;       /* nodes, different; several edges may join the same two */
    const float *table; /* [states of a][states of b], no NaN */
} trmi_cost_edge;

typedef struct trmi_cost_graph {
    int32_t nodes_count, edges_count;
    const int32_t *states;     /* [nodes] at least 1 */
    const float *const *nodes; /* [nodes][states] */
    const trmi_cost_edge *edges;
} trmi_cost_graph;

typedef struct trmi_solve_options {
    int64_t table_limit; /* elements of one elimination (step 2); 0 = 32 million */
    /* nodes of the tree (step 3); 0 = 20,000. A count, not a time: the same everywhere */
    int64_t branch_limit;
    const int32_t *start; /* a known choice, or NULL: the search begins with its cost */
    /* eliminates equal candidates from the end: the result is as good (tests) */
    bool last_first;
} trmi_solve_options;

typedef struct trmi_solution {
    /* of the choice, summed from the given tables; INFINITY: nothing is legal */
    double objective;
    double lower_bound; /* no choice is cheaper (up to float32 rounding of the tables) */
    double seconds;
    int32_t products; /* (min,+) products that were needed ... */
    int32_t shared;   /* ... and that were found among those already made */
    int32_t width;    /* most neighbours that an eliminated node had */
    int64_t branches; /* nodes of the tree; 0 = steps 1 and 2 were enough, the optimum is exact */
} trmi_solution;

/* Writes a state for each node into choice[nodes_count].
 *   error  INVALID (an index out of range), NOMEM      thread any      alloc during the call only
 */
trm_status trmi_solve(const trmi_cost_graph *graph, const trmi_solve_options *options,
                      int32_t *choice, trmi_solution *out, trm_error *err);
/* The cost of a choice. */
double trmi_solve_cost(const trmi_cost_graph *graph, const int32_t *choice);

/* For every node and state: the cheapest cost of the whole with that state, exact when the graph
 * reduces
 * by step 1 (INFINITY otherwise for nodes that do not): runners-up and their prices, reduced costs.
 *   out  marginal[node][state] */
trm_status trmi_solve_marginals(const trmi_cost_graph *graph, float *const *marginal,
                                trm_error *err);

/* c[m][n] = min over j of a[m][j] + b[j][n]. */
typedef void trmi_minplus(const float *a, const float *b, float *c, int32_t m, int32_t j,
                          int32_t n);
void trmi_minplus_plain(const float *a, const float *b, float *c, int32_t m, int32_t j, int32_t n);
void trmi_minplus_avx2(const float *a, const float *b, float *c, int32_t m, int32_t j, int32_t n);
void trmi_minplus_avx512(const float *a, const float *b, float *c, int32_t m, int32_t j, int32_t n);

#endif
