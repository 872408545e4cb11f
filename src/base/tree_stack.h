/* SPDX-License-Identifier: Apache-2.0 */
/* base/tree_stack.h: the sum of the blocks that have a row, in the order of the tree (base/tree.h).
 * Blocks without the row are zeros, which change no sum, so that nodes are joined as soon as the
 * next block with the row lies outside of what they have in common:
 *
 *      blocks with the row   0 . . 3 4 .       0 + 3, then + 4: the sum that all blocks give
 *
 * The optimiser sums rows of tables so, a worker its part of a batch, a server what workers
 * push. */
#ifndef TRMI_BASE_TREE_STACK_H
#define TRMI_BASE_TREE_STACK_H

#include "base/tree.h"

enum { TRMI_TREE_COLUMNS = 64 }; /* columns of a row that are summed together, at most */

/* Nodes that wait: sums, and the class that each has. depth 0: no block yet. */
typedef struct trmi_tree_stack {
    float sums[TRMI_TREE_LEVELS][TRMI_TREE_COLUMNS];
    int64_t class[TRMI_TREE_LEVELS], depth;
} trmi_tree_stack;

/* Four floats in memory, at any address. Rows are short: calls and single floats took longer than
 * the additions. */
typedef float trmi_tree_four __attribute__((vector_size(16), aligned(4), may_alias));

/* Adds a row to a row. The order of elements does not matter, only that of rows. */
static inline void trmi_tree_add(float *to, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        *(trmi_tree_four *)(to + i) += *(const trmi_tree_four *)(from + i);
    }
    for (; i < count; i++) {
        to[i] += from[i];
    }
}

/* Starts a sum: -0 becomes 0, as in sums that start at 0. */
static inline void trmi_tree_start(float *to, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        *(trmi_tree_four *)(to + i) = (trmi_tree_four){0} + *(const trmi_tree_four *)(from + i);
    }
    for (; i < count; i++) {
        to[i] = 0 + from[i];
    }
}

/* Returns the height of the lowest node that has both classes. */
static inline int trmi_tree_height(int64_t a, int64_t b) {
    return a == b ? 0 : 64 - __builtin_clzll((uint64_t)(a ^ b));
}

/* Joins the nodes that are complete when class `next` comes; -1: all of them. */
static inline void trmi_tree_stack_join(trmi_tree_stack *s, int64_t next, int64_t count) {
    while (s->depth > 1) {
        int64_t last = s->class[s->depth - 1];
        int low = trmi_tree_height(s->class[s->depth - 2], last);
        if (next >= 0 && low >= trmi_tree_height(last, next)) {
            return;
        }
        s->depth--;
        trmi_tree_add(s->sums[s->depth - 1], s->sums[s->depth], count);
    }
}

/* Adds `own`, the sum of the block at `position`; positions ascend. `count`: at most
 * TRMI_TREE_COLUMNS, the same in all calls. */
static inline void trmi_tree_stack_add(trmi_tree_stack *s, const trmi_tree *tree, int64_t position,
                                       const float *own, int64_t count) {
    int64_t class = tree->members == 1 ? position : position / tree->members;
    if (s->depth > 0 && s->class[s->depth - 1] == class) {
        trmi_tree_add(s->sums[s->depth - 1], own, count);
        return;
    }
    trmi_tree_stack_join(s, class, count);
    trmi_tree_start(s->sums[s->depth], own, count);
    s->class[s->depth++] = class;
}

/* Returns the sum of all blocks that were added. */
static inline const float *trmi_tree_stack_finish(trmi_tree_stack *s, int64_t count) {
    trmi_tree_stack_join(s, -1, count);
    return s->sums[0];
}

/* Sums rows of `values` of which each has `count` columns of interest, `stride` floats apart:
 * rows[0 ... rows_count), ascending. `each`: rows of a block. */
static inline void trmi_tree_sum_rows(const trmi_tree *tree, uint32_t each, const uint32_t *rows,
                                      int64_t rows_count, const float *values, int64_t stride,
                                      int64_t count, float *out) {
    if (rows_count == 1) {
        trmi_tree_start(out, values + rows[0] * stride, count);
        return;
    }
    trmi_tree_stack s;
    s.depth = 0;
    for (int64_t i = 0; i < rows_count;) {
        uint32_t block = rows[i] / each;
        uint64_t end = ((uint64_t)block + 1) * each;
        float own[TRMI_TREE_COLUMNS];
        trmi_tree_start(own, values + rows[i++] * stride, count);
        for (; i < rows_count && rows[i] < end; i++) {
            trmi_tree_add(own, values + rows[i] * stride, count);
        }
        trmi_tree_stack_add(&s, tree, block, own, count);
    }
    trmi_tree_start(out, trmi_tree_stack_finish(&s, count), count);
}

#endif
