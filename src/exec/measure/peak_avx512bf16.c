/* SPDX-License-Identifier: Apache-2.0 */
/* The peak of products of bfloat16 pairs (peak.h): twelve sums, enough to hide the latency of the
 * instruction in two units, and no memory. In a file of its own, because only it is compiled for
 * AVX512-BF16. */
#if defined(__x86_64__)
#include "exec/measure/peak.h"

#include <immintrin.h>

#define PEAK_SUMS(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define PEAK_BEGIN(n) __m512 s##n = _mm512_set1_ps((float)n);
#define PEAK_STEP(n) s##n = _mm512_dpbf16_ps(s##n, left, right);
#define PEAK_END(n) total = _mm512_add_ps(total, s##n);

double trmi_peak_pairs(int64_t rounds, float *sink) {
    const __m512bh left = _mm512_cvtne2ps_pbh(_mm512_set1_ps(sink[0]), _mm512_set1_ps(sink[1]));
    const __m512bh right = _mm512_cvtne2ps_pbh(_mm512_set1_ps(sink[1]), _mm512_set1_ps(sink[0]));
    PEAK_SUMS(PEAK_BEGIN)
    for (int64_t i = 0; i < rounds; i++) {
        PEAK_SUMS(PEAK_STEP)
        PEAK_SUMS(PEAK_STEP)
        PEAK_SUMS(PEAK_STEP)
        PEAK_SUMS(PEAK_STEP)
    }
    __m512 total = _mm512_setzero_ps();
    PEAK_SUMS(PEAK_END)
    sink[2] = _mm512_reduce_add_ps(total);
    return 4.0 * 16 * 12 * 4 * (double)rounds;
}
#else
typedef int trmi_not_x86;
#endif
