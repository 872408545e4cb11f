/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/scratch.h: whose a part of the scratch is. All operators share it, one after the other,
 * so that all of them place alike what a thread has for itself, and what threads have in common
 * about the middle:
 *
 *      | thread 0 | thread 1 | ...    [ of the first half | of the second half ]    ... | thread 2 | thread 3 |
 *
 * Where CPUs have no cache in common, writing lines that another CPU has takes twenty times as long
 * as its own. Parts begin with pages, so that a kernel takes the same sets of its caches whatever
 * the other operators' sizes.
 */
#ifndef TRMI_EXEC_ONEDNN_SCRATCH_H
#define TRMI_EXEC_ONEDNN_SCRATCH_H

#include "base/checked.h"

#include <stddef.h>
#include <stdint.h>

enum { TRMI_SCRATCH_PAGE = 4096 };

/* A run's scratch: `shared` bytes, and `own` ones for each thread; all that is there may be more.
 */
typedef struct trmi_scratch {
    char *at;
    int64_t bytes, shared, own;
    int threads;
} trmi_scratch;

/* `bytes` from a 64-byte boundary; fewer than are needed count as those. */
static inline trmi_scratch trmi_scratch_cut(char *at, int64_t bytes, int64_t shared, int64_t own,
                                            int threads) {
    trmi_scratch s = {.at = at,
                      .shared = trmi_round_up(shared, TRMI_SCRATCH_PAGE),
                      .own = trmi_round_up(own, TRMI_SCRATCH_PAGE),
                      .threads = threads};
    s.bytes =
        trmi_max_i64(bytes / TRMI_SCRATCH_PAGE * TRMI_SCRATCH_PAGE, s.shared + s.own * threads);
    return s;
}

/* What is needed. */
static inline int64_t trmi_scratch_bytes(int64_t shared, int64_t own, int threads) {
    return trmi_scratch_cut(NULL, 0, shared, own, threads).bytes;
}

static inline char *trmi_scratch_own(const trmi_scratch *s, int thread) {
    return s->at + (thread < (s->threads + 1) / 2 ? thread * s->own
                                                  : s->bytes - (s->threads - thread) * s->own);
}

static inline char *trmi_scratch_shared(const trmi_scratch *s) {
    int64_t low = (s->threads + 1) / 2 * s->own,
            high = s->bytes - s->threads / 2 * s->own - s->shared;
    int64_t centred = (s->bytes - s->shared) / 2 / TRMI_SCRATCH_PAGE * TRMI_SCRATCH_PAGE;
    return s->at + trmi_max_i64(low, trmi_min_i64(high, centred));
}

#endif
