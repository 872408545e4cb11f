/* SPDX-License-Identifier: Apache-2.0 */
/* base/simd/tile.h: the compiler's vectors of VL floats, for kernels that keep a tile of sums in
 * registers (products, convolutions). `plain` has vectors of four here, where vec.h has single
 * floats: a tile needs more than one number in each register. */
#ifndef TRMI_BASE_TILE_H
#define TRMI_BASE_TILE_H

#include "trireme/base.h"

#include "base/format/half.h"
#include "base/simd/bf16.h"

#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* Before a loop of at most 16 rounds: all of it written out, so that arrays it walks can be
 * registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define VL (TRMI_VECTOR_BYTES / 4)
typedef trmi_floats vec;
typedef trmi_words vec_bits;
/* A vector in memory: at any address, of any declared type. */
typedef float vec_memory __attribute__((vector_size(TRMI_VECTOR_BYTES), aligned(4), may_alias));

/* ---- vectors in and out ---------------------------------------------------------------------- */

/* Loads 16 bits each into the low halves. */
TRMI_INLINE vec_bits load_low(const uint16_t *from) {
    return trmi_low_halves(trmi_halves_load(from));
}

TRMI_INLINE vec load_half(const uint16_t *from) { return trmi_bf16_load(from); }
TRMI_INLINE void store_half(uint16_t *to, vec value) { trmi_bf16_store(to, value); }

#if defined(__AVX512BF16__)
/* Rounds two vectors as above to pairs: `even` in the low halves, `odd` in the high ones. */
TRMI_INLINE vec round_pair(vec even, vec odd) {
    const __m512i deal =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (vec)_mm512_permutexvar_epi16(deal,
                                         (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even));
}
#endif

/* Stores past the caches; the address is a multiple of the vector's size. */
TRMI_INLINE void stream_vec(float *to, vec value) {
#if defined(__AVX512F__)
    _mm512_stream_ps(to, (__m512)value);
#elif defined(__AVX2__)
    _mm256_stream_ps(to, (__m256)value);
#else
    *(vec_memory *)to = value;
#endif
}

/* Makes streamed stores visible to other CPUs before later stores. */
TRMI_INLINE void fence_streams(void) {
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

TRMI_INLINE float load_one(const void *from, trm_dtype type, int64_t i) {
    return type == TRM_BFLOAT16 ? trmi_bf16_to_float(((const uint16_t *)from)[i])
                                : ((const float *)from)[i];
}

TRMI_INLINE vec load_any(const void *from, trm_dtype type, int64_t i) {
    return type == TRM_BFLOAT16 ? load_half((const uint16_t *)from + i)
                                : (vec) * (const vec_memory *)((const float *)from + i);
}

#endif
