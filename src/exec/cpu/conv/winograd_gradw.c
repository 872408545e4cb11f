/* SPDX-License-Identifier: Apache-2.0 */
/* Winograd weight gradient: F(4x4, 3x3) in float32, and F(2x2, 3x3) with pairs of neighbouring
 * tiles, whose V and Z are rounded to bfloat16 and S is summed in float32 (relative error 0.4 %).
 * The transposed algorithm:
 *
 *   dW = G' [ sum over tiles of (B' x B)^T (A dy A') ] G
 *
 *      x patches --> V [block of I][xi][item][I]     S[xi] (+)= V[xi]^T Z[xi]      item: tile, or pair of tiles
 *      dy tiles  --> Z [xi][panel][item][nr]
 *
 *   alone     few channels: a task is (split of the tiles) x (block of I) x (block of O). V, Z and
 *             S of a thread stay in its caches, and the task transforms its S to dW, which leaves 9
 *             of 36 numbers to be added. With many tiles, splits alone make enough tasks, and
 *             blocks are all of I and O
 *   together  all threads make V and Z of a chunk of tiles, each once, then share the products by
 *             xi and block of I; the data of the next product is prefetched while tiles multiply
 *
 *   then the splits are added (splits.h): the bits do not depend on the number of threads.
 *
 *   scratch, alone:     [ dW of each split | per thread: V, Z, S, zero pixel, offsets ]
 *            together:  [ S: block, xi, I, O | V, Z | per thread: zero pixel, offsets ]
 */
#include "exec/cpu/tuning/rates.h"
#include "exec/cpu/scratch.h"
#include "exec/cpu/share.h"
#include "exec/cpu/gemm/splits.h"
#include "exec/cpu/conv/winograd.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <omp.h>
#include <string.h>

enum {
    XI = TRMI_WINO_XI,
    ROWS = 64,
    COLUMNS = 64,
    ALONE = 128,
    TILES = 48,
    TASKS = 8,
    PAD = 16,
    GROUP = 4,
    AHEAD = 5
};
/* Tiles of a chunk of long sums: V, Z and S come from L3, S once a chunk. */
enum { CHUNK = 98 };
enum { CHUNK_PAIRS = 64 }; /* with 64 channels V, Z and S fit in L2 */
/* Bytes of V and Z of a chunk, or those of S if they are more: S is read once a chunk. */
enum { TOGETHER_BYTES = 10 << 20 };

typedef struct winograd_gradw {
    trmi_conv_problem problem;
    trmi_winograd_tiles tiles;
    const trmi_gemm_isa *gemm;
    const trmi_winograd_isa *isa;
    int threads;
    bool together, direct;     /* direct: alone, one split, float32: tasks write dW itself */
    bool pairs;                /* items are pairs of tiles, rounded to bfloat16 */
    int64_t items, items_each; /* in all; of an image */
    int32_t xi[XI], xi_count;  /* those that its tiles have: all, or 16 */
    int64_t row_blocks, column_blocks, splits, block;
    int64_t height; /* of a block of I */
    /* of a block of O: S's width, in panels of nr */
    int64_t columns, panels;
    int64_t s_xi, s_block;                        /* floats of S */
    int64_t v_xi, v_block, z_panel, z_xi, values; /* of V and Z, and both */
    int64_t shared_floats, thread_floats;
} winograd_gradw;

typedef struct workspace {
    float *v, *z, *s, *zero;
    float *shared; /* by all threads */
    int64_t *offsets;
    int32_t *places; /* of the chunk's items in V and Z */
} workspace;

/* Divides the scratch. With `together` V, Z and the sums are shared by all threads; otherwise each
 * thread has its own. */
static workspace workspace_of(const winograd_gradw *c, const trmi_conv_args *args) {
    const trmi_scratch scratch = trmi_scratch_cut(
        args->scratch, args->scratch_bytes, c->shared_floats * 4, c->thread_floats * 4, c->threads);
    workspace w;
    float *own = (float *)(void *)trmi_scratch_own(&scratch, omp_get_thread_num());
    w.shared = (float *)(void *)trmi_scratch_shared(&scratch);
    w.v = c->together ? w.shared + c->shared_floats - c->values : own;
    w.z = w.v + (c->together ? c->row_blocks : 1) * c->v_block;
    w.s = c->together ? w.shared : own + c->values;
    w.zero = c->together ? own : w.s + c->s_block;
    int64_t zeros = trmi_max_i64(c->problem.c, c->problem.o);
    w.offsets = (int64_t *)(w.zero + trmi_round_up(zeros, 16));
    w.places = (int32_t *)(w.offsets + TRMI_TILE_COLS);
    memset(w.zero, 0, (size_t)zeros * sizeof(float));
    for (int64_t i = 0; i < TRMI_TILE_COLS; i++) {
        w.offsets[i] = i * c->columns;
    }
    return w;
}

/* Return the input channels of a block of rows, and the output channels from a column on. */
static int64_t rows_of(const winograd_gradw *c, int64_t row_block) {
    return trmi_min_i64(c->height, c->problem.c - row_block * c->height);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A block of I and O of S, or all of I. */
typedef struct part {
    int64_t row_block, row_blocks, column; /* column: first of O */
} part;

static int64_t columns_of(const winograd_gradw *c, int64_t column) {
    return trmi_min_i64(c->columns, c->problem.o - column);
}

/* A row of V and Z: one tile, or (pairs) two tiles side by side; at the end of an odd row of tiles
 * two tiles one below the other. */
typedef struct item {
    int64_t tile;
    bool below;
} item;

/* Returns the item of an index. With pairs, an item is two tiles side by side; where the number
 * of columns is odd, two tiles of the last column, one below the other. */
static item item_at(const winograd_gradw *c, int64_t index) {
    if (!c->pairs) {
        return (item){.tile = index};
    }
    int64_t across = c->tiles.columns / 2, image = index / c->items_each,
            rest = index % c->items_each;
    int64_t first = image * c->tiles.rows * c->tiles.columns, beside = c->tiles.rows * across;
    if (rest < beside) {
        return (item){.tile = first + rest / across * c->tiles.columns + 2 * (rest % across)};
    }
    return (item){.tile = first + (2 * (rest - beside) + 1) * c->tiles.columns - 1, .below = true};
}

/* Prefetches a tile's pixels in x and in dy. */
static void prefetch_tile(const winograd_gradw *c, const trmi_conv_args *args, int64_t tile) {
    trmi_winograd_prefetch(&c->tiles, tile, args->image);
    trmi_winograd_prefetch_output(&c->tiles, tile, args->result);
}

/* Prefetches the pixels of an item, without those that it has in common with the item before. */
static void prefetch_item(const winograd_gradw *c, const trmi_conv_args *args, int64_t index) {
    const item it = item_at(c, index);
    int64_t second = it.tile + (it.below ? c->tiles.columns : 1);
    prefetch_tile(c, args, it.tile);
    if (c->pairs && second < c->tiles.count) {
        prefetch_tile(c, args, second);
    }
}

/* The pixels of an item. `turned`: rows and columns are exchanged, for two tiles one below the
 * other. Outputs outside the image are zero, so Z of a missing second tile is zero, too. */
typedef struct pixels {
    const void *in[TRMI_WINO_IN]; /* addresses of the input patch, row by row */
    void *out[TRMI_WINO_OUT];     /* addresses of the tile's outputs, row by row */
    int ry, rx;                   /* outputs of the tile that are in the image: rows, columns */
    bool turned;
} pixels;

/* Returns the addresses of an item's pixels. For two tiles below each other rows and columns are
 * exchanged, so that the pair's kernel sees them side by side. */
static pixels pixels_of(const winograd_gradw *c, const trmi_conv_args *args, item it,
                        const workspace *w) {
    pixels p = {.turned = it.below};
    const void *in[TRMI_WINO_IN];
    void *out[TRMI_WINO_OUT];
    trmi_winograd_size(&c->tiles, it.tile, &p.ry, &p.rx);
    trmi_winograd_patch(&c->tiles, it.tile, args->image, w->zero, it.below ? in : p.in);
    trmi_winograd_outputs(&c->tiles, it.tile, args->result, w->zero, it.below ? out : p.out);
    for (int i = 0; it.below && i < TRMI_WINO_IN; i++) {
        p.in[i] = in[i % 6 * 6 + i / 6];
    }
    for (int i = 0; it.below && i < TRMI_WINO_OUT; i++) {
        p.out[i] = out[i % 4 * 4 + i / 4];
    }
    return p;
}

/* Transforms the x patch of an item to V; pairs put two tiles side by side, or one above the other
 * (`turned`), for which the strides of the points change places. */
static void make_v(const winograd_gradw *c, float *to, const pixels *p, int64_t first,
                   int64_t count) {
    if (c->pairs) {
        c->isa->input_pair(to, p->turned ? c->v_xi : 4 * c->v_xi, p->turned ? 4 * c->v_xi : c->v_xi,
                           p->in, first, count);
    } else {
        c->isa->input(to, c->v_xi, p->in, c->problem.image_type, first, count, p->ry, p->rx);
    }
}

/* Transforms the dy tile of an item to Z, in the same form. */
static void make_z(const winograd_gradw *c, float *to, const pixels *p, int64_t first,
                   int64_t count) {
    const void *const *out = (const void *const *)p->out;
    if (c->pairs) {
        c->isa->gradient_pair(to, p->turned ? c->z_xi : 4 * c->z_xi,
                              p->turned ? 4 * c->z_xi : c->z_xi, out, first, count);
    } else {
        c->isa->gradient(to, c->z_xi, out, c->problem.result_type, first, count, p->ry, p->rx);
    }
}

/* Transforms items [first, first + count) to V and Z; they are items `at` and following of the
 * chunk. */
static void transform_items(const winograd_gradw *c, const trmi_conv_args *args, const part *p,
                            int64_t first, int64_t count, int64_t at, const workspace *w) {
    int64_t nr = c->gemm->nr, columns = columns_of(c, p->column);
    for (int64_t t = 0; t < count; t++) {
        const pixels of = pixels_of(c, args, item_at(c, first + t), w);
        int64_t to = w->places[at + t];
        if (first + t + 1 < c->items) {
            prefetch_item(c, args, first + t + 1);
        }
        for (int64_t i = 0; i < p->row_blocks; i++) {
            make_v(c, w->v + i * c->v_block + to * (c->height + PAD), &of,
                   (p->row_block + i) * c->height, rows_of(c, p->row_block + i));
        }
        for (int64_t j = 0; j * nr < columns; j++) {
            make_z(c, w->z + j * c->z_panel + to * nr, &of, p->column + j * nr,
                   trmi_min_i64(nr, columns - j * nr));
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct ahead {
    trmi_prefetch part[AHEAD];
} ahead;

/* Computes S of the n-th xi, `rows` x `columns`, over the items that have this xi. Without an item
 * the sums are zero. */
static void multiply_items(const winograd_gradw *c, float *s, const float *v, int64_t n,
                           int64_t rows, int64_t columns, const trmi_winograd_order *order,
                           bool add, ahead *soon, const workspace *w) {
    int64_t first, end;
    trmi_winograd_span(&c->tiles, order, c->xi[n], &first, &end);
    int64_t nr = c->gemm->nr, tiles = (rows + c->gemm->mr - 1) / c->gemm->mr;
    trmi_tile tile = {.a_stride = c->height + PAD,
                      .b_stride = nr,
                      .k = end - first,
                      .row_offset = w->offsets,
                      .store = add ? TRMI_TILE_ADD : TRMI_TILE_SET};
    v += n * c->v_xi + first * (c->height + PAD);
    s += n * c->s_xi;
    /* Make tiles of rows of nearly equal height, for each panel of columns. */
    for (int64_t j = 0; j * nr < columns; j++) {
        tile.b = w->z + n * c->z_xi + j * c->z_panel + first * nr;
        tile.columns = (int)trmi_min_i64(nr, columns - j * nr);
        for (int64_t i = 0, row = 0; i < tiles; i++) {
            tile.rows = (int)(rows / tiles + (i < rows % tiles));
            tile.a = v + row;
            tile.c = s + row * c->columns + j * nr;
            c->gemm->tile_cols(&tile, trmi_prefetch_next(soon->part, AHEAD));
            row += tile.rows;
        }
    }
}

/* ---- alone ----------------------------------------------------------------------------------- */

/* Sets the prefetches for the products of the n-th xi, whose data may have been evicted to L3. */
static void next_values(const winograd_gradw *c, const part *p, const float *s, int64_t n,
                        int64_t count, bool add, ahead *soon, const workspace *w) {
    int64_t rows = rows_of(c, p->row_block), columns = columns_of(c, p->column), nr = c->gemm->nr;
    bool any = n < c->xi_count;
    soon->part[0] =
        trmi_prefetch_rows(w->v + n * c->v_xi, (c->height + PAD) * 4, any ? count : 0, rows * 4);
    soon->part[1] = trmi_prefetch_rows(w->z + n * c->z_xi, c->z_panel * 4,
                                       any ? trmi_pieces(columns, nr) : 0, count * nr * 4);
    soon->part[2] =
        trmi_prefetch_rows(s + n * c->s_xi, c->columns * 4, any && add ? rows : 0, columns * 4);
}

/* Computes one task of `alone`, and transforms its S to its part of dW. */
static void run_task(const winograd_gradw *c, const trmi_conv_args *args, int64_t task,
                     const workspace *w) {
    int64_t blocks = c->row_blocks * c->column_blocks, split = task / blocks, block = task % blocks;
    part p = {block / c->column_blocks, 1, block % c->column_blocks * c->columns};
    /* The items of this split go through in parts that fit the workspace. */
    int64_t begin = trmi_cut_at(c->items, c->splits, split),
            end = trmi_cut_at(c->items, c->splits, split + 1);
    int64_t all = end - begin, parts = trmi_pieces(all, c->block);
    for (int64_t i = 0; i < parts; i++) {
        int64_t first = begin + trmi_cut_at(all, parts, i),
                next = begin + trmi_cut_at(all, parts, i + 1);
        int64_t last = begin + trmi_cut_at(all, parts, i + 2) - 1;
        ahead soon = {0};
        if (i + 1 < parts) {
            soon.part[3] = trmi_winograd_input_ahead(&c->tiles, args->image, item_at(c, next).tile,
                                                     item_at(c, last).tile);
            soon.part[4] = trmi_winograd_output_ahead(&c->tiles, args->result,
                                                      item_at(c, next).tile, item_at(c, last).tile);
        }
        trmi_winograd_order order =
            trmi_winograd_arrange(&c->tiles, first, next - first, w->places);
        transform_items(c, args, &p, first, next - first, 0, w);
        for (int64_t n = 0; n < c->xi_count; n++) {
            next_values(c, &p, w->s, n + 1, next - first, i > 0, &soon, w);
            multiply_items(c, w->s, w->v, n, rows_of(c, p.row_block), columns_of(c, p.column),
                           &order, i > 0, &soon, w);
        }
    }
    /* All items of the split are summed: transform S back to the filter. With several splits each
     * has a part of its own, and the parts are added afterwards. */
    float *dw =
        c->direct ? args->weights : w->shared + split * trmi_conv_weights_count(&c->problem);
    for (int64_t row = 0; row < rows_of(c, p.row_block); row++) {
        (c->pairs ? c->isa->weights_gradient_small : c->isa->weights_gradient)(
            dw + (p.row_block * c->height + row) * c->problem.o + p.column,
            c->problem.c * c->problem.o, w->s + row * c->columns, c->s_xi, columns_of(c, p.column));
    }
}

/* Runs the form `alone`: tasks are independent; where several splits make one dW, all threads wait
 * and then add the splits in their order. */
static void run_alone(const winograd_gradw *c, const trmi_conv_args *args, trmi_share *tasks,
                      const workspace *w) {
    for (int64_t i; (i = trmi_share_take(tasks, omp_get_thread_num())) >= 0;) {
        run_task(c, args, i, w);
    }
    if (!c->direct) {
#pragma omp barrier
        trmi_splits_add(c->gemm, w->shared, c->splits, trmi_conv_weights_count(&c->problem),
                        args->weights, c->problem.weights_type);
    }
}

/* ---- together -------------------------------------------------------------------------------- */

/* Returns the prefetches for task (n-th xi, block of I), without the data that the task before
 * reads. */
static ahead values_of(const winograd_gradw *c, const float *s, int64_t task, int64_t count,
                       bool add, const workspace *w) {
    int64_t n = task / c->row_blocks, block = task % c->row_blocks, rows = rows_of(c, block);
    ahead soon = {0};
    if (n == c->xi_count) {
        return soon;
    }
    soon.part[0] = trmi_prefetch_rows(w->v + block * c->v_block + n * c->v_xi,
                                      (c->height + PAD) * 4, count, rows * 4);
    if (block == 0) {
        soon.part[1] = trmi_prefetch_rows(w->z + n * c->z_xi, c->z_panel * 4, c->panels,
                                          count * c->gemm->nr * 4);
    }
    if (add) {
        soon.part[2] = trmi_prefetch_rows(s + block * c->s_block + n * c->s_xi,
                                          rows * c->columns * 4, 1, rows * c->columns * 4);
    }
    return soon;
}

/* Runs the form `together`, chunk by chunk; barriers separate transforms and products. */
static void run_together(const winograd_gradw *c, const trmi_conv_args *args, const workspace *w) {
    int64_t parts = trmi_pieces(c->items, c->block), tasks = c->xi_count * c->row_blocks;
    int deal = c->threads <= 4 ? (int)c->row_blocks : 1; /* then one thread reads Z of an xi */
    float *s = w->s;
    const part all = {0, c->row_blocks, 0};
    for (int64_t i = 0; i < parts; i++) {
        int64_t first = trmi_cut_at(c->items, parts, i);
        int64_t count = trmi_cut_at(c->items, parts, i + 1) - first;
        trmi_winograd_order order = trmi_winograd_arrange(&c->tiles, first, count, w->places);
#pragma omp for schedule(static) /* most of a thread's rows are in its cache */
        for (int64_t t = 0; t < count; t += GROUP) {
            transform_items(c, args, &all, first + t, trmi_min_i64(GROUP, count - t), t, w);
        }
#pragma omp for schedule(dynamic, deal)
        for (int64_t t = 0; t < tasks; t++) {
            ahead soon = values_of(c, s, t + 1, count, i > 0, w);
            int64_t n = t / c->row_blocks, block = t % c->row_blocks;
            multiply_items(c, s + block * c->s_block, w->v + block * c->v_block, n,
                           rows_of(c, block), c->problem.o, &order, i > 0, &soon, w);
        }
    }
}

/* ---- run ------------------------------------------------------------------------------------- */

/* Transforms S, summed over all tiles, to dW; rows are shared by the threads. */
static void finish_gradient(const winograd_gradw *c, const trmi_conv_args *args, const float *all) {
    const trmi_conv_problem *p = &c->problem;
    int64_t tap = p->c * p->o;
    bool whole = p->weights_type == TRM_FLOAT32;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < p->c; row++) {
        const float *s = all + row / c->height * c->s_block + row % c->height * c->columns;
        for (int64_t j = 0; j < p->o; j += COLUMNS) {
            int64_t count = trmi_min_i64(COLUMNS, p->o - j);
            float room[9 * COLUMNS];
            float *to = whole ? (float *)args->weights + row * p->o + j : room;
            (c->pairs ? c->isa->weights_gradient_small
                      : c->isa->weights_gradient)(to, whole ? tap : COLUMNS, s + j, c->s_xi, count);
            for (int64_t t = 0; !whole && t < 9; t++) {
                c->gemm->narrow((uint16_t *)args->weights + t * tap + row * p->o + j,
                                p->weights_type, room + t * COLUMNS, NULL, count);
            }
        }
    }
}

/* Runs the gradient of the weights: all threads on one gradient at a time (together), or each on
 * parts of its own. */
static trm_status gradw_run(const void *state, const trmi_conv_args *args, trm_error *err) {
    const winograd_gradw *c = state;
    (void)err;
    trmi_share tasks;
    trmi_share_begin(&tasks, c->splits * c->row_blocks * c->column_blocks, c->threads);
#pragma omp parallel num_threads(c->threads)
    {
        workspace w = workspace_of(c, args);
        if (c->together) {
            run_together(c, args, &w);
            finish_gradient(c, args, w.s);
        } else {
            run_alone(c, args, &tasks, &w);
        }
    }
    return TRM_OK;
}

/* ---- the algorithm --------------------------------------------------------------------------- */

static bool gradw_can(const trmi_conv_problem *p) {
    return p->direction == TRMI_CONV_WEIGHTS && trmi_winograd_can(p);
}

/* Return the seconds by the cost model (see winograd.c). */
static double gradw_guess(const trmi_conv_problem *p, int threads) {
    return trmi_winograd_seconds(p, 4, sizeof(float), 150e9, 6, threads);
}

static bool pairs_can(const trmi_conv_problem *p) {
    return gradw_can(p) && trmi_gemm_pairs() != NULL && trmi_winograd()->input_pair != NULL &&
           p->image_type == TRM_BFLOAT16 && p->result_type == TRM_BFLOAT16;
}

static double pairs_guess(const trmi_conv_problem *p, int threads) {
    return trmi_winograd_seconds(p, 2, sizeof(float), 160e9 * trmi_onednn_pairs_gain(), 4, threads);
}

static double pairs_work(const trmi_conv_problem *p) {
    return trmi_winograd_all_work(p, 2, trmi_onednn_pairs_gain());
}

/* Chooses the form and the sizes of chunks, splits and blocks, by the shape alone. */
static void plan_blocks(winograd_gradw *c) {
    const trmi_conv_problem *p = &c->problem;
    int64_t nr = c->gemm->nr, most = c->pairs ? CHUNK_PAIRS : CHUNK;
    c->together = p->c > ALONE || p->o > ALONE;
    /* there are enough splits to give all threads tasks: blocks can be large */
    bool long_sums = !c->together && c->items >= TASKS * most;
    c->height = long_sums ? trmi_min_i64(p->c, ALONE) : ROWS;
    c->row_blocks = trmi_pieces(p->c, c->height);
    c->columns = c->together ? trmi_round_up(p->o, nr)
                 : long_sums ? trmi_round_up(trmi_min_i64(p->o, ALONE), nr)
                             : COLUMNS;
    c->panels = c->columns / nr;
    c->column_blocks = (p->o + c->columns - 1) / c->columns;
    /* If blocks alone are too few tasks, the items are split. */
    int64_t blocks = c->row_blocks * c->column_blocks, split = (TASKS + blocks - 1) / blocks;
    c->splits = c->together ? 1 : trmi_max_i64(1, trmi_min_i64(split, c->items / TILES));
    /* per_tile is the bytes of V and Z of one item. A block has as many items as the caches are
     * meant to hold. */
    int64_t v_blocks = c->together ? c->row_blocks : 1;
    int64_t per_tile = c->xi_count * (v_blocks * (c->height + PAD) + c->columns) * 4;
    int64_t together_bytes = trmi_max_i64(TOGETHER_BYTES, c->xi_count * p->c * c->columns * 4);
    c->block = c->together ? trmi_max_i64(TILES, together_bytes / per_tile)
               : long_sums ? most
                           : TILES;
    int64_t parts = trmi_pieces(c->items, c->block);
    c->block = (c->items + parts - 1) / parts; /* of nearly equal length */
}

/* Makes the state of the form that plan_blocks has chosen (`together` or alone: top of the
 * file), and lays out its memory. PAD keeps arrays that are read at the same time out of the
 * same cache sets. */
static trm_status create_winograd_gradw(const trmi_conv_algorithm *self, trmi_onednn *backend,
                                        const trmi_conv_problem *p, void **state, int64_t *scratch,
                                        trm_error *err) {
    const trmi_gemm_isa *gemm = self->tile();
    const int size = gemm->pair == 2 ? 2 : 4;
    winograd_gradw *c;
    TRMI_TRY(TRMI_NEW(err, c, 1, "for a convolution"));
    *c = (winograd_gradw){.problem = *p,
                          .gemm = gemm,
                          .isa = trmi_winograd(),
                          .pairs = gemm->pair == 2,
                          .threads = backend->threads};
    trmi_winograd_tiles_init(&c->tiles, p, size);
    int64_t rows = c->tiles.rows, columns = c->tiles.columns;
    c->items_each =
        c->pairs ? rows * (columns / 2) + columns % 2 * trmi_pieces(rows, 2) : rows * columns;
    c->items = c->tiles.n * c->items_each;
    c->xi_count = trmi_winograd_points(size, c->xi);
    plan_blocks(c);
    int64_t nr = c->gemm->nr;
    int64_t v_blocks = c->together ? c->row_blocks : 1, blocks = c->row_blocks * c->column_blocks;
    /* With PAD, values of all xi that are read together do not conflict in a few cache sets. */
    c->s_xi = c->height * c->columns + PAD;
    c->s_block = c->xi_count * c->s_xi;
    c->direct = !c->together && c->splits == 1 && p->weights_type == TRM_FLOAT32;
    c->v_xi = c->block * (c->height + PAD) + PAD;
    c->v_block = c->xi_count * c->v_xi;
    c->z_panel = c->block * nr + PAD;
    c->z_xi = c->panels * c->z_panel;
    c->values = trmi_round_up(v_blocks * c->v_block + c->xi_count * c->z_xi, 16);
    int64_t parts_of_dw = c->direct ? 0 : trmi_round_up(c->splits * trmi_conv_weights_count(p), 16);
    c->shared_floats = c->together ? blocks * c->s_block + c->values : parts_of_dw;
    c->thread_floats = (c->together ? 0 : c->values + c->s_block) +
                       trmi_round_up(trmi_max_i64(p->c, p->o), 16) + 2 * TRMI_TILE_COLS +
                       trmi_round_up(c->block, 16);
    *scratch = trmi_scratch_bytes(c->shared_floats * 4, c->thread_floats * 4, c->threads);
    *state = c;
    return TRM_OK;
}

static void gradw_destroy(void *state) { trmi_free(state); }

const trmi_conv_algorithm trmi_conv_winograd_gradw = {.name = "winograd4x3",
                                                      .can = gradw_can,
                                                      .guess = gradw_guess,
                                                      .work = trmi_winograd_float_work,
                                                      .create = create_winograd_gradw,
                                                      .tile = trmi_gemm,
                                                      .run = gradw_run,
                                                      .destroy = gradw_destroy};

const trmi_conv_algorithm trmi_conv_winograd_gradw_pairs = {.name = "winograd2x3-bf16",
                                                            .can = pairs_can,
                                                            .guess = pairs_guess,
                                                            .work = pairs_work,
                                                            .create = create_winograd_gradw,
                                                            .tile = trmi_gemm_pairs,
                                                            .run = gradw_run,
                                                            .destroy = gradw_destroy};
