/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/plan_selection.h: a search's costs tell plans apart by some per cent, no better. Of the
 * best plan and those that are predicted to be nearly as fast, a few that differ are run in turns
 * (exec/autoparallel/plan_benchmark.h), and the fastest is taken:
 *
 *      search --> best, data parallel, others within a band --run in turns--> one of them; kept
 *      with the measured costs
 *
 * What runs cannot tell apart is decided by simplicity: data parallel first, then the search's
 * best. */
#ifndef TRMI_EXEC_TRIAL_H
#define TRMI_EXEC_TRIAL_H

#include "exec/autoparallel/op_benchmark.h"
#include "exec/autoparallel/search_costs.h"

#define TRMI_TRIAL_BAND                                                                            \
    0.15 /* above the best's predicted time: costs are off by so much at worst, usually */
#define TRMI_TRIAL_FINE 0.01 /* differences that nobody needs to know */

typedef struct trmi_trial_plan {
    char *text;    /* of a plan file */
    char name[40]; /* for reports */
    void *what;    /* the caller's */
    /* the mesh: plans of one that are predicted alike hardly differ, those of two do */
    int32_t group;
    bool simple;             /* data parallel */
    double predicted, bytes; /* seconds of a step; what a rank's program takes */
    double measured;         /* seconds of a step; 0: it was not run */
    double behind;           /* the fastest, as a fraction of it, ... */
    double resolution;       /* ... and what differences are chance below */
} trmi_trial_plan;

typedef struct trmi_trial {
    /* by predicted time, once it is narrowed: the best is [0] */
    trmi_trial_plan list[4 * TRMI_RACE_PLANS];
    int32_t count, chosen;
    bool kept;      /* known from an earlier run */
    int32_t turns;  /* 0: nothing was run */
    double seconds; /* that the runs took */
} trmi_trial;

/* A plan, unless it is there already or the list is full.   owns: `plan` stays the caller's; `what` is borrowed
 */
trm_status trmi_trial_add(trmi_trial *trial, const trmi_shard_plan *plan,
                          const trmi_trial_plan *about, trm_error *err);
/* Leaves of the list those that `seconds` suffice to run: none but the best where steps are long,
 * or for 0 seconds. */
void trmi_trial_narrow(trmi_trial *trial, double seconds);
void trmi_trial_drop(trmi_trial *trial, int32_t index);
/* Rank 0, among others that serve the probe: runs what was left, and sets `chosen`. `memory`: bytes
 * of a rank that all that runs
 * at a time keeps within; 0 = half of what there is.   error  those of the race */
trm_status trmi_trial_run(trmi_trial *trial, trmi_probe *probe, trmi_costs *costs, double seconds,
                          double memory, trm_error *err);
/* Of plans that were run: the fastest, unless data parallel, or else the one predicted to be the
 * best, is as fast as far as the turns tell, or within 2 % where they tell little. */
void trmi_trial_choose(trmi_trial *trial);
void trmi_trial_free(trmi_trial *trial);
/* As options say it: 0 = the default, for steps that are predicted to take `step` seconds; negative
 * = off. */
double trmi_trial_seconds(double said, double step);

#endif
