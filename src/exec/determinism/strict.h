/* SPDX-License-Identifier: Apache-2.0 */
/* exec/determinism/strict.h: the same bits on any number of ranks and threads, and under any plan
 * (the way `strict_blocks`; docs/internals/determinism.md).
 *
 *      global batch, sample by sample    0 1 2 3 4 5 6 7        4 blocks of 2 samples: i mod 4
 *      block of each                     0 1 2 3 0 1 2 3
 *      in memory                         by position (tree.h), each block's samples side by side
 *      2 ranks (samples dealt in turn)   rank 0: blocks 0 2, rank 1: blocks 1 3
 *      split, samples cut in 2 parts     part 0: blocks 0 2, part 1: blocks 1 3
 *
 * The program is that of this rank's whole batch. What a kernel computes for one sample depends on
 * that sample only; which kernel it is depends on shapes without the batch. A step that sums over
 * samples (over_samples) sums each block by itself and adds blocks in the order of the tree:
 *
 *      kernel            sum of this rank's blocks: a node of the tree    (or block by block)
 *      exchange          the ranks' nodes, added in the same tree         every rank has the sum
 *
 * so that the following steps, and the optimiser, see the sum of all samples on every rank. In
 * split programs the exchange is a step of its own (ALL_REDUCE, TRMI_COMBINE_TREE). Norms and
 * losses exchange the statistics of their blocks in the middle of a kernel (trmi_norm_sync). */
#ifndef TRMI_EXEC_STRICT_H
#define TRMI_EXEC_STRICT_H

#include "trireme/exec.h"

#include "exec/distributed/distribution.h"
#include "exec/determinism/tree_sum.h"

/* Ranks that exchange the statistics of their blocks: all of them or, in split programs, those that
 * differ in the axes of a mask. */
typedef struct trmi_block_group {
    trmi_norm_sync sync;    /* first: the exchange's context is the group */
    trm_comm *comm;         /* borrowed; NULL: this rank alone */
    int32_t self, local;    /* this rank's number in the group; blocks of each rank */
    const int32_t *numbers; /* [sync.size] of each block, by rank and position */
    int64_t capacity;       /* doubles of a block */
    /* [sync.size * capacity] by rank and position; by number. gathered is reachable for peers in
     * programs that are not split */
    double *gathered, *ordered;
    size_t bytes; /* of each */
} trmi_block_group;

typedef struct trmi_strict {
    int32_t count, total; /* blocks in the graph's inputs; of all ranks */
    int32_t ranks, rank;
    bool split;
    /* the number of ranks is no power of two: the blocks of one rank are then no node of the tree,
     * and the exchange sends the sum of each block instead of one sum */
    bool single_blocks;
    /* of the blocks by position: of this rank, or of all in split programs; by rank and position */
    int32_t *numbers, *all_numbers;
    trm_comm *comm;              /* owned; NULL: one rank, or split */
    trmi_block_group groups[16]; /* by mask of mesh axes; [0] of all ranks if not split */
    /* sums over samples */
    trmi_tree_sum sum; /* of all ranks; split: of one more group with each run */
    int32_t *slots;    /* sum.slots */
    float *levels; /* by_block: nodes that wait, [levels * level_floats]; single_blocks: blocks */
    int64_t level_floats; /* of the largest output that is summed block by block */
    size_t pieces_bytes, levels_bytes;
} trmi_strict;

/* trmi_strict_of returns the way's state; NULL: strict determinism is off. */
extern const char trmi_strict_key;
static inline trmi_strict *trmi_strict_of(const struct trm_exec *exec) {
    return trmi_distribution_state(exec, &trmi_strict_key);
}

/* strict_sums.c: runs the steps [begin, end) (exec->walk). Collective where a step sums over
 * samples. */
trm_status trmi_strict_walk(struct trm_exec *exec, int32_t begin, int32_t end, trm_error *err);
/* strict_groups.c: numbers blocks, and takes memory for the exchange of statistics. */
trm_status trmi_strict_number(struct trm_exec *exec, trm_error *err);
trm_status trmi_strict_open_groups(struct trm_exec *exec, trm_error *err);
void trmi_strict_close_groups(trmi_strict *strict);
/* strict_norms.c: sums of squares by parameter, whose bits depend on no partition:
 * trmi_update_exchange. `context`: the exec. Collective. */
trm_status trmi_strict_norms(void *context, double *sums, int64_t count, trm_error *err);

/* Returns the row of a fed input at which sample `sample` of this rank's `samples` lies (not in
 * split programs). */
static inline int64_t trmi_strict_row(const trmi_strict *s, int64_t sample, int64_t samples) {
    const trmi_tree tree = trmi_tree_of(s->count);
    return trmi_tree_position(&tree, sample % s->count) * (samples / s->count) + sample / s->count;
}

/* Returns the sample of the whole batch that is row `row` of a fed input, of `samples` a block. */
static inline int64_t trmi_strict_sample(const trmi_strict *s, int64_t row, int64_t samples) {
    return row % samples * s->total + s->all_numbers[row / samples];
}

#endif
