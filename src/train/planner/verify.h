/* SPDX-License-Identifier: Apache-2.0 */
/* train/planner/verify.h: recordings of a job, which verify holds against each other. */
#ifndef TRMI_TRAIN_VERIFY_H
#define TRMI_TRAIN_VERIFY_H

#include "trireme/verify.h"

#include "base/memory.h"

typedef struct trmi_recorded {
    trm_verify_kind kind;
    const char *name;
    int64_t count;
    float *values;
} trmi_recorded;

typedef struct trmi_recording {
    trmi_arena arena;
    trmi_recorded *items;
    int64_t count, capacity;
    bool dropped; /* this rank takes part, but keeps nothing */
} trmi_recording;

void trmi_recording_free(trmi_recording *recording);
/* Trains `steps`, and runs the first batch forward once more with what operators make. `nudge` > 0:
 * parameters begin so far from theirs, relative. Collective when `model` is of many ranks. */
trm_status trmi_verify_record(const trm_model_options *model, int32_t steps, double nudge,
                              trmi_recording *out, trm_error *err);

#endif
