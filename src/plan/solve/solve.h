/* SPDX-License-Identifier: Apache-2.0 */
/* plan/solve/solve.h: finds the cheapest choice in a pairwise cost graph and proves how good it is.
 *
 *      node  = a decision with a few states, each with a cost           u[i]
 *      edge  = an extra cost of the states of two nodes                 e[i][j], INFINITY = illegal
 *      cost  = sum of all u at the chosen states + sum of all e there
 *
 *      1  Nodes with 0, 1 or 2 neighbours are eliminated exactly: the node's best cost is added to the
 *         neighbours' tables. On a chain this is a (min,+) product
 *                                                      C[i][k] = min_j  A[i][j] + u[j] + B[j][k]
 *      2  The remaining nodes are eliminated with tables over more neighbours, as long as these tables
 *         stay below a limit: non-serial dynamic programming (Bertele & Brioschi 1972), min-fill
 *         order.
 *      3  Beyond the limit: branch and bound. Lower bound: a dual of the linear relaxation by message
 *         passing (MPLP, Globerson & Jaakkola 2007). Upper bound: coordinate descent.
 *
 * The planner (plan/search) builds one graph for each mesh: a node is an operator, a state is a
 * strategy. Tables at the same address are multiplied only once, so that repeated blocks of a
 * network add almost no time; each node still gets a state of its own. Invariant: the result
 * depends on the arguments only. Ties go to the lowest state on every CPU, so every rank computes
 * the same plan without communication. */
#ifndef TRMI_PLAN_SOLVE_H
#define TRMI_PLAN_SOLVE_H

#include "trireme/base.h"

/* The extra cost of one pair of nodes. */
typedef struct trmi_cost_edge {
    int32_t a, b;       /* nodes, different; several edges may join the same two */
    const float *table; /* [states of a][states of b], no NaN; INFINITY = illegal */
} trmi_cost_edge;

/* A graph to be solved. All arrays are borrowed for the duration of a call. */
typedef struct trmi_cost_graph {
    int32_t nodes_count, edges_count;
    const int32_t *states;     /* [nodes] at least 1 */
    const float *const *nodes; /* [nodes][states] */
    const trmi_cost_edge *edges;
} trmi_cost_graph;

/* Limits of a solve. Zero means the default. */
typedef struct trmi_solve_options {
    int64_t table_limit; /* most elements of a table in step 2; 0 = 32 million */
    /* most nodes of the search tree in step 3; 0 = 20,000. A count, not a time, so that every
     * machine gets the same result */
    int64_t branch_limit;
    /* a known choice, [nodes], whose cost is the first upper bound; NULL: none */
    const int32_t *start;
    /* of equal candidates, eliminate the last one first: another order, the same cost (for tests)
     */
    bool last_first;
} trmi_solve_options;

/* The certificate of a solve: objective, lower bound, and what the search did. */
typedef struct trmi_solution {
    /* cost of the choice, summed from the given tables; INFINITY: no choice is legal */
    double objective;
    double lower_bound; /* no choice costs less (up to float32 rounding of the tables) */
    /* wall-clock time of the call */
    double seconds;
    int32_t products; /* (min,+) products that were computed ... */
    int32_t shared;   /* ... and that were reused, because an equal one had been computed */
    int32_t width;    /* most neighbours of an eliminated node */
    /* nodes of the search tree; 0: steps 1 and 2 sufficed, the result is optimal */
    int64_t branches;
} trmi_solution;

/* Finds the cheapest choice and writes one state for each node into choice[nodes_count].
 *   options  NULL = defaults
 *   out      written on success only
 *   errors   INVALID (an index or the start is out of range), NOMEM
 *   threads   any; memory is allocated during the call only */
trm_status trmi_solve(const trmi_cost_graph *graph, const trmi_solve_options *options,
                      int32_t *choice, trmi_solution *out, trm_error *err);
/* Returns the cost of `choice` ([nodes] states, in range): the sum of its entries in all tables. */
double trmi_solve_cost(const trmi_cost_graph *graph, const int32_t *choice);

/* Computes, for every node and state, the cheapest cost of a whole choice that has this state. The
 * planner uses it for runners-up and reduced costs. Exact if step 1 eliminates the whole graph;
 * otherwise every value is INFINITY.
 *   out    marginal[node][state]
 *   errors  NOMEM */
trm_status trmi_solve_marginals(const trmi_cost_graph *graph, float *const *marginal,
                                trm_error *err);

/* Computes the (min,+) product c[m][n] = min over j of a[m][j] + b[j][n]; all matrices are dense
 * and row-major. The three versions return the same bits. */
typedef void trmi_minplus(const float *a, const float *b, float *c, int32_t m, int32_t j,
                          int32_t n);
void trmi_minplus_plain(const float *a, const float *b, float *c, int32_t m, int32_t j, int32_t n);
void trmi_minplus_avx2(const float *a, const float *b, float *c, int32_t m, int32_t j, int32_t n);
void trmi_minplus_avx512(const float *a, const float *b, float *c, int32_t m, int32_t j, int32_t n);

#endif
