/* SPDX-License-Identifier: Apache-2.0 */
/* The way `strict_blocks`: options, memory, inputs, and the statistics that kernels exchange. */
#include "exec/determinism/strict.h"

#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

static trm_status check_options(const trm_exec_options *o, trm_error *err) {
    const trm_parallel_options *p = &o->parallel;
    if (o->outputs_count > 0 || o->parameters_of != NULL) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "blocks of samples are for training programs without outputs of their own");
    }
    if (o->blocks > UINT16_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%d blocks of samples, at most %d are possible",
                         o->blocks, UINT16_MAX);
    }
    if (p->wire != 0 && p->wire != TRM_FLOAT32) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "strict determinism sends sums as they are: the wire must be float32, "
                         "not %s",
                         trm_dtype_name(p->wire));
    }
    if (p->layerwise_count > 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "strict determinism makes any number of ranks one big batch; parameters "
                         "that each rank keeps to itself (%.60s) cannot be part of it",
                         p->layerwise[0]);
    }
    if (p->sync_batch_norm == TRM_NORM_LOCAL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "strict determinism normalises over the whole batch; each rank's own "
                         "samples (sync_batch_norm off) would depend on the number of ranks");
    }
    if (p->sync_batch_norm > 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "strict determinism normalises over the whole batch; groups of %d ranks "
                         "would depend on their number",
                         p->sync_batch_norm);
    }
    return TRM_OK;
}

static trm_status open_blocks(trm_exec *exec, const trm_exec_options *options, bool *active,
                              trm_error *err) {
    if (options->blocks <= 0) {
        return TRM_OK;
    }
    TRMI_TRY(check_options(options, err));
    trmi_strict *s = trmi_alloc(sizeof *s);
    if (s == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for %d blocks of samples", options->blocks);
    }
    *active = true;
    trmi_distribution_keep(exec, &trmi_strict_key, s);
    s->count = options->blocks;
    s->ranks = trmi_parallel_of(exec) != NULL ? trmi_parallel_of(exec)->size : 1;
    s->rank = trmi_parallel_of(exec) != NULL ? trmi_parallel_of(exec)->rank : 0;
    s->total = s->count * s->ranks;
    s->apart = (s->ranks & (s->ranks - 1)) != 0;
    s->tree = trmi_tree_of(s->count);
    s->exchanged = trmi_tree_of(s->apart ? s->total : s->ranks);
    exec->kernels_from.blocks = s->count;
    exec->kernels_from.apart = s->apart;
    exec->fixed_bits = true;
    exec->walk = trmi_strict_walk;
    return TRM_OK;
}

static trm_status plan_blocks(trm_exec *exec, const trm_graph *graph,
                              const trm_exec_options *options, trmi_plan_options *plan,
                              trm_error *err) {
    (void)graph;
    (void)options;
    (void)err;
    const trm_optimizer_options *o = &exec->optimizer;
    plan->blocks = trmi_strict_of(exec)->count;
    plan->block_ranks = trmi_strict_of(exec)->ranks;
    /* Norms of gradients are sums over dense gradients on any number of ranks. */
    plan->dense_gradients |= o->clip_norm > 0 || o->kind == TRM_LARS;
    plan->factored_gradients = false; /* the tree's sums are needed whole */
    return TRM_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

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

/* Floats of the sums of a step, of those that sum block by block the most. */
static int64_t largest_sums(const trm_exec *exec) {
    int64_t largest = 0;
    for (int32_t i = 0; i < exec->program->steps_count; i++) {
        const trmi_step *s = &exec->program->steps[i];
        int64_t bytes = 0;
        for (int32_t j = 0; s->over_samples && j < s->outputs_count; j++) {
            bytes += s->block_out_stride[j] == 0 ? exec->program->buffers[s->outputs[j]].bytes : 0;
        }
        largest = exec->kernels[i].by_block ? trmi_max_i64(largest, bytes) : largest;
    }
    return trmi_round_up(largest / (int64_t)sizeof(float), 16);
}

/* Where peers reach it, with many ranks. */
static void *reachable(trm_exec *exec, size_t bytes, trm_error *err) {
    void *memory = NULL;
    return trmi_distribution_memory(exec, bytes, &memory, err) == TRM_UNSUPPORTED ? trmi_map(bytes)
                                                                                  : memory;
}

/* Blocks here by position; what ranks exchange by its position in their tree. */
static void number_blocks(trmi_strict *s) {
    for (int64_t j = 0; j < s->count; j++) {
        s->numbers[trmi_tree_position(&s->tree, j)] = (int32_t)(j * s->ranks + s->rank);
    }
    for (int64_t b = 0; b < trmi_tree_blocks(&s->exchanged); b++) {
        int64_t slot =
            s->apart ? b % s->ranks * s->count + trmi_tree_position(&s->tree, b / s->ranks) : b;
        s->slots[trmi_tree_position(&s->exchanged, b)] = (int32_t)slot;
    }
}

static trm_status gather(trmi_norm_sync *sync, const double *values, int64_t count,
                         const double **all, trm_error *err);

static trm_status connect_blocks(trm_exec *exec, const trm_exec_options *options, trm_error *err) {
    trmi_strict *s = trmi_strict_of(exec);
    int64_t nodes = trmi_tree_blocks(&s->exchanged);
    int64_t levels = s->apart ? s->count : trmi_tree_levels(&s->tree);
    s->capacity = widest_statistics(exec->program);
    s->level_floats = largest_sums(exec);
    s->gathered_bytes = (size_t)(s->total * s->capacity) * sizeof *s->gathered;
    s->levels_bytes = (size_t)(levels * s->level_floats + 1) * sizeof *s->levels;
    s->pieces_bytes = s->ranks > 1 ? (size_t)(nodes * TRMI_STRICT_PIECE) * sizeof *s->pieces : 0;
    s->numbers = trmi_alloc((size_t)s->count * sizeof *s->numbers);
    s->slots = trmi_alloc((size_t)nodes * sizeof *s->slots);
    s->ordered = trmi_map(s->gathered_bytes);
    s->levels = trmi_map(s->levels_bytes);
    s->sync = (trmi_norm_sync){
        .size = s->total,
        .blocks = s->count,
        .gather = gather,
        .values = trmi_alloc((size_t)(s->count * s->capacity) * sizeof *s->sync.values)};
    bool fine = s->numbers != NULL && s->slots != NULL && s->ordered != NULL && s->levels != NULL &&
                s->sync.values != NULL;
    s->gathered = fine ? reachable(exec, s->gathered_bytes, err) : NULL;
    s->pieces = s->gathered != NULL && s->ranks > 1 ? reachable(exec, s->pieces_bytes, err) : NULL;
    if (s->gathered == NULL || (s->ranks > 1 && s->pieces == NULL)) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for the sums of %d blocks of samples",
                         s->count);
    }
    number_blocks(s);
    exec->env.block_numbers = s->numbers;
    if (options->parallel.sum) { /* losses are means over all ranks */
        exec->seed_share *= (float)s->ranks;
    }
    return TRM_OK;
}

static trm_status begin_blocks(trm_exec *exec, trm_error *err) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    exec->env.norm_sync = &trmi_strict_of(exec)->sync;
    trmi_update_set_blocks(exec->update, &trmi_strict_of(exec)->tree);
    return p != NULL ? trm_comm_split(p->comm, 0, p->rank, &trmi_strict_of(exec)->comm, err)
                     : TRM_OK;
}

static void unmap(void *memory, size_t bytes) {
    if (memory != NULL) {
        trmi_unmap(memory, bytes);
    }
}

static void close_blocks(trm_exec *exec) {
    trmi_strict *s = trmi_strict_of(exec);
    trm_comm_destroy(s->comm);
    if (s->ranks == 1) { /* else freed with the communicator's memory */
        unmap(s->gathered, s->gathered_bytes);
    }
    unmap(s->ordered, s->gathered_bytes);
    unmap(s->levels, s->levels_bytes);
    trmi_free(s->sync.values);
    trmi_free(s->numbers);
    trmi_free(s->slots);
    trmi_free(s);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* What each block has, to all ranks, in the order of the blocks' numbers. */
static trm_status gather(trmi_norm_sync *sync, const double *values, int64_t count,
                         const double **all, trm_error *err) {
    trmi_strict *s = (trmi_strict *)((char *)sync - offsetof(trmi_strict, sync));
    TRMI_ASSERT(count <= s->capacity);
    memcpy(s->gathered + s->rank * s->count * count, values,
           (size_t)(s->count * count) * sizeof *values);
    if (s->comm != NULL) {
        const trm_collective op = {.kind = TRM_ALLGATHER,
                                   .recv = s->gathered,
                                   .count = s->count * count,
                                   .dtype = TRM_FLOAT64,
                                   .tag = "statistics of blocks"};
        TRMI_TRY(trm_comm_run(s->comm, &op, err));
    }
    for (int32_t r = 0; r < s->ranks; r++) {
        for (int64_t j = 0; j < s->count; j++) {
            int64_t at = r * s->count + trmi_tree_position(&s->tree, j);
            memcpy(s->ordered + (j * s->ranks + r) * count, s->gathered + at * count,
                   (size_t)count * sizeof *values);
        }
    }
    *all = s->ordered;
    return TRM_OK;
}

/* Sample i belongs to block i mod count; blocks lie by position. */
static bool feed_blocks(trm_exec *exec, int32_t index, const trm_tensor *to, const void *from) {
    (void)index;
    const trmi_strict *s = trmi_strict_of(exec);
    int64_t rows = to->shape.dim[0], each = trm_tensor_bytes(to) / (rows > 0 ? rows : 1);
    for (int64_t i = 0; from != NULL && i < rows; i++) {
        int64_t row = trmi_tree_position(&s->tree, i % s->count) * (rows / s->count) + i / s->count;
        memcpy((char *)to->data + row * each, (const char *)from + i * each, (size_t)each);
    }
    return from != NULL;
}

static void describe_blocks(const trm_exec *exec, trm_exec_info *info) {
    const trmi_strict *s = trmi_strict_of(exec);
    info->activation_bytes += (int64_t)(2 * s->gathered_bytes + s->levels_bytes + s->pieces_bytes);
}

const trmi_distribution trmi_way_strict_blocks = {
    .name = "strict_blocks",
    .open = open_blocks,
    .plan = plan_blocks,
    .connect = connect_blocks,
    .begin = begin_blocks,
    .close = close_blocks,
    .feed = feed_blocks,
    .describe = describe_blocks,
};
