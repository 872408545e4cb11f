/* SPDX-License-Identifier: Apache-2.0 */
/* train/planner/verify.h: the recording of a training job, which verify compares with another
 * one. */
#ifndef TRMI_TRAIN_VERIFY_H
#define TRMI_TRAIN_VERIFY_H

#include "trireme/plan.h"

#include "base/memory.h"

/* One recorded tensor; memory of the recording's arena. */
typedef struct trmi_recorded {
    trm_verify_kind kind; /* decides what `count` and `values` are */
    const char *name;
    int64_t count; /* elements */
    float *values; /* [count], plain layout */
} trmi_recorded;

/* Everything recorded of one job. */
typedef struct trmi_recording {
    trmi_arena arena;
    trmi_recorded *items;
    int64_t count, capacity;
    bool dropped;    /* this rank takes part in collectives, but keeps nothing */
    bool no_outputs; /* operators' outputs are not recorded: a pipeline has none of other stages */
} trmi_recording;

/* Frees the recorded tensors and zeroes the struct. */
void trmi_recording_free(trmi_recording *recording);
/* Trains `steps` steps and records losses, gradients and variables; then runs the first batch
 * forward once more and records the operators' outputs. `nudge` > 0: parameters begin with a
 * random relative change of that size. Collective when `model` has many ranks.
 *   errors  NOMEM, those of training */
trm_status trmi_verify_record(const trm_model_options *model, int32_t steps, double nudge,
                              trmi_recording *out, trm_error *err);

#endif
