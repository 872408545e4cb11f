/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/progress.h: log lines of rank 0 while it searches a plan. */
#ifndef TRMI_EXEC_PROGRESS_H
#define TRMI_EXEC_PROGRESS_H

#include "plan/search/search.h"

/* When the next line is due. Lines go to the log (INFO, room "plan"): the first one second after
 * the first note, then one every three seconds. Initialise with {0}. */
typedef struct trmi_progress {
    double begin, next;
} trmi_progress;

/* Logs "WHAT: 12 of 37, 8 s left at most".   total 0, seconds_left below 0: unknown,
 * not written */
void trmi_progress_note(trmi_progress *progress, int64_t done, int64_t total, double seconds_left,
                        const char *what);

/* Writes a plan in the field's words: "data parallel, mesh 2: 31 operators by samples", "mesh 2x2:
 * 30 operators by samples, 1 operator by samples and output channels (fc.linear0)", or "not cut,
 * mesh 2: 31 operators the same on every rank".   Returns text */
char *trmi_plan_words(const trmi_space *space, const trmi_choice *choice, char *text, size_t size);

#endif
