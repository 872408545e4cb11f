/* SPDX-License-Identifier: Apache-2.0 */
/* data/pipeline/sample_order.h: which sample comes at which place of an epoch. It is a pure
 * function of (seed, epoch, shard). A cursor makes reading forward cheap. */
#ifndef TRMI_DATA_SAMPLE_ORDER_H
#define TRMI_DATA_SAMPLE_ORDER_H

#include "trireme/data.h"

/* The parameters of the order. */
typedef struct trmi_sample_order {
    uint64_t seed;         /* of the shuffle */
    int64_t count;         /* samples of the source */
    int64_t shards, shard; /* number of shards, and this one */
    trm_shard_mode mode;   /* of the last places, if the samples do not divide evenly */
    bool shuffled;         /* otherwise the order of the source */
    int64_t window;        /* size of the shuffle window; at most 1: no window */
    /* in this epoch all shards' places are shifted by so many samples (trmi_dataset_deal) */
    int64_t moved_epoch, moved;
    /* groups of neighbouring shards take so many samples in turn, however many shards they have
     * (trmi_dataset_group); 0: shards take one each. Mode `wrap` */
    int64_t groups, group_takes;
} trmi_sample_order;

/* Returns the places of this shard in an epoch. Real samples come first; only mode `pad` has places
 * without a sample. */
int64_t trmi_order_places(const trmi_sample_order *order);
/* Returns the places of this shard in an epoch of `samples` samples. */
int64_t trmi_order_places_of(const trmi_sample_order *order, int64_t samples);
/* Returns the places that have a sample. */
int64_t trmi_order_real(const trmi_sample_order *order);

/* The state of reading. A window shuffle fills `pool` with the next `window` samples and draws each
 * output from it. */
typedef struct trmi_cursor {
    int64_t *pool; /* [window]; NULL: no window */
    /* epoch and next place; samples in the pool, and taken from the order so far */
    int64_t epoch, place, pooled, taken;
} trmi_cursor;
/* Allocates the pool. Returns false if there is no memory. */
bool trmi_cursor_init(trmi_cursor *cursor, const trmi_sample_order *order);
/* Frees the pool. A cursor that was not initialised (zeros) is allowed. */
void trmi_cursor_free(trmi_cursor *cursor);
/* Writes the samples at places [first, first + count) of an epoch. With a window, reading backwards
 * starts the epoch again. */
void trmi_cursor_read(trmi_cursor *cursor, const trmi_sample_order *order, int64_t epoch,
                      int64_t first, int64_t count, int64_t *indices);

#endif
