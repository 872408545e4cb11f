/* exec/vec.h: a vector of floats as wide as the including file's flags allow, so that a kernel is
 * written once and built three times:
 *
 *      relu_body.h  (uses vf)  <-- relu_plain.c   vf = float      VL = 1
 *                              <-- relu_avx2.c    vf = __m256     VL = 8
 *                              <-- relu_avx512.c  vf = __m512     VL = 16
 *
 * Every function has an obvious meaning per lane. `_n` forms touch only the first n < VL elements
 * of memory (lanes beyond are 0). Halves (`bf`) are bfloat16 in memory, rounded to nearest even.
 */
#ifndef TRMI_EXEC_VEC_H
#define TRMI_EXEC_VEC_H

#include "base/half.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "exec/vec_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "exec/vec_avx2.h"
#else
#include "exec/vec_plain.h"
#endif

/* ---- from here on the same for all ---------------------------------------------------------- */

static inline vf vf_zero(void) { return vf_set(0.0f); }

/* Loads and stores by storage type, chosen by a constant `half` so that the branch folds. */
static inline vf vf_get(const void *base, int64_t at, int half) {
    return half ? vf_load_bf((const uint16_t *)base + at) : vf_load((const float *)base + at);
}
static inline vf vf_get_n(const void *base, int64_t at, int half, int n) {
    return half ? vf_load_bf_n((const uint16_t *)base + at, n)
                : vf_load_n((const float *)base + at, n);
}
static inline void vf_put(void *base, int64_t at, int half, vf v) {
    if (half) {
        vf_store_bf((uint16_t *)base + at, v);
    } else {
        vf_store((float *)base + at, v);
    }
}
static inline void vf_put_n(void *base, int64_t at, int half, int n, vf v) {
    if (half) {
        vf_store_bf_n((uint16_t *)base + at, n, v);
    } else {
        vf_store_n((float *)base + at, n, v);
    }
}

/* e^x to 2 units in the last place; 0 below -87.34, infinite above 88.72, NaN stays NaN (Cody-Waite
 * reduction, minimax polynomial of degree 6 on [-ln2/2, ln2/2]). */
static inline vf vf_exp(vf x) {
    vf n = vf_round(vf_mul(x, vf_set(1.44269504088896341f)));
    n = vf_min(vf_max(n, vf_set(-127.0f)), vf_set(128.0f));
    vf r = vf_fma(n, vf_set(-0.693145751953125f), x);
    r = vf_fma(n, vf_set(-1.42860677e-6f), r);
    vf p = vf_set(1.0f / 720);
    p = vf_fma(p, r, vf_set(1.0f / 120));
    p = vf_fma(p, r, vf_set(1.0f / 24));
    p = vf_fma(p, r, vf_set(1.0f / 6));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_fma(p, r, vf_set(1.0f));
    p = vf_fma(p, r, vf_set(1.0f));
    vf y = vf_scale2(p, n);
    y = vf_select(vf_gt(vf_set(-87.33654f), x), vf_zero(), y);
    y = vf_select(vf_gt(x, vf_set(88.72284f)), vf_set(INFINITY), y);
    return vf_select(vf_nan(x), x, y);
}

/* Lanes [0, count) by full vectors, then the rest: BODY sees `i` and, in the tail, `n` lanes. */
#define VF_LOOP(count, FULL, TAIL)                                                                 \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        for (; i + VL <= (count); i += VL) {                                                       \
            FULL;                                                                                  \
        }                                                                                          \
        if (i < (count)) {                                                                         \
            int n = (int)((count) - i);                                                            \
            TAIL;                                                                                  \
        }                                                                                          \
    } while (0)

#endif
