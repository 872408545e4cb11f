/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/plan_benchmark.h: a few plans of one graph, run in turns on the ranks that would train
 * them:
 *
 *      turn 0   A A A | B B B | C C C        all in the same minute, in every state that the machine is in
 *      turn 1   C C C | B B B | A A A        steps of a turn: the first does not count
 *
 * so that what changes from minute to minute (caches that CPUs share, other jobs) is the same for
 * all. Once a plan is behind by more than chance the others have its time, until they are told
 * apart, or known to be as fast.
 */
#ifndef TRMI_EXEC_RACE_H
#define TRMI_EXEC_RACE_H

#include "trireme/exec.h"

enum { TRMI_RACE_PLANS = 8, TRMI_RACE_TURNS = 64 };

typedef struct trmi_race {
    trm_comm *comm;
    const trm_graph *graph; /* with a loss, as trm_exec_create takes it. Borrowed */
    /* of its executor; its plan, comm and files do not count. Borrowed */
    const trm_exec_options *options;
    const char *plans[TRMI_RACE_PLANS]; /* rank 0: texts of plan files; looked at there only */
    int32_t count;                      /* the same on all ranks */
    int32_t steps;                      /* of a turn, that count */
    /* at most about so long, all turns together, making executors beside; a turn that would take
     * longer is not begun, or broken off ... */
    double seconds;
    int32_t at_least; /* ... but so many are run */
    /* differences below it need not be told; 0: all plans run in all turns that there is time for
     */
    double fine;
    bool one_at_a_time; /* there is memory for one executor only: each is made anew in every turn */
} trmi_race;

typedef struct trmi_race_result {
    int32_t turns;                /* whole ones */
    int32_t ran[TRMI_RACE_PLANS]; /* in so many of them, the first; less than all: it was behind */
    /* of a step, as the slowest rank has it: the median of its turns */
    double seconds[TRMI_RACE_PLANS];
    double took[TRMI_RACE_PLANS][TRMI_RACE_TURNS];
} trmi_race_result;

/* Collective; *out is the same on all ranks. Inputs are random, labels and keys in range; weights
 * are a step's of next to nothing.
 *   error  those of trm_exec_create and of peers, NOMEM */
trm_status trmi_race_run(const trmi_race *race, trmi_race_result *out, trm_error *err);

/* A batch of random numbers for an input: floats in [0, 1), integers below `bound`; the same in
 * every run. One that the program does not have is left. */
trm_status trmi_race_feed(trm_exec *exec, const char *name, uint32_t bound, trm_error *err);
/* How much longer plan a takes than plan b: the median over the turns of both of its seconds over
 * b's in the same turn, less 1. In
 * *resolution (may be NULL): differences below it are chance, as far as the turns tell (twice the
 *  standard error of that median). */
double trmi_race_behind(const trmi_race_result *result, int32_t a, int32_t b, double *resolution);
/* The fastest of `count` plans, of those that ran in all turns. */
int32_t trmi_race_fastest(const trmi_race_result *result, int32_t count);
/* Who need not run on, once some turns are over: `running` of plans that are behind the fastest by
 * more than chance and by more than `fine` becomes false. Returns: it is known of all others how
 * far they are from the fastest, to `fine`. */
bool trmi_race_settle(const trmi_race_result *result, int32_t count, double fine, bool *running);

#endif
