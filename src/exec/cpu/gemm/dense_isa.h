/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/dense_isa.h: register tiles of dense float32 products, one table per instruction
 * set.
 *
 *      b panel: k x nr, packed          rows:     a[i * a_stride + p], rows of a matrix as they lie
 *      +---------+                      columns:  a[p * a_stride + i] (A^T B)
 *  a:  | sums in |
 *      | regs    |  --end: + what is there, + bias, ReLU, mask-->  c[i * c_stride + j]
 *      +---------+ */
#ifndef TRMI_EXEC_CPU_DENSE_ISA_H
#define TRMI_EXEC_CPU_DENSE_ISA_H

#include "exec/cpu/gemm/gemm_isa.h"

/* One tile of a product: operands of one block of k, and what happens to the sums at its end. */
typedef struct trmi_dense_tile {
    int rows, columns; /* 1 to mr, 1 to nr */
    int64_t k;
    const float *a;
    int64_t a_stride;
    const float *b;
    /* whole panels of copied rows or of columns: B in float32 as it lies, whole pairs of rows; the
     * tile packs it to `panel`, which the tiles of other rows then read as b. NULL: b is packed */
    const float *unpacked;
    float *panel;
    float *c;
    int64_t c_stride;
    bool add; /* add to c */
    /* where the sums go as bfloat16 instead of to c, which is then only read, if it is added;
     * NULL: to c */
    uint16_t *rounded;
    int64_t rounded_stride;
    const float *bias; /* [columns]; NULL = none */
    bool relu;         /* negative values become 0; NaN stays NaN, so that it is detected */
    const float *mask; /* 0 where mask[i * mask_stride + j] <= 0: a ReLU's gradient; NULL = none */
    int64_t mask_stride;
    trmi_prefetch *soon; /* prefetched meanwhile, at most soon_lines lines; NULL = none */
    int64_t soon_lines;
    int64_t b_stride; /* few_rows and unpacked: elements between rows of B in memory */
    /* few_rows: the next piece of B, prefetched meanwhile; NULL = none */
    const float *next;
} trmi_dense_tile;

/* The tiles of one instruction set. */
typedef struct trmi_dense_isa {
    int mr, nr; /* as trmi_gemm's, whose packing they share */
    void (*rows)(const trmi_dense_tile *tile);
    void (*columns)(const trmi_dense_tile *tile);
    /* Rows of `columns` <= TRMI_TILE_COLS numbers, packed for `columns`: float32, or bfloat16 for
     * pairs, of which two rows become one. */
    void (*take)(float *to, const void *from, int64_t stride, int64_t rows, int columns);
    /* `count` rows, tile after tile, for short k; tile->rows and mask are not used. */
    void (*all_rows)(const trmi_dense_tile *tile, int64_t count);
    /* Adds 1 to `few` rows of A times an unpacked piece of B, any number of columns, to C. B is
     * read once. Ignores bias, ReLU and mask. */
    int few;
    void (*few_rows)(const trmi_dense_tile *tile);
} trmi_dense_isa;

extern const trmi_dense_isa trmi_dense_plain;
#if defined(__x86_64__)
extern const trmi_dense_isa trmi_dense_avx2, trmi_dense_avx512, trmi_dense_avx512bf16;
#endif
/* Returns the best table for this CPU. */
const trmi_dense_isa *trmi_dense(void);
/* Returns the table that multiplies pairs of bfloat16 (gemm_isa.h), which stand where floats are
 * named; NULL if the CPU has no such instruction. `few_rows` is not for pairs. */
const trmi_dense_isa *trmi_dense_pairs(void);

#endif
