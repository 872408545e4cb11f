/* SPDX-License-Identifier: Apache-2.0 */
/* train/diverge.h: whether the loss runs away, noticed before it is astronomic. */
#ifndef TRMI_TRAIN_DIVERGE_H
#define TRMI_TRAIN_DIVERGE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct trmi_divergence {
    double first, average; /* the loss at first, and of the last steps */
    int64_t steps;
    bool said;
} trmi_divergence;

typedef enum trmi_course {
    TRMI_COURSE_FINE,
    TRMI_COURSE_GROWS, /* several times what it was at first: told once */
    TRMI_COURSE_LOST   /* a million times */
} trmi_course;

/* Notes a step's loss, which is finite. Zero is the beginning of a run. */
trmi_course trmi_divergence_note(trmi_divergence *d, double loss);

#endif
