/* SPDX-License-Identifier: Apache-2.0 */
/* The way `slices`: each rank reduces, updates and publishes a slice of the parameters (ZeRO 1).
 *
 *      gradients   reduce-scatter: rank r has the sums of its slice
 *      norms       sums of squares by block, of the own slice; those of all ranks are added
 *      update      own slice of PARAM and of the slots
 *      publish     one host: PARAM is rank 0's memory on all ranks, a meeting suffices; then the
 *                  ranks share out the bfloat16 copies (shared_casts.c). Hosts: an all-gather
 *
 * A split graph has slices where its plan leaves every parameter whole: shard_optimizer in
 * trmi_parallel's options is false until that is known. */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/shm/shared_buffers.h"

/* Activates the way where options ask for slices of the optimiser. */
static trm_status open_slices(trm_exec *exec, trm_exec_options *options, bool *active,
                              trm_error *err) {
    (void)err;
    *active = trmi_parallel_of(exec) != NULL && options->parallel.shard_optimizer;
    return TRM_OK;
}

/* ---- one copy of the parameters on a host ---------------------------------------------------- */

/* Takes no memory for arenas that rank 0 makes for all ranks of the host: the other ranks map them
 * in share_arenas. */
static trm_status leave_arena_to_rank_0(trm_exec *exec, trmi_arena_id arena, size_t bytes,
                                        void **out, trm_error *err) {
    (void)bytes;
    (void)err;
    *out = NULL;
    bool first =
        arena == TRMI_ARENA_PARAM || arena == TRMI_ARENA_CAST || arena == TRMI_ARENA_COOPERATIVE;
    return first && trmi_parallel_may_share(exec) && trmi_parallel_of(exec)->rank != 0
               ? TRM_OK
               : TRM_UNSUPPORTED;
}

/* Maps rank 0's arena on all ranks; where that is not possible, each rank takes memory of its
 * own. */
static trm_status share_arena(trm_exec *exec, trmi_arena_id arena, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    char **own = &exec->env.arena[arena];
    size_t bytes = (size_t)exec->program->arena_bytes[arena];
    void *first;
    TRMI_TRY(trmi_comm_map_root(p->comm, *own, bytes, &first, err));
    p->common = first != NULL;
    if (p->rank != 0 && *own == NULL) {
        *own = p->common ? first : trmi_parallel_memory(p, bytes, err);
    }
    return *own != NULL ? TRM_OK : TRM_NOMEM;
}

/* Shares the arena of bfloat16 copies if all ranks have the same ones; else each rank has its
 * own. */
static trm_status share_casts(trm_exec *exec, trm_error *err) {
    char **own = &exec->env.arena[TRMI_ARENA_CAST];
    bool alike;
    TRMI_TRY(trmi_parallel_compare_casts(exec, &alike, err));
    if (alike) {
        return share_arena(exec, TRMI_ARENA_CAST, err);
    }
    size_t bytes = (size_t)exec->program->arena_bytes[TRMI_ARENA_CAST];
    *own = *own == NULL ? trmi_parallel_memory(trmi_parallel_of(exec), bytes, err) : *own;
    return *own != NULL ? TRM_OK : TRM_NOMEM;
}

/* Makes the arenas that ranks of one host have in common, and gives all ranks the seed of rank 0.
 * Each rank then makes its share of the one copy's first values; the ranks meet before one of them
 * reads the values (`begin` of the way `ranks`). */
static trm_status share_arenas(trm_exec *exec, const trm_exec_options *options, trm_error *err) {
    (void)options;
    if (!trmi_parallel_may_share(exec)) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_parallel_check_same(exec, err));
    int64_t casts = exec->program->arena_bytes[TRMI_ARENA_CAST];
    TRMI_TRY(trm_comm_allreduce(trmi_parallel_of(exec)->comm, &casts, 1, TRM_INT64,
                                TRM_REDUCTION_MAX, err));
    if (casts > 0) {
        TRMI_TRY(share_casts(exec, err));
    }
    if (exec->program->cooperative_ranks > 1) {
        TRMI_TRY(share_arena(exec, TRMI_ARENA_COOPERATIVE, err));
    }
    TRMI_TRY(share_arena(exec, TRMI_ARENA_PARAM, err));
    int64_t seed = (int64_t)exec->env.seed;
    TRMI_TRY(trm_comm_broadcast(trmi_parallel_of(exec)->comm, &seed, 1, TRM_INT64, 0, err));
    const trmi_parallel *p = trmi_parallel_of(exec);
    if (p->common) {
        exec->parameter_seed = (uint64_t)seed;
        exec->copy_ranks = p->size;
        exec->copy_rank = p->rank;
    }
    return TRM_OK;
}

/* ---- the update ------------------------------------------------------------------------------ */

/* Fills in the sums of the blocks of other ranks: trmi_update_exchange. `context`: the exec.
 * Blocks that every rank updates (everyones) are in no sum. */
static trm_status sum_norms(void *context, double *sums, int64_t count, trm_error *err) {
    trm_exec *exec = context;
    trmi_parallel *p = trmi_parallel_of(exec);
    for (int64_t i = 0; i < count; i++) {
        p->sums[i] = sums[i];
        sums[i] = p->everyones[i % p->blocks] ? 0 : sums[i];
    }
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = sums,
                               .count = count,
                               .dtype = TRM_FLOAT64,
                               .reduce = TRM_REDUCTION_SUM,
                               .tag = "norms of the update"};
    double begin = trmi_os_now();
    TRMI_TRY(trm_comm_run(p->comm, &op, err));
    trmi_parallel_waited(p, begin);
    for (int64_t i = 0; i < count; i++) {
        sums[i] = p->everyones[i % p->blocks] ? p->sums[i] : sums[i];
    }
    return TRM_OK;
}

/* Returns by how many bytes the slots that this rank touches, those of its slices, are smaller than
 * all slots. */
static int64_t untouched_slots(const trm_exec *exec) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    int64_t elements = 0;
    for (int64_t b = 0; b < p->blocks; b++) {
        elements += p->mine[b] ? trmi_update_block_offset(exec->update, b + 1) -
                                     trmi_update_block_offset(exec->update, b)
                               : 0;
    }
    return trmi_update_bytes(exec->update) -
           elements * trmi_update_slots(exec->update) * (int64_t)sizeof(float);
}

/* Sets the blocks that this rank updates, and the function that sums norms over the ranks, in the
 * optimiser. */
static trm_status begin_slices(trm_exec *exec, trm_error *err) {
    (void)err;
    const trmi_parallel *p = trmi_parallel_of(exec);
    if (p->options.shard_optimizer && exec->program->training) {
        trmi_update_share(exec->update, p->mine, exec->norms != NULL ? exec->norms : sum_norms,
                          exec);
        exec->added.slot_bytes -= p->blocks > 0 ? untouched_slots(exec) : 0;
    }
    return TRM_OK;
}

/* Publishes the slices of the parameters that this rank has updated. With one copy of them on a
 * host, norms were exchanged before (sum_norms): no rank reads old values when the first slice is
 * written. */
static trm_status publish_parameters(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    /* With one copy on the host all slices are in place once the ranks have met. */
    if (p->common) {
        TRMI_TRY(trmi_parallel_meet(p, "parameters", err));
        p->cooperative_read = false;
        return trmi_parallel_run_casts(exec, err);
    }
    /* With a copy on each rank every range is gathered from its slices. */
    double begin = trmi_os_now();
    for (int32_t i = 0; i < p->ranges_count; i++) {
        trmi_range *range = &p->ranges[i];
        const trm_collective op = {.kind = TRM_ALLGATHERV,
                                   .recv =
                                       (float *)exec->env.arena[TRMI_ARENA_PARAM] + range->begin,
                                   .counts = range->counts,
                                   .dtype = TRM_FLOAT32,
                                   .tag = "parameters"};
        TRMI_TRY(trm_comm_run(p->comm, &op, err));
    }
    trmi_parallel_waited(p, begin);
    return TRM_OK;
}

/* Publishes the slots of this rank's slices, for saving. */
static trm_status publish_slots(trm_exec *exec, trm_error *err) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    trmi_update_begin_gather(exec->update);
    for (int32_t s = 0; s < trmi_update_slots(exec->update); s++) {
        for (int32_t i = 0; i < p->ranges_count; i++) {
            const trmi_range *range = &p->ranges[i];
            const trm_collective op = {.kind = TRM_ALLGATHERV,
                                       .recv = trmi_update_slot(exec->update, s, range->begin),
                                       .dtype = TRM_FLOAT32,
                                       .counts = range->counts,
                                       .tag = "slots"};
            TRMI_TRY(trm_comm_run(p->comm, &op, err));
        }
    }
    return TRM_OK;
}

/* Implements trmi_distribution.publish. */
static trm_status publish_slices(trm_exec *exec, bool slots, trm_error *err) {
    if (!trmi_parallel_of(exec)->options.shard_optimizer || !exec->program->training) {
        return TRM_OK;
    }
    return slots ? publish_slots(exec, err) : publish_parameters(exec, err);
}

/* Corrects the hold of parameters and slots: the blocks of this rank's slices are its own, and no
 * other rank has their slots. */
static void hold_slices(const trm_exec *exec, int32_t index, int64_t at, trmi_hold *hold) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    const int64_t begin = b->offset / (int64_t)sizeof(float);
    int64_t end;
    int64_t block =
        b->arena == TRMI_ARENA_PARAM ? trmi_update_find_block(exec->update, begin + at, &end) : -1;
    if (!p->options.shard_optimizer || block < 0) {
        return;
    }
    hold->mine = p->mine[block] != 0;
    hold->repeated = hold->repeated && p->everyones[block] != 0;
    for (int64_t next = block + 1; next < p->blocks && p->mine[next] == p->mine[block] &&
                                   p->everyones[next] == p->everyones[block] &&
                                   trmi_update_block_offset(exec->update, next) == end;
         next++) {
        end = trmi_update_block_offset(exec->update, next + 1);
    }
    hold->end = trmi_min_i64(hold->end, end - begin);
}

const trmi_distribution trmi_way_slices = {
    .name = "slices",
    .open = open_slices,
    .place = trmi_parallel_place_casts,
    .memory = leave_arena_to_rank_0,
    .connect = share_arenas,
    .begin = begin_slices,
    .publish = publish_slices,
    .hold = hold_slices,
};
