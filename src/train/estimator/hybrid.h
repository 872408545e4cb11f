/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/hybrid.h: workers that compute a batch together: those of hybrid training, which
 * all-reduce dense gradients among themselves while only embedding tables are on servers, and those
 * of strict determinism.
 *
 *        a worker dies    the all-reduce of the other workers fails: each keeps its dense parameters
 *                         (trmi_dense_keep) and begins a new life, in which it waits for all
 *                         workers
 *        it comes back    all workers join again; the worker whose dense parameters are of the servers' step
 *                         broadcasts them
 *        all have died    rank 0 loads the newest checkpoint, whose dense parameters may be older than the tables */
#ifndef TRMI_TRAIN_HYBRID_H
#define TRMI_TRAIN_HYBRID_H

#include "train/model.h"

/* Copies of parameters, states and slots that survive the model they come from. All zero: none. */
typedef struct trmi_dense {
    trmi_arena arena;
    void **values; /* by index of the variable; NULL: not kept */
    int32_t count;
    uint64_t step; /* updates that they contain */
} trmi_dense;

/* Copies the model's dense parameters, states and slots into `dense`, in place of an older copy.
 * Without memory nothing is kept, and another worker's copy or the checkpoint is used.
 *   threads  no other thread uses the model */
void trmi_dense_keep(trmi_dense *dense, const trm_model *model);
/* Frees the copies and zeroes the struct. */
void trmi_dense_free(trmi_dense *dense);
/* The dense parameters that a worker keeps from a life that another worker's death has ended. */
enum { TRMI_DENSE_KEPT = 2 }; /* parameters as they are, and strict: with the update that is owed */
/* Hybrid: gives all workers the same dense parameters before training, and sets the batch that
 * comes next. The parameters are those of the worker nearest to the servers' step: of `kept` from
 * its last life, or on rank 0 the newest checkpoint in `dir` (NULL: none). Collective.
 *   errors  NOMEM, CORRUPT, those of trm_comm_run */
trm_status trmi_dense_begin(trm_model *model, const trmi_dense kept[TRMI_DENSE_KEPT],
                            const char *dir, trm_error *err);
/* Strict determinism, all parameters on servers: sets the batch that comes next to the one that all
 * workers have yet to push. Collective.
 *   errors  those of trm_comm_run */
trm_status trmi_workers_begin(trm_model *model, trm_error *err);

#endif
