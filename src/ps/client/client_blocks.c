/* SPDX-License-Identifier: Apache-2.0 */
/* Strict determinism: a worker sums the gradients of its rows by blocks of samples, so that with
 * the sums of the other workers they are added in the order of one tree (base/tree.h).
 *
 *      2^k workers     the worker's blocks are a node: one sum of each key is pushed
 *                      lookups --by key--> blocks in the order of the worker's tree --> sum
 *      other numbers   they are no node: the sum of each key in each block is pushed
 *                      uniques (key) --split--> uniques (key, block) --> a section for each block
 *
 * Dense variables are not summed here: workers have added their gradients among each other, and
 * each pushes a part of the rows. */
#include "ps/client/client.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/tree_stack.h"

#include <stdlib.h>

/* Contract in client.h. */
trm_status trmi_batch_set_blocks(trm_ps_batch *b, const trmi_push_blocks *blocks, trm_error *err) {
    const trm_ps_client *c = b->client;
    if (c->mode != TRM_PS_SYNC || c->staging) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "strict determinism needs synchronous servers that lend no samples: "
                         "otherwise the order in which pushes arrive changes what they are added "
                         "to");
    }
    if (c->options.wire != 0 && c->options.wire != TRM_FLOAT32) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "strict determinism sends sums as they are: the wire must be float32, "
                         "not %s",
                         trm_dtype_name(c->options.wire));
    }
    if (blocks->total > TRMI_PS_NODES_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%d blocks of samples of all workers, at most %d are possible: set a "
                         "larger deterministic_block",
                         blocks->total, TRMI_PS_NODES_MAX);
    }
    b->blocks = *blocks;
    return TRM_OK;
}

/* Contract in client.h. */
trm_status trmi_batch_by_blocks(trm_ps_batch *b, trm_error *err) {
    trmi_slice *slice = &b->slices[b->slice_count - 1];
    slice->by_blocks = b->blocks.total > 0;
    if (slice->by_blocks && slice->count % b->blocks.blocks != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%lld lookups in %d blocks of samples; as many in each block expected",
                         (long long)slice->count, b->blocks.blocks);
    }
    for (int64_t s = 0; slice->by_blocks && s + 1 < b->slice_count; s++) {
        if (b->slices[s].table == slice->table) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "table '%s' is looked up twice in a batch; strict determinism adds "
                             "the gradients of each look-up by themselves, which servers cannot",
                             b->client->tables[slice->table].name);
        }
    }
    return TRM_OK;
}

/* ---- a sum of each block --------------------------------------------------------------------- */

/* The uniques that are made, and the latest one of each key. */
typedef struct splitting {
    trmi_unique *made;
    uint32_t count;
    uint32_t *latest; /* [uniques] UINT32_MAX: none */
} splitting;

/* Gives the lookups of a slice their uniques by block. */
static void split_slice(trm_ps_batch *b, const trmi_slice *slice, splitting *s) {
    const int64_t each = slice->by_blocks ? slice->count / b->blocks.blocks : 0;
    uint32_t *inverse = b->inverse + slice->first;
    for (int64_t i = 0; i < slice->count; i++) {
        uint32_t node = each > 0 ? 1 + (uint32_t)(i / each) : 0, *at = &s->latest[inverse[i]];
        if (*at == UINT32_MAX || s->made[*at].node != node) {
            *at = s->count++;
            s->made[*at] = b->uniques[inverse[i]];
            s->made[*at].node = node;
            s->made[*at].wanted = TRMI_WANT_PUSH;
        }
        inverse[i] = *at;
    }
}

/* Contract in client.h. Slices without gradients are not pushed; their lookups keep the numbers of
 * the pull. */
trm_status trmi_batch_split_blocks(trm_ps_batch *b, trm_error *err) {
    splitting s = {0};
    int64_t room = b->lookups + 1;
    if (!b->described) {
        trmi_batch_describe(b);
    }
    s.made = malloc((size_t)room * sizeof *s.made);
    s.latest = malloc((size_t)(b->unique_count + 1) * sizeof *s.latest);
    if (s.made == NULL || s.latest == NULL) {
        free(s.made);
        free(s.latest);
        return trmi_client_note(
            b->client, TRMI_NO_MEMORY(err, "for the blocks of %lld keys", (long long)b->lookups));
    }
    /* 0xFF bytes are UINT32_MAX: no key has a unique of a block yet */
    memset(s.latest, 0xFF, (size_t)(b->unique_count + 1) * sizeof *s.latest);
    for (int64_t i = 0; i < b->slice_count; i++) {
        trmi_slice *slice = &b->slices[i];
        slice->keys_in_order = false; /* of the uniques before */
        if (slice->gradients != NULL) {
            split_slice(b, slice, &s);
        }
    }
    /* the new list, with one entry for each key of a block, replaces the old one */
    free(s.latest);
    free(b->uniques);
    b->uniques = s.made;
    b->unique_capacity = room;
    b->unique_count = s.count;
    return TRM_OK;
}

/* ---- one sum of all blocks ------------------------------------------------------------------- */

/* Sorts the lookups of a slice by key: places[], and ends[u - first], after those of unique u. */
static void sort_lookups(const trm_ps_batch *b, const trmi_slice *slice, uint32_t *places,
                         uint32_t *ends) {
    const uint32_t *inverse = b->inverse + slice->first;
    const uint32_t first = (uint32_t)slice->unique_first,
                   keys = (uint32_t)(slice->unique_end - slice->unique_first);
    memset(ends, 0, keys * sizeof *ends);
    for (int64_t i = 0; i < slice->count; i++) {
        ends[inverse[i] - first]++;
    }
    for (uint32_t k = 0, sum = 0; k < keys; k++) {
        uint32_t own = ends[k];
        ends[k] = sum;
        sum += own;
    }
    for (int64_t i = 0; i < slice->count; i++) {
        places[ends[inverse[i] - first]++] = (uint32_t)i;
    }
}

/* Contract in client.h. The scratch of the passes over distinct keys is free during a push. */
void trmi_batch_sum_tree(trm_ps_batch *b, const trmi_slice *slice) {
    const int32_t width = b->client->widths[slice->table];
    uint32_t *places = b->unique.left, *ends = b->unique.number;
    const trmi_tree tree = trmi_tree_of(b->blocks.blocks);
    const uint32_t each = (uint32_t)(slice->count / b->blocks.blocks);
    sort_lookups(b, slice, places, ends);
    for (int64_t u = slice->unique_first, begin = 0; u < slice->unique_end; u++) {
        const int64_t end = ends[u - slice->unique_first];
        float *out =
            (float *)(void *)trmi_batch_row(b, slice, (size_t)width * sizeof *out, (uint32_t)u);
        for (int32_t at = 0; at < width; at += TRMI_TREE_COLUMNS) {
            trmi_tree_sum_rows(&tree, each, places + begin, end - begin, slice->gradients + at,
                               width, trmi_min_i64(TRMI_TREE_COLUMNS, width - at), out + at);
        }
        begin = end;
    }
}
