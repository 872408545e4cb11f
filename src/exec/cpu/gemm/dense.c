/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of layers (dense.h), in three forms:
 *
 *   rows      threads share the columns of C, or the rows. A thread packs a group of B's
 *             panels [k][nr], which takes half of the second-level cache, and takes all its rows of
 *             A through them, tile by tile. Where B lies by rows of k the first tile reads it
 *             there, and packs it meanwhile. The rows of a tile are copied first, because rows as
 *             they lie have conflicts in the first-level cache, where a block of k of a tile and of
 *             a panel fit. The sums of the last block are finished in registers: bias, ReLU, mask
 *   few       nothing is packed: a few rows of B at a time, which stay in the first-level cache for all rows of A; threads share
 *             the columns
 *   weights   k is the batch: split into a few parts with sums of their own, added in order at the end; a part
 *             goes by chunks, of which B's panels and, one at a time, A's are packed
 *
 * With pairs, packing and copying round to bfloat16, two numbers of k lie in each float of a panel
 * or row, and an odd k is filled up with a zero.
 *
 * A C in bfloat16 is rounded as the last block of k ends; the sums of a group are in the scratch
 * until then.
 *
 *   scratch:  [ per thread: A, B, sums of a group ]      [ sums of the splits | per thread: A, B ]
 */
#include "exec/cpu/gemm/dense.h"

#include "base/checked.h"
#include "base/cpu.h"

#include <omp.h>
#include <string.h>

enum {
    PACK_ROWS = 16, /* of B, packed for all panels of a group */
    PACK_COST = 16, /* of a number of B, READ_COST of A: in multiply-adds */
    READ_COST = 4,
    NEAR_SHARE = 6,     /* of the multiply-adds: what threads lose that write near each other */
    NEAR_FLOATS = 1024, /* 4 KB: the distance within which they do */
    SUMS_ROWS = 1024,   /* rows of a task whose sums wait for the last block of k, at most */
    CHUNK = 256,        /* k of packed pieces */
    BLOCK = 1024,       /* columns and rows of C in a task at most */
    SPLIT_DEPTH = 512,  /* k of a split at least */
    SPLITS = 8,
    SUMS_FLOATS = 1 << 19, /* of all splits: more would not stay in the caches */
    REDUCE = 8192,
    LEAST_ROWS = 256,
    FEW_LEAST = 8,        /* rows: fewer leave half of a register tile empty */
    FEW_MOST = 32,        /* rows: with more, packing B is faster */
    FEW_FLOATS = 1 << 18, /* of B: more than second-level caches hold */
    FEW_DEPTH = 16,       /* rows of B */
    FEW_COLUMNS = 256,
    LINE = 16 /* floats */
};

const trmi_dense_isa *trmi_dense(void) { return TRMI_CPU_CHOICE(&trmi_dense); }

const trmi_dense_isa *trmi_dense_pairs(void) {
#if defined(__x86_64__)
    if (trmi_cpu()->avx512_bf16) {
        return &trmi_dense_avx512bf16;
    }
#endif
    return NULL;
}

/* Returns whether the form `few` is used: 8 to 32 rows, a B that exceeds the second-level cache. */
static bool is_few(const trmi_dense_problem *p) {
    bool plain = !p->any_rows && !p->transpose_a && !p->transpose_b && !p->relu && !p->add &&
                 !p->pairs && p->a_block == 0 && p->b_stride == p->n;
    return plain && p->m >= FEW_LEAST && p->m <= FEW_MOST && p->n >= 4 * LINE &&
           p->k * p->n >= FEW_FLOATS;
}

bool trmi_dense_fits(const trmi_dense_problem *p) {
    if (is_few(p)) {
        return true;
    }
    return p->transpose_a ? p->k >= LEAST_ROWS && !p->transpose_b : p->m >= LEAST_ROWS;
}

/* Returns where block `block` of k begins, if there are `blocks`. They are those of
 * conv_geometry.c, so that either kernel computes the same bits: of pairs in whole vectors, which
 * packing turns whole. */
static int64_t cut_depth(const trmi_dense_plan *d, int64_t k, int64_t blocks, int64_t block) {
    int64_t vectors = d->pair == 2 ? 2 * TRMI_TILE_COLS : 2;
    int64_t unit = k % vectors == 0 ? vectors : k % 2 == 0 ? 2 : 1, units = k / unit;
    return (units / blocks * block + trmi_min_i64(block, units % blocks)) * unit;
}

/* Returns into how many blocks `k` is cut. */
static int64_t count_blocks(const trmi_dense_plan *d, int64_t k) {
    return trmi_pieces(k, TRMI_TILE_K * d->pair);
}

/* Returns where block `block` of k begins; each block of A is cut by itself. */
static int64_t depth_at(const trmi_dense_plan *d, int64_t block) {
    const trmi_dense_problem *p = &d->problem;
    if (p->a_block == 0) {
        return cut_depth(d, p->k, d->blocks, block);
    }
    int64_t each = count_blocks(d, p->a_block), at = block / each * p->a_block;
    int64_t k = trmi_min_i64(p->a_block, p->k - at);
    return k > 0 ? at + cut_depth(d, k, count_blocks(d, k), block % each) : p->k;
}

/* Returns the index of element (row, k) of A, and in *stride the elements between rows there. */
static int64_t index_of_a(const trmi_dense_plan *d, int64_t row, int64_t k, int64_t *stride) {
    const trmi_dense_problem *p = &d->problem;
    int64_t block = p->a_block == 0 ? 0 : k / p->a_block, at = block * p->a_block;
    *stride = p->a_block == 0 ? p->k : trmi_min_i64(p->a_block, p->k - at);
    return block * p->a_step + row * *stride + k - at;
}

/* Returns how many floats of a panel's column, or of a row of A, hold `depth` numbers. */
static int64_t count_lanes(const trmi_dense_plan *d, int64_t depth) {
    return trmi_pieces(depth, d->pair);
}

/* Returns the address of an element. */
static const void *element_at(const void *base, int64_t bytes, int64_t index) {
    return (const char *)base + index * bytes;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Chooses how C is cut for the threads, into m_blocks times n_blocks. Counts the cost of the
 * largest block for each k: its multiply-adds, packing its columns of B, reading its rows of A.
 * Threads whose columns of C lie within a page lose more, probably because a CPU prefetches lines
 * of the pages that it writes, which the other thread is writing (sums of a C in bfloat16 are in
 * memory of the thread). Packing costs little where tiles do it. */
static void cut_rows(trmi_dense_plan *d) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr, least = 0;
    int64_t most = trmi_min_i64(d->threads, trmi_pieces(p->m, d->isa->mr)); /* whole tiles */
    int64_t pack_cost = p->transpose_b || p->b_type != TRM_FLOAT32 ? PACK_COST : READ_COST;
    for (int64_t m_blocks = 1; m_blocks <= most; m_blocks++) {
        int64_t n_blocks = d->threads / m_blocks;
        int64_t rows = trmi_pieces(p->m, m_blocks), columns = trmi_pieces(d->panels, n_blocks) * nr;
        int64_t cost = rows * columns + pack_cost * columns + READ_COST * rows;
        if (n_blocks > 1 && columns < NEAR_FLOATS && p->c_type != TRM_BFLOAT16) {
            cost += rows * columns / NEAR_SHARE;
        }
        if (m_blocks == 1 || cost < least) {
            least = cost;
            d->m_blocks = m_blocks;
            d->n_blocks = n_blocks;
        }
    }
}

/* Plans the form `rows`. Returns the bytes of scratch: for each thread rows of A and panels of
 * B. */
static int64_t prepare_rows(trmi_dense_plan *d) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr;
    cut_rows(d);
    int64_t whole = p->a_block == 0 ? p->k : p->a_block; /* cut alike */
    d->blocks = p->k / whole * count_blocks(d, whole) + count_blocks(d, p->k % whole);
    d->depth = trmi_min_i64(p->k, p->a_block > 0 ? TRMI_TILE_K * d->pair : depth_at(d, 1)) + 1;
    int64_t group_floats = trmi_cpu()->l2_bytes / 2 / (int64_t)sizeof(float),
            panel = count_lanes(d, d->depth) * nr;
    int64_t most = trmi_max_i64(1, group_floats / panel),
            mine = trmi_pieces(d->panels, d->n_blocks);
    d->group = trmi_pieces(mine, trmi_pieces(mine, most));
    d->a_floats = d->isa->mr * TRMI_TILE_STRIDE;
    d->b_floats = trmi_round_up(d->group * panel, LINE);
    int64_t sums = 0;
    if (p->c_type == TRM_BFLOAT16 && d->blocks > 1) {
        d->m_blocks *= trmi_pieces(trmi_pieces(p->m, d->m_blocks), SUMS_ROWS);
        d->sums_stride = d->group * nr + LINE; /* no power of two */
        sums = trmi_pieces(p->m, d->m_blocks) * d->sums_stride;
    }
    d->thread_floats = trmi_round_up(d->a_floats + d->b_floats + sums, LINE);
    return d->thread_floats * d->threads * 4;
}

/* Panels [first, first + count) of B over one block of k: they are packed together. */
typedef struct group {
    int64_t block, first, count;
} group;

/* Returns the columns of B in a group; its last panel may have fewer than nr. */
static int64_t group_columns(const trmi_dense_plan *d, const group *g) {
    int64_t nr = d->isa->nr;
    return trmi_min_i64(g->count * nr, d->problem.n - g->first * nr);
}

/* Returns whether rows of A that several panels read are copied side by side first. */
static bool copies_rows(const trmi_dense_plan *d, const group *g) {
    return g->count > 1 || d->problem.pairs;
}

/* Returns whether the first tile of rows of a panel packs it: tiles read rows of B in float32,
 * whole panels, as they lie. */
static bool packs_itself(const trmi_dense_plan *d, int64_t columns, int64_t depth) {
    const trmi_dense_problem *p = &d->problem;
    return p->b_type == TRM_FLOAT32 && !p->transpose_b && columns == d->isa->nr &&
           depth % d->pair == 0;
}

/* Packs the panels of a group that no tile packs. Rows of B are read in the order in which they
 * lie, a few of them for all panels. */
static void pack_group(const trmi_dense_plan *d, const void *b, const group *g, float *packed) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr, begin = depth_at(d, g->block),
            depth = depth_at(d, g->block + 1) - begin;
    int64_t piece = p->transpose_b ? depth : PACK_ROWS;
    for (int64_t k = 0; k < depth; k += piece) {
        int64_t rows = trmi_min_i64(piece, depth - k);
        for (int64_t i = 0; i < g->count; i++) {
            int64_t column = (g->first + i) * nr;
            int columns = (int)trmi_min_i64(nr, p->n - column);
            if (copies_rows(d, g) && packs_itself(d, columns, depth)) {
                continue;
            }
            float *to = packed + (i * count_lanes(d, depth) + k / d->pair) * nr;
            int64_t at =
                p->transpose_b ? column * p->b_stride + begin : (begin + k) * p->b_stride + column;
            const void *from = element_at(b, d->b_bytes, at);
            if (p->transpose_b) {
                d->pack->pack_transposed(to, from, p->b_type, p->b_stride, depth, columns);
            } else {
                d->pack->pack(to, from, p->b_type, p->b_stride, rows, columns);
            }
        }
    }
}

/* Returns the prefetch of what pack_group reads of B for a group. */
static trmi_prefetch prefetch_group(const trmi_dense_plan *d, const void *b, const group *g) {
    const trmi_dense_problem *p = &d->problem;
    int64_t begin = depth_at(d, g->block), depth = depth_at(d, g->block + 1) - begin,
            columns = group_columns(d, g), column = g->first * d->isa->nr;
    int64_t at = p->transpose_b ? column * p->b_stride + begin : begin * p->b_stride + column,
            rows = p->transpose_b ? columns : depth, each = p->transpose_b ? depth : columns;
    return trmi_prefetch_rows(element_at(b, d->b_bytes, at), p->b_stride * d->b_bytes, rows,
                              each * d->b_bytes);
}

/* Copies rows of A side by side; of pairs that are not whole, the second number is 0. */
static void copy_rows(const trmi_dense_plan *d, const void *from, int64_t stride, int64_t rows,
                      int64_t depth, float *own) {
    d->pack->widen_rows(own, TRMI_TILE_STRIDE, from, d->problem.a_type, stride, rows, depth);
    for (int64_t r = 0; r < rows && depth % d->pair != 0; r++) {
        memset((char *)(own + r * TRMI_TILE_STRIDE) + 2 * depth, 0, 2);
    }
}

/* Sets where the sums of a tile go: to C or, where C is bfloat16, to the scratch until the last
 * block of k. `row` and `column` are those of the tile in C, `begin` the first row of the task. */
static void set_result(const trmi_dense_plan *d, void *c, float *sums, const group *g,
                       int64_t begin, int64_t row, int64_t column, trmi_dense_tile *t) {
    const trmi_dense_problem *p = &d->problem;
    if (p->c_type != TRM_BFLOAT16) {
        t->c = (float *)c + row * p->n + column;
        t->c_stride = p->n;
        return;
    }
    t->c = sums + (row - begin) * d->sums_stride + column - g->first * d->isa->nr;
    t->c_stride = d->sums_stride;
    if (g->block + 1 == d->blocks) {
        t->rounded = (uint16_t *)c + row * p->n + column;
        t->rounded_stride = p->n;
    }
}

/* Computes the rows [begin, end) of a group. `room`: the thread's scratch, with the packed group.
 * `ahead`: of the group after this one. The tiles prefetch the next tile's rows of A, then a part
 * of `ahead`. */
static void run_group(const trmi_dense_plan *d, const void *a, const void *b, const float *bias,
                      const float *mask, void *c, const group *g, int64_t begin, int64_t end,
                      float *room, trmi_prefetch ahead) {
    float *own = room, *packed = room + d->a_floats, *sums = packed + d->b_floats;
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr, from = depth_at(d, g->block), depth = depth_at(d, g->block + 1) - from,
            tiles = trmi_pieces(end - begin, d->isa->mr);
    /* Bias, ReLU and mask belong to the complete sum. */
    bool last = g->block + 1 == d->blocks, copies = copies_rows(d, g);
    trmi_prefetch soon[] = {{0}, ahead};
    int64_t row_lines = trmi_pieces(depth * d->a_bytes, LINE * 4);
    int64_t lines = trmi_pieces((end - begin) * row_lines + ahead.lines, tiles * g->count);
    for (int64_t i = 0; i < tiles; i++) {
        int64_t row = begin + trmi_cut_at(end - begin, tiles, i),
                next = begin + trmi_cut_at(end - begin, tiles, i + 1);
        int64_t after = begin + trmi_cut_at(end - begin, tiles, trmi_min_i64(i + 2, tiles));
        int64_t stride, at = index_of_a(d, row, from, &stride);
        const void *rows = element_at(a, d->a_bytes, at);
        soon[0] = trmi_prefetch_rows(element_at(rows, d->a_bytes, (next - row) * stride),
                                     stride * d->a_bytes, after - next, depth * d->a_bytes);
        if (copies) {
            copy_rows(d, rows, stride, next - row, depth, own);
        }
        for (int64_t j = 0; j < g->count; j++) {
            int64_t column = (g->first + j) * nr;
            trmi_dense_tile t = {.rows = (int)(next - row),
                                 .columns = (int)trmi_min_i64(nr, p->n - column),
                                 .k = count_lanes(d, depth),
                                 .a = copies ? own : rows,
                                 .a_stride = copies ? TRMI_TILE_STRIDE : stride,
                                 .b = packed + j * nr * count_lanes(d, depth),
                                 .add = g->block > 0 || p->add,
                                 .bias = last && bias != NULL ? bias + column : NULL,
                                 .relu = last && p->relu,
                                 .mask = last && mask != NULL ? mask + row * p->n + column : NULL,
                                 .mask_stride = p->n,
                                 .soon = trmi_prefetch_next(soon, 2),
                                 .soon_lines = lines};
            set_result(d, c, sums, g, begin, row, column, &t);
            if (i == 0 && copies && packs_itself(d, t.columns, depth)) {
                t.unpacked = (const float *)b + from * p->b_stride + column;
                t.b_stride = p->b_stride;
                t.panel = packed + j * nr * t.k;
            }
            d->isa->rows(&t);
        }
    }
}

/* Returns group `i` of a task that has `panels` panels from `first` on: block by block of k for the
 * same panels. */
static group group_at(const trmi_dense_plan *d, int64_t first, int64_t panels, int64_t i) {
    int64_t groups = trmi_pieces(panels, d->group), at = i / d->blocks;
    return (group){.block = i % d->blocks,
                   .first = first + trmi_cut_at(panels, groups, at),
                   .count = trmi_cut_at(panels, groups, at + 1) - trmi_cut_at(panels, groups, at)};
}

/* Computes one task: a block of C, by groups of panels. */
static void run_task(const trmi_dense_plan *d, const void *a, const void *b, const float *bias,
                     const float *mask, void *c, int64_t task, float *room) {
    const trmi_dense_problem *p = &d->problem;
    int64_t m_block = task / d->n_blocks, n_block = task % d->n_blocks;
    int64_t begin = trmi_cut_at(p->m, d->m_blocks, m_block),
            end = trmi_cut_at(p->m, d->m_blocks, m_block + 1);
    int64_t first = trmi_cut_at(d->panels, d->n_blocks, n_block),
            panels = trmi_cut_at(d->panels, d->n_blocks, n_block + 1) - first;
    int64_t count = trmi_pieces(panels, d->group) * d->blocks;
    for (int64_t i = 0; i < count; i++) {
        group g = group_at(d, first, panels, i);
        trmi_prefetch ahead = {0};
        if (i + 1 < count) {
            group next = group_at(d, first, panels, i + 1);
            ahead = prefetch_group(d, b, &next);
        }
        pack_group(d, b, &g, room + d->a_floats);
        run_group(d, a, b, bias, mask, c, &g, begin, end, room, ahead);
    }
}

/* Runs the form `rows`: a task is a block of rows times a block of columns, whose part of B its
 * thread packs for itself. */
static void run_rows(const trmi_dense_plan *d, const void *a, const void *b, const float *bias,
                     const float *mask, void *c, float *scratch) {
#pragma omp parallel for schedule(static) num_threads(d->threads)
    for (int64_t i = 0; i < d->m_blocks * d->n_blocks; i++) {
        run_task(d, a, b, bias, mask, c, i, scratch + d->thread_floats * omp_get_thread_num());
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

/* Runs the form `few`: strips of whole cache lines, so that no two threads write one line of C. */
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

/* Cuts C further until the blocks are a multiple of the threads, or many. Each block packs its
 * columns of B and copies its rows of A, so the longer side is cut, but columns not within a page
 * (cut_rows). */
static void balance_blocks(trmi_dense_plan *d) {
    const trmi_dense_problem *p = &d->problem;
    for (;;) {
        int64_t tasks = d->splits * d->n_blocks * d->m_blocks;
        int64_t rows = p->m / (d->m_blocks + 1), columns = d->panels / (d->n_blocks + 1);
        bool by_rows = rows >= 2 * d->isa->mr, by_columns = columns >= 2;
        if (tasks % d->threads == 0 || tasks >= 4 * d->threads || !(by_rows || by_columns)) {
            return;
        }
        if (by_rows &&
            (!by_columns || rows >= columns * d->isa->nr || columns * d->isa->nr < NEAR_FLOATS)) {
            d->m_blocks++;
        } else {
            d->n_blocks++;
        }
    }
}

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
    balance_blocks(d);
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
static void run_chunk(const trmi_dense_plan *d, const void *a, const void *b, int64_t depth,
                      int64_t next, int64_t m, int64_t n, float *c, bool add, float *room) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr, tiles = trmi_pieces(m, d->isa->mr), long_k = count_lanes(d, depth);
    float *panel = room, *packed = room + d->a_floats;
    for (int64_t j = 0; j < n; j += nr) {
        if (packs_itself(d, trmi_min_i64(nr, n - j), depth)) {
            continue;
        }
        d->pack->pack(packed + j * long_k, element_at(b, d->b_bytes, j), p->b_type, p->n, depth,
                      (int)trmi_min_i64(nr, n - j));
    }
    /* the tiles prefetch the next chunk, equal shares of it */
    trmi_prefetch soon[] = {trmi_prefetch_rows(element_at(a, d->a_bytes, depth * p->m),
                                               p->m * d->a_bytes, next, m * d->a_bytes),
                            trmi_prefetch_rows(element_at(b, d->b_bytes, depth * p->n),
                                               p->n * d->b_bytes, next, n * d->b_bytes)};
    int64_t lines = trmi_pieces(soon[0].lines + soon[1].lines, tiles * trmi_pieces(n, nr));
    for (int64_t i = 0; i < tiles; i++) {
        int64_t row = trmi_cut_at(m, tiles, i);
        trmi_dense_tile t = {.k = long_k,
                             .rows = (int)(trmi_cut_at(m, tiles, i + 1) - row),
                             .a = panel,
                             .a_stride = TRMI_TILE_COLS,
                             .b_stride = p->n,
                             .c_stride = p->n,
                             .add = add,
                             .soon_lines = lines};
        d->isa->take(panel, element_at(a, d->a_bytes, row), p->m, depth,
                     (int)trmi_min_i64(TRMI_TILE_COLS, m - row));
        for (int64_t j = 0; j < n; j += nr) {
            t.columns = (int)trmi_min_i64(nr, n - j);
            t.b = packed + j * long_k;
            t.c = c + row * p->n + j;
            t.soon = trmi_prefetch_next(soon, 2);
            bool packs = i == 0 && packs_itself(d, t.columns, depth);
            t.unpacked = packs ? (const float *)b + j : NULL;
            t.panel = packed + j * long_k;
            d->isa->columns(&t);
        }
    }
}

/* Computes one task of `weights`: one block of C over one split of k, chunk by chunk. Neighbours
 * among the tasks, which run at the same time, have the same columns of other rows. */
static void run_block(const trmi_dense_plan *d, const void *a, const void *b, float *sums,
                      int64_t task, float *room) {
    const trmi_dense_problem *p = &d->problem;
    int64_t per_split = d->m_blocks * d->n_blocks, split = task / per_split,
            rest = task % per_split;
    int64_t m_block = rest % d->m_blocks, n_block = rest / d->m_blocks,
            row = trmi_cut_at(p->m, d->m_blocks, m_block);
    int64_t rows = trmi_cut_at(p->m, d->m_blocks, m_block + 1) - row;
    int64_t column = column_cut(d, n_block), columns = column_cut(d, n_block + 1) - column;
    int64_t begin = trmi_cut_at(p->k, d->splits, split),
            depth = trmi_cut_at(p->k, d->splits, split + 1) - begin;
    for (int64_t i = 0; i < d->blocks; i++) {
        int64_t first = begin + trmi_cut_at(depth, d->blocks, i),
                last = begin + trmi_cut_at(depth, d->blocks, i + 1);
        int64_t next = i + 1 < d->blocks ? begin + trmi_cut_at(depth, d->blocks, i + 2) - last : 0;
        run_chunk(d, element_at(a, d->a_bytes, first * p->m + row),
                  element_at(b, d->b_bytes, first * p->n + column), last - first, next, rows,
                  columns, sums + (split * p->m + row) * p->n + column, i > 0 || p->add, room);
    }
}

/* Runs a product whose depth is long beside its result (a weight gradient): the depth is cut
 * into splits with sums of their own, which are then added in order. */
static void run_weights(const trmi_dense_plan *d, const void *a, const void *b, float *c,
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

/* Contract in dense.h. The form depends on shapes, types and threads only, so the planner's call
 * and that of bind agree. */
int64_t trmi_dense_prepare(const trmi_dense_problem *problem, int threads, trmi_dense_plan *d) {
    *d = (trmi_dense_plan){.problem = *problem,
                           .isa = problem->pairs ? trmi_dense_pairs() : trmi_dense(),
                           .pack = problem->pairs ? trmi_gemm_pairs() : trmi_gemm(),
                           .pair = problem->pairs ? 2 : 1,
                           .a_bytes = problem->a_type == TRM_BFLOAT16 ? 2 : 4,
                           .b_bytes = problem->b_type == TRM_BFLOAT16 ? 2 : 4,
                           .threads = threads};
    d->problem.a_type = problem->a_type == TRM_BFLOAT16 ? TRM_BFLOAT16 : TRM_FLOAT32;
    d->problem.b_type = problem->b_type == TRM_BFLOAT16 ? TRM_BFLOAT16 : TRM_FLOAT32;
    d->problem.c_type = problem->c_type == TRM_BFLOAT16 ? TRM_BFLOAT16 : TRM_FLOAT32;
    d->panels = trmi_pieces(problem->n, d->isa->nr);
    d->few = is_few(problem);
    if (d->few) {
        return 0;
    }
    return problem->transpose_a ? prepare_weights(d) : prepare_rows(d);
}

void trmi_dense_run(const trmi_dense_plan *d, const void *a, const void *b, const float *bias,
                    const float *mask, void *c, void *scratch) {
    if (d->few) {
        run_few(d, a, b, bias, mask, c);
    } else if (d->problem.transpose_a) {
        run_weights(d, a, b, c, scratch);
    } else {
        run_rows(d, a, b, bias, mask, c, scratch);
    }
}
