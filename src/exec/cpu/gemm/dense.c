/* SPDX-License-Identifier: Apache-2.0 */
/* Float32 matrix products of layers (dense.h), in three forms:
 *
 *   rows      B packed once into panels [k][nr], by all threads; then blocks of rows of A as they lie, tile by
 *             tile, each tile's sums finished in registers: bias, ReLU, mask
 *   few       nothing is packed: a few rows of B at a time, which stay in the first-level cache for all rows of A; threads share
 *             the columns
 *   weights   k is the batch: split into a few parts with sums of their own, added in order at the end; a part
 *             goes by chunks, of which B's panels and, one at a time, A's are packed
 *
 *   scratch:  [ packed B ]      [ sums of the splits | per thread: A, B ]
 */
#include "exec/cpu/gemm/dense.h"

#include "base/checked.h"
#include "base/cpu.h"

#include <omp.h>
#include <string.h>

enum {
    DEPTH_MAX = 768, /* k of a panel: it stays in the second-level cache */
    TASK_TILES = 8,
    CHUNK = 256,       /* k of packed pieces */
    BLOCK = 512,       /* columns and rows of C in a task */
    SPLIT_DEPTH = 512, /* k of a split at least */
    SPLITS = 8,
    SUMS_FLOATS = 1 << 19, /* of all splits: more would not stay in the caches */
    REDUCE = 8192,
    LEAST_ROWS = 256,
    NEAR_FLOATS = 8192,   /* packed B that stays in the first-level cache */
    FEW_LEAST = 8,        /* rows: fewer leave half of a register tile empty */
    FEW_MOST = 32,        /* rows: with more, packing B is faster */
    FEW_FLOATS = 1 << 18, /* of B: more than second-level caches hold */
    FEW_DEPTH = 16,       /* rows of B */
    FEW_COLUMNS = 256,
    LINE = 16 /* floats */
};

const trmi_dense_isa *trmi_dense(void) { return TRMI_CPU_CHOICE(&trmi_dense); }

/* Returns whether the form `few` is used: 8 to 32 rows, a B that exceeds the second-level cache. */
static bool is_few(const trmi_dense_problem *p) {
    bool plain = !p->any_rows && !p->transpose_a && !p->transpose_b && !p->relu && !p->add &&
                 p->b_stride == p->n;
    return plain && p->m >= FEW_LEAST && p->m <= FEW_MOST && p->n >= 4 * LINE &&
           p->k * p->n >= FEW_FLOATS;
}

bool trmi_dense_fits(const trmi_dense_problem *p) {
    if (is_few(p)) {
        return true;
    }
    return p->transpose_a ? p->k >= LEAST_ROWS && !p->transpose_b : p->m >= LEAST_ROWS;
}

/* Returns where block `block` of k begins. With any_rows blocks are those of conv_geometry.c, so that
 * either kernel computes the same bits. */
static int64_t depth_at(const trmi_dense_plan *d, int64_t block) {
    int64_t k = d->problem.k, unit = k % 2 == 0 ? 2 : 1, units = k / unit;
    return d->problem.any_rows
               ? (units / d->blocks * block + trmi_min_i64(block, units % d->blocks)) * unit
               : trmi_cut_at(k, d->blocks, block);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Plans the form `rows`. Returns the bytes of scratch: the packed B. */
static int64_t prepare_rows(trmi_dense_plan *d) {
    const trmi_dense_problem *p = &d->problem;
    int64_t mr = d->isa->mr, share = trmi_round_up(trmi_pieces(p->m, 4 * d->threads), mr);
    d->blocks = trmi_pieces(p->k, p->any_rows ? TRMI_TILE_K : DEPTH_MAX);
    d->task_rows = trmi_max_i64(2 * mr, trmi_min_i64(TASK_TILES * mr, share));
    /* a multiple of the threads, so that all end at the same time */
    d->tasks = trmi_round_up(trmi_pieces(p->m, d->task_rows), d->threads);
    d->shared_floats = d->panels * d->isa->nr * p->k;
    return d->shared_floats * 4;
}

/* Returns where panel `panel` of block `block` of k lies in the packed B. */
static float *panel_at(const trmi_dense_plan *d, float *packed, int64_t block, int64_t panel) {
    int64_t begin = depth_at(d, block), end = depth_at(d, block + 1);
    return packed + (d->panels * begin + panel * (end - begin)) * d->isa->nr;
}

/* Packs all of B, by the threads of the enclosing parallel region. */
static void pack_b(const trmi_dense_plan *d, const float *b, float *packed) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < d->blocks * d->panels; i++) {
        int64_t block = i / d->panels, j = i % d->panels;
        int64_t begin = depth_at(d, block), depth = depth_at(d, block + 1) - begin;
        int columns = (int)trmi_min_i64(nr, p->n - j * nr);
        float *to = panel_at(d, packed, block, j);
        if (p->transpose_b) {
            d->pack->pack_transposed(to, b + j * nr * p->b_stride + begin, TRM_FLOAT32, p->b_stride,
                                     depth, columns);
        } else {
            d->pack->pack(to, b + begin * p->b_stride + j * nr, TRM_FLOAT32, p->b_stride, depth,
                          columns);
        }
    }
}

/* Computes one register tile: `rows` rows of C from `row` on, the columns of panel j. */
static void run_tile(const trmi_dense_plan *d, const trmi_dense_tile *panel, const float *a,
                     const float *mask, float *c, int64_t j, int64_t row, int64_t rows,
                     int64_t depth_begin) {
    const trmi_dense_problem *p = &d->problem;
    trmi_dense_tile t = *panel;
    t.rows = (int)rows;
    t.a = a + row * p->k + depth_begin;
    t.c = c + row * p->n + j * d->isa->nr;
    t.mask = mask != NULL ? mask + row * p->n + j * d->isa->nr : NULL;
    d->isa->rows(&t);
}

/* Computes one task: a range of rows of C. Prefetches the rows of A of the next task. */
static void run_task(const trmi_dense_plan *d, const float *a, float *packed, const float *bias,
                     const float *mask, float *c, int64_t task) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr, begin = trmi_cut_at(p->m, d->tasks, task),
            rows = trmi_cut_at(p->m, d->tasks, task + 1) - begin;
    int64_t tiles = trmi_pieces(rows, d->isa->mr); /* 0 of a task without rows */
    int64_t end = trmi_cut_at(p->m, d->tasks, trmi_min_i64(task + 2, d->tasks));
    int64_t bytes = (end - begin - rows) * p->k * (int64_t)sizeof *a,
            all_tiles = d->blocks * d->panels * tiles;
    trmi_prefetch soon = trmi_prefetch_rows(a + (begin + rows) * p->k, bytes, 1, bytes);
    const int64_t soon_lines = trmi_pieces(soon.lines, trmi_max_i64(1, all_tiles));
    /* If all of B is in the first-level cache, C is written row by row: the hardware prefetcher
     * follows such a stream. */
    const bool by_rows = d->blocks == 1 && d->panels * nr * p->k <= NEAR_FLOATS;
    const int64_t outer = by_rows ? tiles : d->panels, inner = by_rows ? d->panels : tiles;
    for (int64_t block = 0; block < d->blocks; block++) {
        int64_t depth_begin = depth_at(d, block);
        bool last = block + 1 == d->blocks;
        for (int64_t n = 0; n < outer * inner; n++) {
            int64_t i = by_rows ? n / inner : n % inner, j = by_rows ? n % inner : n / inner;
            int64_t row = begin + trmi_cut_at(rows, tiles, i);
            const trmi_dense_tile t = {.columns = (int)trmi_min_i64(nr, p->n - j * nr),
                                       .k = depth_at(d, block + 1) - depth_begin,
                                       .a_stride = p->k,
                                       .b = panel_at(d, packed, block, j),
                                       .c_stride = p->n,
                                       .add = block > 0 || p->add,
                                       .bias = last && bias != NULL ? bias + j * nr : NULL,
                                       .relu = last && p->relu,
                                       .mask_stride = p->n,
                                       .soon = &soon,
                                       .soon_lines = soon_lines};
            run_tile(d, &t, a, last ? mask : NULL, c, j, row,
                     begin + trmi_cut_at(rows, tiles, i + 1) - row, depth_begin);
        }
    }
}

static void run_rows(const trmi_dense_plan *d, const float *a, const float *b, const float *bias,
                     const float *mask, float *c, float *packed) {
#pragma omp parallel num_threads(d->threads)
    {
        pack_b(d, b, packed);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < d->tasks; i++) {
            run_task(d, a, packed, bias, mask, c, i);
        }
    }
}

/* ---- few rows -------------------------------------------------------------------------------- */

/* Adds A B to `columns` columns of C; b and c point to the first of them. Each tile sums FEW_DEPTH
 * terms in registers before it adds them to C, which limits rounding errors when K is long. */
static void add_strip(const trmi_dense_plan *d, const float *a, const float *b, float *c,
                      int64_t columns) {
    const trmi_dense_problem *p = &d->problem;
    int64_t tiles = trmi_pieces(p->m, d->isa->few);
    for (int64_t k = 0; k < p->k; k += FEW_DEPTH) {
        const float *piece = b + k * p->n;
        for (int64_t i = 0; i < tiles; i++) {
            int64_t row = trmi_cut_at(p->m, tiles, i);
            const trmi_dense_tile t = {
                .rows = (int)(trmi_cut_at(p->m, tiles, i + 1) - row),
                .columns = (int)columns,
                .k = trmi_min_i64(FEW_DEPTH, p->k - k),
                .a = a + row * p->k + k,
                .a_stride = p->k,
                .b = piece,
                .b_stride = p->n,
                .c = c + row * p->n,
                .c_stride = p->n,
                .next = i == 0 && k + 2 * FEW_DEPTH <= p->k ? piece + FEW_DEPTH * p->n : NULL};
            d->isa->few_rows(&t);
        }
    }
}

/* Computes some columns of C with the form `few`: bias, sums, mask. */
static void run_strip(const trmi_dense_plan *d, const float *a, const float *b, const float *bias,
                      const float *mask, float *c, int64_t column, int64_t columns) {
    int64_t rows = d->problem.m, n = d->problem.n;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = column; j < column + columns; j++) {
            c[i * n + j] = bias != NULL ? bias[j] : 0;
        }
    }
    add_strip(d, a, b + column, c + column, columns);
    for (int64_t i = 0; mask != NULL && i < rows; i++) {
        for (int64_t j = column; j < column + columns; j++) {
            c[i * n + j] = mask[i * n + j] <= 0 ? 0 : c[i * n + j];
        }
    }
}

static void run_few(const trmi_dense_plan *d, const float *a, const float *b, const float *bias,
                    const float *mask, float *c) {
    int64_t n = d->problem.n, lines = trmi_pieces(n, LINE);
    int64_t strips = trmi_min_i64(lines, trmi_round_up(trmi_pieces(n, FEW_COLUMNS), d->threads));
#pragma omp parallel for schedule(static) num_threads(d->threads)
    for (int64_t i = 0; i < strips; i++) {
        int64_t begin = trmi_cut_at(lines, strips, i) * LINE,
                end = trmi_min_i64(n, trmi_cut_at(lines, strips, i + 1) * LINE);
        run_strip(d, a, b, bias, mask, c, begin, end - begin);
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Plans the form `weights`: how k is split and C is cut into blocks. Splits depend on the shape
 * alone, so that the bits do not depend on the threads. Returns the bytes of scratch. */
static int64_t prepare_weights(trmi_dense_plan *d) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr, most = trmi_max_i64(1, SUMS_FLOATS / (p->m * p->n));
    d->splits = trmi_max_i64(1, trmi_min_i64(trmi_min_i64(SPLITS, most), p->k / SPLIT_DEPTH));
    d->splits = p->add || p->any_rows ? 1 : d->splits; /* sums of splits overwrite C */
    d->blocks = trmi_pieces(trmi_pieces(p->k, d->splits), CHUNK);
    d->n_blocks = trmi_pieces(p->n, BLOCK);
    d->m_blocks = trmi_pieces(p->m, BLOCK);
    while (d->splits * d->n_blocks * d->m_blocks < d->threads &&
           p->m / (d->m_blocks + 1) >= 2 * d->isa->mr) {
        d->m_blocks++; /* B is packed for each block: only if threads would otherwise be idle */
    }
    d->depth = trmi_pieces(trmi_pieces(p->k, d->splits), d->blocks) + 1;
    d->a_floats = d->depth * TRMI_TILE_COLS;
    d->shared_floats = d->splits > 1 ? trmi_round_up(d->splits * p->m * p->n, 16) : 0;
    d->thread_floats =
        trmi_round_up(d->a_floats + trmi_pieces(d->panels, d->n_blocks) * nr * d->depth, 16);
    return (d->shared_floats + d->thread_floats * d->threads) * 4;
}

/* Returns the first column of column block i, a multiple of the panel's width. */
static int64_t column_cut(const trmi_dense_plan *d, int64_t i) {
    return trmi_min_i64(d->problem.n, trmi_cut_at(d->panels, d->n_blocks, i) * d->isa->nr);
}

/* Computes one chunk of k: packs B's panels, then A's panels one at a time, each of which stays in
 * the first-level cache. `next`: the depth of the following chunk, which is prefetched; 0 =
 * none. */
static void run_chunk(const trmi_dense_plan *d, const float *a, const float *b, int64_t depth,
                      int64_t next, int64_t m, int64_t n, float *c, bool add, float *room) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr, tiles = trmi_pieces(m, d->isa->mr);
    float *panel = room, *packed = room + d->a_floats;
    for (int64_t j = 0; j < n; j += nr) {
        d->pack->pack(packed + j * depth, b + j, TRM_FLOAT32, p->n, depth,
                      (int)trmi_min_i64(nr, n - j));
    }
    trmi_prefetch soon[] = {trmi_prefetch_rows(a + depth * p->m, p->m * 4, next, m * 4),
                            trmi_prefetch_rows(b + depth * p->n, p->n * 4, next, n * 4)};
    int64_t lines = trmi_pieces(soon[0].lines + soon[1].lines, tiles * trmi_pieces(n, nr));
    for (int64_t i = 0; i < tiles; i++) {
        int64_t row = trmi_cut_at(m, tiles, i);
        trmi_dense_tile t = {.k = depth,
                             .rows = (int)(trmi_cut_at(m, tiles, i + 1) - row),
                             .a = panel,
                             .a_stride = TRMI_TILE_COLS,
                             .c_stride = p->n,
                             .add = add,
                             .soon_lines = lines};
        d->isa->take(panel, a + row, p->m, depth, (int)trmi_min_i64(TRMI_TILE_COLS, m - row));
        for (int64_t j = 0; j < n; j += nr) {
            t.columns = (int)trmi_min_i64(nr, n - j);
            t.b = packed + j * depth;
            t.c = c + row * p->n + j;
            t.soon = trmi_prefetch_next(soon, 2);
            d->isa->columns(&t);
        }
    }
}

/* Computes one task of `weights`: one block of C over one split of k, chunk by chunk. */
static void run_block(const trmi_dense_plan *d, const float *a, const float *b, float *sums,
                      int64_t task, float *room) {
    const trmi_dense_problem *p = &d->problem;
    int64_t per_split = d->m_blocks * d->n_blocks, split = task / per_split,
            rest = task % per_split;
    int64_t m_block = rest / d->n_blocks, row = trmi_cut_at(p->m, d->m_blocks, m_block);
    int64_t rows = trmi_cut_at(p->m, d->m_blocks, m_block + 1) - row;
    int64_t column = column_cut(d, rest % d->n_blocks),
            columns = column_cut(d, rest % d->n_blocks + 1) - column;
    int64_t begin = trmi_cut_at(p->k, d->splits, split),
            depth = trmi_cut_at(p->k, d->splits, split + 1) - begin;
    for (int64_t i = 0; i < d->blocks; i++) {
        int64_t first = begin + trmi_cut_at(depth, d->blocks, i),
                last = begin + trmi_cut_at(depth, d->blocks, i + 1);
        int64_t next = i + 1 < d->blocks ? begin + trmi_cut_at(depth, d->blocks, i + 2) - last : 0;
        run_chunk(d, a + first * p->m + row, b + first * p->n + column, last - first, next, rows,
                  columns, sums + (split * p->m + row) * p->n + column, i > 0 || p->add, room);
    }
}

static void run_weights(const trmi_dense_plan *d, const float *a, const float *b, float *c,
                        float *scratch) {
    int64_t total = d->problem.m * d->problem.n, parts = trmi_pieces(total, REDUCE);
    float *sums = d->splits > 1 ? scratch : c;
#pragma omp parallel num_threads(d->threads)
    {
        float *room = scratch + d->shared_floats + d->thread_floats * omp_get_thread_num();
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < d->splits * d->m_blocks * d->n_blocks; t++) {
            run_block(d, a, b, sums, t, room);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < (d->splits > 1 ? parts : 0); i++) {
            int64_t at = i * REDUCE;
            d->pack->sum(c + at, sums + at, total, d->splits, trmi_min_i64(REDUCE, total - at));
        }
    }
}

/* ---- both ------------------------------------------------------------------------------------ */

int64_t trmi_dense_prepare(const trmi_dense_problem *problem, int threads, trmi_dense_plan *d) {
    *d = (trmi_dense_plan){
        .problem = *problem, .isa = trmi_dense(), .pack = trmi_gemm(), .threads = threads};
    d->panels = trmi_pieces(problem->n, d->isa->nr);
    d->few = is_few(problem);
    if (d->few) {
        return 0;
    }
    return problem->transpose_a ? prepare_weights(d) : prepare_rows(d);
}

void trmi_dense_run(const trmi_dense_plan *d, const float *a, const float *b, const float *bias,
                    const float *mask, float *c, void *scratch) {
    if (d->few) {
        run_few(d, a, b, bias, mask, c);
    } else if (d->problem.transpose_a) {
        run_weights(d, a, b, c, scratch);
    } else {
        run_rows(d, a, b, bias, mask, c, scratch);
    }
}
