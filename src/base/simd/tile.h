/* SPDX-License-Identifier: Apache-2.0 */
/* base/simd/tile.h: the compiler's vectors of VL floats, for kernels that keep a tile of sums in
 * registers (products, convolutions). `plain` has vectors of four here, where vec.h has single
 * floats: a tile needs more than one number in each register. */
#ifndef TRMI_BASE_TILE_H
#define TRMI_BASE_TILE_H

#include "trireme/base.h"

#include "base/half.h"
#include "base/simd/isa.h"

#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

/* Before a loop of at most 16 rounds: all of it written out, so that arrays it walks can be
 * registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define VL (TRMI_VECTOR_BYTES / 4)
typedef float vec __attribute__((vector_size(TRMI_VECTOR_BYTES)));
typedef uint32_t vec_bits __attribute__((vector_size(TRMI_VECTOR_BYTES)));
typedef uint16_t vec_half __attribute__((vector_size(TRMI_VECTOR_BYTES / 2)));
/* The same in memory: any address, any declared type. */
typedef float vec_memory __attribute__((vector_size(TRMI_VECTOR_BYTES), aligned(4), may_alias));
typedef uint16_t half_memory
    __attribute__((vector_size(TRMI_VECTOR_BYTES / 2), aligned(2), may_alias));

/* ---- vectors in and out ---------------------------------------------------------------------- */

/* 16 bits each to the low halves: one instruction, which gcc 12 makes five of. */
INLINE vec_bits load_low(const uint16_t *from) {
#if defined(__AVX512F__)
    return (vec_bits)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
#else
    vec_half h = *(const half_memory *)from;
    return __builtin_convertvector(h, vec_bits);
#endif
}

INLINE vec load_half(const uint16_t *from) {
    vec_half h = *(const half_memory *)from;
    return (vec)(__builtin_convertvector(h, vec_bits) << 16);
}

/* Round to nearest even; NaN stays NaN. */
INLINE void store_half(uint16_t *to, vec value) {
#if defined(__AVX512BF16__) /* takes denormals for zero; else it rounds the same */
    _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh((__m512)value));
#else
    vec_bits bits = (vec_bits)value;
    vec_bits rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    vec_bits nan = (vec_bits)((bits & 0x7FFFFFFFu) > 0x7F800000u);
    vec_bits out = (nan & (bits >> 16 | 0x40u)) | (~nan & rounded);
    *(half_memory *)to = __builtin_convertvector(out, vec_half);
#endif
}

#if defined(__AVX512BF16__)
/* Two vectors rounded as above to pairs: `even` in the low halves, `odd` in the high ones. */
INLINE vec round_pair(vec even, vec odd) {
    const __m512i deal =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (vec)_mm512_permutexvar_epi16(deal,
                                         (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even));
}
#endif

/* Stores past the caches; the address is a multiple of the vector's size. */
INLINE void stream_vec(float *to, vec value) {
#if defined(__AVX512F__)
    _mm512_stream_ps(to, (__m512)value);
#elif defined(__AVX2__)
    _mm256_stream_ps(to, (__m256)value);
#else
    *(vec_memory *)to = value;
#endif
}

/* Makes streamed stores visible to other CPUs before later stores. */
INLINE void fence_streams(void) {
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

INLINE float load_one(const void *from, trm_dtype type, int64_t i) {
    return type == TRM_BFLOAT16 ? trmi_bf16_to_float(((const uint16_t *)from)[i])
                                : ((const float *)from)[i];
}

INLINE vec load_any(const void *from, trm_dtype type, int64_t i) {
    return type == TRM_BFLOAT16 ? load_half((const uint16_t *)from + i)
                                : (vec) * (const vec_memory *)((const float *)from + i);
}

#endif
