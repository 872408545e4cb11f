/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/scratch.h: the division of the scratch. All operators use the same memory one after the
 * other, and all place the parts of each thread, and the memory that threads share, in the same
 * way:
 *
 *      | thread 0 | thread 1 | ...    [ of the first half | of the second half ]    ... | thread 2 | thread 3 |
 *
 * If CPUs share no cache, writing a cache line that another CPU holds takes twenty times as long as
 * writing an own one. Parts begin at pages, so that a kernel uses the same cache sets for any sizes
 * of the other operators.
 */
#ifndef TRMI_EXEC_CPU_SCRATCH_H
#define TRMI_EXEC_CPU_SCRATCH_H

#include "base/checked.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of a page; parts of threads begin at pages. */
enum { TRMI_SCRATCH_PAGE = 4096 };

/* The scratch of a run: `shared` bytes, and `own` bytes for each thread, of `bytes` in all. */
typedef struct trmi_scratch {
    char *at;                   /* borrowed: the executor's scratch arena */
    int64_t bytes, shared, own; /* multiples of a page */
    int threads;                /* of the team that runs the kernel */
} trmi_scratch;

/* Divides `bytes` from `at` (64-byte aligned); fewer bytes than needed are rounded up to those
 * needed. */
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

/* Returns the bytes that are needed. */
static inline int64_t trmi_scratch_bytes(int64_t shared, int64_t own, int threads) {
    return trmi_scratch_cut(NULL, 0, shared, own, threads).bytes;
}

/* Returns the part of a thread: of the first half of the threads from the beginning on, of the
 * second half up to the end, so that each half lies beside the memory that it shares. */
static inline char *trmi_scratch_own(const trmi_scratch *s, int thread) {
    return s->at + (thread < (s->threads + 1) / 2 ? thread * s->own
                                                  : s->bytes - (s->threads - thread) * s->own);
}

/* Returns the memory that all threads share: in the middle, because the threads of each half write
 * their own half of it. */
static inline char *trmi_scratch_shared(const trmi_scratch *s) {
    int64_t low = (s->threads + 1) / 2 * s->own,
            high = s->bytes - s->threads / 2 * s->own - s->shared;
    int64_t centred = (s->bytes - s->shared) / 2 / TRMI_SCRATCH_PAGE * TRMI_SCRATCH_PAGE;
    return s->at + trmi_max_i64(low, trmi_min_i64(high, centred));
}

#endif
