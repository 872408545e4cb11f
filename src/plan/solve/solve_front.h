/* SPDX-License-Identifier: Apache-2.0 */
/* plan/solve/solve_front.h: the Pareto front of a graph with two costs: the choices for which no
 * other choice has both less time and less memory.
 *
 *      time ^  o                         o  corners of the convex hull: least  time + lambda memory  for some lambda,
 *           |   \                           found by plain solves (plan/solve/solve.h) at the slopes between neighbours
 *           |    \  x                    x  choices above the hull: the same eliminations with lists of (time, memory)
 *           |     o-__                      instead of numbers; a partial choice is dropped as soon as a lower bound
 *           |       x  -o                   of its completion lies beyond the corner of its triangle
 *           +------------> memory
 *
 * Two phases (Ulungu & Teghem 1995). The lower bounds come from the eliminations walked backwards
 * (plan/solve/solve_marginal.c). A list that grows beyond its limit is thinned; `slack` is the time
 * that a choice can be faster than the reported one because of it. The result depends on the
 * arguments only; limits are counts, not times. plan/search uses this for plans under a memory
 * limit and for the curve of time against memory. */
#ifndef TRMI_PLAN_SOLVE_FRONT_H
#define TRMI_PLAN_SOLVE_FRONT_H

#include "base/memory.h"
#include "plan/solve/solve.h"

/* Time (seconds) and memory (bytes) of an option or a choice. */
typedef struct trmi_tradeoff {
    double time, memory; /* time INFINITY: not possible */
} trmi_tradeoff;

/* Extra time and memory of the states of two nodes. */
typedef struct trmi_front_edge {
    int32_t a, b;
    const float *time;   /* [states of a][states of b], INFINITY = illegal */
    const float *memory; /* the same, or NULL: none */
} trmi_front_edge;

/* A graph with two costs. All arrays are borrowed for the duration of a call. */
typedef struct trmi_front_graph {
    int32_t nodes_count, edges_count;
    /* options of each state (parameters whole or in parts, output kept or recomputed) */
    int32_t options;
    const int32_t *states;             /* [nodes] */
    const trmi_tradeoff *const *nodes; /* [nodes][states][options] */
    const trmi_front_edge *edges;
} trmi_front_graph;

/* The goal and the limits of a search. Zero means the default. */
typedef struct trmi_front_options {
    /* memory limit in bytes: return the fastest choice within it; 0 = return the whole curve */
    double limit;
    int32_t hull_limit; /* most solves for the hull; 0 = 16 */
    int32_t list_limit; /* most points of a list; 0 = 256 */
    int64_t work_limit; /* most points made in all lists; 0 = 4 million */
} trmi_front_options;

/* One choice on the front. */
typedef struct trmi_front_point {
    double time, memory;
    int32_t *choice; /* [nodes] states */
    uint8_t *option; /* [nodes] */
} trmi_front_point;

/* The front and its certificate. */
typedef struct trmi_front {
    /* falling memory, rising time; with a limit: one point, the fastest within it */
    trmi_front_point *points;
    int32_t count;
    /* most time that a choice within a point's memory can be faster than the point; 0 = exact */
    double slack;
    /* number of hull edges above which the lists exceeded work_limit; there, the only bound is the
     * hull edge itself */
    int32_t open;
    /* most time that a choice there can be faster than the reported point */
    double open_gap;
    double lower_bound; /* with a limit: every choice within it takes at least this time */
    /* memory of the choice with least memory */
    double least_memory;
    /* price of memory (time per byte) of the best bound, where the limit binds */
    double price;
    bool binds; /* the fastest choice exceeds the limit */
    /* a choice is within the limit; otherwise the point is the one of least memory */
    bool feasible;
    /* plain solves; points made in lists; wall-clock time */
    int32_t solves;
    int64_t work;
    double seconds;
} trmi_front;

/* Computes the front of `graph`, or the fastest choice within options->limit (NULL: defaults).
 *   owns    points, choices and options lie in `arena`
 *   errors  INVALID (no choice is legal), NOMEM
 *   threads  any */
trm_status trmi_front_solve(const trmi_front_graph *graph, const trmi_front_options *options,
                            trmi_arena *arena, trmi_front *out, trm_error *err);
/* Returns time and memory of a choice ([nodes] states, [nodes] options), summed in double. */
trmi_tradeoff trmi_front_cost(const trmi_front_graph *graph, const int32_t *choice,
                              const uint8_t *option);

/* ---- between the files ---- */

/* Returns the option of a node's state with the least a x time + b x memory (solve_cost.c). */
int32_t trmi_front_best(const trmi_front_graph *graph, int32_t node, int32_t state, double a,
                        double b);
/* Builds the graph with the single cost a x time + b x memory (solve_cost.c). Its tables lie in the
 * arena or are those of `graph`.   errors  NOMEM */
trm_status trmi_front_scalar(const trmi_front_graph *graph, double a, double b, trmi_arena *arena,
                             trmi_cost_graph *out, trm_error *err);
/* Bounds of a search with lists: time + lambda x memory <= bound, memory <= limit (0: any). */
typedef struct trmi_lists_options {
    double lambda;       /* seconds a byte */
    double bound, limit; /* seconds; bytes */
    int32_t list_limit;  /* points of a list; longer ones are thinned */
    int64_t work_limit;  /* points made in all */
} trmi_lists_options;
/* Finds the choices within the bounds of `options` by eliminations with lists (solve_lists.c).
 *   out     *out, *count: the points; *slack: time lost by thinning
 *   inout   *work: points made so far
 *   done    false: the graph is too wide or work_limit was reached; no points are returned
 *   errors  NOMEM */
trm_status trmi_front_lists(const trmi_front_graph *graph, const trmi_lists_options *options,
                            trmi_arena *arena, trmi_front_point **out, int32_t *count,
                            double *slack, int64_t *work, bool *done, trm_error *err);

#endif
