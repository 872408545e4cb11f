/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/gemm_isa.h: the inner loops of every matrix product, one table per instruction set.
 *
 *   A "rows":  a[i * TRMI_TILE_STRIDE + k]     copied rows, k contiguous (pixels x channels)
 *   A "cols":  a[k * a_stride + i]              i contiguous, for X^T dY (weight gradients)
 *   B panel:   b[k * nr + j]                   nr columns wide, zero-padded
 *   (with pairs, one "float" is two bfloat16: k even in its low half, k odd in its high half)
 *
 *        b: k x nr, streams through L1/L2
 *        +---------+
 *   a:   | tile in |   tile: rows x nr sums kept in registers over all k,
 *   rows | regs    |   then stored to, or added to, c[row_offset[i] + j]
 *        +---------+
 */
#ifndef TRMI_EXEC_CPU_GEMM_ISA_H
#define TRMI_EXEC_CPU_GEMM_ISA_H

#include "trireme/base.h"

enum {
    TRMI_TILE_K = 256,      /* longest k of a block; convolutions of pairs: twice that */
    TRMI_TILE_STRIDE = 272, /* floats between rows of A: no power of two */
    TRMI_TILE_COLS = 16,    /* floats between k of packed A "cols" */
    TRMI_TILE_ROWS_MAX = 14,
    TRMI_TILE_NR_MAX = 32
};

/* How a tile stores its sums. */
typedef enum trmi_tile_store {
    TRMI_TILE_SET,
    TRMI_TILE_ADD,
    /* past the caches, for outputs that do not fit there: c and row_offset in multiples of nr
     * floats from a 64-byte boundary; end with trmi_gemm's fence */
    TRMI_TILE_STREAM
} trmi_tile_store;

/* c[row_offset[i] + j] (+)= sum over k, for i < rows, j < columns <= nr. 1 <= rows <= mr. With
 * `rounded` those sums go there as bfloat16, and c is read only, if it is added. */
typedef struct trmi_tile {
    const float *a, *b;
    int64_t k, a_stride, b_stride; /* strides: of "cols", floats from k to k + 1 */
    float *c;
    const int64_t *row_offset;
    uint16_t *rounded; /* NULL: nothing is rounded */
    const int64_t *rounded_offset;
    int rows, columns;
    trmi_tile_store store; /* of rounded sums SET or ADD */
} trmi_tile;

/* Memory to prefetch: a grid of pieces. Tiles prefetch one cache line with each k until none is
 * left. */
typedef struct trmi_prefetch {
    const char *at, *end; /* of the piece */
    int64_t gap, stride;  /* bytes from a piece's end to the next piece, from piece to piece */
    int64_t left, row;    /* pieces until a row ends, and of each row */
    int64_t jump;         /* bytes more from a row's last piece to the next row */
    int64_t lines;        /* cache lines still to prefetch */
} trmi_prefetch;
/* Returns a prefetch of `rows` rows, row_stride bytes apart, each with `count` pieces of `bytes`,
 * `stride` bytes apart. trmi_prefetch_rows: of one row of pieces. */
static inline trmi_prefetch trmi_prefetch_grid(const void *base, int64_t bytes, int64_t stride,
                                               int64_t count, int64_t row_stride, int64_t rows) {
    if (bytes >= stride) { /* no gap: a row is one piece */
        bytes += (count - 1) * stride;
        stride = row_stride;
        count = rows;
        rows = 1;
    }
    int64_t lines = (bytes + 63) / 64;
    const char *at = base;
    return (trmi_prefetch){at,    at + bytes, stride - lines * 64,         stride,
                           count, count,      row_stride - count * stride, rows * count * lines};
}
/* Returns the prefetch of `rows` rows of `bytes` bytes, `stride` bytes apart. */
static inline trmi_prefetch trmi_prefetch_rows(const void *base, int64_t stride, int64_t rows,
                                               int64_t bytes) {
    return trmi_prefetch_grid(base, bytes, stride, rows, 0, 1);
}
/* Returns how many lines follow each other at a distance of *step bytes: those of a piece or, if
 * pieces are single lines, of a row. */
static inline int64_t trmi_prefetch_regular(const trmi_prefetch *soon, int64_t *step) {
    bool single = soon->stride - soon->gap == 64;
    *step = single ? soon->stride : 64;
    return single ? soon->left : (soon->end - soon->at + 63) / 64;
}
/* Advances past `lines` of those lines; after the end of a piece follows the next piece, or row. */
static inline void trmi_prefetch_advance(trmi_prefetch *soon, int64_t lines) {
    int64_t pieces = soon->stride - soon->gap == 64 ? lines : 1;
    soon->at += 64 * (lines - pieces + 1) + (pieces - 1) * soon->stride;
    soon->end += (pieces - 1) * soon->stride;
    soon->lines -= lines;
    soon->left -= pieces - 1;
    if (soon->at >= soon->end) {
        soon->at += soon->gap;
        soon->end += soon->stride;
        if (--soon->left == 0) {
            soon->at += soon->jump;
            soon->end += soon->jump;
            soon->left = soon->row;
        }
    }
}
/* Returns the first of `count` prefetches that has lines left, or the last one. */
static inline trmi_prefetch *trmi_prefetch_next(trmi_prefetch *soon, int count) {
    while (count > 1 && soon->lines <= 0) {
        soon++;
        count--;
    }
    return soon;
}

/* The functions of one instruction set. mr, nr: rows and columns of its register tile. */
typedef struct trmi_gemm_isa {
    const char *name;
    int mr, nr; /* the register tile: rows at most, columns exactly */
    /* 1; 2 = A and B hold pairs of bfloat16, neighbours in k, where floats are named, and the k of
     * a tile counts pairs */
    int pair;
    trm_dtype row_type; /* what `widen` makes: FLOAT32, or BFLOAT16 with pairs */
    /* Compute one tile, with A as "rows" or "cols"; prefetch `soon` meanwhile (NULL: nothing). */
    void (*tile_rows)(const trmi_tile *t, trmi_prefetch *soon);
    void (*tile_cols)(const trmi_tile *t, trmi_prefetch *soon);
    /* to[i] = from[i] as row_type; from is FLOAT32 or BFLOAT16. */
    void (*widen)(void *to, const void *from, trm_dtype type, int64_t count);
    /* The same for `rows` rows of `count`; strides in elements. */
    void (*widen_rows)(float *to, int64_t to_stride, const void *from, trm_dtype type,
                       int64_t from_stride, int64_t rows, int64_t count);
    /* to[i] = from[i], past the caches; `to` begins and `count` ends where a line of nr floats
     * does. */
    void (*stream)(float *to, const float *from, int64_t count);
    /* Streamed stores of this thread are done. */
    void (*fence)(void);
    /* to[i] = from[i] (+ bias[i]) rounded to FLOAT32 or BFLOAT16. bias may be NULL. */
    void (*narrow)(void *to, trm_dtype type, const float *from, const float *bias, int64_t count);
    /* to[i] = sum over s of from[s * stride + i], in order of s. */
    void (*sum)(float *to, const float *from, int64_t stride, int64_t terms, int64_t count);
    /* B panel of `columns` <= nr from rows of k: from[k * ld + j], and from columns: from[j * ld +
     * k]. */
    void (*pack)(float *to, const void *from, trm_dtype type, int64_t ld, int64_t k, int columns);
    void (*pack_transposed)(float *to, const void *from, trm_dtype type, int64_t ld, int64_t k,
                            int columns);
    /* Pairs only: interleaves two rows of bfloat16, `count` elements, into panels: pair i goes to
     * to[i / width * panel + i % width]. A panel's row is `room` floats wide (TRMI_TILE_COLS or
     * nr), all of which may be overwritten. */
    void (*deal)(float *to, int64_t panel, int width, int room, const uint16_t *even,
                 const uint16_t *odd, int64_t count);
} trmi_gemm_isa;

extern const trmi_gemm_isa trmi_gemm_plain;
#if defined(__x86_64__)
extern const trmi_gemm_isa trmi_gemm_avx2, trmi_gemm_avx512, trmi_gemm_avx512bf16;
#endif

/* Returns the best table for this CPU (trmi_cpu; the environment variable TRIREME_ISA can lower
 * it). */
const trmi_gemm_isa *trmi_gemm(void);
/* Returns the table that multiplies pairs of bfloat16; NULL if the CPU has no such instruction. */
const trmi_gemm_isa *trmi_gemm_pairs(void);

#endif
