/* SPDX-License-Identifier: Apache-2.0 */
/* plan/search/pipeline_runs.h: the least seconds of any run of nodes of a space, each found once.
 *
 *      cuts    0   c1   c2   c3 ...  N      nodes with which a stage can begin
 *      run     [c1, c3)  --trmi_runs_least-->  its least seconds and the strategies that reach them
 *
 * Runs with equal operators (the same blocks elsewhere) share one search. */
#ifndef TRMI_PLAN_PIPELINE_RUNS_H
#define TRMI_PLAN_PIPELINE_RUNS_H

#include "plan/search/pipeline_search.h"

/* The quantity that the best strategies of a run minimise. */
typedef enum trmi_least {
    TRMI_LEAST_MICRO, /* one micro-batch */
    TRMI_LEAST_STEP,  /* all micro-batches, gradients and update */
    TRMI_LEAST_LAST,  /* one micro-batch, gradients and update */
    TRMI_LEASTS
} trmi_least;

/* The result for a run. */
typedef struct trmi_least_run {
    uint64_t key;
    double seconds;     /* no strategies of the run take less; INFINITY: none fit the memory */
    trmi_choice choice; /* those that have the bound */
    /* of TRMI_LEAST_MICRO on a mesh of one rank: seconds of forward, of backward, and of gradients
     * with update, each the least */
    double forward, backward, after;
} trmi_least_run;

/* A parameter that node `node` reads and an earlier node, `first`, too: bytes of its gradient in
 * the smallest parts, and seconds of copying it. */
typedef struct trmi_shared_reader {
    int32_t first, node;
    double bytes, seconds;
} trmi_shared_reader;

/* The memory that a run may keep. */
typedef struct trmi_run_memory {
    int32_t flight; /* micro-batches that it keeps at the same time */
    double limit;   /* bytes of a rank; 0 = none */
} trmi_run_memory;

/* What is asked of a run. */
typedef struct trmi_run_ask {
    int32_t a, b; /* cuts */
    trmi_least least;
    trmi_run_memory memory;
} trmi_run_ask;

/* All runs of one space, with what was solved so far. */
typedef struct trmi_runs {
    const trmi_space *space;
    int32_t micros;        /* micro-batches of a step */
    bool recompute;        /* blocks are made again in backward */
    double operator_bound; /* trmi_space_operator_bound */
    double limit;          /* bytes of a rank; 0 = none */
    double handover;       /* trmi_pipe_costs.handover */
    double
        reserved[TRMI_STAGES_MAX]; /* part of the limit for what the runs of a stage do not count */
    int32_t *cuts;                 /* [cuts_count] 0, ..., nodes_count */
    int32_t cuts_count;
    double *crossing; /* [cuts_count] least bytes of the values that cross a cut */
    bool *returns;    /* [cuts_count] gradients cross it back */
    double *copied;   /* [cuts_count] seconds of each side of a cut for what crosses it, for each
                  * micro-batch: copies and handovers ... */
    double *given;    /* ... part of them in forward */
    trmi_shared_reader *shared; /* parameters that both sides of a cut read */
    int32_t shared_count;
    trmi_least_run *list; /* solved runs */
    int64_t count, capacity;
    int64_t solves; /* how many spaces were solved */
    trmi_arena *arena;
} trmi_runs;

/* Opens the runs of a space; runs->space and ->micros are set. begins: [begins_count] nodes, the
 * only ones with which stages can begin; NULL: all of trmi_pipe_cuts.   errors  NOMEM */
trm_status trmi_runs_open(trmi_runs *runs, const int32_t *begins, int32_t begins_count,
                          trmi_arena *arena, trm_error *err);
/* Finds the least seconds of the run from cut `a` to cut `b`. *out is valid until the next call.
 *   errors  NOMEM */
trm_status trmi_runs_least(trmi_runs *runs, const trmi_run_ask *ask, const trmi_least_run **out,
                           trm_error *err);
/* Returns the least seconds, for each micro-batch, that the run copies for other stages. shared:
 * also gradients of parameters that other runs read, if all these are on other ranks. */
double trmi_runs_copied(const trmi_runs *runs, int32_t a, int32_t b, bool shared);
void trmi_runs_close(trmi_runs *runs);

#endif
