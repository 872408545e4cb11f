/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/dealt.h: which batch belongs to a step, for synchronous workers that each read
 * a shard of the data.
 *
 *        step   0 ......... 30 ............... 70 ....
 *               | 2 workers | 3 workers        | 2 workers      stretches: each begins where the one before ended
 *
 * As long as the number of workers and the batch size stay the same, a step uses one batch of
 * each worker, and the position in the data follows from the step number. A job that is
 * continued with other numbers divides the rest of the current epoch anew (trmi_dataset_deal)
 * and begins a new stretch. job.json keeps the list of stretches, so that every later run finds
 * the position of a step. */
#ifndef TRMI_TRAIN_DEALT_H
#define TRMI_TRAIN_DEALT_H

#include "trireme/data.h"

enum { TRMI_STRETCHES = 16 }; /* stretches kept; a returning worker is at most that many behind */

/* A range of steps with the same number of workers and batch size. */
typedef struct trmi_stretch {
    int64_t step;        /* first step of the stretch, from 0 */
    int64_t epoch, used; /* position at its beginning: epoch, and samples of it already used */
    int64_t workers, batch;
    int64_t batches; /* batches of one worker in an epoch */
    /* Number of its first batch within its first epoch: the rest of that epoch is numbered so
     * that it ends with `batches`. */
    int64_t first;
} trmi_stretch;

/* All stretches of a job, oldest first. */
typedef struct trmi_dealt {
    int64_t workers; /* workers in the current run */
    trmi_stretch list[TRMI_STRETCHES];
    int32_t count;
} trmi_dealt;

/* Sets *epoch and *batch to the batch that follows after `steps` steps, which must lie in
 * `stretch`. */
void trmi_stretch_at(const trmi_stretch *stretch, int64_t steps, int64_t *epoch, int64_t *batch);
/* Returns the step with which a worker begins that has made `steps` steps. A worker that is new
 * in a continued job (0 steps) begins with the latest stretch, so that the other workers need
 * not wait for it. */
int64_t trmi_dealt_newcomer(const trmi_dealt *dealt, int64_t steps);
/* Continues the job after `steps` steps: in the last stretch if workers and batch size are
 * unchanged, else in a new one, which is appended. Divides the epoch in `data`, this worker's
 * shard, accordingly. *out: the stretch.
 *   errors  INVALID, those of trm_dataset_check */
trm_status trmi_dealt_begin(trmi_dealt *dealt, trm_dataset *data, int64_t batch, int64_t steps,
                            trmi_stretch *out, trm_error *err);

#endif
