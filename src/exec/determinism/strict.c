/* SPDX-License-Identifier: Apache-2.0 */
/* The way `strict_blocks` (strict.h): checks its options, takes its memory, and writes fed samples
 * to the rows of their blocks.
 *
 *   open      are blocks asked for?  which kernels, which walk, which norms
 *   plan      number of blocks for the compiler; gradients that must stay whole
 *   connect   memory for the sums of blocks and for the exchange with other ranks
 *   begin     the optimiser's tree, communicators
 *   feed      sample i -> block i mod count, at the block's position in the tree
 *
 * strict_sums.c has the sums of a step, strict_norms.c those of norms and losses, strict_groups.c
 * the ranks that exchange them, tree_sum.c the order of additions. */
#include "exec/determinism/strict.h"

#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* Rejects options whose results would depend on the number of ranks.   errors  INVALID */
static trm_status check_options(const trm_exec_options *o, trm_error *err) {
    const trm_parallel_options *p = &o->parallel;
    if (o->parameters_of != NULL) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "strict determinism (blocks): found parameters_of, a training program with "
            "parameters of its own expected");
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

/* Makes the way's state where the options ask for blocks, and sets what the executor does
 * differently: kernels that do not depend on the batch, the walk over the steps, the norms of the
 * update. */
static trm_status open_blocks(trm_exec *exec, trm_exec_options *options, bool *active,
                              trm_error *err) {
    if (options->blocks <= 0) {
        return TRM_OK;
    }
    TRMI_TRY(check_options(options, err));
    trmi_strict *s;
    TRMI_TRY(TRMI_NEW(err, s, 1, "for %d blocks of samples", options->blocks));
    *active = true;
    trmi_distribution_keep(exec, &trmi_strict_key, s);
    s->count = options->blocks;
    const trmi_parallel *p = trmi_parallel_of(exec);
    s->ranks = p != NULL ? p->size : 1;
    s->rank = p != NULL ? p->rank : 0;
    s->split = s->ranks > 1 && options->parallel.split.kind != TRM_SPLIT_NONE;
    /* Count the blocks of the whole batch. If the number of ranks is no power of two, the blocks of
     * a rank are no subtree of the tree over all blocks: with `single_blocks` the sum of each block
     * is exchanged by itself. */
    s->total = s->split ? s->count : s->count * s->ranks;
    s->single_blocks = !s->split && (s->ranks & (s->ranks - 1)) != 0;
    s->sum.nodes = s->single_blocks ? s->count : 1;
    s->sum.tree = trmi_tree_of(s->split ? 1 : s->single_blocks ? s->total : s->ranks);
    /* Kernels, walk and norms whose order of additions is fixed. */
    exec->kernels_from.blocks = s->count;
    exec->kernels_from.single_blocks = s->single_blocks;
    exec->fixed_bits = true;
    exec->walk = trmi_strict_walk;
    if (exec->optimizer.clip_norm > 0 || exec->optimizer.kind == TRM_LARS) {
        exec->norms = trmi_strict_norms;
    }
    return TRM_OK;
}

/* Sets the number of blocks and the gradients to be kept whole in the options of the compiler. */
static trm_status plan_blocks(trm_exec *exec, const trm_graph *graph,
                              const trm_exec_options *options, trmi_plan_options *plan,
                              trm_error *err) {
    (void)graph;
    (void)options;
    (void)err;
    const trmi_strict *s = trmi_strict_of(exec);
    plan->blocks = s->count;
    plan->block_ranks = s->split ? 1 : s->ranks;
    /* Norms of gradients are sums over dense gradients on any number of ranks. */
    plan->dense_gradients |= exec->norms != NULL || s->split;
    plan->factored_gradients = false; /* the tree's sums are needed whole */
    return TRM_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Returns the length of the longest sums of a step that runs block by block, in floats. */
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

/* Numbers the blocks and takes the memory of their sums and of the exchange. */
static trm_status connect_blocks(trm_exec *exec, const trm_exec_options *options, trm_error *err) {
    trmi_strict *s = trmi_strict_of(exec);
    const trmi_tree tree = trmi_tree_of(s->count);
    TRMI_TRY(trmi_strict_number(exec, err));
    exec->env.block_numbers = s->split ? s->all_numbers : s->numbers;
    s->sum.slots = s->slots;
    /* Partial sums need memory for each level of the tree or, with single_blocks, for each
     * block. */
    s->level_floats = largest_sums(exec);
    s->levels_bytes =
        (size_t)((s->single_blocks ? s->count : trmi_tree_levels(&tree)) * s->level_floats + 1) *
        sizeof *s->levels;
    s->levels = trmi_map(s->levels_bytes);
    /* Memory of the exchange, which peers can read. */
    s->pieces_bytes = s->ranks > 1 ? trmi_tree_sum_bytes(s->ranks, s->sum.nodes) : 0;
    void *pieces = NULL;
    if (s->ranks > 1) {
        TRMI_TRY(trmi_distribution_memory(exec, TRMI_ARENA_NONE, s->pieces_bytes, &pieces, err));
    }
    s->sum.pieces = pieces;
    if (s->split) {
        trmi_parallel_of(exec)->split->pieces = pieces;
    }
    if (s->levels == NULL) {
        return TRMI_NO_MEMORY(err, "for the sums of %d blocks of samples", s->count);
    }
    if (options->parallel.sum && !s->split) { /* losses are means over all ranks */
        exec->seed_share *= (float)s->ranks;
    }
    return TRM_OK;
}

/* Gives the optimiser the tree of blocks and its norms, makes the communicators, and counts the
 * memory of blocks as activations. */
static trm_status begin_blocks(trm_exec *exec, trm_error *err) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    trmi_strict *s = trmi_strict_of(exec);
    const trmi_tree tree = trmi_tree_of(s->count);
    trmi_update_set_blocks(exec->update, &tree);
    if (exec->norms != NULL && (p == NULL || !p->options.shard_optimizer)) {
        trmi_update_share(exec->update, NULL, exec->norms, exec);
    }
    if (p != NULL && !s->split) {
        TRMI_TRY(trm_comm_split(p->comm, 0, p->rank, &s->comm, err));
        s->sum.comm = s->comm;
    }
    TRMI_TRY(trmi_strict_open_groups(exec, err));
    exec->added.activation_bytes += (int64_t)(s->levels_bytes + s->pieces_bytes);
    for (int axes = 0; axes < TRMI_PARTITION_MASKS; axes++) {
        exec->added.activation_bytes += (int64_t)(2 * s->groups[axes].bytes);
    }
    return TRM_OK;
}

/* Frees the way's state; also after a failed open, so parts may be missing. */
static void close_blocks(trm_exec *exec) {
    trmi_strict *s = trmi_strict_of(exec);
    trmi_strict_close_groups(s);
    trm_comm_destroy(s->comm);
    if (s->levels != NULL) {
        trmi_unmap(s->levels, s->levels_bytes);
    }
    trmi_free(s);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Copies fed samples to their rows: sample i belongs to block i mod count, and blocks lie by their
 * position in the tree. Returns false in split programs, whose inputs the way `split` copies. */
static bool feed_blocks(trm_exec *exec, int32_t index, trm_tensor *to, const void *from) {
    (void)index;
    const trmi_strict *s = trmi_strict_of(exec);
    int64_t rows = to->shape.dim[0], each = trm_tensor_bytes(to) / (rows > 0 ? rows : 1);
    if (s->split || from == NULL) {
        return false;
    }
    for (int64_t i = 0; i < rows; i++) {
        memcpy((char *)to->data + trmi_strict_row(s, i, rows) * each, (const char *)from + i * each,
               (size_t)each);
    }
    return true;
}

const trmi_distribution trmi_way_strict_blocks = {
    .name = "strict_blocks",
    .open = open_blocks,
    .plan = plan_blocks,
    .connect = connect_blocks,
    .begin = begin_blocks,
    .close = close_blocks,
    .feed = feed_blocks,
};
