/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/warm_start.h: servers' rows that begin with the weights of a checkpoint or a
 * .safetensors file. */
#ifndef TRMI_TRAIN_WARM_START_H
#define TRMI_TRAIN_WARM_START_H

#include "train/estimator/estimator.h"

typedef struct trmi_warm_start trmi_warm_start;

/* Opens the weights at `path`: a .safetensors file or a folder of checkpoints.
 *   errors  IO: nothing there; CORRUPT, NOMEM
 *   owns    the caller, trmi_warm_start_close */
trm_status trmi_warm_start_open(const char *path, trmi_warm_start **out, trm_error *err);
/* Closes the file. NULL is accepted. */
void trmi_warm_start_close(trmi_warm_start *warm);
/* Opens, for a server, the weights that the job began with, or begins with now. *out NULL: the job
 * begins with initial values. `folder`: the servers', "": none.
 *   errors  as trmi_warm_start_open */
trm_status trmi_warm_start_of_job(const trm_estimator *e, const char *folder, trmi_warm_start **out,
                                  trm_error *err);
/* Writes row `key` of `table` to values[width]; returns false if the file does not have it. It
 * is a trm_ps_source.read; `context` is the warm start.
 *   threads  any */
bool trmi_warm_start_row(void *context, const char *table, uint64_t key, int32_t width,
                         float *values);
/* Checks, for a trainer, that the file's tensors that the model has too are of its shapes, and logs
 * how many are missing.
 *   errors  INVALID: another shape or dtype, no tensor in common, or one is missing in a Hugging
 *           Face folder; UNSUPPORTED: those of trmi_weights_check_copies */
trm_status trmi_warm_start_check(const trmi_warm_start *warm, const trm_model *model,
                                 trm_error *err);

#endif
