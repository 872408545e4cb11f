/* SPDX-License-Identifier: Apache-2.0 */
/* exec/exec_memory.h: predicts the resident memory of a program. The planner and memory limits call
 * it before an executor exists; trm_exec_get_info reports the same numbers afterwards. Depends only
 * on the arguments and the machine's page size; any thread. */
#ifndef TRMI_EXEC_EXEC_MEMORY_H
#define TRMI_EXEC_EXEC_MEMORY_H

#include "plan/lower/program.h"

/* Returns the bytes of an arena, in whole pages. `ranks`: parameters, gradients, casts and
 * COOPERATIVE are in shared memory, as with several ranks of a host. */
int64_t trmi_program_arena_resident(const trm_program *program, int arena, bool ranks);
/* Returns the bytes of fed batches beside the arena INPUT. `own_samples`: each rank of a split
 * program feeds its samples, so it holds them and the whole batch. Otherwise 0: batches are written
 * to INPUT. */
int64_t trmi_program_fed_bytes(const trm_program *program, int32_t ranks, bool own_samples);
/* Returns by how many bytes a rank grows when the casts of parameters are in memory that the ranks
 * of a host share: the casts, less the pages of ACTIVATION in which no other buffer lies. */
int64_t trmi_program_shared_casts(const trm_program *program);
/* How a program is trained. */
typedef struct trmi_training {
    int32_t slots, ranks; /* slots of the optimiser, each as large as PARAM; ranks of the job */
    bool own_samples;     /* as above */
    bool sliced;          /* each rank has only its slice of the slots */
    /* the ranks of one host share one copy of the parameters and their casts */
    bool one_copy;
    bool accumulates; /* gradients of several batches are added up */
    bool packs;       /* gradients are sent in 16 bits */
    bool ordered;     /* exchanges sum in a fixed order: the communicator is deterministic */
} trmi_training;
/* Returns the bytes by which a process grows when it makes an executor of the program and trains:
 * arenas, slots, fed batches, staging of exchanges, packed gradients, messages between stages, heap
 * of the executor. */
int64_t trmi_program_resident(const trm_program *program, const trmi_training *training);

#endif
