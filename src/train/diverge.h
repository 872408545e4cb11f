/* SPDX-License-Identifier: Apache-2.0 */
/* train/diverge.h: detects a loss that grows, early enough for a useful warning. */
#ifndef TRMI_TRAIN_DIVERGE_H
#define TRMI_TRAIN_DIVERGE_H

#include "trireme/train.h"

/* State of the check: losses of a run so far; all zero at the beginning. */
typedef struct trmi_divergence {
    double first, average; /* loss of the first step; mean over the last steps */
    int64_t steps;
    /* TRMI_COURSE_GROWS has been returned */
    bool said;
} trmi_divergence;

/* Result of the check for one loss. */
typedef enum trmi_course {
    TRMI_COURSE_FINE,
    TRMI_COURSE_GROWS, /* 4 times the first loss and more; returned once a run */
    TRMI_COURSE_LOST   /* a million times the first loss */
} trmi_course;

/* Adds the loss of a step, which must be finite, and returns the course. */
trmi_course trmi_divergence_note(trmi_divergence *d, double loss);

/* Returns DIVERGED, with the epoch, step and loss of `progress` in `err`, for a loss that is not
 * finite. */
trm_status trmi_divergence_fail(const trm_progress *progress, trm_error *err);

#endif
