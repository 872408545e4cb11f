/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/gemm_kernels.c: the functions of a trmi_gemm_isa, compiled for each instruction set
 * (base/simd/isa.h). They are the innermost part of the matrix product; gemm_isa.h says what each
 * one must do, the loops around them choose panels and threads.
 *
 *   tile     MR x NR sums in registers:  c[i][j] += a[i][p] * b[p][j]  for all p of the panel
 *            tile_rows: rows of a lie at a fixed stride; tile_cols: a is stored by columns
 *   pack     columns of a matrix to panels of NR, so that a tile reads b in one stream
 *   widen    rows of bfloat16 to float32; narrow: the way back, with a bias
 *   sum      partial sums of several threads, in their order
 *
 * The number of rows of a tile is a constant of its function (one function for each number), since
 * a compiler keeps an array that a loop with a variable bound indexes in memory, not in registers.
 *
 * Invariant: the order of the additions over p depends neither on the position of a tile nor on the
 * thread that computes it; strict determinism relies on it. */
#include "exec/cpu/gemm/gemm_isa.h"

#include "base/simd/tile.h"
#include "exec/cpu/gemm/tile_rows.h"

#include <string.h>

enum { NR = VL * VN };

/* The halves of two vectors, element by element in turns; PAIR_ROWS: 32 pairs of the numbers of two
 * rows, low and high. */
#if defined(PAIRS)
#define PAIR_ROWS(to, low, high)                                                                   \
    do {                                                                                           \
        const __m512i place =                                                                      \
            _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7,  \
                             38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);                     \
        __m512i left = _mm512_loadu_si512(low), right = _mm512_loadu_si512(high);                  \
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(left, place, right));                    \
        _mm512_storeu_si512((to) + 16,                                                             \
                            _mm512_permutex2var_epi16(                                             \
                                left, _mm512_add_epi16(place, _mm512_set1_epi16(16)), right));     \
    } while (0)
#elif defined(__AVX2__) && !defined(__AVX512F__)
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif !defined(__AVX512F__)
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Expands DO for each sum (i, j) of a tile with constant indices: compilers keep an array that a
 * loop indexes in memory, not in registers. */
/* clang-format off */
#define EACH_COLUMN(DO, i) DO(i, 0) DO(i, 1) DO(i, 2) DO(i, 3)
#define EACH_SUM(DO)                                                                               \
    EACH_COLUMN(DO, 0) EACH_COLUMN(DO, 1) EACH_COLUMN(DO, 2) EACH_COLUMN(DO, 3) EACH_COLUMN(DO, 4) \
    EACH_COLUMN(DO, 5) EACH_COLUMN(DO, 6) EACH_COLUMN(DO, 7) EACH_COLUMN(DO, 8) EACH_COLUMN(DO, 9) \
    EACH_COLUMN(DO, 10) EACH_COLUMN(DO, 11) EACH_COLUMN(DO, 12) EACH_COLUMN(DO, 13)
/* clang-format on */
#define SUM(i, j) sum[(i) < MR ? (i) : 0][(j) < VN ? (j) : 0]
#define WHERE(i, j) if ((i) < rows && (j) < VN)

/* Macros that store, add, round, load or clear one sum of a register tile. */
#define STREAM_SUM(i, j) WHERE(i, j) stream_vec(c + row_offset[i] + (j)*VL, SUM(i, j));
#define ADD_SUM(i, j) WHERE(i, j) * (vec_memory *)(c + row_offset[i] + (j)*VL) += SUM(i, j);
#define SET_SUM(i, j) WHERE(i, j) * (vec_memory *)(c + row_offset[i] + (j)*VL) = SUM(i, j);
#define TAKE_SUM(i, j)                                                                             \
    WHERE(i, j) SUM(i, j) += *(const vec_memory *)(t->c + t->row_offset[i] + (j)*VL);
#define ROUND_SUM(i, j)                                                                            \
    WHERE(i, j) store_half(t->rounded + t->rounded_offset[i] + (j)*VL, SUM(i, j));
#define KEEP_SUM(i, j) WHERE(i, j) * (vec_memory *)(sums + (i)*NR + (j)*VL) = SUM(i, j);
#define CLEAR_SUM(i, j) WHERE(i, j) SUM(i, j) = (vec){0};
#define FETCH_SUM(i, j) WHERE(i, j) __builtin_prefetch(t->c + t->row_offset[i] + (j)*VL, 1, 3);

/* Stores a tile at the right edge, element by element. */
static __attribute__((noinline)) void edge_store(int rows, const float *sums, float *c,
                                                 const int64_t *row_offset, int columns,
                                                 trmi_tile_store store) {
    for (int i = 0; i < rows; i++, sums += NR) {
        float *to = c + row_offset[i];
        for (int j = 0; j < columns; j++) {
            to[j] = store == TRMI_TILE_ADD ? to[j] + sums[j] : sums[j];
        }
    }
}

/* Stores a tile at the right edge as bfloat16. */
static __attribute__((noinline)) void edge_round(const trmi_tile *t, const float *sums) {
    for (int i = 0; i < t->rows; i++, sums += NR) {
        const float *before = t->c + t->row_offset[i];
        for (int j = 0; j < t->columns; j++) {
            float v = t->store == TRMI_TILE_ADD ? before[j] + sums[j] : sums[j];
            t->rounded[t->rounded_offset[i] + j] = trmi_float_to_bf16(v);
        }
    }
}

/* Orders streamed stores before those that follow. */
static void fence_stores(void) { fence_streams(); }

/* Stores whole vectors past the caches; a tail does not occur (TRMI_TILE_STREAM). */
static void stream_row(float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i + VL <= count; i += VL) {
        stream_vec(to + i, *(const vec_memory *)(from + i));
    }
}

/* Adds the products of one k. Inlined with constant strides over i, so that each address is base +
 * constant. */
TRMI_INLINE void tile_step(const int rows, const int64_t row_stride, const float *a, const float *b,
                           vec sum[MR][VN]) {
    vec right[VN];
    for (int j = 0; j < VN; j++) {
        right[j] = *(const vec_memory *)(b + j * VL);
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < VN; j++) {
            if (FROM_MEMORY(i)) {
                MULTIPLY_ADD_FROM(sum[i][j], a + i * row_stride, right[j]);
            } else {
                MULTIPLY_ADD(sum[i][j], a[i * row_stride], right[j]);
            }
        }
    }
}

/* Runs `count` steps of k. `at` (may be NULL): prefetches a line with each step, `step` bytes
 * apart. Two steps an iteration, because loop instructions cost time if two threads share a
 * core. */
TRMI_INLINE void tile_steps(const int rows, const int64_t row_stride, int64_t k_stride,
                            int64_t b_stride, const float **a, const float **b, vec sum[MR][VN],
                            const char *at, int64_t step, int64_t count) {
    const float *left = *a, *right = *b;
    int64_t p = 0;
    for (; p + 2 <= count; p += 2) {
        UNROLL for (int u = 0; u < 2; u++) {
            if (at != NULL) {
                __builtin_prefetch(at + step * u, 0, 2);
            }
            tile_step(rows, row_stride, left, right, sum);
            left += k_stride;
            right += b_stride;
        }
        at = at != NULL ? at + 2 * step : NULL;
    }
    if (p < count) {
        if (at != NULL) {
            __builtin_prefetch(at, 0, 2);
        }
        tile_step(rows, row_stride, left, right, sum);
        left += k_stride;
        right += b_stride;
    }
    *a = left;
    *b = right;
}

/* Runs up to k steps, as many as there are lines to prefetch; returns how many. */
TRMI_INLINE int64_t tile_prefetching(const int rows, const int64_t row_stride, int64_t k_stride,
                                     int64_t b_stride, const float **a, const float **b,
                                     vec sum[MR][VN], trmi_prefetch *soon, int64_t k) {
    int64_t lines = soon->lines < k ? soon->lines : k;
    for (int64_t left = lines; left > 0;) {
        int64_t step, next = trmi_prefetch_regular(soon, &step);
        next = next < left ? next : left;
        tile_steps(rows, row_stride, k_stride, b_stride, a, b, sum, soon->at, step, next);
        left -= next;
        trmi_prefetch_advance(soon, next);
    }
    return lines;
}

/* Stores the sums as the tile requires. */
TRMI_INLINE void tile_leave(const int rows, const trmi_tile *t, vec sum[MR][VN]) {
    float *c = t->c;
    const int64_t *row_offset = t->row_offset;
    if (t->columns != NR) {
        float sums[MR * NR];
        EACH_SUM(KEEP_SUM)
        if (t->rounded != NULL) {
            edge_round(t, sums);
        } else {
            edge_store(rows, sums, c, row_offset, t->columns, t->store);
        }
    } else if (t->rounded != NULL) {
        if (t->store == TRMI_TILE_ADD) {
            EACH_SUM(TAKE_SUM)
        }
        EACH_SUM(ROUND_SUM)
    } else if (t->store == TRMI_TILE_STREAM) {
        EACH_SUM(STREAM_SUM)
    } else if (t->store == TRMI_TILE_ADD) {
        EACH_SUM(ADD_SUM)
    } else {
        EACH_SUM(SET_SUM)
    }
}

/* Computes one tile: its sums stay in registers for all k, and prefetches for the next tile stand
 * between the first products. */
TRMI_INLINE void compute_tile(const int rows, const int64_t row_stride, int64_t k_stride,
                              int64_t b_stride, const trmi_tile *t, trmi_prefetch *soon) {
    const float *a = t->a, *b = t->b;
    vec sum[MR][VN];
    EACH_SUM(CLEAR_SUM)
    if (t->store == TRMI_TILE_ADD) { /* there when the last k is done */
        EACH_SUM(FETCH_SUM)
    }
    int64_t prefetched = 0;
    if (soon != NULL && soon->lines > 0) {
        prefetched =
            tile_prefetching(rows, row_stride, k_stride, b_stride, &a, &b, sum, soon, t->k);
    }
    tile_steps(rows, row_stride, k_stride, b_stride, &a, &b, sum, NULL, 64, t->k - prefetched);
    tile_leave(rows, t, sum);
}

typedef void tile_function(const trmi_tile *t, trmi_prefetch *soon);

#define TILE(N)                                                                                    \
    static __attribute__((noinline)) void tile_rows_##N(const trmi_tile *t, trmi_prefetch *soon) { \
        compute_tile(N, TRMI_TILE_STRIDE, 1, NR, t, soon);                                         \
    }                                                                                              \
    static __attribute__((noinline)) void tile_cols_##N(const trmi_tile *t, trmi_prefetch *soon) { \
        compute_tile(N, 1, t->a_stride, t->b_stride, t, soon);                                     \
    }
TILE_EACH(TILE)
#undef TILE

static tile_function *const rows_tiles[MR] = {TILES(tile_rows_)};
static tile_function *const cols_tiles[MR] = {TILES(tile_cols_)};

/* Call the function for this number of rows. */
static void tile_rows(const trmi_tile *t, trmi_prefetch *soon) { rows_tiles[t->rows - 1](t, soon); }

static void tile_cols(const trmi_tile *t, trmi_prefetch *soon) { cols_tiles[t->rows - 1](t, soon); }

/* ---- rows in and out ------------------------------------------------------------------------- */

/* Writes a row as float32 or bfloat16, with a bias if there is one. */
static void narrow_row(void *to, trm_dtype type, const float *from, const float *bias,
                       int64_t count) {
    int64_t i = 0;
    for (; i + VL <= count; i += VL) {
        vec v = *(const vec_memory *)(from + i);
        v = bias == NULL ? v : v + *(const vec_memory *)(bias + i);
        if (type == TRM_BFLOAT16) {
            store_half((uint16_t *)to + i, v);
        } else {
            *(vec_memory *)((float *)to + i) = v;
        }
    }
    for (; i < count; i++) {
        float v = from[i] + (bias == NULL ? 0 : bias[i]);
        if (type == TRM_BFLOAT16) {
            ((uint16_t *)to)[i] = trmi_float_to_bf16(v);
        } else {
            ((float *)to)[i] = v;
        }
    }
}

/* Writes the sums of `terms` rows that lie `stride` apart, in their order. */
static void sum_rows(float *to, const float *from, int64_t stride, int64_t terms, int64_t count) {
    int64_t i = 0;
    for (; i + VL <= count; i += VL) {
        vec v = *(const vec_memory *)(from + i);
        for (int64_t s = 1; s < terms; s++) {
            v += *(const vec_memory *)(from + s * stride + i);
        }
        *(vec_memory *)(to + i) = v;
    }
    for (; i < count; i++) {
        float v = from[i];
        for (int64_t s = 1; s < terms; s++) {
            v += from[s * stride + i];
        }
        to[i] = v;
    }
}

/* ---- turning --------------------------------------------------------------------------------- */

/* A VL x VL block of rows that are `step` bytes apart, turned to rows of NR. */
#if defined(__AVX512F__)
/* Quarters of four rows that are four apart make a vector; four of those are turned quarter by
 * quarter. Half of it is done by loads: 64 of them and 32 shuffles, where rows of their own would
 * take 64 shuffles of two sources. */
TRMI_INLINE __m512 load_quarters(const char *from, int64_t step) {
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps((const float *)(const void *)from));
    v = _mm512_insertf32x4(v, _mm_loadu_ps((const float *)(const void *)(from + 4 * step)), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps((const float *)(const void *)(from + 8 * step)), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps((const float *)(const void *)(from + 12 * step)), 3);
}

/* Transposes VL x VL floats, four columns at a time. */
TRMI_INLINE void turn_floats(float *to, const char *from, int64_t step) {
    UNROLL for (int c = 0; c < VL; c += 4, from += 16, to += 4 * NR) {
        __m512 a = load_quarters(from, step), b = load_quarters(from + step, step);
        __m512 d = load_quarters(from + 2 * step, step), e = load_quarters(from + 3 * step, step);
        __m512d ab_low = _mm512_castps_pd(_mm512_unpacklo_ps(a, b)),
                ab_high = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
        __m512d de_low = _mm512_castps_pd(_mm512_unpacklo_ps(d, e)),
                de_high = _mm512_castps_pd(_mm512_unpackhi_ps(d, e));
        _mm512_storeu_pd((void *)to, _mm512_unpacklo_pd(ab_low, de_low));
        _mm512_storeu_pd((void *)(to + NR), _mm512_unpackhi_pd(ab_low, de_low));
        _mm512_storeu_pd((void *)(to + 2 * NR), _mm512_unpacklo_pd(ab_high, de_high));
        _mm512_storeu_pd((void *)(to + 3 * NR), _mm512_unpackhi_pd(ab_high, de_high));
    }
}

/* Transposes a block of VL rows, `step` bytes apart, by VL columns. bfloat16 is widened to rows of
 * float32 first, which turn_floats reads. */
TRMI_INLINE void turn_block(float *to, const char *from, const trm_dtype type, int64_t step) {
    float rows[VL * VL];
    for (int i = 0; type != TRM_FLOAT32 && i < VL; i++) {
        *(vec_memory *)(rows + i * VL) = load_any(from + i * step, type, 0);
    }
    turn_floats(to, type == TRM_FLOAT32 ? from : (const char *)rows,
                type == TRM_FLOAT32 ? step : (int64_t)(VL * sizeof *rows));
}
#else
/* log2(VL) rounds of a perfect shuffle of rows i and i + VL/2. */
TRMI_INLINE void turn_block(float *to, const char *from, const trm_dtype type, int64_t step) {
    vec v[VL];
    for (int i = 0; i < VL; i++) {
        v[i] = load_any(from + i * step, type, 0);
    }
    for (int round = 1; round < VL; round *= 2) {
        vec w[VL];
        for (int i = 0; i < VL / 2; i++) {
            w[2 * i] = INTERLEAVE_LOW(v[i], v[i + VL / 2]);
            w[2 * i + 1] = INTERLEAVE_HIGH(v[i], v[i + VL / 2]);
        }
        for (int i = 0; i < VL; i++) {
            v[i] = w[i];
        }
    }
    for (int i = 0; i < VL; i++) {
        *(vec_memory *)(to + i * NR) = v[i];
    }
}
#endif

/* Packs a matrix whose columns lie in memory row by row: to[p][j] = from[j][p], NR columns, with
 * zeros for the missing ones. */
TRMI_INLINE void pack_transposed_as(float *to, const void *from, const trm_dtype type, int64_t ld,
                                    int64_t k, int columns) {
    int64_t bytes = type == TRM_BFLOAT16 ? 2 : 4;
    int j = 0;
    for (; j + VL <= columns; j += VL) {
        const char *base = (const char *)from + j * ld * bytes;
        int64_t p = 0;
        for (; p + VL <= k; p += VL) {
            turn_block(to + p * NR + j, base + p * bytes, type, ld * bytes);
        }
        for (; p < k; p++) {
            for (int i = 0; i < VL; i++) {
                to[p * NR + j + i] = load_one(base + i * ld * bytes, type, p);
            }
        }
    }
    for (; j < NR; j++) {
        const char *base = (const char *)from + j * ld * bytes;
        for (int64_t p = 0; p < k; p++) {
            to[p * NR + j] = j < columns ? load_one(base, type, p) : 0;
        }
    }
}

#ifdef PAIRS
#include "exec/cpu/gemm/gemm_isa_pairs.h"
#else
/* Numbers in one float of a row or panel. */
enum { PAIR = 1 };

/* Copies a row as float32, by vectors and then one by one. */
TRMI_INLINE void widen_as(float *to, const void *from, const trm_dtype type, int64_t count) {
    int64_t i = 0;
    for (; i + VL <= count; i += VL) {
        *(vec_memory *)(to + i) = load_any(from, type, i);
    }
    for (; i < count; i++) {
        to[i] = load_one(from, type, i);
    }
}

static void widen_row(void *to, const void *from, trm_dtype type, int64_t count) {
    if (type == TRM_BFLOAT16) {
        widen_as(to, from, TRM_BFLOAT16, count);
    } else {
        widen_as(to, from, TRM_FLOAT32, count);
    }
}

/* Copies rows as float32; strides in elements of each side. */
TRMI_INLINE void widen_rows_as(float *to, int64_t to_stride, const void *from, const trm_dtype type,
                               int64_t from_stride, int64_t rows, int64_t count) {
    const char *row = from;
    int64_t step = from_stride * (type == TRM_BFLOAT16 ? 2 : 4);
    for (int64_t r = 0; r < rows; r++, row += step, to += to_stride) {
        widen_as(to, row, type, count);
    }
}

static void widen_rows(float *to, int64_t to_stride, const void *from, trm_dtype type,
                       int64_t from_stride, int64_t rows, int64_t count) {
    if (type == TRM_BFLOAT16) {
        widen_rows_as(to, to_stride, from, TRM_BFLOAT16, from_stride, rows, count);
    } else {
        widen_rows_as(to, to_stride, from, TRM_FLOAT32, from_stride, rows, count);
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Packs k rows of `columns` numbers, NR a row, with zeros for the missing ones. */
TRMI_INLINE void pack_as(float *to, const void *from, const trm_dtype type, int64_t ld, int64_t k,
                         int columns) {
    const char *row = from;
    int64_t step = ld * (type == TRM_BFLOAT16 ? 2 : 4);
    if (columns == NR) {
        for (int64_t p = 0; p < k; p++, row += step, to += NR) {
            for (int j = 0; j < VN; j++) {
                *(vec_memory *)(to + j * VL) = load_any(row, type, j * VL);
            }
        }
        return;
    }
    for (int64_t p = 0; p < k; p++, row += step, to += NR) {
        for (int j = 0; j < NR; j++) {
            to[j] = j < columns ? load_one(row, type, j) : 0;
        }
    }
}

static void pack_panel(float *to, const void *from, trm_dtype type, int64_t ld, int64_t k,
                       int columns) {
    if (type == TRM_BFLOAT16) {
        pack_as(to, from, TRM_BFLOAT16, ld, k, columns);
    } else {
        pack_as(to, from, TRM_FLOAT32, ld, k, columns);
    }
}

static void pack_transposed(float *to, const void *from, trm_dtype type, int64_t ld, int64_t k,
                            int columns) {
    if (type == TRM_BFLOAT16) {
        pack_transposed_as(to, from, TRM_BFLOAT16, ld, k, columns);
    } else {
        pack_transposed_as(to, from, TRM_FLOAT32, ld, k, columns);
    }
}
#endif

const trmi_gemm_isa TRMI_FOR_ISA(trmi_gemm) = {.name = TRMI_ISA_NAME,
                                               .mr = MR,
                                               .nr = NR,
                                               .pair = PAIR,
                                               .row_type = PAIR == 2 ? TRM_BFLOAT16 : TRM_FLOAT32,
                                               .tile_rows = tile_rows,
                                               .tile_cols = tile_cols,
                                               .stream = stream_row,
                                               .fence = fence_stores,
                                               .widen = widen_row,
                                               .widen_rows = widen_rows,
                                               .narrow = narrow_row,
                                               .sum = sum_rows,
                                               .pack = pack_panel,
#ifdef PAIRS
                                               .deal = deal_pairs,
#endif
                                               .pack_transposed = pack_transposed};
