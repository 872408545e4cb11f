/* exec/onednn/scratch.h: whose a part of the scratch is. All operators share it, one after the other, so that all of them
 * place alike what a thread has for itself, and what threads have in common about the middle:
 *
 *      | thread 0 | thread 1 | ...    [ of the first half | of the second half ]    ... | thread 2 | thread 3 |
 *
 * Where CPUs have no cache in common, writing lines that another CPU has takes twenty times as long as its own. */
#ifndef TRMI_EXEC_ONEDNN_SCRATCH_H
#define TRMI_EXEC_ONEDNN_SCRATCH_H

#include "base/checked.h"

#include <stdint.h>

/* A run's scratch: `shared` bytes, and `own` ones for each thread; all that is there may be more. Multiples of 64. */
typedef struct trmi_scratch {
    char *at;
    int64_t bytes, shared, own;
    int threads;
} trmi_scratch;

static inline trmi_scratch trmi_scratch_cut(char *at, int64_t bytes, int64_t shared, int64_t own, int threads) {
    int64_t needed = shared + own * threads;
    return (trmi_scratch){.at = at, .bytes = trmi_max_i64(bytes / 64 * 64, needed), .shared = shared, .own = own, .threads = threads};
}

static inline char *trmi_scratch_own(const trmi_scratch *s, int thread) {
    return s->at + (thread < (s->threads + 1) / 2 ? thread * s->own : s->bytes - (s->threads - thread) * s->own);
}

static inline char *trmi_scratch_shared(const trmi_scratch *s) {
    int64_t low = (s->threads + 1) / 2 * s->own, high = s->bytes - s->threads / 2 * s->own - s->shared;
    int64_t centred = (s->bytes - s->shared) / 2 / 64 * 64;
    return s->at + trmi_max_i64(low, trmi_min_i64(high, centred));
}

#endif
