/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of the blocks of samples, and the exchange of the statistics that norms and losses make of
 * each block: every rank of a group has those of all blocks in the order of the blocks' numbers. */
#include "exec/determinism/strict.h"

#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* Where peers reach it, with many ranks. */
static void *reachable(trm_exec *exec, size_t bytes, trm_error *err) {
    void *memory = NULL;
    return trmi_distribution_memory(exec, bytes, &memory, err) == TRM_UNSUPPORTED ? trmi_map(bytes)
                                                                                  : memory;
}

/* ---- numbers --------------------------------------------------------------------------------- */

trm_status trmi_strict_number(trm_exec *exec, trm_error *err) {
    trmi_strict *s = trmi_strict_of(exec);
    int64_t nodes = trmi_tree_blocks(&s->sum.tree);
    const trmi_tree tree = trmi_tree_of(s->count);
    TRMI_TRY(TRMI_NEW(err, s->numbers, s->count, "for blocks of samples"));
    TRMI_TRY(TRMI_NEW(err, s->all_numbers, s->total, "for blocks of samples"));
    TRMI_TRY(TRMI_NEW(err, s->slots, nodes, "for blocks of samples"));
    int32_t dealt = s->split ? 1 : s->ranks, rank = s->split ? 0 : s->rank;
    for (int32_t j = 0; j < s->count; j++) {
        int64_t at = trmi_tree_position(&tree, j);
        s->numbers[at] = j * dealt + rank;
        for (int32_t r = 0; r < dealt; r++) {
            s->all_numbers[r * s->count + at] = j * dealt + r;
        }
    }
    for (int64_t b = 0; b < nodes; b++) {
        int64_t slot =
            s->apart ? b % s->ranks * s->count + trmi_tree_position(&tree, b / s->ranks) : b;
        s->slots[trmi_tree_position(&s->sum.tree, b)] = (int32_t)slot;
    }
    return TRM_OK;
}

/* ---- statistics ------------------------------------------------------------------------------ */

static trm_status gather(trmi_norm_sync *sync, const double *values, int64_t count,
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
    g->sync = (trmi_norm_sync){.size = s->total, .blocks = g->local, .gather = gather};
    TRMI_TRY(TRMI_NEW(err, g->sync.values, g->local * g->capacity, "for blocks of samples"));
    g->ordered = trmi_map(g->bytes);
    g->gathered = s->split ? trmi_map(g->bytes) : reachable(exec, g->bytes, err);
    if (g->ordered == NULL || g->gathered == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for the statistics of %d blocks of samples",
                         s->total);
    }
    exec->env.block_sync[axes] = &g->sync;
    return TRM_OK;
}

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

static void unmap(void *memory, size_t bytes) {
    if (memory != NULL) {
        trmi_unmap(memory, bytes);
    }
}

void trmi_strict_close_groups(trmi_strict *s) {
    for (int axes = 0; axes < TRMI_PARTITION_MASKS; axes++) {
        trmi_block_group *g = &s->groups[axes];
        if (s->ranks == 1 || s->split) { /* else freed with the communicator's memory */
            unmap(g->gathered, g->bytes);
        }
        unmap(g->ordered, g->bytes);
        trmi_free(g->sync.values);
    }
    trmi_free(s->numbers);
    trmi_free(s->all_numbers);
    trmi_free(s->slots);
}
