/* SPDX-License-Identifier: Apache-2.0 */
/* 14 x 32 tiles of pairs of bfloat16, summed in float32 (VDPBF16PS). */
#if defined(__x86_64__)
#include <immintrin.h>

#define NAME avx512bf16
#define PAIRS
#define MULTIPLY_ADD(sum, left, right)                                                             \
    ((sum) =                                                                                       \
         (vec)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)_mm512_set1_ps(left), (__m512bh)(right)))
/* 32 pairs of the numbers of two rows, low and high. */
#define PAIR_ROWS(to, low, high)                                                                   \
    do {                                                                                           \
        const __m512i place =                                                                      \
            _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7,  \
                             38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);                     \
        __m512i left = _mm512_loadu_si512(low), right = _mm512_loadu_si512(high);                  \
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(left, place, right));                    \
        _mm512_storeu_si512((to) + 16,                                                             \
                            _mm512_permutex2var_epi16(                                             \
                                left, _mm512_add_epi16(place, _mm512_set1_epi16(16)), right));     \
    } while (0)
#define VL 16
#define VN 2
#define MR 14
#define STREAM(to, value) _mm512_stream_ps(to, (__m512)(value))
#define FENCE() _mm_sfence()
#include "exec/cpu/gemm/gemm_isa_body.h"
#else
typedef int trmi_not_x86;
#endif
