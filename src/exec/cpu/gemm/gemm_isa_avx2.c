/* SPDX-License-Identifier: Apache-2.0 */
/* 6 x 16 tiles: 12 of 16 registers hold sums. */
#if defined(__x86_64__)
#include <immintrin.h>

#define NAME avx2
#define VL 8
#define VN 2
#define MR 6
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define STREAM(to, value) _mm256_stream_ps(to, (__m256)(value))
#define FENCE() _mm_sfence()
#include "exec/cpu/gemm/gemm_isa_body.h"
#else
typedef int trmi_not_x86;
#endif
