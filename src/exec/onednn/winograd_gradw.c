/* Winograd F(4x4, 3x3), weight gradient: the transposed algorithm,
 *
 *   dW = G' [ sum over tiles of (B' x B)^T (A dy A') ] G
 *
 *   task = (split of the tiles) x (block of I) x (block of O); its 36 sums S stay in L2 while
 *          blocks of tiles pass:   x patches --> V [xi][tile][I block]
 *                                  dy tiles  --> Z [xi][panel][tile][nr]
 *                                  S[xi] (+)= V[xi]^T Z[xi]
 *   then dW from the splits' S, added in order: the bits do not depend on the number of threads.
 *
 *   scratch:  [ S: split, block, xi, I, O | per thread: V, Z, offsets, zero pixel ]
 */
#include "exec/onednn/winograd.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <omp.h>
#include <string.h>

enum { XI = TRMI_WINO_XI, ROWS = 64, COLUMNS = 64, TILES = 48, TASKS = 8, PAD = 16 };

typedef struct winograd_gradw {
    trmi_conv_problem problem;
    trmi_winograd_tiles tiles;
    const trmi_gemm_isa *gemm;
    const trmi_winograd_isa *isa;
    int threads;
    int64_t row_blocks, column_blocks, splits, block, columns; /* columns: of S, multiple of nr */
    int64_t s_block, s_split;                                  /* floats of S */
    int64_t v_xi, z_panel, z_xi;
    int64_t shared_floats, thread_floats;
} winograd_gradw;

typedef struct workspace {
    float *v, *z, *zero;
    int64_t *offsets;
} workspace;

static workspace workspace_of(const winograd_gradw *c, char *scratch) {
    workspace w;
    w.v = (float *)scratch + c->shared_floats + c->thread_floats * omp_get_thread_num();
    w.z = w.v + XI * c->v_xi;
    w.zero = w.z + XI * c->z_xi;
    int64_t zeros = trmi_max_i64(c->problem.c, c->problem.o);
    w.offsets = (int64_t *)(w.zero + trmi_round_up(zeros, 16));
    memset(w.zero, 0, (size_t)zeros * sizeof(float));
    for (int64_t i = 0; i < TRMI_TILE_COLS; i++) {
        w.offsets[i] = i * c->columns;
    }
    return w;
}

static void transform(const winograd_gradw *c, const trmi_conv_args *args, int64_t first,
                      int64_t count, int64_t row, int64_t rows, int64_t column, int64_t columns,
                      const workspace *w) {
    int64_t nr = c->gemm->nr;
    for (int64_t t = 0; t < count; t++) {
        const void *in[TRMI_WINO_IN];
        void *out[TRMI_WINO_OUT];
        trmi_winograd_patch(&c->tiles, first + t, args->image, w->zero, in);
        c->isa->input(w->v + t * (ROWS + PAD), c->v_xi, in, c->problem.image_type, row, rows);
        trmi_winograd_outputs(&c->tiles, first + t, args->result, w->zero, out);
        for (int64_t j = 0; j * nr < columns; j++) {
            c->isa->gradient(w->z + j * c->z_panel + t * nr, c->z_xi, (const void *const *)out,
                             c->problem.result_type, column + j * nr,
                             trmi_min_i64(nr, columns - j * nr));
        }
    }
}

static void multiply(const winograd_gradw *c, float *s, int64_t count, int64_t rows, int64_t columns,
                     bool add, const workspace *w) {
    int64_t nr = c->gemm->nr, tiles = (rows + c->gemm->mr - 1) / c->gemm->mr;
    for (int64_t xi = 0; xi < XI; xi++) {
        for (int64_t j = 0; j * nr < columns; j++) {
            int width = (int)trmi_min_i64(nr, columns - j * nr);
            for (int64_t i = 0, row = 0; i < tiles; i++) {
                int height = (int)(rows / tiles + (i < rows % tiles));
                trmi_tile tile = {.a = w->v + xi * c->v_xi + row, .a_stride = ROWS + PAD,
                                  .b = w->z + xi * c->z_xi + j * c->z_panel, .k = count,
                                  .c = s + (xi * ROWS + row) * c->columns + j * nr,
                                  .row_offset = w->offsets, .rows = height, .columns = width,
                                  .store = add ? TRMI_TILE_ADD : TRMI_TILE_SET};
                c->gemm->tile_cols(&tile, NULL);
                row += height;
            }
        }
    }
}

static void run_task(const winograd_gradw *c, const trmi_conv_args *args, int64_t task,
                     const workspace *w) {
    int64_t per_split = c->row_blocks * c->column_blocks;
    int64_t split = task / per_split, block = task % per_split;
    int64_t row = block / c->column_blocks * ROWS, column = block % c->column_blocks * COLUMNS;
    int64_t rows = trmi_min_i64(ROWS, c->problem.c - row);
    int64_t columns = trmi_min_i64(COLUMNS, c->problem.o - column);
    int64_t begin = c->tiles.count * split / c->splits, end = c->tiles.count * (split + 1) / c->splits;
    int64_t parts = (end - begin + c->block - 1) / c->block;
    float *s = (float *)args->scratch + split * c->s_split + block * c->s_block;
    for (int64_t i = 0; i < parts; i++) {
        int64_t first = begin + (end - begin) * i / parts;
        int64_t count = begin + (end - begin) * (i + 1) / parts - first;
        transform(c, args, first, count, row, rows, column, columns, w);
        multiply(c, s, count, rows, columns, i > 0, w);
    }
}

/* Rows of dW from S. */
static void finish(const winograd_gradw *c, const trmi_conv_args *args, const workspace *w) {
    const trmi_conv_problem *p = &c->problem;
    int64_t tap = p->c * p->o;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < p->c * c->column_blocks; i++) {
        int64_t row = i / c->column_blocks, block = row / ROWS * c->column_blocks + i % c->column_blocks;
        int64_t column = i % c->column_blocks * COLUMNS, count = trmi_min_i64(COLUMNS, p->o - column);
        const float *s = (const float *)args->scratch + block * c->s_block + row % ROWS * c->columns;
        bool whole = p->weights_type == TRM_FLOAT32;
        float *to = whole ? (float *)args->weights + row * p->o + column : w->v;
        c->isa->weights_gradient(to, whole ? tap : COLUMNS, s, ROWS * c->columns, c->splits,
                                 c->s_split, count);
        for (int64_t t = 0; !whole && t < 9; t++) {
            c->gemm->narrow((uint16_t *)args->weights + t * tap + row * p->o + column,
                            p->weights_type, w->v + t * COLUMNS, NULL, count);
        }
    }
}

static trm_status gradw_run(const void *state, const trmi_conv_args *args, trm_error *err) {
    const winograd_gradw *c = state;
    (void)err;
    int64_t tasks = c->splits * c->row_blocks * c->column_blocks;
#pragma omp parallel num_threads(c->threads)
    {
        workspace w = workspace_of(c, args->scratch);
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < tasks; t++) {
            run_task(c, args, t, &w);
        }
        finish(c, args, &w);
    }
    return TRM_OK;
}

/* ---- the algorithm ----------------------------------------------------------------------------------- */

static bool gradw_can(const trmi_conv_problem *p) {
    return p->direction == TRMI_CONV_WEIGHTS && trmi_winograd_can(p);
}

static double gradw_guess(const trmi_conv_problem *p, int threads) {
    trmi_winograd_tiles t;
    trmi_winograd_tiles_init(&t, p);
    double c = (double)p->c, o = (double)p->o, tiles = (double)t.count;
    double products = 2.0 * XI * tiles * c * o / 150e9;
    double transforms = tiles * (c * o / COLUMNS + c * o / ROWS) * 6 / 3e9 + c * o * 36 * 4 * 2 / 8e9;
    return (products + transforms) / threads + 15e-6;
}

static trm_status gradw_create(trmi_onednn *backend, const trmi_conv_problem *p, void **state,
                               int64_t *scratch, trm_error *err) {
    winograd_gradw *c = trmi_alloc(sizeof *c);
    if (c == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "convolution: no memory");
    }
    *c = (winograd_gradw){.problem = *p, .gemm = trmi_gemm(), .isa = trmi_winograd(),
                          .threads = backend->threads};
    trmi_winograd_tiles_init(&c->tiles, p);
    int64_t nr = c->gemm->nr;
    c->row_blocks = (p->c + ROWS - 1) / ROWS;
    c->column_blocks = (p->o + COLUMNS - 1) / COLUMNS;
    c->columns = COLUMNS;
    int64_t blocks = c->row_blocks * c->column_blocks;
    c->splits = trmi_max_i64(1, trmi_min_i64((TASKS + blocks - 1) / blocks, c->tiles.count / TILES));
    c->block = TILES;
    c->s_block = XI * ROWS * c->columns;
    c->s_split = blocks * c->s_block;
    c->v_xi = c->block * (ROWS + PAD);
    c->z_panel = c->block * nr + PAD;
    c->z_xi = (COLUMNS + nr - 1) / nr * c->z_panel;
    c->shared_floats = c->splits * c->s_split;
    c->thread_floats = trmi_round_up(XI * (c->v_xi + c->z_xi) +
                                         trmi_round_up(trmi_max_i64(p->c, p->o), 16) +
                                         2 * TRMI_TILE_COLS, 16);
    *scratch = (c->shared_floats + c->thread_floats * c->threads) * 4;
    *state = c;
    return TRM_OK;
}

static void gradw_destroy(void *state) { trmi_free(state); }

const trmi_conv_algorithm trmi_conv_winograd_gradw = {.name = "winograd4x3",
                                                      .can = gradw_can,
                                                      .guess = gradw_guess,
                                                      .work = trmi_winograd_work,
                                                      .create = gradw_create,
                                                      .run = gradw_run,
                                                      .destroy = gradw_destroy};
