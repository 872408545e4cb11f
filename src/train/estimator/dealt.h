/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/dealt.h: where in the data a step is, of workers that keep step and have their
 * samples dealt to them.
 *
 *      step   0 ......... 30 ............... 70 ....
 *             | 2 workers | 3 workers        | 2 workers      stretches: each begins where the one before was
 *
 * As long as workers and batch are the same, a step is a batch of each. A job that is continued
 * with others deals what is left of its epoch anew (trmi_dataset_deal), and begins a stretch.
 */
#ifndef TRMI_TRAIN_DEALT_H
#define TRMI_TRAIN_DEALT_H

#include "trireme/data.h"

enum { TRMI_STRETCHES = 16 }; /* the last ones are kept: who comes back has not been away longer */

typedef struct trmi_stretch {
    int64_t step;        /* its first, counted from 0 */
    int64_t epoch, used; /* where it begins: samples of this epoch that had been used */
    int64_t workers, batch;
    int64_t batches; /* of a worker in an epoch */
    /* in its first epoch batches are counted from here: the others make `batches` of them */
    int64_t first;
} trmi_stretch;

typedef struct trmi_dealt {
    int64_t workers; /* of this life */
    trmi_stretch list[TRMI_STRETCHES];
    int32_t count;
} trmi_dealt;

/* The batch that comes after so many steps, its epoch's batches counted as the stretch does. */
void trmi_stretch_at(const trmi_stretch *stretch, int64_t steps, int64_t *epoch, int64_t *batch);
/* With which step a worker begins that has made so many: a job that is continued with more workers
 * does not wait until the new ones have made what it had before them. */
int64_t trmi_dealt_newcomer(const trmi_dealt *dealt, int64_t steps);
/* After so many steps this life goes on: in the stretch in which they lie, or, with other workers
 * or batches, in a new one. The
 * dataset is this worker's shard; it deals its epochs accordingly.   errors  INVALID, those of trm_dataset_check
 */
trm_status trmi_dealt_begin(trmi_dealt *dealt, trm_dataset *data, int64_t batch, int64_t steps,
                            trmi_stretch *out, trm_error *err);

#endif
