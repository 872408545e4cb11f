/* exec/peak_body.h: the loops of exec/peak.h over vec.h; the including file names the table
 * (PEAK_TABLE) and its flags set the width. */
#include "exec/peak.h"

#include "exec/vec.h"

/* Twelve sums: more than latency x units of any core so far, and all in registers. */
#define PEAK_SUMS(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define PEAK_BEGIN(n) vf s##n = vf_set((float)n);
#define PEAK_STEP(n) s##n = vf_fma(s##n, slope, shift);
#define PEAK_END(n) total = vf_add(total, s##n);

static double multiply_add(int64_t rounds, float *sink) {
    /* Known only at run time: no step can be folded into another. */
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

static void triad(float *a, const float *b, const float *c, int64_t count) {
    const vf s = vf_set(0.5f);
    for (int64_t i = 0; i < count; i += VL) {
        vf_store(a + i, vf_fma(vf_load(c + i), s, vf_load(b + i)));
    }
}

static void triad_stream(float *a, const float *b, const float *c, int64_t count) {
    const vf s = vf_set(0.5f);
    for (int64_t i = 0; i < count; i += VL) {
        vf_stream_float(a + i, vf_fma(vf_load(c + i), s, vf_load(b + i)));
    }
    vf_fence();
}

const trmi_peak_kernels PEAK_TABLE = {multiply_add, triad, triad_stream};
