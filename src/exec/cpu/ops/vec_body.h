/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/vec_body.h: the compiler's vectors of VL floats, for files written once and compiled
 * for each instruction set (which define VL and NAME before including this). */
#include "trireme/base.h"

#include "base/half.h"

#include <string.h>
#if defined(__AVX512F__)
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

typedef float vec __attribute__((vector_size(VL * 4)));
typedef uint32_t vec_bits __attribute__((vector_size(VL * 4)));
typedef uint16_t vec_half __attribute__((vector_size(VL * 2)));
/* The same in memory: any address, any declared type. */
typedef float vec_memory __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef uint16_t half_memory __attribute__((vector_size(VL * 2), aligned(2), may_alias));

/* ---- vectors in and out ---------------------------------------------------------------------- */

/* 16 bits each to the low halves: one instruction, which gcc 12 makes five of. */
INLINE vec_bits load_low(const uint16_t *from) {
#if VL == 16 && defined(__AVX512F__)
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
#if VL == 16 && defined(__AVX512BF16__) /* takes denormals for zero; else it rounds the same */
    _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh((__m512)value));
#else
    vec_bits bits = (vec_bits)value;
    vec_bits rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    vec_bits nan = (vec_bits)((bits & 0x7FFFFFFFu) > 0x7F800000u);
    vec_bits out = (nan & (bits >> 16 | 0x40u)) | (~nan & rounded);
    *(half_memory *)to = __builtin_convertvector(out, vec_half);
#endif
}

#if VL == 16 && defined(__AVX512BF16__)
/* Two vectors rounded as above to pairs: `even` in the low halves, `odd` in the high ones. */
INLINE vec round_pair(vec even, vec odd) {
    const __m512i deal =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (vec)_mm512_permutexvar_epi16(deal,
                                         (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even));
}
#endif

INLINE float load_one(const void *from, trm_dtype type, int64_t i) {
    return type == TRM_BFLOAT16 ? trmi_bf16_to_float(((const uint16_t *)from)[i])
                                : ((const float *)from)[i];
}

INLINE vec load_any(const void *from, trm_dtype type, int64_t i) {
    return type == TRM_BFLOAT16 ? load_half((const uint16_t *)from + i)
                                : (vec) * (const vec_memory *)((const float *)from + i);
}

#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
