/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of rows with equal ids where samples lie in blocks (strict determinism): the rows of a block
 * in the order of the batch, the blocks in the order of their tree (exec/determinism/tree.h). Blocks
 * without the id are zeros, which change no sum, so that nodes are joined as soon as the next block
 * with the id lies outside of what they have in common:
 *
 *      blocks with the id   0 . . 3 4 .       0 + 3, then + 4: what dense sums of all blocks give
 */
#include "exec/optimizer/update_state.h"

#include <string.h>

enum { COLUMNS = 64 };

/* Nodes that wait: sums, and a class that each has. `block`: of the sum that grows. */
typedef struct stack {
    float sums[TRMI_TREE_LEVELS][COLUMNS], own[COLUMNS];
    int64_t class[TRMI_TREE_LEVELS], depth, block;
} stack;

/* The height of the lowest node that has both classes. */
static int height(int64_t a, int64_t b) {
    return a == b ? 0 : 64 - __builtin_clzll((uint64_t)(a ^ b));
}

static void add(float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

/* Joins the nodes that are complete when class `next` comes; -1: all of them. */
static void join_nodes(stack *s, int64_t next, int64_t count) {
    while (s->depth > 1) {
        int64_t last = s->class[s->depth - 1];
        int low = height(s->class[s->depth - 2], last);
        if (next >= 0 && low >= height(last, next)) {
            return;
        }
        s->depth--;
        add(s->sums[s->depth - 1], s->sums[s->depth], count);
    }
}

/* The sum of a block is complete. */
static void push(stack *s, const trmi_tree *tree, int64_t count) {
    int64_t class = tree->members == 1 ? s->block : s->block / tree->members;
    if (s->depth > 0 && s->class[s->depth - 1] == class) {
        add(s->sums[s->depth - 1], s->own, count);
        return;
    }
    join_nodes(s, class, count);
    memcpy(s->sums[s->depth], s->own, (size_t)count * sizeof(float));
    s->class[s->depth++] = class;
}

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
    stack s;
    s.depth = 0;
    s.block = -1;
    for (int64_t i = 0; i < places_count; i++) {
        uint32_t position = (uint32_t)keys[places[i]];
        int64_t block = position / each;
        if (block != s.block) {
            if (s.block >= 0) {
                push(&s, tree, count);
            }
            s.block = block;
            memset(s.own, 0, (size_t)count * sizeof(float));
        }
        add(s.own, gradients + (int64_t)position * stride, count);
    }
    push(&s, tree, count);
    join_nodes(&s, -1, count);
    memcpy(out, s.sums[0], (size_t)count * sizeof(float));
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
        for (int64_t at = 0; at < width; at += COLUMNS) {
            int64_t count = width - at < COLUMNS ? width - at : COLUMNS;
            sum_group(tree, rows, rows->keys + begin, places + first, ends[g] - first,
                      gradients + at, width, count, sums + g * width + at);
        }
    }
}
