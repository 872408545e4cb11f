/* SPDX-License-Identifier: Apache-2.0 */
/* train/export/gather.h: a program's variables as named tensors. */
#ifndef TRMI_TRAIN_GATHER_H
#define TRMI_TRAIN_GATHER_H

#include "trireme/exec.h"
#include "trireme/save.h"
#include "trireme/train.h"

#include "base/memory.h"

/* Copies of parameters and states, or of the slots, in plain layout; all memory is `arena`'s. */
trm_status trmi_gather(trm_exec *exec, bool slots, trmi_arena *arena, trm_named_tensor **out,
                       int64_t *count, trm_error *err);

/* resume.c: the newest checkpoint in `dir`: parameters, states, and slots where it has them, on
 * this rank alone. *step: its own,
 * -1 = there is none.   errors  CORRUPT, INVALID, IO, NOMEM */
trm_status trmi_model_take_newest(trm_model *model, const char *dir, int64_t *step, trm_error *err);

/* layerwise.c: what ranks keep to themselves (hybrid_parallel). Gather is collective; `part` is
 * rank 0's to write, all memory is `arena`'s. Restore: INVALID where the checkpoint is of another
 * kind of job, or of other ranks. */
bool trmi_has_layerwise(const trm_model *model);
trm_status trmi_layerwise_gather(const trm_model *model, trmi_arena *arena,
                                 trm_checkpoint_part *part, trm_error *err);
trm_status trmi_layerwise_restore(trm_model *model, const trm_checkpoint *checkpoint,
                                  trm_error *err);

#endif
