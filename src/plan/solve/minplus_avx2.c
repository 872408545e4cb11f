/* SPDX-License-Identifier: Apache-2.0 */
/* (min,+) product with AVX2: 8 floats a vector. */
#if defined(__x86_64__)
#include <immintrin.h>

#define VEC __m256
#define LANES 8
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define SET1(x) _mm256_set1_ps(x)
#define ADD(a, b) _mm256_add_ps(a, b)
#define MIN(a, b) _mm256_min_ps(a, b)
#define NAME trmi_minplus_avx2
#include "plan/solve/minplus_tile.h"
#else
typedef int trmi_minplus_avx2_is_empty_here;
#endif
