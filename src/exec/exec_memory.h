/* SPDX-License-Identifier: Apache-2.0 */
/* exec/exec_memory.h: what programs make resident: the planner asks before there is an executor,
 * the executor tells the same afterwards (trm_exec_describe). Pure but for one look at the
 * machine's page size; any thread. */
#ifndef TRMI_EXEC_EXEC_MEMORY_H
#define TRMI_EXEC_EXEC_MEMORY_H

#include "plan/lower/program.h"

/* Bytes of an arena in whole pages. `ranks`: those of a host have their parameters, gradients and
 * casts where the others can reach them. */
int64_t trmi_program_arena_resident(const trm_program *program, int arena, bool ranks);
/* `own_samples`: batches of a split program beside the parts in the arena INPUT: what this rank
 * feeds of them, and the whole. Else 0: what is fed whole goes straight into that arena. */
int64_t trmi_program_fed_bytes(const trm_program *program, int32_t ranks, bool own_samples);
/* How it is trained with. */
typedef struct trmi_training {
    int32_t slots, ranks; /* copies of the parameters for the optimiser */
    bool own_samples;     /* as above */
    bool sliced;          /* each rank has a slice of the slots ... */
    /* ... and on one host all have the parameters, and their casts, in common */
    bool one_copy;
    bool accumulates; /* gradients of several batches are added up */
    bool packs;       /* gradients travel in 16 bits */
    bool ordered;     /* sums of exchanges keep an order: the communicator is deterministic */
} trmi_training;
/* By which a process grows that makes an executor of the program, and trains: its arenas, slots,
 * the fed batch, what its exchanges stage, packed gradients, and what executors need beside them.
 */
int64_t trmi_program_resident(const trm_program *program, const trmi_training *training);

#endif
