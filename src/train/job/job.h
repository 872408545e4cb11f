/* SPDX-License-Identifier: Apache-2.0 */
/* train/job/job.h: the description of a training job that its checkpoints carry, and its comparison
 * at a resume.
 *
 *    checkpoint, job.json   {"data": "60000 samples, digest ...", "network": ..., "learning_rate": 0.1}
 *          |                                                              ^
 *          v                                                              |
 *    resume: the same keys of this run --> "data", "network", "precision", "backend", "optimizer": must be equal
 *                                          other keys may differ; one line of the log lists the
 *                                          changes
 *
 * tests/resume_options_test.sh goes through all options of `trireme train`: an option that changes
 * results has a key here, or changes "data" or "network". */
#ifndef TRMI_TRAIN_JOB_JOB_H
#define TRMI_TRAIN_JOB_JOB_H

#include "trireme/train.h"

#include "base/memory.h"

/* Appends a JSON object that describes the model's job to `text`; without the key "data" if
 * `data` is NULL. Reads samples of `data` for the digest.   errors  NOMEM, those of
 * trmi_dataset_fingerprint */
trm_status trmi_job_describe(const trm_model *model, const trm_dataset *data, trmi_text *text,
                             trm_error *err);
/* Compares this run with the description `saved` (a JSON object; NULL: the checkpoint has none,
 * and everything is accepted). `where` names the checkpoint in messages. Keys that only one
 * description has are not compared. With `data`, rank 0 logs the accepted differences.
 *   errors  INVALID: another job, unless the model's accept_changes is set; NOMEM */
trm_status trmi_job_compare(const trm_model *model, const trm_dataset *data, const char *saved,
                            const char *where, trm_error *err);
/* Compares the descriptions of a process and of the ranks that it joins: all keys must be equal,
 * but those that follow from the number of ranks, and those that only one description has.
 *   errors  INVALID: a value differs; NOMEM */
trm_status trmi_job_compare_ranks(const char *mine, const char *theirs, trm_error *err);

#endif
