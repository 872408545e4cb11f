/* SPDX-License-Identifier: Apache-2.0 */
/* train/export/gather.h: a program's variables (parameters, states, the optimiser's slots) as named
 * tensors in plain layout, as files have them.
 *
 *         saving    trm_exec --trmi_gather--> named tensors --> checkpoints, safetensors, ONNX
 *         loading   checkpoint --trmi_model_take_newest, trmi_layerwise_restore--> trm_exec
 *
 * The names are those of the graph, so a file fits each program of the same network, whatever its
 * layouts, plan and number of ranks. */
#ifndef TRMI_TRAIN_GATHER_H
#define TRMI_TRAIN_GATHER_H

#include "trireme/exec.h"
#include "trireme/io.h"
#include "trireme/train.h"

#include "base/memory.h"

/* model_save.c: returns whether a variable belongs to the part "optimizer" (`slots`) or else to the
 * part "model". */
bool trmi_in_part(const trm_variable *variable, bool slots);
/* Copies parameters and states, or with `slots` the optimiser's slots, in plain layout into
 * memory of `arena`. *out: *count named tensors, for trm_checkpoint_part and the writers of
 * files.
 *   errors  NOMEM */
trm_status trmi_gather(trm_exec *exec, bool slots, trmi_arena *arena, trm_named_tensor **out,
                       int64_t *count, trm_error *err);

/* model_resume.c: loads the newest checkpoint in `dir` on this rank alone: parameters, states, and
 * slots where it has them. *step: the checkpoint's step, -1 if there is none.
 *   errors  CORRUPT, INVALID, IO, NOMEM */
trm_status trmi_model_take_newest(trm_model *model, const char *dir, int64_t *step, trm_error *err);

/* layerwise.c: parameters that each rank has for itself (hybrid_parallel).
 *
 *   trmi_has_layerwise       returns whether the model has such parameters
 *   trmi_layerwise_gather    collective; collects those of all ranks into `part`, which rank 0 writes; memory of `arena`
 *   trmi_layerwise_restore   loads those of this rank; INVALID if the checkpoint has none or is of another rank count */
bool trmi_has_layerwise(const trm_model *model);
trm_status trmi_layerwise_gather(const trm_model *model, trmi_arena *arena,
                                 trm_checkpoint_part *part, trm_error *err);
trm_status trmi_layerwise_restore(trm_model *model, const trm_checkpoint *checkpoint,
                                  trm_error *err);

#endif
