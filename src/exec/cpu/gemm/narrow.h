/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/narrow.h: linear layers of very few rows (a token that is generated). Their time is
 * that of reading the weights, which are read once, in order, and never packed. */
#ifndef TRMI_EXEC_CPU_NARROW_H
#define TRMI_EXEC_CPU_NARROW_H

#include "plan/lower/program.h"

enum { TRMI_NARROW_ROWS = 4 };

/* y [m, n] = x [m, k] w + bias, with m at most TRMI_NARROW_ROWS; w is [k, n], or with `transposed`
 * [n, k]. Types are float32 or bfloat16, the bias is float32. */
typedef struct trmi_narrow {
    int64_t m, n, k;
    bool transposed;
    bool half_x, half_w, half_y; /* the matrix is bfloat16; else float32 */
    int threads;                 /* of the parallel loops */
} trmi_narrow;

/* Returns the bytes of scratch. */
int64_t trmi_narrow_scratch(const trmi_narrow *p);
/* Computes y. Its bits do not depend on the number of threads.
 *   param  bias: NULL = none */
void trmi_narrow_run(const trmi_narrow *p, const void *x, const void *w, const float *bias, void *y,
                     void *scratch);

#endif
