/* SPDX-License-Identifier: Apache-2.0 */
/* exec/measure/peak_kernels.c: the loops of exec/measure/peak.h, compiled for each instruction set
 * (base/simd/isa.h). */
#include "exec/measure/peak.h"

#include "base/simd/isa.h"
#include "base/simd/vec.h"

/* Twelve sums: more than latency x units of any core so far, and all in registers. */
#define PEAK_SUMS(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define PEAK_BEGIN(n) vf s##n = vf_set((float)n);
#define PEAK_STEP(n) s##n = vf_fma(s##n, slope, shift);
#define PEAK_END(n) total = vf_add(total, s##n);

/* Runs chains of multiply-adds in registers. Returns their FLOPs. `sink` keeps the compiler from
 * removing them. */
static double multiply_add(int64_t rounds, float *sink) {
    /* Its values are known only at run time: no step can be folded into another. */
    const vf slope = vf_set(1.0f + sink[0]), shift = vf_set(sink[1]);
    PEAK_SUMS(PEAK_BEGIN)
    for (int64_t i = 0; i < rounds; i++) {
        PEAK_SUMS(PEAK_STEP)
        PEAK_SUMS(PEAK_STEP)
        PEAK_SUMS(PEAK_STEP)
        PEAK_SUMS(PEAK_STEP)
    }
    vf total = vf_zero();
    PEAK_SUMS(PEAK_END)
    sink[2] = vf_sum(total);
    return 2.0 * VL * 12 * 4 * (double)rounds;
}

/* Reads all of a. */
static void read_all(float *a, const float *b, const float *c, int64_t count) {
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    (void)b, (void)c;
    for (; i + 4 * VL <= count; i += 4 * VL) {
        for (int k = 0; k < 4; k++) {
            sum[k] = vf_add(sum[k], vf_load(a + i + k * VL));
        }
    }
    for (; i < count; i += VL) {
        sum[0] = vf_add(sum[0], vf_load(a + i));
    }
    a[0] = vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3]))) > 0;
}

/* One loop for each mix of reading and writing; `stream`: the stores pass the caches. */
#define PEAK_LOOPS(name, value)                                                                    \
    static void name(float *a, const float *b, const float *c, int64_t count) {                    \
        const vf s = vf_set(0.5f);                                                                 \
        (void)b, (void)c, (void)s;                                                                 \
        for (int64_t i = 0; i < count; i += VL) {                                                  \
            vf_store(a + i, value);                                                                \
        }                                                                                          \
    }                                                                                              \
    static void name##_stream(float *a, const float *b, const float *c, int64_t count) {           \
        const vf s = vf_set(0.5f);                                                                 \
        (void)b, (void)c, (void)s;                                                                 \
        for (int64_t i = 0; i < count; i += VL) {                                                  \
            vf_stream_float(a + i, value);                                                         \
        }                                                                                          \
        vf_fence();                                                                                \
    }
PEAK_LOOPS(triad, vf_fma(vf_load(c + i), s, vf_load(b + i)))
PEAK_LOOPS(copy,
           vf_add(vf_load(b + i), vf_zero())) /* an addition: no call of memcpy is made of it */
PEAK_LOOPS(fill, s)

const trmi_peak_kernels TRMI_FOR_ISA(trmi_peak) = {
    .multiply_add = multiply_add,
    .memory = {[TRM_PEAK_READ] = {read_all, NULL},
               [TRM_PEAK_TRIAD] = {triad, triad_stream},
               [TRM_PEAK_COPY] = {copy, copy_stream},
               [TRM_PEAK_WRITE] = {fill, fill_stream}}};
