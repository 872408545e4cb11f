/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/warm_start.h: servers' rows that begin with the weights of a checkpoint or a
 * .safetensors file. */
#ifndef TRMI_TRAIN_WARM_START_H
#define TRMI_TRAIN_WARM_START_H

#include "train/estimator/estimator.h"

typedef struct trmi_warm_start trmi_warm_start;

/* errors  IO (nothing there), CORRUPT, NOMEM     owns  caller, trmi_warm_start_close */
trm_status trmi_warm_start_open(const char *path, trmi_warm_start **out, trm_error *err);
void trmi_warm_start_close(trmi_warm_start *warm);
/* For a server: what the job began with, or begins with now; *out NULL: with nothing. `folder`: of
 * the servers, "" = none.
 *   errors  as open */
trm_status trmi_warm_start_of_job(const trm_estimator *e, const char *folder, trmi_warm_start **out,
                                  trm_error *err);
/* trm_ps_source.read; `context` is the warm start.   thread any */
bool trmi_warm_start_row(void *context, const char *table, uint64_t key, int32_t width,
                         float *values);
/* For a trainer: whether all tensors of the file that the model has are as the model's. Says which are missing.   errors  INVALID
 */
trm_status trmi_warm_start_check(const trmi_warm_start *warm, const trm_model *model,
                                 trm_error *err);

#endif
