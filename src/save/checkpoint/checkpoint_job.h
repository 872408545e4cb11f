/* SPDX-License-Identifier: Apache-2.0 */
/* save/checkpoint/checkpoint_job.h: one save. A job holds everything that a save needs, so that
 * after trmi_checkpoint_job_copy it no longer depends on the caller's memory, and a thread may
 * write it. */
#ifndef TRMI_SAVE_CHECKPOINT_JOB_H
#define TRMI_SAVE_CHECKPOINT_JOB_H

#include "save/checkpoint/checkpoint.h"
#include "save/formats/safetensors.h"

/* One save. */
typedef struct trmi_checkpoint_job {
    trmi_arena arena;           /* texts and arrays of the job */
    trm_checkpoint_info info;   /* its texts are in the arena */
    trm_named_tensor **tensors; /* [part_count] the tensors of each part */
    /* [part_count] headers and order */
    trmi_safetensors_layout *layouts;
    trmi_manifest_file *files; /* [part_count] the digests are filled while writing */
    int64_t part_count;        /* number of parts, one file for each */
    int64_t bytes;             /* of all files but the manifest */
    /* some tensors are read in pieces while they are written, so they cannot be copied */
    bool reads;
} trmi_checkpoint_job;

/* Checks the input and builds the headers of all files. The tensors' data still belong to the
 * caller.
 *   errors  INVALID, NOMEM */
trm_status trmi_checkpoint_job_create(trmi_checkpoint_job *job, const trm_checkpoint_info *info,
                                      const trm_checkpoint_part *parts, int64_t part_count,
                                      trm_error *err);
/* Copies all tensors to `memory` (job->bytes long); the caller may then change its own. */
void trmi_checkpoint_job_copy(trmi_checkpoint_job *job, uint8_t *memory);
/* Writes <dir>/ckpt-<step>. On TRM_OK it is complete and durable; otherwise the directory still has
 * what it had before. */
trm_status trmi_checkpoint_job_write(trmi_checkpoint_job *job, const char *dir, const trmi_os *os,
                                     trm_error *err);
/* Frees the job; the copied data belong to the caller of trmi_checkpoint_job_copy. */
void trmi_checkpoint_job_free(trmi_checkpoint_job *job);

#endif
