/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of rows with equal ids where samples lie in blocks (strict determinism): the rows of a block
 * in the order of the batch, the blocks in the order of their tree (base/tree_stack.h). */
#include "exec/optimizer/update_state.h"

#include "base/tree_stack.h"

#include <string.h>

enum { AHEAD = 16 /* rows that are prefetched: they lie anywhere in the batch */ };

/* Writes the positions of a bucket's keys in the batch by group, in the order of the batch in each;
 * ends[g]: after group g. keys: id << 32 | position. */
static void sort_positions(const trmi_update_rows *rows, int64_t bucket, uint32_t *positions,
                           uint32_t *ends) {
    int64_t begin = rows->begin[bucket], count = rows->begin[bucket + 1] - begin;
    const uint32_t *group = rows->group + begin;
    uint32_t sum = 0;
    memset(ends, 0, (size_t)rows->groups[bucket] * sizeof *ends);
    for (int64_t i = 0; i < count; i++) {
        ends[group[i]]++;
    }
    for (int64_t g = 0; g < rows->groups[bucket]; g++) {
        uint32_t own = ends[g];
        ends[g] = sum;
        sum += own;
    }
    for (int64_t i = 0; i < count; i++) {
        positions[ends[group[i]]++] = (uint32_t)rows->keys[begin + i];
    }
}

/* Contract in update_state.h. Wide rows are added TRMI_TREE_COLUMNS columns at a time, so that the
 * nodes of the tree that wait stay in the cache. */
void trmi_update_sum_blocks(const trmi_tree *tree, const trmi_update_rows *rows, int64_t bucket,
                            const float *gradients, int64_t width, float *sums) {
    int64_t begin = rows->begin[bucket];
    uint32_t *positions = rows->sorted + begin, *ends = rows->sorted + rows->capacity + begin;
    uint32_t each = (uint32_t)(rows->count / trmi_tree_blocks(tree));
    sort_positions(rows, bucket, positions, ends);
    int64_t last = rows->begin[bucket + 1] - begin - 1;
    for (int64_t g = 0, first = 0; g < rows->groups[bucket]; first = ends[g++]) {
        for (int64_t i = first + AHEAD; i < ends[g] + AHEAD; i++) {
            __builtin_prefetch(gradients + positions[i < last ? i : last] * width);
        }
        for (int64_t at = 0; at < width; at += TRMI_TREE_COLUMNS) {
            int64_t count = width - at < TRMI_TREE_COLUMNS ? width - at : TRMI_TREE_COLUMNS;
            trmi_tree_sum_rows(tree, each, positions + first, ends[g] - first, gradients + at,
                               width, count, sums + g * width + at);
        }
    }
}
