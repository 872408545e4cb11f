/* SPDX-License-Identifier: Apache-2.0 */
/* base/simd/vec.h: a vector of floats as wide as the flags of the compiler allow, so that a kernel
 * file is written once and compiled for each instruction set (cmake/TriremeKernels.cmake):
 *
 *      x_kernels.c  (uses vf)  --> plain     vf = float      VL = 1
 *                              --> AVX2      vf = __m256     VL = 8
 *                              --> AVX-512   vf = __m512     VL = 16
 *
 * Every function has an obvious meaning per lane. `_n` forms touch only the first n < VL elements
 * of memory (lanes beyond are 0; vf_fill gives them another value). Halves (`bf`) are bfloat16 in
 * memory, rounded to nearest even.
 *
 * vq: lanes of 64 bits of which the low or the high 32 matter: mul32 multiplies the low halves,
 * pair puts two low halves together, count is first, first + 1, ... */
#ifndef TRMI_BASE_VEC_H
#define TRMI_BASE_VEC_H

#include "base/format/half.h"
#include "base/simd/bf16.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "base/simd/vec_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "base/simd/vec_avx2.h"
#else
#include "base/simd/vec_plain.h"
#endif

/* ---- from here on the same for all ---------------------------------------------------------- */

static inline vf vf_zero(void) { return vf_set(0.0f); }

/* Load and store by storage type: `half` nonzero = bfloat16. It is a constant after inlining, so
 * there is no branch. */
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

/* Stores a whole vector past the caches. Its address must be a multiple of its size. */
static inline void vf_stream(void *base, int64_t at, int half, vf v) {
    if (half) {
        vf_stream_bf((uint16_t *)base + at, v);
    } else {
        vf_stream_float((float *)base + at, v);
    }
}

/* `n` <= VL lanes, the whole vector without a mask: masked stores do not forward to later loads,
 * and are slow on some machines. */
static inline vf vf_lanes(const void *base, int64_t at, int half, int n) {
    return n == VL ? vf_get(base, at, half) : vf_get_n(base, at, half, n);
}
static inline void vf_put_lanes(void *base, int64_t at, int half, int n, vf v) {
    if (n == VL) {
        vf_put(base, at, half, v);
    } else {
        vf_put_n(base, at, half, n, v);
    }
}

/* Functions of several instructions, inlined so that their constants are loaded before a loop. */
/* *n = x / ln 2 rounded; returns e^(x - n ln 2) (Cody-Waite reduction, minimax polynomial of degree
 * 6 on [-ln2/2, ln2/2], its halves side by side). */
TRMI_INLINE vf vf_exp_rest(vf x, vf n) {
    vf r = vf_fma(n, vf_set(-0.693145751953125f), x);
    r = vf_fma(n, vf_set(-1.42860677e-6f), r);
    vf z = vf_mul(r, r), high = vf_fma(vf_set(1.0f / 720), r, vf_set(1.0f / 120));
    vf middle = vf_fma(vf_set(1.0f / 24), r, vf_set(1.0f / 6));
    vf low = vf_fma(vf_set(0.5f), r, vf_set(1.0f));
    return vf_fma(vf_fma(vf_fma(high, z, middle), z, low), r, vf_set(1.0f));
}
/* Computes e^x to 2 units in the last place; 0 below -87.34, infinite above 88.72, NaN stays
 * NaN. */
TRMI_INLINE vf vf_exp(vf x) {
    vf n = vf_round(vf_mul(x, vf_set(1.44269504088896341f)));
    n = vf_min(vf_max(n, vf_set(-127.0f)), vf_set(128.0f));
    vf y = vf_scale2(vf_exp_rest(x, n), n);
    y = vf_select(vf_gt(vf_set(-87.33654f), x), vf_zero(), y);
    y = vf_select(vf_gt(x, vf_set(88.72284f)), vf_set(INFINITY), y);
    return vf_select(vf_nan(x), x, y);
}
/* Computes the same for x of at most 88, in half of the instructions. */
TRMI_INLINE vf vf_exp_below(vf x) {
    vf n = vf_round(vf_mul(x, vf_set(1.44269504088896341f)));
    n = vf_max(n, vf_set(-126.0f)); /* the second operand where x is NaN */
    vf y = vf_scale(vf_exp_rest(x, n), n);
    return vf_select(vf_gt(vf_set(-87.33654f), x), vf_zero(), y);
}

/* Computes ln x to 2 units in the last place away from 1; -infinity at 0, NaN below (Cephes' logf:
 * the mantissa in [sqrt(1/2), sqrt(2)), a polynomial of degree 9). */
TRMI_INLINE vf vf_log(vf x) {
    vf e, m = vf_split(x, &e);
    vm high = vf_gt(m, vf_set(1.41421356f));
    m = vf_select(high, vf_mul(m, vf_set(0.5f)), m);
    e = vf_select(high, vf_add(e, vf_set(1.0f)), e);
    m = vf_sub(m, vf_set(1.0f));
    vf z = vf_mul(m, m), p = vf_set(7.0376836292e-2f);
    static const float coefficients[] = {-1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f,
                                         1.4249322787e-1f,  -1.6668057665e-1f, 2.0000714765e-1f,
                                         -2.4999993993e-1f, 3.3333331174e-1f};
    for (int i = 0; i < 8; i++) {
        p = vf_fma(p, m, vf_set(coefficients[i]));
    }
    vf y = vf_mul(vf_mul(p, m), z);
    y = vf_fma(e, vf_set(-2.12194440e-4f), y);
    y = vf_fma(vf_set(-0.5f), z, y);
    y = vf_fma(e, vf_set(0.693359375f), vf_add(m, y));
    y = vf_select(vf_eq(x, vf_zero()), vf_set(-INFINITY), y);
    y = vf_select(vf_eq(x, vf_set(INFINITY)), x, y);
    y = vf_select(vf_gt(vf_zero(), x), vf_set(NAN), y);
    return vf_select(vf_nan(x), x, y);
}

/* Computes tanh x: a polynomial where |x| < 0.625, else from e^2x (Cephes' tanhf). */
TRMI_INLINE vf vf_tanh(vf x) {
    vf z = vf_mul(x, x), p = vf_set(-5.70498872745e-3f);
    p = vf_fma(p, z, vf_set(2.06390887954e-2f));
    p = vf_fma(p, z, vf_set(-5.37397155531e-2f));
    p = vf_fma(p, z, vf_set(1.33314422036e-1f));
    p = vf_fma(p, z, vf_set(-3.33332819422e-1f));
    vf small = vf_fma(vf_mul(p, z), x, x);
    vf size = vf_abs(x), e = vf_exp(vf_add(size, size));
    vf big = vf_sub(vf_set(1.0f), vf_div(vf_set(2.0f), vf_add(e, vf_set(1.0f))));
    big = vf_select(vf_gt(vf_zero(), x), vf_sub(vf_zero(), big), big);
    return vf_select(vf_gt(vf_set(0.625f), size), small, big);
}

/* Computes 1 / (1 + e^-x), of the smaller exponential so that nothing overflows. */
TRMI_INLINE vf vf_sigmoid(vf x) {
    vf e = vf_exp_below(vf_sub(vf_zero(), vf_abs(x)));
    vf one = vf_set(1.0f), down = vf_div(one, vf_add(one, e));
    return vf_select(vf_gt(vf_zero(), x), vf_mul(e, down), down);
}

/* Computes erf to 4e-7: a rational function of x on [-4, 4], beyond which it is +-1 in float32. */
TRMI_INLINE vf vf_erf(vf x) {
    static const float top[] = {-2.72614225801306e-10f, 2.77068142495902e-08f,
                                -2.10102402082508e-06f, -5.69250639462346e-05f,
                                -7.34990630326855e-04f, -2.95459980854025e-03f,
                                -1.60960333262415e-02f};
    static const float bottom[] = {-1.45660718464996e-05f, -2.13374055278905e-04f,
                                   -1.68282697438203e-03f, -7.37332916720468e-03f,
                                   -1.42647390514189e-02f};
    vf kept = vf_min(vf_max(x, vf_set(-4.0f)), vf_set(4.0f)), z = vf_mul(kept, kept);
    vf p = vf_set(top[0]), q = vf_set(bottom[0]);
    for (int i = 1; i < 7; i++) {
        p = vf_fma(p, z, vf_set(top[i]));
    }
    for (int i = 1; i < 5; i++) {
        q = vf_fma(q, z, vf_set(bottom[i]));
    }
    return vf_select(vf_nan(x), x, vf_div(vf_mul(kept, p), q));
}

/* Lanes [0, count) by full vectors, then the rest: BODY sees `i` and, in the tail, `n` lanes. */
#define VF_LOOP(count, FULL, TAIL)                                                                 \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        for (; i + VL <= (count); i += VL) {                                                       \
            FULL;                                                                                  \
        }                                                                                          \
        if (i < (count)) {                                                                         \
            int n = (int)((count)-i);                                                              \
            TAIL;                                                                                  \
        }                                                                                          \
    } while (0)

#endif
