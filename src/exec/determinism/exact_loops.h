/* SPDX-License-Identifier: Apache-2.0 */
/* exec/determinism/exact_loops.h: the loops of exact sums, one set an instruction set. A product of
 * two float32 is exact in float64; adding 1.5 * 2^52 units rounds it to whole units, which its bits
 * then count. */
#ifndef TRMI_EXEC_EXACT_LOOPS_H
#define TRMI_EXEC_EXACT_LOOPS_H

#include <stdint.h>

typedef struct trmi_exact_loops {
    /* sums[i * sums_step] += units of x[i * x_step] * w */
    void (*add)(int64_t *sums, int64_t sums_step, const float *x, int64_t x_step, double w,
                double anchor, int64_t count);
    /* units of the products x[i * x_step] * y[i * y_step], added up */
    int64_t (*dot)(const float *x, int64_t x_step, const float *y, int64_t y_step, double anchor,
                   int64_t count);
} trmi_exact_loops;

extern const trmi_exact_loops trmi_exact_loops_plain, trmi_exact_loops_avx2,
    trmi_exact_loops_avx512;

#endif
