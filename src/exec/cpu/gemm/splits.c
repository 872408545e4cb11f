/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the partial sums of splits (splits.h): a sum that is too long for one task is made in
 * splits, each with sums of its own, which are added here in an order that depends on their number
 * alone. */
#include "exec/cpu/gemm/splits.h"

#include "base/checked.h"

/* Elements that a thread adds at a time: in 16 KB they stay in L1. */
enum { PIECE = 4096 };

/* Adds `terms` sums, `stride` floats apart, and stores them in the type of the result. */
static void store_sums(const trmi_gemm_isa *isa, const float *from, int64_t stride, int64_t terms,
                       int64_t at, int64_t count, void *to, trm_dtype type) {
    float room[PIECE];
    if (type == TRM_FLOAT32) {
        isa->sum((float *)to + at, from + at, stride, terms, count);
    } else {
        isa->sum(room, from + at, stride, terms, count);
        isa->narrow((uint16_t *)to + at, type, room, NULL, count);
    }
}

/* Splits that are nodes of a tree: neighbours are joined until one is left. */
static void join_all(const trmi_gemm_isa *isa, float *sums, int64_t splits, int64_t stride,
                     int64_t count) {
    for (int64_t step = 1; step < splits; step *= 2) {
        for (int64_t s = 0; s < splits; s += 2 * step) {
            isa->sum(sums + s * stride, sums + s * stride, step * stride, 2, count);
        }
    }
}

void trmi_splits_join(const trmi_gemm_isa *isa, float *sums, int64_t splits, int64_t count,
                      void *to, trm_dtype type) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < trmi_pieces(count, PIECE); i++) {
        int64_t at = i * PIECE, each = trmi_min_i64(PIECE, count - at);
        join_all(isa, sums + at, splits, count, each);
        store_sums(isa, sums, count, 1, at, each, to, type);
    }
}

/* Contract in splits.h. First each half of the splits is added to its first one, then the two
 * halves are added, so that twice as many threads have work in the longer part. */
void trmi_splits_add(const trmi_gemm_isa *isa, float *sums, int64_t splits, int64_t count, void *to,
                     trm_dtype type) {
    int64_t pieces = trmi_pieces(count, PIECE), first = trmi_max_i64(1, splits / 2);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < (splits > 2 ? 2 * pieces : 0); i++) {
        int64_t half = i / pieces, at = i % pieces * PIECE;
        float *own = sums + half * first * count + at;
        isa->sum(own, own, count, half == 0 ? first : splits - first,
                 trmi_min_i64(PIECE, count - at));
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        int64_t at = i * PIECE;
        store_sums(isa, sums, first * count, trmi_min_i64(splits, 2), at,
                   trmi_min_i64(PIECE, count - at), to, type);
    }
}
