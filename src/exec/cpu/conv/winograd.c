/* SPDX-License-Identifier: Apache-2.0 */
/* Winograd convolution (Lavin and Gray 2016), forward and data gradient: F(4x4, 3x3) in float32,
 * and F(2x2, 3x3) with pairs of bfloat16, where U and V are rounded and M is summed in float32. The
 * relative error of the latter is 0.4 % (direct bfloat16 convolution: 0.17 %; F(4x4) in pairs: 2
 * %).
 *
 *   U = transformed weights [xi][k block][panel][k][nr], made once per run by all threads
 *   a thread takes blocks of tiles:   patches --B'dB--> V [xi][k block][tile][k]
 *                                     for each xi: M[xi] = V[xi] U[xi]     (tiles x channels)
 *                                     M --A'mA--> output pixels
 *
 *   scratch:  [ U | per thread: values, taps, offsets, zero pixel ]
 *
 *   values    one slot more than there are xi: V[xi] is in slot xi + 1, M[xi] in slot xi, which
 * holds V[xi - 1]:
 *             no longer needed and still in the cache. A slot has an odd number of cache lines, so
 * that
 *             the values of a tile do not conflict in a few sets of L1.
 *
 * The data gradient is the forward convolution of dy with the weights transposed and turned.
 */
#include "exec/cpu/scratch.h"
#include "exec/cpu/tuning/rates.h"
#include "exec/cpu/share.h"
#include "exec/cpu/conv/winograd.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <omp.h>
#include <string.h>

enum {
    XI = TRMI_WINO_XI,
    SLICE = 32, /* k of one weights transform */
    MANY = 64,  /* with fewer channels pairs are not used */
    SLICE_STRIDE = SLICE * TRMI_TILE_NR_MAX + 16,
    AHEAD = 3, /* the image, U, V */
    SOON = 2   /* pixels are prefetched so many tiles ahead */
};

/* The state of one convolution; read only in a run. */
typedef struct winograd {
    trmi_conv_problem problem;
    trmi_winograd_tiles tiles;
    const trmi_gemm_isa *gemm; /* of the products */
    const trmi_winograd_isa *isa;
    bool pairs;               /* products of pairs of bfloat16 */
    int32_t xi[XI], xi_count; /* those that its tiles have: all, or 16 */
    int threads;
    int64_t block, blocks; /* tiles per block at most, blocks */
    int64_t k_blocks, panels, ldm;
    int64_t u_xi, v_block, slot; /* floats from one to the next */
    bool streams;                /* the output is too large for the caches */
    int64_t shared_floats, thread_floats;
} winograd;

/* The scratch of one thread. */
typedef struct workspace {
    float *v, *m, *taps, *zero; /* v, m: of the first xi */
    float *whole;               /* transforms of weights that are rounded to pairs */
    int64_t *offsets;
    int32_t *places; /* of the block's tiles in V and M */
} workspace;

/* Returns the floats in which weights are transformed before they are rounded to pairs. */
static int64_t whole_floats(const winograd *c) { return c->pairs ? XI * SLICE_STRIDE : 0; }

/* Divides the scratch of the calling thread. Pixels outside the image read `zero`. */
static workspace workspace_of(const winograd *c, const trmi_scratch *scratch) {
    workspace w;
    w.m = (float *)(void *)trmi_scratch_own(scratch, omp_get_thread_num());
    w.v = w.m + c->slot;
    w.taps = w.m + (XI + 1) * c->slot;
    w.whole = w.taps + 9 * SLICE * TRMI_TILE_NR_MAX;
    w.zero = w.whole + whole_floats(c);
    w.offsets = (int64_t *)(w.zero + trmi_round_up(c->tiles.in_c, 16));
    w.places = (int32_t *)(w.offsets + c->block);
    memset(w.zero, 0, (size_t)c->tiles.in_c * sizeof(float));
    for (int64_t i = 0; i < c->block; i++) {
        w.offsets[i] = i * c->ldm;
    }
    return w;
}

/* Returns the largest k of a block; k_of: of block k_block. */
static int64_t k_most(const winograd *c) { return TRMI_TILE_K * c->gemm->pair; }

/* Returns the channels of a k block; the last one may have fewer. */
static int64_t k_of(const winograd *c, int64_t k_block) {
    return trmi_min_i64(k_most(c), c->tiles.in_c - k_block * k_most(c));
}

/* Returns the floats of a panel of U that is k deep; u_block: where a block of k begins in
 * U[xi]. */
static int64_t panel_floats(const winograd *c, int64_t k) {
    return k / c->gemm->pair * c->gemm->nr;
}

/* Returns the floats of U before a k block, in each xi. */
static int64_t u_block(const winograd *c, int64_t k_block) {
    return panel_floats(c, k_block * k_most(c)) * c->panels;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Packs `count` rows of k of one tap, for the columns of a panel. */
static void pack_tap(const winograd *c, const char *weights, int64_t tap, int64_t k, int64_t count,
                     int64_t column, float *to) {
    const trmi_conv_problem *p = &c->problem;
    int64_t bytes = (int64_t)trm_dtype_bytes(p->weights_type);
    int columns = (int)trmi_min_i64(c->gemm->nr, c->tiles.out_c - column);
    const trmi_gemm_isa *whole = trmi_gemm();
    if (p->direction == TRMI_CONV_FORWARD) {
        int64_t at = (tap * p->c + k) * p->o + column;
        whole->pack(to, weights + at * bytes, p->weights_type, p->o, count, columns);
    } else {
        int64_t at = ((8 - tap) * p->c + column) * p->o + k;
        whole->pack_transposed(to, weights + at * bytes, p->weights_type, p->o, count, columns);
    }
}

/* Transforms one slice of a panel of weights to U, all xi. */
static void make_slice(const winograd *c, int64_t count, float *to, const workspace *w) {
    int64_t nr = c->gemm->nr;
    if (!c->pairs) {
        c->isa->weights(to, c->u_xi, w->taps, SLICE * nr, count * nr);
        return;
    }
    c->isa->weights_small(w->whole, SLICE_STRIDE, w->taps, SLICE * nr, count * nr);
    for (int32_t i = 0; i < c->xi_count; i++) {
        c->gemm->pack(to + i * c->u_xi, w->whole + c->xi[i] * SLICE_STRIDE, TRM_FLOAT32, nr, count,
                      (int)nr);
    }
}

/* Transforms all weights to U, by the threads of the enclosing parallel region. */
static void transform_weights(const winograd *c, const void *weights, float *u,
                              const workspace *w) {
    int64_t nr = c->gemm->nr, slices = (c->tiles.in_c + SLICE - 1) / SLICE;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < slices * c->panels; i++) {
        int64_t k = i / c->panels * SLICE, panel = i % c->panels;
        int64_t count = trmi_min_i64(SLICE, c->tiles.in_c - k), k_block = k / k_most(c);
        for (int64_t tap = 0; tap < 9; tap++) {
            pack_tap(c, weights, tap, k, count, panel * nr, w->taps + tap * SLICE * nr);
        }
        float *to = u + u_block(c, k_block) + panel * panel_floats(c, k_of(c, k_block)) +
                    panel_floats(c, k % k_most(c));
        make_slice(c, count, to, w);
    }
}

/* ---- a block of tiles ------------------------------------------------------------------------ */

/* Transforms the patches of `count` tiles to V, in float32. */
static void transform_tiles(const winograd *c, const void *input, int64_t first, int64_t count,
                            const workspace *w) {
    trm_dtype type = c->tiles.in_bytes == 2 ? TRM_BFLOAT16 : TRM_FLOAT32;
    for (int64_t t = 0; t < count; t++) {
        const void *pixels[TRMI_WINO_IN];
        int ry, rx;
        if (t + SOON < count) {
            trmi_winograd_prefetch(&c->tiles, first + t + SOON, input);
        }
        trmi_winograd_size(&c->tiles, first + t, &ry, &rx);
        trmi_winograd_patch(&c->tiles, first + t, input, w->zero, pixels);
        for (int64_t k = 0; k < c->k_blocks; k++) {
            c->isa->input(w->v + k * c->v_block + w->places[t] * TRMI_TILE_STRIDE, c->slot, pixels,
                          type, k * k_most(c), k_of(c, k), ry, rx);
        }
    }
}

/* Transforms tiles of bfloat16, two neighbours at a time, a pair in each 32 bits. Tiles of 2x2 have
 * no edge classes, so they lie in order. */
static void transform_pairs(const winograd *c, const void *input, int64_t first, int64_t count,
                            const workspace *w) {
    int64_t step;
    for (int64_t t = 0; t < count; t += step) {
        const void *pixels[TRMI_WINO_IN];
        bool two = t + 1 < count && (first + t) % c->tiles.columns + 1 < c->tiles.columns;
        step = two ? 2 : 1;
        for (int64_t next = t + SOON; next < trmi_min_i64(count, t + SOON + step); next++) {
            trmi_winograd_prefetch(&c->tiles, first + next, input);
        }
        trmi_winograd_patch(&c->tiles, first + t, input, w->zero, pixels);
        for (int64_t k = 0; k < c->k_blocks; k++) {
            float *left = w->v + k * c->v_block + t * TRMI_TILE_STRIDE;
            c->isa->input_small((uint16_t *)left,
                                two ? (uint16_t *)(left + TRMI_TILE_STRIDE) : NULL, 2 * c->slot,
                                pixels, k * k_most(c), k_of(c, k));
        }
    }
}

/* Makes V of `count` tiles, in float32 or in pairs. */
static void transform_input(const winograd *c, const void *input, int64_t first, int64_t count,
                            const workspace *w) {
    if (c->pairs) {
        transform_pairs(c, input, first, count, w);
    } else {
        transform_tiles(c, input, first, count, w);
    }
}

/* Sets the prefetches for the products of the i-th xi and block of k: weights, then values of
 * tiles. */
static void next_values(const winograd *c, const float *u, int64_t i, int64_t k, int64_t count,
                        const workspace *w, trmi_prefetch soon[AHEAD - 1]) {
    int64_t depth = k_of(c, k), bytes = c->panels * panel_floats(c, depth) * 4;
    soon[0] = trmi_prefetch_rows(u + i * c->u_xi + u_block(c, k), bytes, 1, bytes);
    soon[1] = trmi_prefetch_rows(w->v + c->xi[i] * c->slot + k * c->v_block, TRMI_TILE_STRIDE * 4,
                                 count, depth / c->gemm->pair * 4);
}

/* Computes M[xi] (+)= V[xi] U[xi] for one block of k. */
static void multiply_one(const winograd *c, const float *left, const float *right, int64_t depth,
                         float *m, int64_t count, trmi_tile_store store, trmi_prefetch soon[AHEAD],
                         const workspace *w) {
    int64_t nr = c->gemm->nr, tiles = (count + c->gemm->mr - 1) / c->gemm->mr;
    trmi_tile tile = {.k = depth / c->gemm->pair, .store = store};
    for (int64_t j = 0; j < c->panels; j++) {
        tile.columns = (int)trmi_min_i64(nr, c->tiles.out_c - j * nr);
        tile.b = right + j * panel_floats(c, depth);
        tile.c = m + j * nr;
        for (int64_t i = 0, row = 0; i < tiles; i++) {
            tile.rows = (int)(count / tiles + (i < count % tiles));
            tile.a = left + row * TRMI_TILE_STRIDE;
            tile.row_offset = w->offsets + row;
            c->gemm->tile_rows(&tile, trmi_prefetch_next(soon, AHEAD));
            row += tile.rows;
        }
    }
}

/* Computes the products of a block of tiles for all xi. A tile at the edge has only some of
 * them. */
static void multiply_tiles(const winograd *c, const float *u, const trmi_winograd_order *order,
                           trmi_prefetch next_input, const workspace *w) {
    int64_t steps = c->xi_count * c->k_blocks;
    trmi_prefetch soon[AHEAD] = {next_input}; /* first: it comes from main memory */
    for (int64_t i = 0; i < steps; i++) {
        int64_t xi = c->xi[i / c->k_blocks], k = i % c->k_blocks;
        int64_t first, end;
        trmi_winograd_span(&c->tiles, order, xi, &first, &end);
        if (i + 1 < steps) {
            next_values(c, u, (i + 1) / c->k_blocks, (i + 1) % c->k_blocks,
                        order->begin[TRMI_WINO_CLASSES], w, soon + 1);
        }
        multiply_one(c, w->v + xi * c->slot + k * c->v_block + first * TRMI_TILE_STRIDE,
                     u + i / c->k_blocks * c->u_xi + u_block(c, k), k_of(c, k),
                     w->m + xi * c->slot + first * c->ldm, end - first,
                     k > 0 ? TRMI_TILE_ADD : TRMI_TILE_SET, soon, w);
    }
}

/* Transforms M of `count` tiles to output pixels, with bias. */
static void transform_output(const winograd *c, void *output, const float *bias, int64_t first,
                             int64_t count, const workspace *w) {
    bool stream = c->streams && (uintptr_t)output % 64 == 0;
    trm_dtype type = c->tiles.out_bytes == 2 ? TRM_BFLOAT16 : TRM_FLOAT32;
    for (int64_t t = 0; t < count; t++) {
        void *pixels[TRMI_WINO_OUT];
        int ry, rx;
        trmi_winograd_size(&c->tiles, first + t, &ry, &rx);
        trmi_winograd_outputs(&c->tiles, first + t, output, NULL, pixels);
        c->isa->output(pixels, type, 0, c->tiles.out_c, w->m + w->places[t] * c->ldm, c->slot, bias,
                       ry, rx, stream);
    }
}

/* Runs the convolution. All threads transform their part of the weights to u first; then each
 * takes blocks of tiles, and takes a block through all three phases alone: input transform,
 * products, output transform. The transformed values of a block thus stay in the thread's cache. */
static trm_status winograd_run(const void *state, const trmi_conv_args *args, trm_error *err) {
    const winograd *c = state;
    (void)err;
    bool data = c->problem.direction == TRMI_CONV_DATA;
    const void *input = data ? args->result : args->image;
    void *output = data ? args->image : args->result;
    const trmi_scratch scratch = trmi_scratch_cut(
        args->scratch, args->scratch_bytes, c->shared_floats * 4, c->thread_floats * 4, c->threads);
    float *u = (float *)(void *)trmi_scratch_shared(&scratch);
    trmi_share blocks;
    trmi_share_begin(&blocks, c->blocks, c->threads);
#pragma omp parallel num_threads(c->threads)
    {
        workspace w = workspace_of(c, &scratch);
        transform_weights(c, args->weights, u, &w);
        for (int64_t b; (b = trmi_share_take(&blocks, omp_get_thread_num())) >= 0;) {
            int64_t first = c->tiles.count * b / c->blocks;
            int64_t count = c->tiles.count * (b + 1) / c->blocks - first;
            trmi_winograd_order order = trmi_winograd_arrange(&c->tiles, first, count, w.places);
            transform_input(c, input, first, count, &w);
            /* While a block is multiplied the input of the following one is prefetched. */
            trmi_prefetch next = trmi_winograd_input_ahead(
                &c->tiles, input, first + count, c->tiles.count * (b + 2) / c->blocks - 1);
            multiply_tiles(c, u, &order, next, &w);
            transform_output(c, output, c->problem.bias ? args->bias : NULL, first, count, &w);
        }
        c->gemm->fence();
    }
    return TRM_OK;
}

/* ---- the algorithm --------------------------------------------------------------------------- */

static bool winograd_can(const trmi_conv_problem *p) {
    return p->direction != TRMI_CONV_WEIGHTS && trmi_winograd_can(p);
}

/* Return the seconds by the cost model (winograd.h): the rate of the products in FLOP/s of one
 * core, and the operations of the transforms. Only their relation to those of other algorithms
 * matters. */
static double winograd_guess(const trmi_conv_problem *p, int threads) {
    return trmi_winograd_seconds(p, 4, sizeof(float), 170e9, 7, threads);
}

static bool pairs_can(const trmi_conv_problem *p) {
    return winograd_can(p) && trmi_gemm_pairs() != NULL && trmi_winograd()->input_small != NULL &&
           p->image_type == TRM_BFLOAT16 && p->result_type == TRM_BFLOAT16 && p->c >= MANY &&
           p->o >= MANY;
}

static double pairs_guess(const trmi_conv_problem *p, int threads) {
    return trmi_winograd_seconds(p, 2, sizeof(uint16_t), 190e9 * trmi_onednn_pairs_gain(), 4,
                                 threads);
}

static double pairs_work(const trmi_conv_problem *p) {
    return trmi_winograd_all_work(p, 2, trmi_onednn_pairs_gain());
}

/* Tiles per block: V and M of one block in a third of 2 MB of L2 while U stays there too; more
 * where U passes by from L3, because each block reads all of it and prefetches it one xi ahead.
 * Every thread has as many blocks. */
static int64_t blocks_of(const winograd *c) {
    int64_t per_tile = c->xi_count * (c->tiles.in_c / c->gemm->pair + c->panels * c->gemm->nr) * 4,
            mr = c->gemm->mr;
    int64_t u_bytes = c->xi_count * c->u_xi * 4;
    int64_t budget = u_bytes <= 1 << 20 ? 700 << 10 : u_bytes <= 4 << 20 ? 2500 << 10 : 4500 << 10;
    int64_t most = trmi_max_i64(mr, budget / per_tile / mr * mr);
    int64_t blocks = trmi_round_up((c->tiles.count + most - 1) / most, c->threads);
    return trmi_min_i64(blocks, c->tiles.count);
}

static void winograd_destroy(void *state) { trmi_free(state); }

/* Makes the state, F(4x4, 3x3) in float32 or F(2x2, 3x3) of pairs: the points of the transform
 * (size: pixels of an output tile in each direction), the block of tiles that a thread takes at
 * once, and the strides of the transformed arrays. The added 16 values in strides keep arrays that
 * are written together out of the same cache sets. */
static trm_status create_winograd(const trmi_conv_algorithm *self, trmi_onednn *backend,
                                  const trmi_conv_problem *p, void **state, int64_t *scratch,
                                  trm_error *err) {
    const trmi_gemm_isa *gemm = self->tile();
    const int size = gemm->pair == 2 ? 2 : 4;
    winograd *c;
    TRMI_TRY(TRMI_NEW(err, c, 1, "for a convolution"));
    *c = (winograd){.problem = *p,
                    .gemm = gemm,
                    .isa = trmi_winograd(),
                    .pairs = gemm->pair == 2,
                    .threads = backend->threads};
    trmi_winograd_tiles_init(&c->tiles, p, size);
    c->xi_count = trmi_winograd_points(size, c->xi);
    /* Blocks of the summed channels, and panels of output channels. */
    int64_t nr = c->gemm->nr;
    c->k_blocks = trmi_pieces(c->tiles.in_c, k_most(c));
    c->panels = (c->tiles.out_c + nr - 1) / nr;
    c->ldm = c->panels * nr + 16;
    /* 36 places that are written together do not crowd in one set */
    c->u_xi = panel_floats(c, c->tiles.in_c) * c->panels + 16;
    /* Blocks of tiles are of nearly equal size. A slot holds the values of one xi of a block,
     * before and after the product. */
    c->blocks = blocks_of(c);
    c->block = (c->tiles.count + c->blocks - 1) / c->blocks;
    c->v_block = c->block * TRMI_TILE_STRIDE;
    c->slot = trmi_round_up(trmi_max_i64(c->k_blocks * c->v_block, c->block * c->ldm), 32) + 16;
    c->streams =
        c->tiles.n * c->tiles.out_h * c->tiles.out_w * c->tiles.out_c * c->tiles.out_bytes >
        TRMI_STREAM_BYTES;
    c->shared_floats = c->xi_count * c->u_xi;
    c->thread_floats =
        trmi_round_up((XI + 1) * c->slot + 9 * SLICE * TRMI_TILE_NR_MAX + whole_floats(c) +
                          trmi_round_up(c->tiles.in_c, 16) + 3 * c->block,
                      16);
    *scratch = trmi_scratch_bytes(c->shared_floats * 4, c->thread_floats * 4, c->threads);
    *state = c;
    return TRM_OK;
}

const trmi_conv_algorithm trmi_conv_winograd = {.name = "winograd4x3",
                                                .can = winograd_can,
                                                .guess = winograd_guess,
                                                .work = trmi_winograd_float_work,
                                                .create = create_winograd,
                                                .tile = trmi_gemm,
                                                .run = winograd_run,
                                                .destroy = winograd_destroy};

const trmi_conv_algorithm trmi_conv_winograd_pairs = {.name = "winograd2x3-bf16",
                                                      .can = pairs_can,
                                                      .guess = pairs_guess,
                                                      .work = pairs_work,
                                                      .create = create_winograd,
                                                      .tile = trmi_gemm_pairs,
                                                      .run = winograd_run,
                                                      .destroy = winograd_destroy};
