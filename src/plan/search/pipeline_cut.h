/* SPDX-License-Identifier: Apache-2.0 */
/* plan/search/pipeline_cut.h: cuts a space into stages so that the bound of a step is least
 * (pipeline_search.h states the bound). */
#ifndef TRMI_PLAN_PIPELINE_CUT_H
#define TRMI_PLAN_PIPELINE_CUT_H

#include "plan/search/pipeline_runs.h"

/* A cut into virtual stages, and the bound of every plan of its shape. */
typedef struct trmi_pipe_cut {
    int32_t
        at[TRMI_VIRTUAL_STAGES_MAX + 1]; /* begins, and the end: numbers of runs' cuts; the end 0 =
                                                no cut is below the ceiling */
    double bound;                        /* seconds of a step; never above the ceiling */
} trmi_pipe_cut;

/* Prices the plan of a cut; returns the ceiling of the cuts that follow. */
typedef struct trmi_cut_visit {
    trm_status (*price)(void *context, const trmi_pipe_cut *cut, double *ceiling, trm_error *err);
    void *context;
    int32_t most; /* cuts that are priced, at most */
} trmi_cut_visit;

/* Finds the cut whose bound is least. quick: a lower bound of that, from runs of one cut to the
 * next. ceiling: bounds above it need not be found. visit: NULL, or prices that cut, then all
 * others whose bound is below the ceiling; then out->bound is that of every cut, as far as
 * visit->most allows.
 *   errors  NOMEM, INVALID (a schedule that cannot be), those of visit->price */
trm_status trmi_cut_find(trmi_runs *runs, const trmi_pipe_costs *costs,
                         const trmi_pipe_shape *shape, bool quick, double ceiling,
                         const trmi_cut_visit *visit, trmi_pipe_cut *out, trm_error *err);
/* Returns a bound of all plans of a shape in which one micro-batch takes `micro` seconds in all
 * runs, at least, and `message` seconds between two of them. crowding: as in trmi_pipe_costs */
double trmi_cut_bound(const trmi_pipe_shape *shape, double micro, double message, double crowding);
/* Returns what the run of virtual stage `v` may keep: of interleaved schedules less than they do.
 */
trmi_run_memory trmi_cut_memory(const trmi_runs *runs, const trmi_pipe_shape *shape, int32_t v);

#endif
