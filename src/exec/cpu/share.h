/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/share.h: the items of a loop dealt to threads:
 *
 *      thread 0                thread 1
 *      [ 0 1 2 3 4 5 6 7 ]     [ 8 9 10 11 12 13 14 15 ]
 *        -> own, in order           <- from the end, by who has done his
 *
 * Operators cut rows of images alike, so that a thread meets what it made itself and still has in
 * its caches: cores may have none in common, and what another one wrote is then farther away than
 * memory. Where a thread is held up, others do its part. Results must not depend on who makes them.
 */
#ifndef TRMI_EXEC_ONEDNN_SHARE_H
#define TRMI_EXEC_ONEDNN_SHARE_H

#include "base/checked.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { TRMI_SHARE_PARTS = 64 };

typedef struct trmi_share {
    int parts;
    struct {
        _Alignas(64) _Atomic uint64_t left; /* first << 32 | end */
    } part[TRMI_SHARE_PARTS];
} trmi_share;

/* `threads` parts of nearly equal length. Before the threads start; fewer than 2^31 items. */
static inline void trmi_share_begin(trmi_share *s, int64_t count, int threads) {
    s->parts = threads < TRMI_SHARE_PARTS ? threads : TRMI_SHARE_PARTS;
    for (int i = 0; i < s->parts; i++) {
        uint64_t first = (uint64_t)trmi_cut_at(count, s->parts, i),
                 end = (uint64_t)trmi_cut_at(count, s->parts, i + 1);
        atomic_init(&s->part[i].left, first << 32 | end);
    }
}

/* An item of this part from its begin or its end; -1 when there is none. */
static inline int64_t trmi_share_take_of(trmi_share *s, int part, bool from_end) {
    uint64_t left = atomic_load_explicit(&s->part[part].left, memory_order_relaxed);
    for (;;) {
        uint64_t first = left >> 32, end = left & UINT32_MAX;
        if (first >= end) {
            return -1;
        }
        /* one thread: nobody else takes any, and a locked instruction waits for all stores before
         * it */
        if (s->parts == 1) {
            atomic_store_explicit(&s->part[0].left, (first + 1) << 32 | end, memory_order_relaxed);
            return (int64_t)first;
        }
        uint64_t less = from_end ? first << 32 | (end - 1) : (first + 1) << 32 | end;
        if (atomic_compare_exchange_weak_explicit(&s->part[part].left, &left, less,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            return (int64_t)(from_end ? end - 1 : first);
        }
    }
}

/* What thread `me` will take next of its own part, unless others do before; -1: nothing. */
static inline int64_t trmi_share_peek(trmi_share *s, int me) {
    uint64_t left = atomic_load_explicit(&s->part[me % s->parts].left, memory_order_relaxed);
    return left >> 32 < (left & UINT32_MAX) ? (int64_t)(left >> 32) : -1;
}

/* The next item for thread `me`; -1 when all are dealt. */
static inline int64_t trmi_share_take(trmi_share *s, int me) {
    int own = me % s->parts;
    int64_t item = trmi_share_take_of(s, own, false);
    for (int i = 1; item < 0 && i < s->parts; i++) {
        item = trmi_share_take_of(s, (own + i) % s->parts, true);
    }
    return item;
}

#endif
