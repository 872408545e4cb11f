/* SPDX-License-Identifier: Apache-2.0 */
/* exec/determinism/tree_sum.h: a sum over ranks in the order of their tree (tree.h).
 *
 *      piece of the array      0 0 0 0 | 1 1 1 1 | 2 2 2 2 | 3 3 3 3      a part for each rank
 *      all-to-all              rank r: part r of all ranks' nodes
 *      add                     rank r: (node 0 + node 1) + (node 2 + node 3) of part r
 *      all-gather              every rank has all parts
 *
 * Each rank sends and receives twice the array, whatever the number of ranks, and adds a part of
 * it.
 */
#ifndef TRMI_EXEC_TREE_SUM_H
#define TRMI_EXEC_TREE_SUM_H

#include "trireme/dist.h"

#include "base/tree.h"

#include <stddef.h>

enum { TRMI_TREE_PIECE = 1 << 18 }; /* floats that ranks exchange at a time */

/* One sum: the tree, the ranks and the memory for the exchange. */
typedef struct trmi_tree_sum {
    trm_comm *comm;       /* NULL: one rank */
    trmi_tree tree;       /* of all ranks' nodes */
    const int32_t *slots; /* by position in the tree: rank * nodes + node; NULL: the position */
    int64_t nodes;        /* of each rank: 1, or all its blocks */
    float *pieces;        /* [trmi_tree_sum_bytes()]; fastest in memory that peers can reach */
} trmi_tree_sum;

/* Returns the bytes of pieces, for groups of up to `ranks` ranks. */
size_t trmi_tree_sum_bytes(int64_t ranks, int64_t nodes);
/* Writes the sum of all ranks' nodes to out[count]. Node i of this rank is nodes[i * stride ...];
 * with one node `nodes` may be `out`. Collective. */
trm_status trmi_tree_sum_run(const trmi_tree_sum *sum, const float *nodes, int64_t stride,
                             float *out, int64_t count, const char *tag, trm_error *err);

#endif
