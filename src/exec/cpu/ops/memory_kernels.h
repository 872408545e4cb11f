/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/memory_kernels.h: the inner loops of everything memory-bound but batch norm: one
 * table per instruction set (memory_kernels.c). The operators beside this file (eltwise.c,
 * reduce.c, pool.c, loss.c, attention.c, ...) cut their tensors into rows or runs, one or more for
 * each thread, and call a loop for each.
 *
 * Conventions: x, y, z: values of forward; dx, dy: their gradients. `half` says that the operands
 * behind void pointers are bfloat16, else they are float32; arithmetic is float32 always, and sums
 * that leave a row are double. */
#ifndef TRMI_EXEC_CPU_MEMORY_KERNELS_H
#define TRMI_EXEC_CPU_MEMORY_KERNELS_H

#include "base/cpu.h"
#include "graph/graph_ir.h"

/* Elementwise functions of one operand. */
typedef enum trmi_unary {
    TRMI_UNARY_COPY, /* CAST */
    TRMI_UNARY_RELU,
    TRMI_UNARY_SIGMOID,
    TRMI_UNARY_TANH,
    TRMI_UNARY_EXP,
    TRMI_UNARY_LOG,
    TRMI_UNARY_SQRT,
    TRMI_UNARY_SCALE,
    TRMI_UNARY_GELU,
    TRMI_UNARY_GELU_TANH,
    TRMI_UNARY_SILU,
    TRMI_UNARIES
} trmi_unary;
/* Computes y from x; `factor` is that of SCALE. half_x, half_y: of each operand, so that COPY
 * casts. */
typedef void (*trmi_unary_loop)(const void *x, void *y, int64_t count, bool half_x, bool half_y,
                                float factor);

/* Elementwise functions of two operands; inputs and outputs stand beside those that are
 * gradients. */
typedef enum trmi_binary {
    TRMI_BINARY_ADD,
    TRMI_BINARY_SUB,
    TRMI_BINARY_MUL,
    TRMI_BINARY_DIV,
    TRMI_BINARY_RELU_GRAD, /* dy, y -> dx */
    TRMI_BINARY_SIGMOID_GRAD,
    TRMI_BINARY_TANH_GRAD,
    TRMI_BINARY_GELU_GRAD, /* dy, x -> dx */
    TRMI_BINARY_GELU_TANH_GRAD,
    TRMI_BINARY_SILU_GRAD,
    TRMI_BINARY_SWIGLU, /* gate, up */
    TRMI_BINARIES
} trmi_binary;
/* Computes `count` elements. step_a, step_b: 1, or 0 to use one value for all. */
typedef void (*trmi_binary_loop)(const void *a, const void *b, void *y, int64_t count, int step_a,
                                 int step_b, bool half);

/* Rows of a sample in PAIR_DOTS, at most; the loops keep a tile of all rows on the stack. */
enum { TRMI_PAIRS_ROWS_MAX = 128 };

/* How rows are folded to one. */
typedef enum trmi_row_reduction { TRMI_REDUCE_SUM_OF, TRMI_REDUCE_MAX_OF } trmi_row_reduction;

/* Pooling of one output row, channels inner: x is the first row of the window inside the image. */
typedef struct trmi_pool_row {
    int64_t channels, width; /* of the input */
    int64_t out_width;
    int64_t kernel, stride, pad; /* along the width; pad is the left one */
    int64_t first, last;         /* rows of the window inside the image */
    int64_t kernel_rows;
    bool count_padding, half;
} trmi_pool_row;

/* Operands of sum_groups. */
typedef struct trmi_group_sum {
    const float *const *tables;
    const int32_t *const *groups;
    int64_t fields, samples, columns;
    const float *from;
    float *to;
    int64_t to_stride; /* of `to`, between samples */
    bool relu;
} trmi_group_sum;

/* Operands of row norms that are the same for all rows of a call. */
typedef struct trmi_row_norm {
    const float *gamma, *beta; /* [width]; beta NULL = RMS norm */
    int64_t width;
    bool half; /* x, y and their gradients */
    float epsilon;
    float *dgamma, *dbeta; /* [width], added to; dbeta NULL = RMS norm */
} trmi_row_norm;

/* Rows of `count` numbers, each times its factor. */
typedef struct trmi_scaled_rows {
    const void *x;
    void *y;
    int64_t x_step, y_step; /* bytes from row to row */
    int64_t rows, count;
    bool half_x, half_y;
    const float *factors;
    int64_t factors_step; /* from row to row; 0 = one factor for all */
} trmi_scaled_rows;

/* The table. Runs are contiguous; `count` is elements; no function allocates or starts threads. */
typedef struct trmi_memory_kernels {
    trmi_unary_loop unary[TRMI_UNARIES];
    trmi_binary_loop binary[TRMI_BINARIES];
    void (*scale_rows)(const trmi_scaled_rows *rows);
    /* y = x scaled by 1 / (1 - rate) where kept, else 0; elements [begin, begin + count), begin a
     * multiple of 4; the mask is trmi_ref_dropout's. */
    void (*dropout)(const void *x, void *y, int64_t begin, int64_t count, bool half, uint64_t seed,
                    uint64_t stream, double rate);

    /* dgate and dup of y = silu(gate) up */
    void (*swiglu_grad)(const void *dy, const void *gate, const void *up, void *dgate, void *dup,
                        int64_t count, bool half);
    /* y = x cos - other half sin, and the like; cos and sin [width / 2]. */
    void (*rotate)(const void *x, void *y, const float *cos, const float *sin, int64_t width,
                   bool half);

    /* One row. beta NULL: RMS norm, whose mean is not written. */
    void (*row_norm)(const trmi_row_norm *n, const void *x, void *y, float *mean, float *inv_std);
    /* Of a row dx, and its terms added to dgamma and, of layer norm, to dbeta. */
    void (*row_norm_grad)(const trmi_row_norm *n, const void *dy, const void *x, void *dx,
                          const float *mean, float inv_std);

    /* One row of scores, of which the first `count` are read, to exp(scale score - *most): *most
     * and *sum are those of all scores of the row so far. After them zeros, up to `room` and to a
     * whole number of vectors, for which there is memory. Returns by what earlier results are to be
     * multiplied. hidden [count]: added to the scores; may be NULL. half: the results are bfloat16,
     * from where the scores begin. */
    float (*attend)(float *scores, const float *hidden, int64_t count, int64_t room, float scale,
                    bool half, float *most, float *sum);
    /* p = exp(scale score - lse) for the scores, and p * (dp - e) for dp; zeros after `count`;
     * half: as above. */
    void (*attend_grad)(float *scores, float *dp, const float *hidden, int64_t count, int64_t room,
                        float scale, bool half, float lse, float e);
    /* the inner product of two runs */
    double (*dot)(const void *x, const void *y, int64_t count, bool half);

    /* into[i] = into[i] + x[i], or their maximum. */
    void (*fold_rows)(float *into, const void *x, int64_t count, bool half,
                      trmi_row_reduction what);
    /* Adds `rows` rows, `stride` apart, to `into`, with the same bits as `rows` calls of
     * fold_rows. */
    void (*sum_rows)(float *into, const void *x, int64_t stride, int64_t rows, int64_t count,
                     bool half);
    /* the sum, or the maximum, of one run */
    float (*fold_run)(const void *x, int64_t count, bool half, trmi_row_reduction what);

    /* One row of `classes`. */
    void (*softmax)(const void *x, void *y, int64_t classes, bool half);
    void (*softmax_grad)(const void *dy, const void *y, void *dx, int64_t classes, bool half);
    /* log of the sum of exp(z), computed from the largest z down, so that it cannot overflow */
    float (*log_sum_exp)(const void *z, int64_t classes, bool half);
    /* dz = scale * (exp(z - lse) - off); the caller corrects the element of the label. */
    void (*xent_grad)(const void *z, void *dz, int64_t classes, bool half, float lse, float scale,
                      float off);
    /* Binary cross entropy of logits z and targets t (0 to 1): the sum over the run; its gradient,
     * times `scale`. */
    double (*bce)(const void *z, const void *t, int64_t count, bool half);
    void (*bce_grad)(const void *z, const void *t, void *dz, int64_t count, bool half, float scale);

    /* y [out_width, channels] from rows [first, last) of x, the image. */
    void (*max_pool)(const trmi_pool_row *row, const void *x, void *y);
    void (*avg_pool)(const trmi_pool_row *row, const void *x, void *y);
    /* Add to dx: float32 rows [first, last), channels [c, c + n), as [rows, width, n]. */
    void (*max_pool_grad)(const trmi_pool_row *row, const void *dy, const void *x, const void *y,
                          float *const *dx, int64_t c, int64_t n);
    void (*avg_pool_grad)(const trmi_pool_row *row, const void *dy, float *const *dx, int64_t c,
                          int64_t n);

    /* One sample of at most TRMI_PAIRS_ROWS_MAX rows: x [rows, width], y [rows (rows - 1) / 2]:
     * the inner products of all pairs of rows, (1,0), (2,0), (2,1), ... */
    void (*pair_dots)(const float *x, float *y, int64_t rows, int64_t width);
    void (*pair_dots_grad)(const float *dy, const float *x, float *dx, int64_t rows, int64_t width);
    /* Weights w [rows, k]: y[r] = the inner product of row r and x [k]. With `half` weights x is
     * split (split_pairs). */
    void (*dot_rows)(float *y, const float *x, const void *w, int64_t rows, int64_t k, bool half);
    /* Weights w [rows, n]: y [n] += the sum of the rows, row r times x[r]. With `half` weights y is
     * split. */
    void (*add_rows)(float *y, const float *x, const void *w, int64_t rows, int64_t n, bool half);
    /* Put the numbers of even index before those of odd index, block by block (narrow_body.h), and
     * back. `half`: of from. Not in place. */
    void (*split_pairs)(float *to, const void *from, int64_t count, bool half);
    void (*join_pairs)(float *to, const float *from, int64_t count);
    /* into[i] += scale * x[i] */
    void (*add_scaled)(float *into, const float *x, int64_t count, float scale);

    /* Rows of `columns` numbers, side by side: to[n] = from[n] + the sum over f of
     * tables[f][groups[f][n]], then ReLU. */
    void (*sum_groups)(const trmi_group_sum *sum);
    /* sums[g] = rows[first[g]] for each group, then sums[groups[n]] += rows[n] for the n of `rest`.
     */
    void (*add_to_groups)(float *sums, const float *rows, int64_t columns, const int32_t *first,
                          int64_t count, const int32_t *groups, const int32_t *rest,
                          int64_t rest_count);
} trmi_memory_kernels;

extern const trmi_memory_kernels trmi_memory_kernels_plain;
#if defined(__x86_64__)
extern const trmi_memory_kernels trmi_memory_kernels_avx2, trmi_memory_kernels_avx512,
    trmi_memory_kernels_avx512bf16;
#endif
/* Returns the table for this CPU. */
static inline const trmi_memory_kernels *trmi_memory_kernels_best(void) {
    return TRMI_CPU_CHOICE_OF_FOUR(&trmi_memory_kernels);
}

#endif
