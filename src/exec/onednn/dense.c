/* Layers' products:
 *
 *   rows      B packed once into panels [k][nr], by all threads; then blocks of rows of A as they lie, tile by
 *             tile, each tile's sums finished in registers: bias, ReLU, mask
 *   weights   k is the batch: split into a few parts with sums of their own, added in order at the end; a part
 *             goes by chunks, of which A's columns and B's panels are packed
 *
 *   scratch:  [ packed B ]      [ sums of the splits | per thread: A, B ]
 */
#include "exec/onednn/dense.h"

#include "base/checked.h"
#include "base/cpu.h"

#include <omp.h>
#include <string.h>

enum {
    DEPTH_MAX = 768,       /* k of a panel: it stays in the second-level cache */
    TASK_TILES = 8,
    CHUNK = 256,           /* k of packed pieces: they and the next ones as they lie fit the second-level cache */
    BLOCK = 512,           /* columns and rows of C in a task */
    SPLIT_DEPTH = 512,     /* k of a split at least */
    SPLITS = 8,
    SUMS_FLOATS = 1 << 19, /* of all splits: more would not stay in the caches */
    REDUCE = 8192,
    LEAST_ROWS = 256
};

const trmi_dense_isa *trmi_dense(void) { return TRMI_CPU_CHOICE(&trmi_dense); }

static int64_t parts_of(int64_t count, int64_t most) { return (count + most - 1) / most; }
/* Part `i` of `parts` nearly equal ones begins here. */
static int64_t cut(int64_t count, int64_t parts, int64_t i) { return count * i / parts; }

bool trmi_dense_fits(const trmi_dense_problem *p) {
    return p->transpose_a ? p->k >= LEAST_ROWS && !p->transpose_b : p->m >= LEAST_ROWS;
}

/* Rows that will be needed soon, asked for a slice at a time between tiles. */
typedef struct ahead {
    const float *base;
    int64_t stride, rows, columns;
} ahead;

static void ask_for(const ahead *p, int64_t part, int64_t parts) {
    for (int64_t r = cut(p->rows, parts, part); r < cut(p->rows, parts, part + 1); r++) {
        for (int64_t j = 0; j < p->columns; j += 16) {
            __builtin_prefetch(p->base + r * p->stride + j, 0, 2);
        }
    }
}

/* ---- rows ---------------------------------------------------------------------------------------- */

static int64_t prepare_rows(trmi_dense_plan *d) {
    const trmi_dense_problem *p = &d->problem;
    int64_t mr = d->isa->mr, share = trmi_round_up(parts_of(p->m, 4 * d->threads), mr);
    d->blocks = parts_of(p->k, DEPTH_MAX);
    d->task_rows = trmi_max_i64(2 * mr, trmi_min_i64(TASK_TILES * mr, share));
    d->tasks = trmi_round_up(parts_of(p->m, d->task_rows), d->threads); /* so that all end together */
    d->shared_floats = d->panels * d->isa->nr * p->k;
    return d->shared_floats * 4;
}

static float *panel_at(const trmi_dense_plan *d, float *packed, int64_t block, int64_t panel) {
    int64_t begin = cut(d->problem.k, d->blocks, block), end = cut(d->problem.k, d->blocks, block + 1);
    return packed + (d->panels * begin + panel * (end - begin)) * d->isa->nr;
}

static void pack_b(const trmi_dense_plan *d, const float *b, float *packed) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < d->blocks * d->panels; i++) {
        int64_t block = i / d->panels, j = i % d->panels;
        int64_t begin = cut(p->k, d->blocks, block), depth = cut(p->k, d->blocks, block + 1) - begin;
        int columns = (int)trmi_min_i64(nr, p->n - j * nr);
        float *to = panel_at(d, packed, block, j);
        if (p->transpose_b) {
            d->pack->pack_transposed(to, b + j * nr * p->b_stride + begin, TRM_FLOAT32, p->b_stride, depth, columns);
        } else {
            d->pack->pack(to, b + begin * p->b_stride + j * nr, TRM_FLOAT32, p->b_stride, depth, columns);
        }
    }
}

static void run_task(const trmi_dense_plan *d, const float *a, float *packed, const float *bias,
                     const float *mask, float *c, int64_t task) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr, begin = cut(p->m, d->tasks, task), rows = cut(p->m, d->tasks, task + 1) - begin;
    int64_t tiles = parts_of(rows, d->isa->mr); /* 0 of a task without rows */
    int64_t end = cut(p->m, d->tasks, trmi_min_i64(task + 2, d->tasks));
    ahead soon = {a + (begin + rows) * p->k, p->k, end - begin - rows, p->k};
    for (int64_t block = 0; block < d->blocks; block++) {
        int64_t depth_begin = cut(p->k, d->blocks, block);
        bool last = block + 1 == d->blocks;
        for (int64_t j = 0; j < d->panels; j++) {
            ask_for(&soon, block * d->panels + j, d->blocks * d->panels);
            trmi_dense_tile t = {.columns = (int)trmi_min_i64(nr, p->n - j * nr),
                                 .k = cut(p->k, d->blocks, block + 1) - depth_begin,
                                 .a_stride = p->k,
                                 .b = panel_at(d, packed, block, j),
                                 .c_stride = p->n,
                                 .add = block > 0 || p->add,
                                 .bias = last && bias != NULL ? bias + j * nr : NULL,
                                 .relu = last && p->relu,
                                 .mask_stride = p->n};
            for (int64_t i = 0; i < tiles; i++) {
                int64_t row = begin + cut(rows, tiles, i);
                t.rows = (int)(begin + cut(rows, tiles, i + 1) - row);
                t.a = a + row * p->k + depth_begin;
                t.c = c + row * p->n + j * nr;
                t.mask = last && mask != NULL ? mask + row * p->n + j * nr : NULL;
                d->isa->rows(&t);
            }
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

/* ---- weights ------------------------------------------------------------------------------------- */

static int64_t prepare_weights(trmi_dense_plan *d) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr, most = trmi_max_i64(1, SUMS_FLOATS / (p->m * p->n));
    d->splits = trmi_max_i64(1, trmi_min_i64(trmi_min_i64(SPLITS, most), p->k / SPLIT_DEPTH));
    d->blocks = parts_of(parts_of(p->k, d->splits), CHUNK);
    d->n_blocks = parts_of(p->n, BLOCK);
    d->m_blocks = parts_of(p->m, BLOCK);
    while (d->splits * d->n_blocks * d->m_blocks < d->threads && p->m / (d->m_blocks + 1) >= 2 * d->isa->mr) {
        d->m_blocks++; /* B is packed for each of them: only when threads would stand idle */
    }
    d->depth = parts_of(parts_of(p->k, d->splits), d->blocks) + 1;
    int64_t height = parts_of(p->m, d->m_blocks), width = parts_of(d->panels, d->n_blocks) * nr;
    d->a_floats = (height / d->isa->mr + 2) * d->depth * TRMI_TILE_COLS;
    d->shared_floats = d->splits > 1 ? trmi_round_up(d->splits * p->m * p->n, 16) : 0;
    d->thread_floats = trmi_round_up(d->a_floats + width * d->depth, 16);
    return (d->shared_floats + d->thread_floats * d->threads) * 4;
}

/* Columns of a task begin at a multiple of the panel. */
static int64_t column_cut(const trmi_dense_plan *d, int64_t i) {
    return trmi_min_i64(d->problem.n, cut(d->panels, d->n_blocks, i) * d->isa->nr);
}

/* `next`: of chunks: the depth of this one's successor, which is asked for meanwhile; 0 = none. */
static void run_chunk(const trmi_dense_plan *d, const float *a, const float *b, int64_t depth, int64_t next, int64_t m,
                      int64_t n, float *c, bool add, float *room) {
    const trmi_dense_problem *p = &d->problem;
    int64_t nr = d->isa->nr, tiles = parts_of(m, d->isa->mr), height = parts_of(m, tiles);
    int64_t a_panel = depth * TRMI_TILE_COLS, b_panel = depth * nr;
    float *packed_a = room, *packed_b = room + d->a_floats;
    if (n % nr != 0) {
        memset(packed_b + n / nr * b_panel, 0, (size_t)b_panel * sizeof *packed_b);
    }
    for (int64_t r = 0; r < depth; r++) {
        d->pack->deal(packed_b, r, b_panel, (int)nr, (int)nr, b + r * p->n, TRM_FLOAT32, n);
        d->pack->deal(packed_a, r, a_panel, (int)height, TRMI_TILE_COLS, a + r * p->m, TRM_FLOAT32, m);
    }
    ahead soon_a = {a + depth * p->m, p->m, next, m}, soon_b = {b + depth * p->n, p->n, next, n};
    for (int64_t i = 0; i < tiles; i++) {
        ask_for(&soon_a, i, tiles);
        ask_for(&soon_b, i, tiles);
        trmi_dense_tile t = {.k = depth,
                             .rows = (int)trmi_min_i64(height, m - i * height),
                             .a = packed_a + i * a_panel,
                             .c_stride = p->n,
                             .add = add};
        for (int64_t j = 0; j * nr < n && t.rows > 0; j++) {
            t.columns = (int)trmi_min_i64(nr, n - j * nr);
            t.b = packed_b + j * b_panel;
            t.c = c + i * height * p->n + j * nr;
            d->isa->columns(&t);
        }
    }
}

static void run_block(const trmi_dense_plan *d, const float *a, const float *b, float *sums, int64_t task,
                      float *room) {
    const trmi_dense_problem *p = &d->problem;
    int64_t per_split = d->m_blocks * d->n_blocks, split = task / per_split, rest = task % per_split;
    int64_t row = cut(p->m, d->m_blocks, rest / d->n_blocks), rows = cut(p->m, d->m_blocks, rest / d->n_blocks + 1) - row;
    int64_t column = column_cut(d, rest % d->n_blocks), columns = column_cut(d, rest % d->n_blocks + 1) - column;
    int64_t begin = cut(p->k, d->splits, split), depth = cut(p->k, d->splits, split + 1) - begin;
    for (int64_t i = 0; i < d->blocks; i++) {
        int64_t first = begin + cut(depth, d->blocks, i), last = begin + cut(depth, d->blocks, i + 1);
        int64_t next = i + 1 < d->blocks ? begin + cut(depth, d->blocks, i + 2) - last : 0;
        run_chunk(d, a + first * p->m + row, b + first * p->n + column, last - first, next, rows, columns,
                  sums + (split * p->m + row) * p->n + column, i > 0, room);
    }
}

static void run_weights(const trmi_dense_plan *d, const float *a, const float *b, float *c, float *scratch) {
    int64_t total = d->problem.m * d->problem.n, parts = parts_of(total, REDUCE);
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

/* ---- both ------------------------------------------------------------------------------------------ */

int64_t trmi_dense_prepare(const trmi_dense_problem *problem, int threads, trmi_dense_plan *d) {
    *d = (trmi_dense_plan){.problem = *problem, .isa = trmi_dense(), .pack = trmi_gemm(), .threads = threads};
    d->panels = parts_of(problem->n, d->isa->nr);
    return problem->transpose_a ? prepare_weights(d) : prepare_rows(d);
}

void trmi_dense_run(const trmi_dense_plan *d, const float *a, const float *b, const float *bias,
                    const float *mask, float *c, void *scratch) {
    if (d->problem.transpose_a) {
        run_weights(d, a, b, c, scratch);
    } else {
        run_rows(d, a, b, bias, mask, c, scratch);
    }
}
