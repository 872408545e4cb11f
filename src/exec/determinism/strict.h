/* SPDX-License-Identifier: Apache-2.0 */
/* exec/determinism/strict.h: the same bits on any number of ranks and threads (the way
 * `strict_blocks`; docs/internals/determinism.md).
 *
 *      global batch, sample by sample    0 1 2 3 4 5 6 7        4 blocks of 2 samples: i mod 4
 *      block of each                     0 1 2 3 0 1 2 3
 *      2 ranks (samples dealt in turn)   rank 0: blocks 0 2, rank 1: blocks 1 3
 *      in memory                         by position (tree.h), each block's samples side by side
 *
 * The program is that of this rank's whole batch. What a kernel computes for one sample depends on
 * that sample only; which kernel it is depends on shapes without the batch. A step that sums over
 * samples (over_samples) sums each block by itself and adds blocks in the order of the tree:
 *
 *      kernel            sum of this rank's blocks: a node of the tree    (or block by block)
 *      exchange          the ranks' nodes, added in the same tree         every rank has the sum
 *
 * so that the following steps, and the optimiser, see the sum of all samples on every rank. Norms and
 * losses exchange the statistics of their blocks in the middle of a kernel (trmi_norm_sync). */
#ifndef TRMI_EXEC_STRICT_H
#define TRMI_EXEC_STRICT_H

#include "trireme/exec.h"

#include "exec/distributed/distribution.h"
#include "exec/determinism/tree.h"

typedef struct trmi_strict {
    int32_t count, total; /* blocks here; of all ranks */
    int32_t ranks, rank;
    /* A number of ranks that is no power of two: what they have is no node of the tree, so that each
     * block's sum goes to all ranks. */
    bool apart;
    trmi_tree tree;   /* of the blocks here */
    int32_t *numbers; /* [count] of the block at each position */
    trm_comm *comm;   /* owned; NULL: one rank */
    /* statistics of norms and losses */
    trmi_norm_sync sync;
    int64_t capacity;           /* doubles of a block */
    double *gathered, *ordered; /* [total * capacity] by rank and position; by number */
    /* sums over samples */
    trmi_tree exchanged;  /* of what ranks exchange: their nodes, or all blocks */
    int32_t *slots;       /* by position in that tree: where it is in `pieces` */
    float *pieces;        /* [slots * PIECE] peers reach it */
    float *levels;        /* by_block: nodes that wait, [levels * level_floats]; apart: blocks */
    int64_t level_floats; /* of the largest output that is summed block by block */
    size_t gathered_bytes, pieces_bytes, levels_bytes;
} trmi_strict;

/* Its state; NULL: not active. */
extern const char trmi_strict_key;
static inline trmi_strict *trmi_strict_of(const struct trm_exec *exec) {
    return trmi_distribution_state(exec, &trmi_strict_key);
}

/* strict_sums.c: steps [begin, end); trmi_exec_walk. Collective where a step sums over samples. */
trm_status trmi_strict_walk(struct trm_exec *exec, int32_t begin, int32_t end, trm_error *err);
enum { TRMI_STRICT_PIECE = 1 << 16 }; /* floats that ranks exchange at a time */

#endif
