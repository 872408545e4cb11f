/* SPDX-License-Identifier: Apache-2.0 */
/* plan/solve/solve_front.h: two costs at once: which choices of a graph have no other that is both
 * faster and smaller?
 *
 *      time ^  o                         o  ends of the convex hull: least  time + lambda memory  for some lambda,
 *           |   \                           found by plain solves (plan/solve/solve.h) at the slopes between neighbours
 *           |    \  x                    x  choices above the hull: lists of (time, memory) instead of numbers in
 *           |     o-__                      the same eliminations; a part of a choice is dropped as soon as what it
 *           |       x  -o                   is completed with at least puts it beyond the corner of its triangle
 *           +------------> memory
 *
 * (Two phases: Ulungu & Teghem 1995; completions from the eliminations walked backwards:
 * plan/solve/solve_marginal.c.) A list that grows beyond its limit keeps points that are at most so
 * much slower; the sum of all that is `slack`, and the certificate says it. Pure: the same numbers,
 * the same curve; limits are counts.
 */
#ifndef TRMI_PLAN_SOLVE_FRONT_H
#define TRMI_PLAN_SOLVE_FRONT_H

#include "base/memory.h"
#include "plan/solve/solve.h"

typedef struct trmi_tradeoff {
    double time, memory; /* time INFINITY: not possible */
} trmi_tradeoff;

typedef struct trmi_front_edge {
    int32_t a, b;
    const float *time;   /* [states of a][states of b], INFINITY = illegal */
    const float *memory; /* the same, or NULL: none */
} trmi_front_edge;

typedef struct trmi_front_graph {
    int32_t nodes_count, edges_count;
    /* ways of each state: kept or made again, whole or in parts ... */
    int32_t options;
    const int32_t *states;             /* [nodes] */
    const trmi_tradeoff *const *nodes; /* [nodes][states][options] */
    const trmi_front_edge *edges;
} trmi_front_graph;

typedef struct trmi_front_options {
    /* of memory: only the fastest choice within it is wanted; 0 = the whole curve */
    double limit;
    int32_t hull_limit; /* solves for the hull; 0 = 16 */
    int32_t list_limit; /* points of a list; 0 = 256 */
    int64_t work_limit; /* sums of points; 0 = 4 million */
} trmi_front_options;

typedef struct trmi_front_point {
    double time, memory;
    int32_t *choice; /* [nodes] states */
    uint8_t *option; /* [nodes] */
} trmi_front_point;

typedef struct trmi_front {
    trmi_front_point *points; /* falling memory, rising time; with a limit: the one within it */
    int32_t count;
    /* a choice within a point's memory is faster by at most so much; 0: exact */
    double slack;
    /* stretches between points that the lists were too long for: no choice lies below the line
     * there */
    int32_t open;
    double open_gap;    /* most that a choice there may be faster than the point that fits */
    double lower_bound; /* time of every choice within the limit */
    double least_memory;
    /* of memory, in time, where the limit binds: the lambda of the best bound */
    double price;
    bool binds; /* the fastest choice of all is not within the limit */
    /* something is within the limit; otherwise the point is that of least memory */
    bool feasible;
    int32_t solves;
    int64_t work;
    double seconds;
} trmi_front;

/* Points, their choices and options are in the arena.   error INVALID (nothing is legal), NOMEM    thread any
 */
trm_status trmi_front_solve(const trmi_front_graph *graph, const trmi_front_options *options,
                            trmi_arena *arena, trmi_front *out, trm_error *err);
/* time and memory of a choice. */
trmi_tradeoff trmi_front_cost(const trmi_front_graph *graph, const int32_t *choice,
                              const uint8_t *option);

/* ---- between the files
 *  ------------------------------------------------------------------------------- */

/* solve_cost.c: of a state, the option of least a x time + b x memory. */
int32_t trmi_front_best(const trmi_front_graph *graph, int32_t node, int32_t state, double a,
                        double b);
/* A graph of one cost, a x time + b x memory; its tables are in the arena. */
trm_status trmi_front_scalar(const trmi_front_graph *graph, double a, double b, trmi_arena *arena,
                             trmi_cost_graph *out, trm_error *err);
/* solve_lists.c: what has time + lambda memory <= bound, and memory <= limit (0: any), as points in
 * *out; *work counts on. *done false: too wide or too long, nothing is known. */
typedef struct trmi_lists_options {
    double lambda, bound, limit;
    int32_t list_limit;
    int64_t work_limit;
} trmi_lists_options;
trm_status trmi_front_lists(const trmi_front_graph *graph, const trmi_lists_options *options,
                            trmi_arena *arena, trmi_front_point **out, int32_t *count,
                            double *slack, int64_t *work, bool *done, trm_error *err);

#endif
