/* SPDX-License-Identifier: Apache-2.0 */
/* base/simd/bf16.h: vectors of bfloat16 to float and back, for kernel files. Widening is exact.
 * Narrowing rounds to nearest even and keeps a NaN quiet: the bits of base/format/half.h, except
 * that the instruction of AVX512-BF16 takes denormals for zero. */
#ifndef TRMI_BASE_BF16_H
#define TRMI_BASE_BF16_H

#include "base/inline.h"
#include "base/simd/isa.h"

#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef float trmi_floats __attribute__((vector_size(TRMI_VECTOR_BYTES)));
typedef uint32_t trmi_words __attribute__((vector_size(TRMI_VECTOR_BYTES)));
typedef uint16_t trmi_halves __attribute__((vector_size(TRMI_VECTOR_BYTES / 2)));

/* Returns 16 bits each in the low halves: one instruction, of which gcc 12 makes two or five. */
TRMI_INLINE trmi_words trmi_low_halves(trmi_halves h) {
#if defined(__AVX512F__)
    return (trmi_words)_mm512_cvtepu16_epi32((__m256i)h);
#elif defined(__AVX2__)
    return (trmi_words)_mm256_cvtepu16_epi32((__m128i)h);
#else
    return __builtin_convertvector(h, trmi_words);
#endif
}

/* A bfloat16 is the upper half of a float. */
TRMI_INLINE trmi_floats trmi_bf16_widen(trmi_halves h) {
    return (trmi_floats)(trmi_low_halves(h) << 16);
}

/* Returns the high halves, by an instruction that gcc does not merge into what follows: of the
 * merged form it makes more. */
TRMI_INLINE trmi_words trmi_high_halves(trmi_words bits) {
#if defined(__AVX512F__)
    return (trmi_words)_mm512_srli_epi32((__m512i)bits, 16);
#elif defined(__AVX2__)
    return (trmi_words)_mm256_srli_epi32((__m256i)bits, 16);
#else
    return bits >> 16;
#endif
}

/* Adding 0x7FFF and the lowest bit that stays rounds to nearest even; it would turn a NaN with a
 * small payload into infinity, so NaNs are selected apart. */
TRMI_INLINE trmi_halves trmi_bf16_narrow(trmi_floats v) {
#if defined(__AVX512BF16__)
    return (trmi_halves)_mm512_cvtneps_pbh((__m512)v);
#else
    trmi_words bits = (trmi_words)v, high = trmi_high_halves(bits);
    trmi_words rounded = trmi_high_halves(bits + (0x7FFFu + (high & 1u)));
#if defined(__AVX512F__)
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    __m512i out =
        _mm512_mask_or_epi32((__m512i)rounded, nan, (__m512i)high, _mm512_set1_epi32(0x40));
    return (trmi_halves)_mm512_cvtepi32_epi16(out);
#elif defined(__AVX2__)
    __m256 nan = _mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q);
    __m256i out =
        _mm256_blendv_epi8((__m256i)rounded, (__m256i)(high | 0x40u), _mm256_castps_si256(nan));
    return (trmi_halves)_mm_packus_epi32(_mm256_castsi256_si128(out),
                                         _mm256_extracti128_si256(out, 1));
#else
    trmi_words nan = (trmi_words)((bits & 0x7FFFFFFFu) > 0x7F800000u);
    return __builtin_convertvector((nan & (high | 0x40u)) | (~nan & rounded), trmi_halves);
#endif
#endif
}

/* Load from, and store to, any address. */
TRMI_INLINE trmi_halves trmi_halves_load(const void *from) {
    trmi_halves h;
    memcpy(&h, from, sizeof h);
    return h;
}
TRMI_INLINE trmi_floats trmi_bf16_load(const void *from) {
    return trmi_bf16_widen(trmi_halves_load(from));
}
TRMI_INLINE void trmi_bf16_store(void *to, trmi_floats v) {
    trmi_halves h = trmi_bf16_narrow(v);
    memcpy(to, &h, sizeof h);
}

#endif
