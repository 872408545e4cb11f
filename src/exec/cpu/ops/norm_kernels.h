/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/norm_kernels.h: inner loops of batch normalisation on rows of channels, [rows, C] as
 * channels-last has them; one table per instruction set (norm_kernels.c). All statistics are
 * float32 per block of rows, combined in double by norm.c, block by block and group by group: the
 * bits depend on the shape alone, not on threads. */
#ifndef TRMI_EXEC_CPU_NORM_KERNELS_H
#define TRMI_EXEC_CPU_NORM_KERNELS_H

#include <stdint.h>

/* Operands of the forward pass. */
typedef struct trmi_norm_forward {
    const void *x, *residual; /* residual NULL = none */
    void *y;
    int64_t channels;
    int half; /* x, y, residual are bfloat16 */
    int relu;
    int stream; /* y past the caches; 64-byte aligned, channels in multiples of 32 */
    const float *scale, *shift; /* y = relu(x * scale + shift + residual) */
} trmi_norm_forward;

/* Operands of the two backward passes. */
typedef struct trmi_norm_backward {
    const void *dy, *x, *y; /* y NULL: the mask is x * scale + shift > 0 */
    const void *dy2;        /* NULL, or added to dy; only where dz is wanted and y is given */
    void *dx, *dz;          /* dz NULL = not wanted; else it is written by sums, read by apply */
    int64_t channels;
    int half;
    int relu;
    int stream; /* dx, as y above */
    const float *scale, *shift;
    const float *mean;                    /* sums are of dz and dz * (x - mean) */
    const float *of_dz, *of_x, *constant; /* dx = of_dz * dz + of_x * x + constant */
} trmi_norm_backward;

/* The table of one instruction set. */
typedef struct trmi_norm_kernels {
    /* Statistics of rows [begin, end), relative to the first row x0: sum[c] = sum(x - x0),
     * square[c] = sum((x - x0)^2). */
    void (*statistics)(const void *x, int half, int64_t begin, int64_t end, int64_t channels,
                       float *first, float *sum, float *square);
    /* Writes y of rows [begin, end). */
    void (*apply)(const trmi_norm_forward *job, int64_t begin, int64_t end);
    /* Adds dz and dz (x - mean) of rows [begin, end) to sum[c] and sum_x[c], with dz = dy (+ dy2)
     * where the ReLU was positive, else 0; writes dz where it is wanted. */
    void (*gradient_sums)(const trmi_norm_backward *job, int64_t begin, int64_t end, float *sum,
                          float *sum_x);
    /* Writes dx of rows [begin, end). */
    void (*gradient_apply)(const trmi_norm_backward *job, int64_t begin, int64_t end);
    /* Adds a block's statistics of `count` rows to those of the `before` rows before it (Chan et
     * al. 1979). */
    void (*join)(const float *first, const float *sum, const float *square, double before,
                 double count, int width, double *mean, double *m2);
    /* The same for a group of `count` rows, whose mean and m2 are known. */
    void (*join_groups)(const double *group_mean, const double *group_m2, double before,
                        double count, int width, double *mean, double *m2);
    /* sum[i] += one[i], sum_x[i] += other[i]. */
    void (*join_sums)(const float *one, const float *other, int width, double *sum, double *sum_x);
} trmi_norm_kernels;

extern const trmi_norm_kernels trmi_norm_kernels_plain, trmi_norm_kernels_avx2,
    trmi_norm_kernels_avx512, trmi_norm_kernels_avx512bf16;

#endif
