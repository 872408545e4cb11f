/* train/gather.h: a program's variables as named tensors. */
#ifndef TRMI_TRAIN_GATHER_H
#define TRMI_TRAIN_GATHER_H

#include "trireme/exec.h"
#include "trireme/save.h"

#include "base/memory.h"

/* Copies of parameters and states, or of the slots, in plain layout; all memory is `arena`'s. */
trm_status trmi_gather(trm_exec *exec, bool slots, trmi_arena *arena, trm_named_tensor **out,
                       int64_t *count, trm_error *err);

#endif
