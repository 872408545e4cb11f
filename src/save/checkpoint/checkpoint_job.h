/* SPDX-License-Identifier: Apache-2.0 */
/* save/checkpoint/checkpoint_job.h: one save: everything it needs, independent of the caller's
 * memory once it has been copied, and the steps that make it durable. */
#ifndef TRMI_SAVE_CHECKPOINT_JOB_H
#define TRMI_SAVE_CHECKPOINT_JOB_H

#include "save/checkpoint/checkpoint.h"
#include "save/formats/safetensors.h"

typedef struct trmi_checkpoint_job {
    trmi_arena arena;
    trm_checkpoint_info info;
    trm_named_tensor **tensors; /* by part */
    trmi_safetensors_layout *layouts;
    trmi_manifest_file *files; /* one for each part; digests filled while writing */
    int64_t part_count;
    int64_t bytes; /* of all files but the manifest */
    bool reads;    /* some tensor is read while it is written: there is nothing to copy */
} trmi_checkpoint_job;

/* Checks the input and prepares all headers; tensors are still the caller's.
 *   errors  TRM_INVALID, TRM_NOMEM */
trm_status trmi_checkpoint_job_create(trmi_checkpoint_job *job, const trm_checkpoint_info *info,
                                      const trm_checkpoint_part *parts, int64_t part_count,
                                      trm_error *err);
/* Copies all tensors to `memory` (job->bytes long), after which the caller may change his. */
void trmi_checkpoint_job_copy(trmi_checkpoint_job *job, uint8_t *memory);
/* Writes <dir>/ckpt-<step>: complete and durable on TRM_OK, otherwise what was there
 * before still is. */
trm_status trmi_checkpoint_job_write(trmi_checkpoint_job *job, const char *dir, const trmi_os *os,
                                     trm_error *err);
void trmi_checkpoint_job_free(trmi_checkpoint_job *job);

#endif
