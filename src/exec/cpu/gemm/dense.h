/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/dense.h: products of two matrices, summed in float32, as layers need them:
 *
 *      rows     C [M, N] = end(A [M, K] B)      B [K, N], or [N, K] as LINEAR has it; bias, ReLU, a ReLU's mask
 *      few      C [M, N] = A [M, K] B        8 to 32 rows, a large B [K, N] as it lies: the gradient of a wide layer's input
 *      weights  C [M, N] = A^T B                A [K, M], B [K, N], K the batch
 *
 * The same bits for any number of threads.
 */
#ifndef TRMI_EXEC_CPU_DENSE_H
#define TRMI_EXEC_CPU_DENSE_H

#include "exec/cpu/gemm/dense_isa.h"

/* A product as a layer states it. */
typedef struct trmi_dense_problem {
    int64_t m, n, k;
    bool transpose_a; /* the form `weights`; then only `add` may be set, too */
    bool transpose_b;
    /* elements between rows of B in memory; more than n if only some columns are used */
    int64_t b_stride;
    bool relu;
    bool add; /* rows and weights: add to C */
    /* strict determinism: the same bits for a number of C whatever the numbers of rows and columns,
     * those of the convolution kernels: never the form for few rows, never split sums */
    bool any_rows;
    /* of A and B: BFLOAT16; 0 = FLOAT32. `pairs`: both are rounded to bfloat16 and multiplied in
     * pairs, where trmi_dense_pairs() is not NULL; A of `weights` is then BFLOAT16. Without it both
     * are FLOAT32. */
    trm_dtype a_type, b_type;
    bool pairs;
    /* of C: BFLOAT16, rows by pairs without `add` and `mask`; 0 = FLOAT32 */
    trm_dtype c_type;
    /* rows: A lies in blocks [M, a_block] of k, the last may have fewer, a_step elements apart. The
     * sums are those of a product for each block that is added to C; 0 = A [M, K] */
    int64_t a_block, a_step;
} trmi_dense_problem;

/* The form that was chosen, and the sizes of its blocks; read only in a run. */
typedef struct trmi_dense_plan {
    trmi_dense_problem problem;
    const trmi_dense_isa *isa;
    const trmi_gemm_isa *pack;
    int threads;
    int64_t pair, a_bytes, b_bytes; /* numbers of k in a float of a panel; of an element */
    bool few;
    int64_t panels;
    /* rows: blocks of k and their length; weights: chunks of k */
    int64_t depth, blocks;
    int64_t group;                      /* rows: panels that are packed at once */
    int64_t splits, m_blocks, n_blocks; /* weights: sums of their own; tasks in each */
    /* rows with a C in bfloat16 and several blocks of k: floats of a row of sums; 0 = none */
    int64_t sums_stride;
    int64_t shared_floats, thread_floats, a_floats, b_floats;
} trmi_dense_plan;

/* Returns whether these loops are faster than a convolution kernel for the shape. */
bool trmi_dense_fits(const trmi_dense_problem *problem);
/* Plans a product; *plan owns nothing. Returns the bytes of scratch that a run needs. */
int64_t trmi_dense_prepare(const trmi_dense_problem *problem, int threads, trmi_dense_plan *plan);
/* Computes the product. bias [N] and mask [M, N] (of a ReLU's gradient) may be NULL. `scratch`:
 * 64-byte aligned. Uses plan->threads OpenMP threads. */
void trmi_dense_run(const trmi_dense_plan *plan, const void *a, const void *b, const float *bias,
                    const float *mask, void *c, void *scratch);

#endif
