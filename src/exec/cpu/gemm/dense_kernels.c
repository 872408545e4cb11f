/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/dense_kernels.c: the tiles of a trmi_dense_isa, compiled for each instruction set
 * (base/simd/isa.h), for the products of dense.h.
 *
 *   tiles      MR x NR sums in registers for all k of a block; at the end add, bias, ReLU and mask
 *              are applied while the sums are still there
 *   few        products of 1 to FEW rows: B is read as it lies, once, without packing
 *
 * Each number of rows has a function of its own, as in gemm_kernels.c. A tile prefetches what its
 * end needs (C, the mask), then lines of the next tile, one for each PACE of k.
 *
 * Invariant: a sum goes over k in ascending order, so its bits depend neither on its place in a
 * tile nor on the number of threads. */
#include "exec/cpu/gemm/dense_isa.h"

#include "base/checked.h"
#include "base/simd/tile.h"
#include "exec/cpu/gemm/tile_rows.h"

enum {
    NR = VL * VN,
    GROUP = 3,
    GROUPS = (MR + GROUP - 1) / GROUP,
    PACE = 4 /* k between prefetched lines */,
    LONG = 48, /* k from which prefetching is useful */
#ifdef PAIRS
    PAIR = 2, /* rows of B in a row of a panel */
#else
    PAIR = 1,
#endif
    AHEAD = 8 /* rows between those of an unpacked B that are read and prefetched */
};

typedef int32_t vec_mask __attribute__((vector_size(VL * 4)));

/* Returns the lanes of which the mask is set, and 0 in the others. */
TRMI_INLINE vec keep_lanes(vec value, vec_mask mask) { return (vec)((vec_mask)value & mask); }

/* Applies add, bias, ReLU and mask to the sums and stores or rounds them, whole vectors. */
TRMI_INLINE void finish_tile(const trmi_dense_tile *t, const int rows, const int vectors,
                             vec sum[MR][VN]) {
    if (t->add) {
        UNROLL for (int i = 0; i < rows; i++) {
            UNROLL for (int j = 0; j < vectors; j++) {
                sum[i][j] += *(const vec_memory *)(t->c + i * t->c_stride + j * VL);
            }
        }
    }
    if (t->bias != NULL) {
        UNROLL for (int j = 0; j < vectors; j++) {
            vec bias = *(const vec_memory *)(t->bias + j * VL);
            UNROLL for (int i = 0; i < rows; i++) { sum[i][j] += bias; }
        }
    }
    if (t->relu) {
        UNROLL for (int i = 0; i < rows; i++) {
            UNROLL for (int j = 0; j < vectors; j++) {
                sum[i][j] = keep_lanes(sum[i][j], ~(sum[i][j] < (vec){0}));
            }
        }
    }
    if (t->mask != NULL) {
        UNROLL for (int i = 0; i < rows; i++) {
            UNROLL for (int j = 0; j < vectors; j++) {
                vec y = *(const vec_memory *)(t->mask + i * t->mask_stride + j * VL);
                sum[i][j] = keep_lanes(sum[i][j], ~(y <= (vec){0}));
            }
        }
    }
    if (t->rounded != NULL) {
        UNROLL for (int i = 0; i < rows; i++) {
            UNROLL for (int j = 0; j < vectors; j++) {
                store_half(t->rounded + i * t->rounded_stride + j * VL, sum[i][j]);
            }
        }
        return;
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < vectors; j++) {
            *(vec_memory *)(t->c + i * t->c_stride + j * VL) = sum[i][j];
        }
    }
}

/* Stores the sums of a tile at the right edge, element by element. */
TRMI_INLINE void finish_edge(const trmi_dense_tile *t, const int rows, vec sum[MR][VN]) {
    float values[MR][NR];
    memcpy(values, sum, sizeof values);
    for (int i = 0; i < rows; i++) {
        float *to = t->c + i * t->c_stride;
        for (int j = 0; j < t->columns; j++) {
            float v = values[i][j] + (t->add ? to[j] : 0);
            v += t->bias != NULL ? t->bias[j] : 0;
            v = t->relu && v < 0 ? 0 : v;
            v = t->mask != NULL && t->mask[i * t->mask_stride + j] <= 0 ? 0 : v;
            if (t->rounded != NULL) {
                t->rounded[i * t->rounded_stride + j] = trmi_float_to_bf16(v);
            } else {
                to[j] = v;
            }
        }
    }
}

/* The present position of a tile in A and B. One pointer serves three rows of A, because an
 * instruction can address base, base + stride and base + 2 strides. */
typedef struct place {
    const float *a[GROUPS], *b;
    int64_t a_stride, a_step; /* between rows of A; from k to k + 1 */
    /* where B is packed meanwhile: its row k, floats between its rows; the panel */
    const float *unpacked;
    int64_t b_stride;
    float *panel;
} place;

/* Returns the address of row i of A. A constant stride needs one pointer for all rows and no index,
 * with which a multiply-add would be two operations. */
TRMI_INLINE const float *row_of(const place *at, const int i, const int64_t stride) {
    return stride != 0 ? at->a[0] + i * stride : at->a[i / GROUP] + i % GROUP * at->a_stride;
}

/* Loads a row of a panel from B as it lies, rounded to pairs if those are multiplied, and stores it
 * in the panel. Rows of B are far apart, so the CPU does not prefetch them by itself. */
TRMI_INLINE void pack_row(place *at, vec right[VN]) {
    const float *from = at->unpacked;
    UNROLL for (int r = 0; r < PAIR; r++) {
        for (int j = 0; j < NR; j += 16) { /* a line */
            __builtin_prefetch(from + (AHEAD + r) * at->b_stride + j, 0, 3);
        }
    }
    UNROLL for (int j = 0; j < VN; j++) {
        right[j] = *(const vec_memory *)(from + j * VL);
#ifdef PAIRS
        right[j] = round_pair(right[j], *(const vec_memory *)(from + at->b_stride + j * VL));
#endif
        *(vec_memory *)(at->panel + j * VL) = right[j];
    }
    at->unpacked += PAIR * at->b_stride;
    at->panel += NR;
}

/* Adds the products of k values of a with k rows of b to the sums of a tile, and advances both. */
TRMI_INLINE void add_products(place *at, int64_t k, const int rows, const int vectors,
                              const int64_t stride, const bool packs, vec sum[MR][VN]) {
    for (int64_t p = 0; p < k; p++, at->b += NR) {
        vec right[VN];
        if (packs) {
            pack_row(at, right);
        }
        UNROLL for (int j = 0; j < vectors && !packs; j++) {
            right[j] = *(const vec_memory *)(at->b + j * VL);
        }
        UNROLL for (int i = 0; i < rows; i++) {
            const float *left = row_of(at, i, stride);
            UNROLL for (int j = 0; j < vectors; j++) {
                if (FROM_MEMORY(i)) {
                    MULTIPLY_ADD_FROM(sum[i][j], left, right[j]);
                } else {
                    MULTIPLY_ADD(sum[i][j], *left, right[j]);
                }
            }
        }
        at->a[0] += at->a_step;
        if (stride == 0) {
            UNROLL for (int g = 1; g < GROUPS; g++) { at->a[g] += at->a_step; }
        }
    }
}

/* Prefetches the next line. */
TRMI_INLINE void prefetch_line(trmi_prefetch *soon) {
    __builtin_prefetch(soon->at, 0, 2);
    trmi_prefetch_advance(soon, 1);
}

/* Prefetches what the end of a tile needs of row i. */
TRMI_INLINE void prefetch_row(const trmi_dense_tile *t, const int i, const int vectors) {
    if (t->rounded != NULL) { /* a row of a panel is one line */
        __builtin_prefetch(t->rounded + i * t->rounded_stride, 1, 3);
    }
    if (t->add || t->rounded == NULL) {
        UNROLL for (int j = 0; j < vectors; j++) {
            __builtin_prefetch(t->c + i * t->c_stride + j * VL, 1, 3);
        }
    }
    for (int j = 0; j < vectors && t->mask != NULL; j++) {
        __builtin_prefetch(t->mask + i * t->mask_stride + j * VL, 0, 3);
    }
}

/* Computes a tile. Prefetches C and the mask first, which the end needs, then t->soon: one line for
 * each PACE of k, or more where few rows leave less time, so that outstanding lines do not fill all
 * buffers of the core. `may_prefetch`:
 * false if k is short. `packs`: B is
 * packed meanwhile. */
TRMI_INLINE void compute_tile(const trmi_dense_tile *t, const int rows, const int vectors,
                              const int64_t stride, const bool packs, const bool may_prefetch) {
    const bool prefetches = may_prefetch && t->k >= LONG;
    vec sum[MR][VN];
    place at = {.b = t->b,
                .a_stride = t->a_stride,
                .a_step = stride == 1 ? t->a_stride : 1,
                .unpacked = t->unpacked,
                .b_stride = t->b_stride,
                .panel = t->panel};
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < VN; j++) { sum[i][j] = (vec){0}; }
    }
    UNROLL for (int g = 0; g < GROUPS; g++) { at.a[g] = t->a + g * GROUP * t->a_stride; }
    int64_t k = t->k;
    for (int i = 0; prefetches && i < rows && k >= PACE; i++, k -= PACE) {
        prefetch_row(t, i, vectors);
        add_products(&at, PACE, rows, vectors, stride, packs, sum);
    }
    int64_t lines = prefetches && t->soon != NULL ? t->soon_lines : 0,
            each = trmi_max_i64(1, trmi_pieces(lines * PACE, trmi_max_i64(1, k)));
    for (; lines > 0 && t->soon->lines > 0 && k >= PACE; lines -= each, k -= PACE) {
        for (int64_t i = 0; i < each && t->soon->lines > 0; i++) {
            prefetch_line(t->soon);
        }
        add_products(&at, PACE, rows, vectors, stride, packs, sum);
    }
    add_products(&at, k, rows, vectors, stride, packs, sum);
    if (t->columns == vectors * VL) {
        finish_tile(t, rows, vectors, sum);
    } else {
        finish_edge(t, rows, sum);
    }
}

#define TILE_OF(N, stride)                                                                         \
    if (t->columns <= NR / 2) {                                                                    \
        compute_tile(t, N, VN / 2, stride, false, true);                                           \
    } else {                                                                                       \
        compute_tile(t, N, VN, stride, false, true);                                               \
    }
#define TILE(N)                                                                                    \
    static __attribute__((noinline)) void rows_##N(const trmi_dense_tile *t) { TILE_OF(N, 0) }     \
    static __attribute__((noinline)) void copies_##N(const trmi_dense_tile *t) {                   \
        TILE_OF(N, TRMI_TILE_STRIDE)                                                               \
    }                                                                                              \
    static __attribute__((noinline)) void columns_##N(const trmi_dense_tile *t) { TILE_OF(N, 1) }  \
    static __attribute__((noinline)) void packing_copies_##N(const trmi_dense_tile *t) {           \
        compute_tile(t, N, VN, TRMI_TILE_STRIDE, true, true);                                      \
    }                                                                                              \
    static __attribute__((noinline)) void packing_columns_##N(const trmi_dense_tile *t) {          \
        compute_tile(t, N, VN, 1, true, true);                                                     \
    }
TILE_EACH(TILE)
#undef TILE

typedef void tile_function(const trmi_dense_tile *tile);
static tile_function *const rows_tiles[MR] = {TILES(rows_)},
                            *const copies_tiles[MR] = {TILES(copies_)},
                            *const columns_tiles[MR] = {TILES(columns_)},
                            *const packing_copies[MR] = {TILES(packing_copies_)},
                            *const packing_columns[MR] = {TILES(packing_columns_)};

/* Calls the function for this number of rows; rows at the fixed stride of copies have functions of
 * their own, whose addresses are constants. */
static void compute_rows(const trmi_dense_tile *t) {
    if (t->unpacked != NULL) {
        packing_copies[t->rows - 1](t);
    } else if (t->a_stride == TRMI_TILE_STRIDE) {
        copies_tiles[t->rows - 1](t);
    } else {
        rows_tiles[t->rows - 1](t);
    }
}
static void compute_columns(const trmi_dense_tile *t) {
    if (t->unpacked != NULL) {
        packing_columns[t->rows - 1](t);
    } else {
        columns_tiles[t->rows - 1](t);
    }
}

#ifdef PAIRS
/* Copies `columns` columns (at most TRMI_TILE_COLS) of `rows` rows of bfloat16 as pairs of rows; an
 * odd last row is paired with zeros. */
static void copy_columns(float *to, const void *from, int64_t stride, int64_t rows, int columns) {
    const uint16_t *row = from;
    const __mmask16 there = columns < TRMI_TILE_COLS ? (__mmask16)((1u << columns) - 1) : 0xFFFF;
    for (int64_t r = 0; r < rows; r += 2, to += TRMI_TILE_COLS, row += 2 * stride) {
        __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row)), odd = {0};
        if (r + 1 < rows) {
            odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row + stride));
        }
        _mm512_storeu_si512(to, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
}
#else
/* Copies `columns` columns (at most TRMI_TILE_COLS) of `rows` rows side by side. */
static void copy_columns(float *to, const void *from, int64_t stride, int64_t rows, int columns) {
    const float *row = from;
    for (int64_t r = 0; r < rows; r++, to += TRMI_TILE_COLS, row += stride) {
        if (columns < TRMI_TILE_COLS) {
            memcpy(to, row, (size_t)columns * sizeof *to);
            continue;
        }
        for (int j = 0; j < TRMI_TILE_COLS; j += VL) {
            *(vec_memory *)(to + j) = *(const vec_memory *)(row + j);
        }
    }
}
#endif

/* Computes several whole tiles without a call for each. */
TRMI_INLINE int64_t whole_tiles(trmi_dense_tile *t, int64_t count, const int vectors) {
    int64_t done = 0;
    for (; done + MR <= count; done += MR) {
        compute_tile(t, MR, vectors, 0, false, false);
        t->a += MR * t->a_stride;
        t->c += MR * t->c_stride;
    }
    return done;
}

/* A mask would have to go along. */
static void all_rows(const trmi_dense_tile *given, int64_t count) {
    trmi_dense_tile t = *given;
    int64_t done =
        t.columns <= NR / 2 ? whole_tiles(&t, count, VN / 2) : whole_tiles(&t, count, VN);
    t.rows = (int)(count - done);
    if (t.rows > 0) {
        compute_rows(&t);
    }
}

/* ---- few rows -------------------------------------------------------------------------------- */

enum { FEW = VL == 16 ? 8 : 4, FEW_VECTORS = 3 }; /* so many sums are in registers */

/* Computes the sums of a few rows, from `column` on, `vectors` vectors wide. */
TRMI_INLINE void few_sums(const trmi_dense_tile *t, int64_t column, const int rows,
                          const int vectors, const bool prefetches) {
    vec sum[FEW][FEW_VECTORS];
    const float *from = t->b + column, *next = t->next + (prefetches ? column : 0), *left = t->a;
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < vectors; j++) { sum[i][j] = (vec){0}; }
    }
    for (int64_t p = 0; p < t->k; p++, from += t->b_stride, left++) {
        vec right[FEW_VECTORS];
        UNROLL for (int j = 0; j < vectors; j++) {
            right[j] = *(const vec_memory *)(from + j * VL);
            if (prefetches) {
                __builtin_prefetch(next + p * t->b_stride + j * VL, 0, 3);
            }
        }
        UNROLL for (int i = 0; i < rows; i++) {
            UNROLL for (int j = 0; j < vectors; j++) {
                sum[i][j] += left[i * t->a_stride] * right[j];
            }
        }
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < vectors; j++) {
            *(vec_memory *)(t->c + i * t->c_stride + column + j * VL) += sum[i][j];
        }
    }
}

/* Computes the remaining columns, fewer than a vector. */
TRMI_INLINE void few_edge(const trmi_dense_tile *t, int64_t column, const int rows) {
    for (int i = 0; i < rows; i++) {
        for (int64_t j = column; j < t->columns; j++) {
            float sum = 0;
            for (int64_t p = 0; p < t->k; p++) {
                sum += t->a[i * t->a_stride + p] * t->b[p * t->b_stride + j];
            }
            t->c[i * t->c_stride + j] += sum;
        }
    }
}

/* Computes a product of few rows, for all columns: whole vectors in groups of three or two, then
 * the columns that are left. */
TRMI_INLINE void few_columns(const trmi_dense_tile *t, const int rows, const bool prefetches) {
    int64_t column = 0;
    /* Take threes, and twos rather than a single one. */
    for (int64_t left = t->columns / VL; left > 0;) {
        if (left >= 3 && left != 4) {
            few_sums(t, column, rows, 3, prefetches);
            left -= 3, column += 3 * VL;
        } else if (left >= 2) {
            few_sums(t, column, rows, 2, prefetches);
            left -= 2, column += 2 * VL;
        } else {
            few_sums(t, column, rows, 1, prefetches);
            left--, column += VL;
        }
    }
    few_edge(t, column, rows);
}

#define FEW_ROWS(N)                                                                                \
    static __attribute__((noinline)) void few_##N(const trmi_dense_tile *t) {                      \
        if (t->next != NULL) {                                                                     \
            few_columns(t, N < FEW ? N : FEW, true);                                               \
        } else {                                                                                   \
            few_columns(t, N < FEW ? N : FEW, false);                                              \
        }                                                                                          \
    }
/* clang-format off */
FEW_ROWS(1) FEW_ROWS(2) FEW_ROWS(3) FEW_ROWS(4)
#if defined(__AVX512F__)
FEW_ROWS(5) FEW_ROWS(6) FEW_ROWS(7) FEW_ROWS(8)
static tile_function *const few_tiles[FEW] = {few_1, few_2, few_3, few_4, few_5, few_6, few_7, few_8};
#else
static tile_function *const few_tiles[FEW] = {few_1, few_2, few_3, few_4};
#endif
#undef FEW_ROWS
/* clang-format on */

/* Calls the function for this number of rows. */
static void few_rows(const trmi_dense_tile *t) { few_tiles[t->rows - 1](t); }

const trmi_dense_isa TRMI_FOR_ISA(trmi_dense) = {.mr = MR,
                                                 .nr = NR,
                                                 .rows = compute_rows,
                                                 .columns = compute_columns,
                                                 .take = copy_columns,
                                                 .all_rows = all_rows,
                                                 .few = FEW,
                                                 .few_rows = few_rows};
