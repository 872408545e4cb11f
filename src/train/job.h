/* SPDX-License-Identifier: Apache-2.0 */
/* train/job.h: what makes a training job, kept in its checkpoints.
 *
 *   checkpoint, job.json   {"data": "60000 samples, digest ...", "network": ..., "learning_rate": 0.1}
 *         |                                                              ^
 *         v                                                              |
 *   resume: the same keys of this run --> "data", "network", "precision", "backend": must be equal
 *                                         the others may differ, and one line says how
 */
#ifndef TRMI_TRAIN_JOB_H
#define TRMI_TRAIN_JOB_H

#include "trireme/train.h"

#include "base/memory.h"

/* Appends a JSON object that describes the model's job; without "data" where `data` is NULL.
 *   error  NOMEM */
trm_status trmi_job_describe(const trm_model *model, const trm_dataset *data, trmi_text *text,
                             trm_error *err);
/* Holds this run against the description `saved` (a JSON object; NULL: an older version kept none)
 * of `where`. Keys that one of the two lacks are not compared. With `data`, logs what differs and
 * may.
 *   error  INVALID: another job, unless the model's accept_changes is set */
trm_status trmi_job_compare(const trm_model *model, const trm_dataset *data, const char *saved,
                            const char *where, trm_error *err);

#endif
