/* SPDX-License-Identifier: Apache-2.0 */
/* base/tree.h: the order in which sums over blocks of samples are added.
 *
 * Blocks are numbered over all ranks; block b has the samples b, b + n, b + 2n, ... of a batch of n
 * blocks. n = classes * members, classes the largest power of two in n. Blocks with the same number
 * modulo `classes` are the members of a class: they are added one after the other. Classes are the
 * leaves of a binary tree, which splits them by the lowest bit of their number first:
 *
 *      8 blocks                 0+4  2+6   1+5  3+7       order: 0 4 2 6 1 5 3 7
 *                                 \\  /       \\  /
 *                                  ranks 0     ranks 1 of two
 *
 * Samples are dealt to 2^k ranks in turn, so a rank's blocks are a node of that tree: its sum is
 * the same number that one rank has there, and the ranks' sums are added in the same way. In this
 * order ("position") each node's blocks are neighbours. */
#ifndef TRMI_BASE_TREE_H
#define TRMI_BASE_TREE_H

#include <stdbool.h>
#include <stdint.h>

/* The tree of a number of blocks. */
typedef struct trmi_tree {
    int64_t classes, members;
} trmi_tree;

enum { TRMI_TREE_LEVELS = 18 }; /* nodes that wait at the same time, of at most 2^16 blocks */

/* Returns the tree of `blocks` blocks; blocks & -blocks is the largest power of two that divides
 * them. */
static inline trmi_tree trmi_tree_of(int64_t blocks) {
    int64_t classes = blocks & -blocks;
    return (trmi_tree){.classes = classes, .members = blocks / classes};
}
static inline int64_t trmi_tree_blocks(const trmi_tree *t) { return t->classes * t->members; }

/* Nodes that wait at the same time, at most. */
static inline int64_t trmi_tree_levels(const trmi_tree *t) {
    int64_t levels = 1;
    for (int64_t c = t->classes; c > 1; c /= 2) {
        levels++;
    }
    return levels;
}

/* Returns the position of block `block`. */
static inline int64_t trmi_tree_position(const trmi_tree *t, int64_t block) {
    int64_t class = block % t->classes, turned = 0;
    for (int64_t c = t->classes; c > 1; c /= 2, class /= 2) {
        turned = 2 * turned + class % 2;
    }
    return turned * t->members + block / t->classes;
}

/* Returns, for a walk over the positions in order with a stack of nodes, whether the block at a
 * position begins a class, which is a new node on the stack. Otherwise it is added to the node on
 * top. */
static inline bool trmi_tree_begins(const trmi_tree *t, int64_t position) {
    return position % t->members == 0;
}
/* ... and after it, how often is the node on top added to the one below? */
static inline int64_t trmi_tree_joins(const trmi_tree *t, int64_t position) {
    int64_t joins = 0;
    if ((position + 1) % t->members == 0) {
        for (int64_t class = position / t->members; class % 2 == 1; class /= 2) {
            joins++;
        }
    }
    return joins;
}

#endif
