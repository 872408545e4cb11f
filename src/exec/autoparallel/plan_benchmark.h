/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/plan_benchmark.h: runs a few plans of one graph in turns, on the ranks that
 * will train it:
 *
 *      turn 0   A A A | B B B | C C C        several steps of each plan; the first one is a warm-up
 *      turn 1   C C C | B B B | A A A        order reversed
 *
 * All plans run in the same period, so that changes of the machine (other jobs, shared caches)
 * affect all of them. A plan that is slower by more than chance is dropped, which gives the others
 * more turns, until they are distinguished or known to be equally fast.
 */
#ifndef TRMI_EXEC_PLAN_BENCHMARK_H
#define TRMI_EXEC_PLAN_BENCHMARK_H

#include "trireme/exec.h"

/* Plans of one benchmark, and turns, at most. */
enum { TRMI_BENCHMARK_PLANS = 8, TRMI_BENCHMARK_TURNS = 64 };

/* A benchmark of plans. Each rank fills in its own; count, steps and the limits must be equal on
 * all ranks. */
typedef struct trmi_plan_benchmark {
    trm_comm *comm;         /* the ranks that run the plans; NULL: one process. Borrowed */
    const trm_graph *graph; /* with a loss, as trm_exec_create takes it. Borrowed */
    /* options of its executor; plan, comm and files are replaced. Borrowed */
    const trm_exec_options *options;
    const char *plans[TRMI_BENCHMARK_PLANS]; /* texts of plan files; only rank 0's are read */
    int32_t count;                           /* the same on all ranks */
    int32_t steps;                           /* timed steps of a plan in a turn */
    /* time limit of all turns and of the creation of executors; the slowest rank's time is compared
     * after each executor and each plan of a turn. A turn that would exceed it is not started, or
     * is broken off ... */
    double seconds;
    int32_t at_least; /* ... but so many turns are completed */
    /* Fewer turns say nothing: the run ends as soon as so many do not fit into the limit; 0: any
     * number is of use. */
    int32_t useful;
    /* relative differences below this need not be resolved; 0: no plan is dropped */
    double fine;
    bool one_at_a_time; /* memory for one executor only: each is created again in every turn */
} trmi_plan_benchmark;

/* Results; the same on all ranks. */
typedef struct trmi_plan_times {
    int32_t turns; /* complete turns */
    int32_t
        ran[TRMI_BENCHMARK_PLANS]; /* turns that the plan ran; fewer: it was dropped as slower */
    /* seconds of a step of the slowest rank: median over the turns; and those of each turn */
    double seconds[TRMI_BENCHMARK_PLANS];
    double took[TRMI_BENCHMARK_PLANS][TRMI_BENCHMARK_TURNS];
} trmi_plan_times;

/* Runs the benchmark. Collective; *out is the same on all ranks. Inputs are random, labels and keys
 * in range; the learning rate is tiny.
 *   errors  those of trm_exec_create and of peers, NOMEM */
trm_status trmi_plan_benchmark_run(const trmi_plan_benchmark *benchmark, trmi_plan_times *out,
                                   trm_error *err);

/* Feeds random numbers to an input, the same in every run: floats in [0, 1), integers below
 * `bound`. Does nothing if the program has no such input. */
trm_status trmi_plan_benchmark_feed(trm_exec *exec, const char *name, uint32_t bound,
                                    trm_error *err);
/* Returns by which fraction plan a is slower than plan b: the median over their turns of a's time
 * over b's in the same turn, minus 1. *resolution (may be NULL): twice the standard error of that
 * median; smaller differences may be chance. */
double trmi_plan_benchmark_behind(const trmi_plan_times *result, int32_t a, int32_t b,
                                  double *resolution);
/* Returns the index of the fastest of `count` plans, among those that ran in all turns. */
int32_t trmi_plan_benchmark_fastest(const trmi_plan_times *result, int32_t count);
/* Clears, after some turns, running[i] of plans that are slower than the fastest by more than
 * chance and `fine`. Returns whether the distance of all running plans from the fastest is known to
 * `fine`. */
bool trmi_plan_benchmark_settle(const trmi_plan_times *result, int32_t count, double fine,
                                bool *running);

#endif
