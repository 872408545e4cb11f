/* SPDX-License-Identifier: Apache-2.0 */
/* data/pipeline/order.h: which sample comes at which place. A pure function of (seed, epoch,
 * shard), with a cursor that makes walking forward cheap. */
#ifndef TRMI_DATA_ORDER_H
#define TRMI_DATA_ORDER_H

#include "trireme/data.h"

typedef struct trmi_sample_order {
    uint64_t seed;
    int64_t count; /* of the source */
    int64_t shards, shard;
    trm_shard_mode mode;
    bool shuffled;
    int64_t window; /* <= 1: none */
    /* in this one all shards' places lie so many samples further on (or back) */
    int64_t moved_epoch, moved;
} trmi_sample_order;

/* Places of this shard in an epoch; real ones come first (only `pad` has others). */
int64_t trmi_order_places(const trmi_sample_order *order);
/* As many as there would be in an epoch of so many samples. */
int64_t trmi_order_places_of(const trmi_sample_order *order, int64_t samples);
int64_t trmi_order_real(const trmi_sample_order *order);

/* The window shuffle walks: `pool` of `window` samples, from which each output is drawn. */
typedef struct trmi_cursor {
    int64_t *pool; /* `window` of them; NULL without a window */
    int64_t epoch, place, pooled, taken;
} trmi_cursor;
bool trmi_cursor_init(trmi_cursor *cursor, const trmi_sample_order *order);
void trmi_cursor_free(trmi_cursor *cursor);
/* Samples at places [first, first + count) of the epoch. Walking back starts the epoch again. */
void trmi_cursor_read(trmi_cursor *cursor, const trmi_sample_order *order, int64_t epoch,
                      int64_t first, int64_t count, int64_t *indices);

#endif
