/* SPDX-License-Identifier: Apache-2.0 */
/* train/estimator/states_file.h: the running statistics of a synchronous chief after its latest two
 * batches, in model_dir/states.bin. Servers do not hold them; a chief that is killed and started
 * again continues with those of the batch that the servers have, not of the newest checkpoint. */
#ifndef TRMI_TRAIN_ESTIMATOR_STATES_FILE_H
#define TRMI_TRAIN_ESTIMATOR_STATES_FILE_H

#include "trireme/exec.h"

typedef struct trmi_states_file trmi_states_file;

/* Opens the file for writing. *out is NULL where the program has no states.
 *   errors  NOMEM, IO   owns caller, trmi_states_close (NULL is fine) */
trm_status trmi_states_open(const char *model_dir, const trm_exec *exec, trmi_states_file **out,
                            trm_error *err);
void trmi_states_close(trmi_states_file *file);
/* Writes the states after batch number `batch` over those of the batch before the last.
 *   errors  IO, NOSPACE */
trm_status trmi_states_write(trmi_states_file *file, const trm_exec *exec, int64_t batch,
                             trm_error *err);
/* Loads the states after this batch. False: the file does not have them, nothing changes. */
bool trmi_states_load(const char *model_dir, trm_exec *exec, int64_t batch);

#endif
