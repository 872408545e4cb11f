/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/share.h: distributes the items of a loop to threads, with work stealing:
 *
 *      thread 0                thread 1
 *      [ 0 1 2 3 4 5 6 7 ]     [ 8 9 10 11 12 13 14 15 ]
 *        -> own, in order           <- from the end, by threads that have finished their own
 *
 * All operators divide the rows of images in the same way, so that a thread reads data that it has
 * written itself and that is still in its caches. Cores may share no cache; data of another core
 * then costs more than main memory. If a thread is delayed, the others take its items. Results must
 * not depend on the thread that computes an item.
 */
#ifndef TRMI_EXEC_CPU_SHARE_H
#define TRMI_EXEC_CPU_SHARE_H

#include "base/checked.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Threads of a loop at most; more take their items from the parts of others. */
enum { TRMI_SHARE_PARTS = 64 };

typedef struct trmi_share {
    int parts;
    struct {
        _Alignas(64) _Atomic uint64_t left; /* first << 32 | end */
    } part[TRMI_SHARE_PARTS];
} trmi_share;

/* Divides `count` items (fewer than 2^31) into `threads` parts of nearly equal length. Call it
 * before the threads start. */
static inline void trmi_share_begin(trmi_share *s, int64_t count, int threads) {
    s->parts = threads < TRMI_SHARE_PARTS ? threads : TRMI_SHARE_PARTS;
    for (int i = 0; i < s->parts; i++) {
        uint64_t first = (uint64_t)trmi_cut_at(count, s->parts, i),
                 end = (uint64_t)trmi_cut_at(count, s->parts, i + 1);
        atomic_init(&s->part[i].left, first << 32 | end);
    }
}

/* Takes an item of a part, from its beginning or its end; returns -1 if there is none. */
static inline int64_t trmi_share_take_of(trmi_share *s, int part, bool from_end) {
    uint64_t left = atomic_load_explicit(&s->part[part].left, memory_order_relaxed);
    for (;;) {
        uint64_t first = left >> 32, end = left & UINT32_MAX;
        if (first >= end) {
            return -1;
        }
        /* a single thread needs no locked instruction, which would wait for all earlier stores */
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

/* Returns the item that thread `me` takes next of its own part, unless another thread takes it
 * before; -1: none. */
static inline int64_t trmi_share_peek(trmi_share *s, int me) {
    uint64_t left = atomic_load_explicit(&s->part[me % s->parts].left, memory_order_relaxed);
    return left >> 32 < (left & UINT32_MAX) ? (int64_t)(left >> 32) : -1;
}

/* Takes the next item for thread `me`: of its own part, then from the ends of others; -1: none is
 * left. */
static inline int64_t trmi_share_take(trmi_share *s, int me) {
    int own = me % s->parts;
    int64_t item = trmi_share_take_of(s, own, false);
    for (int i = 1; item < 0 && i < s->parts; i++) {
        item = trmi_share_take_of(s, (own + i) % s->parts, true);
    }
    return item;
}

#endif
