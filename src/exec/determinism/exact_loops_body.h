/* SPDX-License-Identifier: Apache-2.0 */
/* exec/determinism/exact_loops_body.h: included once an instruction set, with EXACT_LOOPS = the
 * table's name. Contraction to FMA changes nothing: the product is exact. */
#include "exec/determinism/exact_loops.h"

#include <string.h>

static inline int64_t bits_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void add(int64_t *sums, int64_t sums_step, const float *x, int64_t x_step, double w,
                double anchor, int64_t count) {
    int64_t zero = bits_of(anchor);
    if (sums_step == 1 && x_step == 1) {
        for (int64_t i = 0; i < count; i++) {
            sums[i] += bits_of((double)x[i] * w + anchor) - zero;
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        sums[i * sums_step] += bits_of((double)x[i * x_step] * w + anchor) - zero;
    }
}

static int64_t dot(const float *x, int64_t x_step, const float *y, int64_t y_step, double anchor,
                   int64_t count) {
    int64_t zero = bits_of(anchor), sum = 0;
    if (x_step == 1 && y_step == 1) {
        for (int64_t i = 0; i < count; i++) {
            sum += bits_of((double)x[i] * (double)y[i] + anchor) - zero;
        }
        return sum;
    }
    for (int64_t i = 0; i < count; i++) {
        sum += bits_of((double)x[i * x_step] * (double)y[i * y_step] + anchor) - zero;
    }
    return sum;
}

const trmi_exact_loops EXACT_LOOPS = {add, dot};
