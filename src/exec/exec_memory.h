/* exec/exec_memory.h: what programs make resident: the planner asks before there is an executor, the executor tells the same
 * afterwards (trm_exec_describe). Pure but for one look at the machine's page size; any thread. */
#ifndef TRMI_EXEC_EXEC_MEMORY_H
#define TRMI_EXEC_EXEC_MEMORY_H

#include "plan/program.h"

/* Bytes of an arena in whole pages. `ranks`: those of a host have their parameters, gradients and casts where the others
 * can reach them. */
int64_t trmi_program_arena_resident(const trm_program *program, int arena, bool ranks);
/* Batches of a split program as callers feed them, whole, beside the parts in the arena INPUT; `own_samples`: and what this
 * rank feeds of them. 0 where nothing is split. */
int64_t trmi_program_fed_bytes(const trm_program *program, int32_t ranks, bool own_samples);
/* By which a process grows that makes an executor of the program with `slots` copies of the parameters for the optimiser,
 * and trains: its arenas, the fed batch, what its exchanges stage, and what executors need beside them. */
int64_t trmi_program_resident(const trm_program *program, int32_t slots, int32_t ranks, bool own_samples);

#endif
