/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers the blocks of samples, and exchanges the statistics that norms and losses compute for
 * each block. After the exchange every rank of a group has the statistics of all blocks, in the
 * order of the blocks' numbers: each rank then adds them in the same order, and gets the same
 * bits. */
#include "exec/determinism/strict.h"

#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* Takes memory that peers can reach; with one rank, ordinary memory. NULL without memory. */
static void *take_reachable(trm_exec *exec, size_t bytes, trm_error *err) {
    void *memory = NULL;
    return trmi_distribution_memory(exec, TRMI_ARENA_NONE, bytes, &memory, err) == TRM_UNSUPPORTED
               ? trmi_map(bytes)
               : memory;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Contract in strict.h. Block j of rank r is block j * ranks + r of the whole batch, so that the
 * sums over blocks of one rank are subtrees wherever the number of ranks allows it. */
trm_status trmi_strict_number(trm_exec *exec, trm_error *err) {
    trmi_strict *s = trmi_strict_of(exec);
    int64_t nodes = trmi_tree_blocks(&s->sum.tree);
    const trmi_tree tree = trmi_tree_of(s->count);
    TRMI_TRY(TRMI_NEW(err, s->numbers, s->count, "for blocks of samples"));
    TRMI_TRY(TRMI_NEW(err, s->all_numbers, s->total, "for blocks of samples"));
    TRMI_TRY(TRMI_NEW(err, s->slots, nodes, "for blocks of samples"));
    int32_t ranks = s->split ? 1 : s->ranks, rank = s->split ? 0 : s->rank;
    for (int32_t j = 0; j < s->count; j++) {
        int64_t at = trmi_tree_position(&tree, j);
        s->numbers[at] = j * ranks + rank;
        for (int32_t r = 0; r < ranks; r++) {
            s->all_numbers[r * s->count + at] = j * ranks + r;
        }
    }
    /* Where the exchange puts the sum of node b: by the rank that has it, then by its place
     * there. */
    for (int64_t b = 0; b < nodes; b++) {
        int64_t slot = s->single_blocks
                           ? b % s->ranks * s->count + trmi_tree_position(&tree, b / s->ranks)
                           : b;
        s->slots[trmi_tree_position(&s->sum.tree, b)] = (int32_t)slot;
    }
    return TRM_OK;
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Gathers the statistics of this rank's blocks, `count` numbers a block, from all ranks of the
 * group. *all: the statistics of all blocks, by number; valid until the next call. */
static trm_status gather_statistics(trmi_norm_sync *sync, const double *values, int64_t count,
                                    const double **all, trm_error *err) {
    trmi_block_group *g = (trmi_block_group *)(void *)sync;
    TRMI_ASSERT(count <= g->capacity);
    memcpy(g->gathered + g->self * g->local * count, values,
           (size_t)(g->local * count) * sizeof *values);
    if (g->comm != NULL) {
        const trm_collective op = {.kind = TRM_ALLGATHER,
                                   .recv = g->gathered,
                                   .count = g->local * count,
                                   .dtype = TRM_FLOAT64,
                                   .tag = "statistics of blocks"};
        TRMI_TRY(trm_comm_run(g->comm, &op, err));
    }
    for (int32_t i = 0; i < sync->size; i++) {
        memcpy(g->ordered + g->numbers[i] * count, g->gathered + i * count,
               (size_t)count * sizeof *values);
    }
    *all = g->ordered;
    return TRM_OK;
}

/* Returns how many numbers the statistics of a block have at most: mean and square sum of each
 * channel of the widest norm, and a count. */
static int64_t widest_statistics(const trm_program *program) {
    int64_t widest = 2;
    for (int32_t i = 0; i < program->steps_count; i++) {
        const trmi_step *s = &program->steps[i];
        bool norm = s->kind == TRMI_STEP_OP &&
                    (s->op_kind == TRMI_OP_BATCH_NORM || s->op_kind == TRMI_OP_NORM_ACT);
        widest = norm ? trmi_max_i64(widest, program->buffers[s->inputs[0]].shape.dim[1]) : widest;
    }
    return 2 * widest + 1;
}

/* Takes the memory of one group, and gives its exchange to the kernels whose values differ along
 * the mesh axes `axes`. comm NULL: this rank is the group. */
static trm_status open_group(trm_exec *exec, uint32_t axes, trm_comm *comm, trm_error *err) {
    trmi_strict *s = trmi_strict_of(exec);
    trmi_block_group *g = &s->groups[axes];
    int32_t ranks = comm != NULL ? trm_comm_size(comm) : 1;
    g->comm = comm;
    g->self = comm != NULL ? trm_comm_rank(comm) : 0;
    g->local = s->total / ranks;
    g->numbers = s->all_numbers;
    g->capacity = widest_statistics(exec->program);
    g->bytes = (size_t)(s->total * g->capacity) * sizeof *g->gathered;
    g->sync = (trmi_norm_sync){.size = s->total, .blocks = g->local, .gather = gather_statistics};
    TRMI_TRY(TRMI_NEW(err, g->sync.values, g->local * g->capacity, "for blocks of samples"));
    g->ordered = trmi_map(g->bytes);
    g->gathered = s->split ? trmi_map(g->bytes) : take_reachable(exec, g->bytes, err);
    if (g->ordered == NULL || g->gathered == NULL) {
        return TRMI_NO_MEMORY(err, "for the statistics of %d blocks of samples", s->total);
    }
    exec->env.block_sync[axes] = &g->sync;
    return TRM_OK;
}

/* Contract in strict.h. One group of all ranks, and in split programs one for each set of mesh axes
 * whose number of ranks divides the largest power of two in the number of blocks. */
trm_status trmi_strict_open_groups(trm_exec *exec, trm_error *err) {
    trmi_strict *s = trmi_strict_of(exec);
    TRMI_TRY(open_group(exec, 0, s->comm, err));
    int32_t classes = s->total & -s->total;
    for (uint32_t axes = 1; axes < TRMI_PARTITION_MASKS && s->split; axes++) {
        trm_comm *comm = trmi_parallel_of(exec)->split->groups[axes].comm;
        if (comm != NULL && classes % trm_comm_size(comm) == 0) {
            TRMI_TRY(open_group(exec, axes, comm, err));
        }
    }
    return TRM_OK;
}

static void unmap_memory(void *memory, size_t bytes) {
    if (memory != NULL) {
        trmi_unmap(memory, bytes);
    }
}

/* Contract in strict.h. A group that was never opened has NULL everywhere. */
void trmi_strict_close_groups(trmi_strict *s) {
    for (int axes = 0; axes < TRMI_PARTITION_MASKS; axes++) {
        trmi_block_group *g = &s->groups[axes];
        if (s->ranks == 1 || s->split) { /* else freed with the communicator's memory */
            unmap_memory(g->gathered, g->bytes);
        }
        unmap_memory(g->ordered, g->bytes);
        trmi_free(g->sync.values);
    }
    trmi_free(s->numbers);
    trmi_free(s->all_numbers);
    trmi_free(s->slots);
}
