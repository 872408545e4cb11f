/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of rows with equal ids where samples lie in blocks (strict determinism): the rows of a block
 * in the order of the batch, the blocks in the order of their tree (base/tree_stack.h). */
#include "exec/optimizer/update_state.h"

#include "base/tree_stack.h"

#include <string.h>

/* Columns of one group's rows. keys: id << 32 | position in the batch. */
static void sum_group(const trmi_tree *tree, const trmi_update_rows *rows, const uint64_t *keys,
                      const uint32_t *places, int64_t places_count, const float *gradients,
                      int64_t stride, int64_t count, float *out) {
    uint32_t each = (uint32_t)(rows->count / trmi_tree_blocks(tree));
    if (places_count == 1) {
        int64_t position = (int64_t)(keys[places[0]] & UINT32_MAX);
        for (int64_t i = 0; i < count; i++) {
            out[i] = 0 + gradients[position * stride + i]; /* -0 becomes 0, as in other sums */
        }
        return;
    }
    trmi_tree_stack s;
    float own[TRMI_TREE_COLUMNS] = {0};
    int64_t block = (int64_t)(keys[places[0]] & UINT32_MAX) / each;
    s.depth = 0;
    for (int64_t i = 0; i < places_count; i++) {
        uint32_t position = (uint32_t)keys[places[i]];
        if (position / each != block) {
            trmi_tree_stack_add(&s, tree, block, own, count);
            block = position / each;
            memset(own, 0, (size_t)count * sizeof *own);
        }
        trmi_tree_add(own, gradients + (int64_t)position * stride, count);
    }
    trmi_tree_stack_add(&s, tree, block, own, count);
    memcpy(out, trmi_tree_stack_finish(&s, count), (size_t)count * sizeof *out);
}

/* Places of a bucket's keys by group, in the order of the batch in each; ends[g]: behind group g. */
static void sort_places(const trmi_update_rows *rows, int64_t bucket, uint32_t *places,
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
        places[ends[group[i]]++] = (uint32_t)i;
    }
}

void trmi_update_sum_blocks(const trmi_tree *tree, const trmi_update_rows *rows, int64_t bucket,
                            const float *gradients, int64_t width, float *sums) {
    int64_t begin = rows->begin[bucket];
    uint32_t *places = rows->sorted + begin, *ends = rows->sorted + rows->capacity + begin;
    sort_places(rows, bucket, places, ends);
    for (int64_t g = 0, first = 0; g < rows->groups[bucket]; first = ends[g++]) {
        for (int64_t at = 0; at < width; at += TRMI_TREE_COLUMNS) {
            int64_t count = width - at < TRMI_TREE_COLUMNS ? width - at : TRMI_TREE_COLUMNS;
            sum_group(tree, rows, rows->keys + begin, places + first, ends[g] - first,
                      gradients + at, width, count, sums + g * width + at);
        }
    }
}
