/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/hybrid.h: dense parameters where workers reduce their gradients among each other
 * and only tables are on servers.
 *
 *      worker dies      the others' all-reduce fails: each keeps what it holds (trmi_dense_keep), and begins a new life
 *      it comes back    all meet again; who holds the step that the servers are at gives it to the others
 *      all have died    the chief has the newest checkpoint's, which may be older than the tables
 */
#ifndef TRMI_TRAIN_HYBRID_H
#define TRMI_TRAIN_HYBRID_H

#include "train/model.h"

/* Parameters, states and slots of a life that is over. All zero: none. */
typedef struct trmi_dense {
    trmi_arena arena;
    void **values; /* by variable; NULL = not kept */
    int32_t count;
    uint64_t step; /* updates that they have had */
} trmi_dense;

/* In place of what was kept before; without memory for it, nothing is.   thread  none uses the model any more
 */
void trmi_dense_keep(trmi_dense *dense, const trm_model *model);
void trmi_dense_free(trmi_dense *dense);
/* Before training, on all workers: the same dense parameters on each, and the batch that comes
 * next: `kept` (or NULL) of
 * the last life, or the newest checkpoint in `dir` (or NULL), read by rank 0.   errors  NOMEM, CORRUPT, of trm_comm_run
 */
trm_status trmi_dense_begin(trm_model *model, const trmi_dense *kept, const char *dir,
                            trm_error *err);

#endif
