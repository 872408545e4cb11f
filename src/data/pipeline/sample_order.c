/* SPDX-License-Identifier: Apache-2.0 */
/* The order of samples: which sample of the data stands at a place of an epoch, for one shard.
 *
 *      place of the shard -> position_of: shards take turns -> sample_at: permutation of the epoch
 *
 * Without a window each place is computed directly: a shuffle is a pseudo-random permutation
 * (trmi_permute) of all samples, which needs no memory. With a window samples are drawn one after
 * the other. Either way the order is a function of seed, epoch and place, so a resume needs no
 * state. */
#include "data/pipeline/sample_order.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/rng.h"

int64_t trmi_order_places_of(const trmi_sample_order *order, int64_t samples) {
    int64_t even = samples / order->shards;
    return order->mode == TRM_SHARD_DROP ? even : even + (samples % order->shards != 0);
}

int64_t trmi_order_places(const trmi_sample_order *order) {
    return trmi_order_places_of(order, order->count);
}

int64_t trmi_order_real(const trmi_sample_order *order) {
    if (order->mode != TRM_SHARD_PAD) {
        return trmi_order_places(order);
    }
    return order->count / order->shards + (order->shard < order->count % order->shards);
}

/* Returns where in the order of all shards the sample at `place` is. */
static int64_t position_of(const trmi_sample_order *order, int64_t place) {
    const bool grouped =
        order->groups > 1 && order->mode == TRM_SHARD_WRAP && order->shards % order->groups == 0;
    if (!grouped) {
        return place * order->shards + order->shard;
    }
    /* of the group's samples, in their order, each of its shards takes one in turn */
    const int64_t shards = order->shards / order->groups, group = order->shard / shards;
    const int64_t at = place * shards + order->shard % shards;
    return (at / order->group_takes * order->groups + group) * order->group_takes +
           at % order->group_takes;
}

/* Returns the sample at `place` < trmi_order_real, before the window shuffle. */
static int64_t sample_at(const trmi_sample_order *order, int64_t epoch, int64_t place) {
    int64_t global =
        (position_of(order, place) + (epoch == order->moved_epoch ? order->moved : 0)) %
        order->count;
    /* Negative before the first place of a shifted epoch, from which a window may draw. */
    global += global < 0 ? order->count : 0;
    if (!order->shuffled) {
        return global;
    }
    return (int64_t)trmi_permute(trmi_mix(order->seed, (uint64_t)epoch), TRMI_STREAM_SHUFFLE,
                                 (uint64_t)order->count, (uint64_t)global);
}

bool trmi_cursor_init(trmi_cursor *cursor, const trmi_sample_order *order) {
    *cursor = (trmi_cursor){.epoch = -1};
    if (order->window > 1) {
        cursor->pool = trmi_alloc((size_t)order->window * sizeof *cursor->pool);
        return cursor->pool != NULL;
    }
    return true;
}

void trmi_cursor_free(trmi_cursor *cursor) {
    trmi_free(cursor->pool);
    cursor->pool = NULL;
}

/* Draws the next sample of a window shuffle. */
static int64_t draw_sample(trmi_cursor *cursor, const trmi_sample_order *order) {
    int64_t real = trmi_order_real(order);
    /* Fill the pool. */
    while (cursor->pooled < order->window && cursor->taken < real) {
        cursor->pool[cursor->pooled++] = sample_at(order, cursor->epoch, cursor->taken++);
    }
    /* A seed of its own: the draws must depend neither on the permutation nor on another shard. */
    uint64_t seed =
        trmi_mix(trmi_mix(order->seed, (uint64_t)cursor->epoch), (uint64_t)order->shard + 1);
    uint32_t bits = trmi_random_u32(seed, TRMI_STREAM_SHUFFLE, (uint64_t)cursor->place);
    uint32_t at = trmi_bounded(bits, (uint32_t)cursor->pooled);
    int64_t sample = cursor->pool[at];
    /* the last sample of the pool takes the free place */
    cursor->pool[at] = cursor->pool[--cursor->pooled];
    cursor->place++;
    return sample;
}

/* Contract in sample_order.h. Without a window any place can be computed; with one, places are
 * drawn one after the other, and those before the wanted ones are drawn and dropped. */
void trmi_cursor_read(trmi_cursor *cursor, const trmi_sample_order *order, int64_t epoch,
                      int64_t first, int64_t count, int64_t *indices) {
    if (cursor->pool == NULL) {
        for (int64_t i = 0; i < count; i++) {
            indices[i] = sample_at(order, epoch, first + i);
        }
        return;
    }
    /* The pool depends on all draws before, so going back starts the epoch again. */
    if (cursor->epoch != epoch || cursor->place > first) {
        cursor->epoch = epoch;
        cursor->place = cursor->taken = cursor->pooled = 0;
    }
    while (cursor->place < first) {
        (void)draw_sample(cursor, order);
    }
    for (int64_t i = 0; i < count; i++) {
        indices[i] = draw_sample(cursor, order);
    }
}
