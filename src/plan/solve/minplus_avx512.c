/* SPDX-License-Identifier: Apache-2.0 */
/* (min,+) product with AVX-512: 16 floats a vector. */
#if defined(__x86_64__)
#include <immintrin.h>

#define VEC __m512
#define LANES 16
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define SET1(x) _mm512_set1_ps(x)
#define ADD(a, b) _mm512_add_ps(a, b)
#define MIN(a, b) _mm512_min_ps(a, b)
#define NAME trmi_minplus_avx512
#include "plan/solve/minplus_tile.h"
#else
typedef int trmi_minplus_avx512_is_empty_here;
#endif
