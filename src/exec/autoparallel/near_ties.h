/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/near_ties.h: chooses between plans with nearly equal predicted times,
 * because predictions err by a few percent. A few of them are run in turns
 * (exec/autoparallel/plan_benchmark.h):
 *
 *      search --> best, data parallel, others within a band --run in turns--> the chosen plan
 *
 * The chosen plan is kept with the measured costs.
 *
 * Between plans that runs cannot distinguish, data parallel is preferred, then the best of the
 * search. */
#ifndef TRMI_EXEC_NEAR_TIES_H
#define TRMI_EXEC_NEAR_TIES_H

#include "exec/autoparallel/op_benchmark.h"
#include "exec/autoparallel/search_costs.h"

#define TRMI_TIES_BAND                                                                             \
    0.15 /* candidates: predicted time up to so much above the best; predictions rarely err more */
#define TRMI_TIES_FINE 0.01 /* smaller relative differences are not resolved */

/* A plan in the list. */
typedef struct trmi_tied_plan {
    char *text;    /* of a plan file */
    char name[40]; /* for reports */
    void *what;    /* the caller's pointer */
    /* the mesh. Plans of one mesh with equal predictions are taken as alike; of two meshes, not */
    int32_t group;
    bool simple;             /* data parallel */
    bool by_hand;            /* a plan as people write them: not alike to one of equal prediction */
    double predicted, bytes; /* seconds of a step; bytes of a rank's program */
    double measured;         /* seconds of a step; 0: it was not run */
    double behind;           /* fraction by which it is slower than the fastest */
    double resolution;       /* smaller differences may be chance */
} trmi_tied_plan;

/* The list of plans, and the outcome of their runs. */
typedef struct trmi_near_ties {
    /* after trmi_ties_narrow by predicted time, the best first */
    trmi_tied_plan list[4 * TRMI_BENCHMARK_PLANS];
    int32_t count, chosen;
    bool kept;      /* the result is of an earlier process */
    int32_t turns;  /* 0: no plan was run */
    double seconds; /* duration of the runs */
} trmi_near_ties;

/* Adds a plan, unless an equal one is listed or the list is full.   owns  `plan` stays the
 * caller's; `what` is borrowed */
trm_status trmi_ties_add(trmi_near_ties *trial, const trmi_partition_plan *plan,
                         const trmi_tied_plan *about, trm_error *err);
/* Keeps the plans that can be run within `seconds`; only the best if steps are long or seconds is
 * 0. */
void trmi_ties_narrow(trmi_near_ties *trial, double seconds);
/* Removes plan `index` from the list. */
void trmi_ties_drop(trmi_near_ties *trial, int32_t index);
/* Runs the listed plans, or reads the result of an earlier run, and sets `chosen`. Rank 0, while
 * the others serve `probe`. `memory`: limit in bytes a rank of all executors that exist at a
 * time; 0 = half of the memory there is.   errors  those of trmi_plan_benchmark_run */
trm_status trmi_ties_run(trmi_near_ties *trial, trmi_op_benchmark *probe, trmi_costs *costs,
                         double seconds, double memory, trm_error *err);
/* Sets `chosen` of plans that were run: data parallel if it is as fast as the fastest, within
 * resolution (at most 2 %); else the one with the best prediction if it is; else the fastest. */
void trmi_ties_choose(trmi_near_ties *trial);
void trmi_ties_free(trmi_near_ties *trial);
/* Returns the time limit in seconds from the options of trm_split_options: 0 = trials are off.
 * `limit` 0 = the default for steps that are predicted to take `step` seconds. */
double trmi_ties_seconds(trm_switch trials, double limit, double step);

#endif
