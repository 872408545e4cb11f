/* SPDX-License-Identifier: Apache-2.0 */
/* Weight gradient of convolutions as matrix products: dW[taps * I, O] = (gathered rows of x)^T dy,
 * summed over all output pixels.
 *
 *   task = (split of the pixels) x (block of dW's rows) x (block of its columns)
 *
 *      for chunks of 256 pixels of the split:
 *          B = dy's columns [pixels x 256], A = x's gathered rows turned to [rows of dW x pixels]
 *          dW block (+)= A B, tile by tile
 *
 * On tiny images every position is a group, with the batch as its rows. The chunks of a block then
 * run through all groups that use its taps, so that sums are long.
 *
 * In float32, tiles read dy in place, and x in place if a row is a pixel, up to PLAIN channels;
 * otherwise chunks are copied to rows of TRMI_TILE_STRIDE, pairs of bfloat16 to panels. The data of
 * the next chunk is prefetched to L2 while tiles multiply.
 *
 * Splits have their own sums, added at the end (splits.h): how many depends on the shape only, so
 * the bits do not depend on the number of threads.
 *
 * With blocks of samples (strict determinism) each block is summed by itself, and blocks are added
 * in the order of their tree (base/tree.h). Small blocks lie side by side in a chunk and are added
 * tile by tile; larger ones are one or more chunks, and have sums of their own by level of the
 * tree. A split is then a part of the tree.
 *
 * A task sums in rows of TRMI_TILE_STRIDE, and copies them to the rows of dW at its end; the sums
 * of a single chunk are stored there at once. Large gradients are stored past the caches, because
 * they are read only after all gradients are computed.
 *
 *   scratch:  [ sums of split 0 | 1 | ... | per thread: B, A, sums, two rows, zeros, offsets ] */
#include "exec/cpu/conv/conv_geometry.h"
#include "exec/cpu/tuning/rates.h"
#include "exec/cpu/scratch.h"
#include "exec/cpu/share.h"
#include "exec/cpu/gemm/splits.h"
#include "base/tree.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <omp.h>
#include <string.h>

/* Pixels of a chunk, columns of dW in a task, tasks to make at least, and pixels up to which a
 * chunk's stores to dW take longer than its products. */
enum { CHUNK = TRMI_TILE_K, COLUMNS = 256, TASKS = 8, FEW = 64 };
/* Prefetches of a product: what its end needs, and what is gathered next. */
enum { AHEAD = 1 + TRMI_CONV_AHEAD };
enum { PLAIN = 256 }; /* up to so many channels, rows of an image do not conflict in L1 */
/* A dW of so many bytes is stored past the caches. */
enum { STREAM_BYTES = 1 << 20 };
enum { ROUND = 16 }; /* a range of rows is rounded to a multiple of this */

/* Rows [row, row + rows) of one group of the geometry that contribute to a block of dW's rows. */
typedef struct piece {
    const trmi_conv_use *use; /* how the group uses the block; borrowed from the geometry */
    int32_t group;
    int64_t row, rows;
} piece;

/* Up to CHUNK rows, as pieces; `rows` is their sum. */
typedef struct chunk {
    const piece *pieces;
    int64_t pieces_count, rows;
} chunk;

/* The chunks that are summed into a block of dW's rows. */
typedef struct block_sum {
    int64_t row; /* of dW, its first */
    chunk *chunks;
    int64_t chunks_count;
    /* blocks of samples: in a chunk, of so many rows; and units, of so many chunks. A unit is one
     * block, or all blocks of a chunk. */
    int64_t inner, inner_rows, unit_chunks;
    trmi_tree tree; /* of the units */
} block_sum;

/* The state of one convolution; read only in a run. Sizes in floats. */
typedef struct gradw {
    trmi_conv_problem problem;
    trmi_conv_geometry g;
    const trmi_gemm_isa *isa;
    int threads;
    int64_t splits, column_blocks, columns; /* per block: a multiple of nr */
    bool direct;                            /* one split, float32: tasks write dW itself */
    bool plain_a, plain_b;                  /* tiles read x, dy */
    bool streams;                           /* dW is large, and its rows begin where lines do */
    block_sum *blocks;
    int32_t first, last; /* blocks [first, last) are made: all, or those of some rows */
    int64_t shared_floats, thread_floats, a_floats, b_floats, sums_floats;
    trmi_tree tree; /* of the blocks of samples */
} gradw;

/* The scratch of one thread. */
typedef struct workspace {
    float *a, *b, *sums, *row; /* row: two of them */
    const uint16_t *zeros;
    int64_t *pixel, *out, *far; /* rows of the sums; of dW */
} workspace;

/* Divides the scratch of the calling thread, in the order of the drawing above. */
static workspace workspace_of(const gradw *c, const trmi_scratch *scratch) {
    workspace w;
    w.b = (float *)(void *)trmi_scratch_own(scratch, omp_get_thread_num());
    w.a = w.b + c->b_floats;
    w.sums = w.a + c->a_floats;
    w.row = w.sums + c->sums_floats;
    float *zeros = w.row + 2 * TRMI_TILE_STRIDE;
    memset(zeros, 0, TRMI_TILE_STRIDE * sizeof *zeros);
    w.zeros = (const uint16_t *)zeros;
    w.pixel = (int64_t *)(zeros + TRMI_TILE_STRIDE);
    w.out = w.pixel + CHUNK;
    w.far = w.out + TRMI_TILE_COLS;
    return w;
}

/* Returns the height of A's panels for a block of k rows of dW: nearly equal, at most a tile. */
static int panel_height(const gradw *c, int64_t k) {
    int64_t tiles = (k + c->isa->mr - 1) / c->isa->mr;
    return (int)((k + tiles - 1) / tiles);
}

/* One side of a chunk's products: k of panel i is at first + i * panel + k * stride. */
typedef struct side {
    const float *first;
    int64_t panel, stride;
} side;

/* Returns the floats from one panel of pairs of pixels to the next. The number of cache lines is
 * odd, so that panels do not conflict in a few sets. */
static int64_t panel_floats(int room) { return (int64_t)CHUNK / 2 * room + TRMI_TILE_COLS; }

/* Interleaves rows of bfloat16 in pairs. An even row is kept until the odd one follows; after the
 * last row, deal_last pairs a kept one with zeros. */
typedef struct dealer {
    const gradw *c;
    float *to;
    int width, room;
    int64_t count;
    const uint16_t *even; /* NULL: none waits */
} dealer;

/* Takes the next row: keeps an even one, interleaves an odd one with the kept one. */
static void deal_row(dealer *d, const uint16_t *row) {
    if (d->even == NULL) {
        d->even = row;
        return;
    }
    d->c->isa->deal(d->to, panel_floats(d->room), d->width, d->room, d->even, row, d->count);
    d->to += d->room;
    d->even = NULL;
}

/* Pairs a kept row with zeros, which add nothing to the sums. */
static void deal_last(dealer *d, const uint16_t *zeros) {
    if (d->even != NULL) {
        deal_row(d, zeros);
    }
}

/* Returns B of a chunk: dy in place, copied to rows, or interleaved to panels. */
static side side_b(const gradw *c, const void *dy, const chunk *part, int64_t column, int64_t count,
                   const workspace *w) {
    int64_t nr = c->isa->nr, bytes = (int64_t)trm_dtype_bytes(c->g.out_type);
    /* Nothing is copied: dy already has the form that the tiles read. */
    if (c->plain_b) {
        return (side){(const float *)dy + part->pieces->row * c->g.out_c + column, nr, c->g.out_c};
    }
    /* Otherwise collect where each row of the chunk lies. */
    for (int64_t i = 0, r = 0; i < part->pieces_count; r += part->pieces[i++].rows) {
        const piece *p = &part->pieces[i];
        trmi_conv_row_offsets(&c->g, &c->g.groups[p->group], p->row, p->rows, w->pixel + r);
    }
    const char *from = (const char *)dy + column * bytes;
    /* Tiles that multiply float32 read rows of float32. */
    if (c->isa->pair == 1) {
        for (int64_t r = 0; r < part->rows; r++) {
            c->isa->widen(w->b + r * TRMI_TILE_STRIDE, from + w->pixel[r] * bytes, c->g.out_type,
                          count);
        }
        return (side){w->b, nr, TRMI_TILE_STRIDE};
    }
    /* Tiles that multiply pairs of bfloat16 read two interleaved rows at a time, panel by panel. A
     * panel that is not full is filled with zeros. */
    if (count % nr != 0) {
        memset(w->b + count / nr * panel_floats((int)nr), 0,
               (size_t)(CHUNK / 2 * nr) * sizeof(float));
    }
    dealer d = {.c = c, .to = w->b, .width = (int)nr, .room = (int)nr, .count = count};
    for (int64_t r = 0; r < part->rows; r++) {
        deal_row(&d, (const uint16_t *)(from + w->pixel[r] * bytes));
    }
    deal_last(&d, w->zeros);
    return (side){w->b, panel_floats((int)nr), nr};
}

/* Returns A of a chunk: the gathered rows of x, in the same three forms. */
static side side_a(const gradw *c, const void *x, int32_t block, const chunk *part, int height,
                   const workspace *w) {
    const trmi_conv_block *b = &c->g.blocks[block];
    if (c->plain_a) {
        return (side){(const float *)x + part->pieces->row * c->g.in_c + b->channel, height,
                      c->g.in_c};
    }
    dealer d = {.c = c, .to = w->a, .width = height, .room = TRMI_TILE_COLS, .count = b->k};
    for (int64_t i = 0, r = 0; i < part->pieces_count; r += part->pieces[i++].rows) {
        const piece *p = &part->pieces[i];
        const trmi_conv_group *group = &c->g.groups[p->group];
        /* In float32 all rows of the piece are copied at once, ... */
        if (c->isa->pair == 1) {
            trmi_conv_gather(&c->g, c->isa, x, group, p->use, p->row, p->rows,
                             w->a + r * TRMI_TILE_STRIDE, TRMI_TILE_STRIDE);
            continue;
        }
        /* ... in bfloat16 row by row, two of which deal_row interleaves. */
        for (int64_t q = 0; q < p->rows; q++) {
            if (c->g.pointwise) {
                deal_row(&d, (const uint16_t *)x + (p->row + q) * c->g.in_c + b->channel);
                continue;
            }
            float *row = w->row + (d.even != NULL) * TRMI_TILE_STRIDE;
            trmi_conv_gather(&c->g, c->isa, x, group, p->use, p->row + q, 1, row, 0);
            deal_row(&d, (const uint16_t *)row);
        }
    }
    deal_last(&d, w->zeros);
    return c->isa->pair == 1 ? (side){w->a, height, TRMI_TILE_STRIDE}
                             : (side){w->a, panel_floats(TRMI_TILE_COLS), TRMI_TILE_COLS};
}

/* The product of one chunk, which is added to a block of dW. */
typedef struct product {
    const chunk *part;
    side a, b;
    int64_t k, count;          /* rows and columns of the block */
    int height;                /* of A's panels */
    trmi_prefetch soon[AHEAD]; /* data of the next product */
} product;

/* ---- blocks of samples ---- */

enum { LEVEL = TRMI_TILE_K * TRMI_TILE_STRIDE }; /* floats of a level's sums */
enum { TILE = TRMI_TILE_ROWS_MAX * TRMI_TILE_NR_MAX };

/* Multiplies one tile of all blocks of a chunk. Each block is summed by itself, on a stack of
 * levels; the sum of all is in levels[0] at the end. */
static void run_inner_tile(const gradw *c, const block_sum *sum, const trmi_tile *tile,
                           trmi_prefetch soon[AHEAD], float levels[][TILE]) {
    trmi_tree of = {.classes = sum->inner / c->tree.members, .members = c->tree.members};
    int64_t offsets[TRMI_TILE_ROWS_MAX], nr = c->isa->nr;
    trmi_tile t = *tile;
    t.row_offset = offsets;
    t.k = sum->inner_rows;
    for (int i = 0; i < t.rows; i++) {
        offsets[i] = i * nr;
    }
    /* levels is a stack of partial sums. A new subtree pushes one; where the tree joins two
     * subtrees their sums are added. */
    for (int64_t u = 0, depth = 0; u < sum->inner; u++) {
        bool begins = trmi_tree_begins(&of, u);
        depth += begins;
        t.c = levels[depth - 1];
        t.store = begins ? TRMI_TILE_SET : TRMI_TILE_ADD;
        c->isa->tile_cols(&t, trmi_prefetch_next(soon, AHEAD));
        t.a += t.k * t.a_stride;
        t.b += t.k * t.b_stride;
        for (int64_t joins = trmi_tree_joins(&of, u); joins > 0; joins--, depth--) {
            c->isa->sum(levels[depth - 2], levels[depth - 2], TILE, 2, t.rows * nr);
        }
    }
}

/* Multiplies a chunk of several blocks: adds their products tile by tile, to rows of `ld` floats.
 */
static void multiply_inner(const gradw *c, const block_sum *sum, product *p, float *to,
                           int64_t ld) {
    _Alignas(64) float levels[TRMI_TREE_LEVELS][TILE];
    int64_t nr = c->isa->nr;
    int64_t down = trmi_pieces(p->k, p->height), across = trmi_pieces(p->count, nr);
    /* run_inner_tile adds whole rows of nr floats, also the columns that the last tile does not
     * write: these must be defined. */
    if (p->count % nr != 0) {
        memset(levels, 0, sizeof levels);
    }
    for (int64_t n = 0; n < down * across; n++) {
        int64_t i = n / across, j = n % across;
        trmi_tile tile = {.a = p->a.first + i * p->a.panel,
                          .b = p->b.first + j * p->b.panel,
                          .a_stride = p->a.stride,
                          .b_stride = p->b.stride,
                          .rows = (int)trmi_min_i64(p->height, p->k - i * p->height),
                          .columns = (int)trmi_min_i64(nr, p->count - j * nr)};
        run_inner_tile(c, sum, &tile, p->soon, levels);
        for (int r = 0; r < tile.rows; r++) {
            memcpy(to + (i * p->height + r) * ld + j * nr, levels[0] + r * nr,
                   (size_t)tile.columns * sizeof *to);
        }
    }
}

/* Adds the sums of the last level to those of the level before. */
static void join_levels(const gradw *c, int64_t depth, int64_t k, int64_t count,
                        const workspace *w) {
    float *to = w->sums + (depth - 2) * LEVEL;
    for (int64_t r = 0; r < k; r++) {
        float *row = to + r * TRMI_TILE_STRIDE;
        c->isa->sum(row, row, LEVEL, 2, count);
    }
}

/* ---- one chunk ---- */

/* Multiplies one chunk into sums of the thread; `add`: adds to what is there. */
static void multiply_chunk(const gradw *c, product *p, bool add, float *sums, const workspace *w) {
    int64_t nr = c->isa->nr;
    trmi_tile tile = {.a_stride = p->a.stride,
                      .b_stride = p->b.stride,
                      .k = trmi_pieces(p->part->rows, c->isa->pair),
                      .row_offset = w->out,
                      .store = add ? TRMI_TILE_ADD : TRMI_TILE_SET};
    for (int64_t j = 0; j * nr < p->count; j++) {
        tile.columns = (int)trmi_min_i64(nr, p->count - j * nr);
        tile.b = p->b.first + j * p->b.panel;
        for (int64_t i = 0; i * p->height < p->k; i++) {
            tile.rows = (int)trmi_min_i64(p->height, p->k - i * p->height);
            tile.a = p->a.first + i * p->a.panel;
            tile.c = sums + i * p->height * TRMI_TILE_STRIDE + j * nr;
            c->isa->tile_cols(&tile, trmi_prefetch_next(p->soon, AHEAD));
        }
    }
}

/* Multiplies the only chunk of a task: tiles store to dW directly. With few pixels the stores take
 * most of the time, so tiles follow the rows of dW, and B stays in a near cache. */
static void multiply_once(const gradw *c, product *p, float *dw, const workspace *w) {
    int64_t nr = c->isa->nr;
    int64_t down = trmi_pieces(p->k, p->height), across = trmi_pieces(p->count, nr);
    bool few = p->part->rows <= FEW, stream = c->streams && (uintptr_t)dw % 64 == 0;
    trmi_tile tile = {.a_stride = p->a.stride,
                      .b_stride = p->b.stride,
                      .k = trmi_pieces(p->part->rows, c->isa->pair),
                      .row_offset = w->far,
                      .store = stream ? TRMI_TILE_STREAM : TRMI_TILE_SET};
    for (int64_t t = 0; t < down * across; t++) {
        int64_t i = few ? t / across : t % down, j = few ? t % across : t / down;
        tile.rows = (int)trmi_min_i64(p->height, p->k - i * p->height);
        tile.columns = (int)trmi_min_i64(nr, p->count - j * nr);
        tile.a = p->a.first + i * p->a.panel;
        tile.b = p->b.first + j * p->b.panel;
        tile.c = dw + i * p->height * c->problem.o + j * nr;
        c->isa->tile_cols(&tile, trmi_prefetch_next(p->soon, AHEAD));
    }
}

/* A unit of work: the rows of one block and `count` columns of dW, summed over one split. */
typedef struct task {
    int32_t block;
    int64_t split, column, count;
    int64_t begin, end; /* chunks */
    /* the second of two chunks is first: a sum of two does not depend on the order */
    bool turned;
} task;

/* Returns task `item`. A thread of the second half of the team begins with the second half of the
 * images, which its caches are more likely to hold. */
static task task_at(const gradw *c, int64_t item, bool second_half) {
    int64_t per_split = (c->last - c->first) * c->column_blocks, rest = item % per_split;
    task t = {.block = c->first + (int32_t)(rest / c->column_blocks),
              .split = item / per_split,
              .column = rest % c->column_blocks * c->columns};
    int64_t chunks = c->blocks[t.block].chunks_count;
    t.count = trmi_min_i64(c->columns, c->problem.o - t.column);
    t.begin = chunks * t.split / c->splits; /* of units: whole ones */
    t.end = chunks * (t.split + 1) / c->splits;
    t.turned = second_half && c->splits == 1 && t.end - t.begin == 2 && c->problem.blocks == 0;
    return t;
}

/* Returns chunk i of a task. Turned tasks go backwards: they begin with the chunks that the task
 * before has left in the caches. */
static const chunk *chunk_at(const gradw *c, const task *t, int64_t i) {
    return &c->blocks[t->block].chunks[t->turned ? t->end - 1 - i : t->begin + i];
}

/* Sets the prefetches for a chunk: dy, then x, if there is one group. */
static void set_prefetches(const gradw *c, const trmi_conv_args *args, const chunk *part,
                           const task *t, trmi_prefetch soon[AHEAD]) {
    int64_t out = (int64_t)trm_dtype_bytes(c->g.out_type);
    const piece *p = part->pieces;
    if (c->g.groups_count > 1) {
        return;
    }
    soon[0] =
        trmi_prefetch_rows((const char *)args->result + (p->row * c->g.out_c + t->column) * out,
                           c->g.out_c * out, p->rows, t->count * out);
    trmi_conv_prefetches(&c->g, args->image, c->g.groups, p->use, p->row, p->rows, soon + 1);
}

/* Copies the complete sums of a task to their rows of dW or of the split. */
static void store_sums(const gradw *c, const task *t, float *to, const workspace *w) {
    int64_t o = c->problem.o, k = c->g.blocks[t->block].k;
    bool stream = c->streams && (uintptr_t)to % 64 == 0, empty = t->begin == t->end;
    if (empty) { /* these taps only see padding */
        memset(w->sums, 0, (size_t)t->count * sizeof *w->sums);
    }
    for (int64_t r = 0; r < k; r++) {
        const float *from = w->sums + (empty ? 0 : r * TRMI_TILE_STRIDE);
        if (stream) {
            c->isa->stream(to + r * o, from, t->count);
        } else {
            memcpy(to + r * o, from, (size_t)t->count * sizeof *to);
        }
    }
}

/* Prepares the product of chunk i of a task, and what is prefetched meanwhile: the next chunk, or
 * the first one of the task `next` of this thread (NULL: none). */
static product make_product(const gradw *c, const trmi_conv_args *args, const task *t,
                            const task *next, int64_t i, const workspace *w) {
    const chunk *part = chunk_at(c, t, i);
    int64_t k = c->g.blocks[t->block].k;
    product p = {.part = part, .k = k, .count = t->count, .height = panel_height(c, k)};
    p.b = side_b(c, args->result, part, t->column, t->count, w);
    p.a = side_a(c, args->image, t->block, part, p.height, w);
    if (i + 1 < t->end - t->begin) {
        set_prefetches(c, args, chunk_at(c, t, i + 1), t, p.soon);
    } else if (next != NULL && next->begin < next->end) {
        set_prefetches(c, args, chunk_at(c, next, 0), next, p.soon);
    }
    return p;
}

/* Adds the product of chunk i to the sum of its unit, which is on top of a stack of `depth` sums.
 * When the unit ends, the sums that the tree joins there are added. Returns the new depth. */
static int64_t add_to_tree(const gradw *c, const block_sum *sum, product *p, int64_t i,
                           int64_t depth, const workspace *w) {
    bool begins = i % sum->unit_chunks == 0, ends = (i + 1) % sum->unit_chunks == 0;
    depth += begins;
    float *level = w->sums + (depth - 1) * LEVEL;
    if (sum->inner > 1) {
        multiply_inner(c, sum, p, level, TRMI_TILE_STRIDE);
    } else {
        multiply_chunk(c, p, !begins, level, w);
    }
    if (ends) {
        int64_t unit = i / sum->unit_chunks;
        int64_t joins = trmi_tree_joins(&sum->tree, unit) + !trmi_tree_begins(&sum->tree, unit);
        for (; joins > 0; joins--, depth--) {
            join_levels(c, depth, p->k, p->count, w);
        }
    }
    return depth;
}

/* Computes one task. `next`: the following task of this thread, for prefetching; NULL: none. */
static void run_task(const gradw *c, const trmi_conv_args *args, float *sums, const task *t,
                     const task *next, const workspace *w) {
    const block_sum *sum = &c->blocks[t->block];
    int64_t o = c->problem.o, chunks = t->end - t->begin, depth = 0;
    float *to = sums + t->split * trmi_conv_weights_count(&c->problem) + sum->row * o + t->column;
    for (int64_t i = 0; i < chunks; i++) {
        product p = make_product(c, args, t, next, i, w);
        if (chunks == 1 && sum->inner > 1) {
            multiply_inner(c, sum, &p, to, o);
        } else if (chunks == 1) {
            multiply_once(c, &p, to, w);
        } else if (c->problem.blocks == 0) {
            multiply_chunk(c, &p, i > 0, w->sums, w); /* all chunks are added to one sum */
        } else {
            depth = add_to_tree(c, sum, &p, i, depth, w);
        }
    }
    /* the sums of a single chunk are at their place */
    if (chunks != 1) {
        store_sums(c, t, to, w);
    }
}

/* Computes a gradient of the weights. Threads take tasks in any order, but each split of the
 * pixels has its own sum; after a barrier the splits are added in a fixed order, so that the
 * bits do not depend on which thread had which task. */
static trm_status gradw_run(const void *state, const trmi_conv_args *args, trm_error *err) {
    const gradw *c = state;
    (void)err;
    const trmi_scratch scratch = trmi_scratch_cut(
        args->scratch, args->scratch_bytes, c->shared_floats * 4, c->thread_floats * 4, c->threads);
    float *sums = c->direct ? args->weights : (float *)(void *)trmi_scratch_shared(&scratch);
    trmi_share share;
    trmi_share_begin(&share, c->splits * (c->last - c->first) * c->column_blocks, c->threads);
#pragma omp parallel num_threads(c->threads)
    {
        /* The second half of the threads takes tasks in another order (task_at). */
        int me = omp_get_thread_num();
        bool second = 2 * me >= omp_get_num_threads();
        workspace w = workspace_of(c, &scratch);
        for (int64_t i = 0; i < TRMI_TILE_COLS; i++) {
            w.out[i] = i * TRMI_TILE_STRIDE;
            w.far[i] = i * c->problem.o;
        }
        /* The thread's following task is known while it works, so that its data can be
         * prefetched. */
        for (int64_t t; (t = trmi_share_take(&share, me)) >= 0;) {
            int64_t then = trmi_share_peek(&share, me);
            task now = task_at(c, t, second), next = task_at(c, then < 0 ? t : then, second);
            run_task(c, args, sums, &now, then < 0 ? NULL : &next, &w);
        }
        c->isa->fence();
        if (!c->direct) {
#pragma omp barrier
            (c->problem.blocks > 0 ? trmi_splits_join : trmi_splits_add)(
                c->isa, sums, c->splits, trmi_conv_weights_count(&c->problem), args->weights,
                c->problem.weights_type);
        }
    }
    return TRM_OK;
}

/* ---- the algorithm --------------------------------------------------------------------------- */

static bool gradw_can(const trmi_conv_problem *p) {
    return p->direction == TRMI_CONV_WEIGHTS && trmi_conv_gathers(p);
}

/* Returns the predicted seconds, by rates that were measured on one machine; small images reach
 * a part of them because their sums are short. */
static double gradw_guess(const trmi_conv_problem *p, int threads) {
    double flops = trmi_conv_gathered_flops(p);
    double rate = p->kh * p->kw > 1 ? 148e9 : 138e9; /* 1x1: more copies for the same FLOPs */
    if (p->c < 16) {
        rate = 90e9;
    } else if (p->kh * p->kw == 1 && p->stride[0] == 1 && p->c * p->o <= PLAIN * PLAIN) {
        rate = p->c <= PLAIN && p->o <= PLAIN ? 155e9 : 145e9;
    }
    return (flops / rate + (double)trmi_conv_weights_count(p) * 4 / 20e9) / threads + 10e-6;
}

/* Returns how a group uses a block; NULL: none of its taps are in the block. */
static const trmi_conv_use *use_of(const gradw *c, int32_t group, int32_t block) {
    const trmi_conv_group *g = &c->g.groups[group];
    for (int32_t u = g->uses; u < g->uses + g->uses_count; u++) {
        if (c->g.uses[u].block == block) {
            return &c->g.uses[u];
        }
    }
    return NULL;
}

/* Returns the number of rows of all groups that use a block. */
static int64_t rows_seen(const gradw *c, int32_t block) {
    int64_t rows = 0;
    for (int32_t i = 0; i < c->g.groups_count; i++) {
        rows += use_of(c, i, block) != NULL ? c->g.groups[i].rows : 0;
    }
    return rows;
}

/* Returns the chunks of some rows of one group. */
static int64_t chunks_of(int64_t rows) { return trmi_pieces(rows, CHUNK); }

/* Cuts the rows of a block of samples into nearly equal chunks, or joins small blocks in one. All
 * samples are one block where there are none. */
static void choose_chunks(const gradw *c, block_sum *sum, int64_t rows) {
    int64_t all = trmi_tree_blocks(&c->tree), most = all / c->tree.members;
    sum->inner = 1;
    sum->inner_rows = rows / all;
    sum->unit_chunks = chunks_of(sum->inner_rows);
    for (int64_t classes = 1; classes <= most && sum->inner_rows > 0; classes *= 2) {
        bool fits = classes * c->tree.members * sum->inner_rows <= CHUNK && c->isa->pair == 1;
        sum->inner = fits ? classes * c->tree.members : sum->inner;
    }
    sum->tree = (trmi_tree){.classes = sum->inner > 1 ? all / sum->inner : most,
                            .members = sum->inner > 1 ? 1 : c->tree.members};
    sum->chunks_count = trmi_tree_blocks(&sum->tree) * sum->unit_chunks;
}

/* Gives rows [row, end) of a group, block by block of samples, to the chunks. */
static void add_rows(const block_sum *sum, int64_t *cuts, piece **next, piece rows, int64_t end) {
    while (rows.row < end) {
        chunk *part = &sum->chunks[*cuts];
        int64_t parts = sum->unit_chunks, at = *cuts % parts, all = sum->inner * sum->inner_rows;
        int64_t whole = all / parts + (at < all % parts);
        piece *last = part->pieces_count > 0 ? *next - 1 : NULL;
        rows.rows = trmi_min_i64(end - rows.row, whole - part->rows);
        if (last != NULL && last->group == rows.group && last->row + last->rows == rows.row) {
            last->rows += rows.rows;
        } else {
            **next = rows;
            part->pieces = part->pieces_count++ == 0 ? *next : part->pieces;
            ++*next;
        }
        part->rows += rows.rows;
        rows.row += rows.rows;
        *cuts += part->rows == whole;
    }
}

/* Plans the sum of one block of dW's rows: lists the pieces of all groups of pixels that use its
 * taps, in the order of the tree's blocks, and cuts them into chunks. */
static bool plan_block(gradw *c, int32_t block) {
    block_sum *sum = &c->blocks[block];
    int64_t all = trmi_tree_blocks(&c->tree), cuts = 0, groups = c->g.groups_count;
    choose_chunks(c, sum, rows_seen(c, block));
    size_t pieces = (size_t)(sum->chunks_count + all * groups);
    sum->chunks =
        trmi_arena_alloc(&c->g.arena, (size_t)(sum->chunks_count + 1) * sizeof *sum->chunks);
    piece *next = trmi_arena_alloc(&c->g.arena, pieces * sizeof *next);
    if (sum->chunks == NULL || next == NULL) {
        return false;
    }
    /* Block b of samples has the b-th part of the rows of each group. */
    for (int64_t b = 0; b < all; b++) {
        for (int32_t i = 0; i < groups; i++) {
            const trmi_conv_use *use = use_of(c, i, block);
            int64_t each = c->g.groups[i].rows / all;
            if (use != NULL) {
                add_rows(sum, &cuts, &next, (piece){.use = use, .group = i, .row = b * each},
                         (b + 1) * each);
            }
        }
    }
    return true;
}

/* Restricts the blocks to rows [begin, end) of dW: leaves out blocks outside, and shortens those at
 * the ends where rows are channels of one tap. Sets the first row of each block. Returns the number
 * of rows that remain. */
static int64_t keep_rows(gradw *c, int64_t begin, int64_t end) {
    int64_t row = 0, kept = 0;
    c->first = c->g.blocks_count;
    for (int32_t i = 0; i < c->g.blocks_count; i++) {
        trmi_conv_block *b = &c->g.blocks[i];
        int64_t at = row, behind = row += b->k;
        c->blocks[i].row = at;
        if (behind <= begin || at >= end) {
            continue;
        }
        /* Rows are channels of one tap: shorten the block to those wanted, in steps of ROUND. */
        if (b->taps == 1) {
            int64_t cut = trmi_max_i64(begin - at, 0) / ROUND * ROUND;
            int64_t stop = trmi_min_i64(trmi_round_up(end - at, ROUND), b->k);
            b->channel += cut;
            b->channels = b->k = stop - cut;
            c->blocks[i].row += cut;
        }
        c->first = i < c->first ? i : c->first;
        c->last = i + 1;
        kept += b->k;
    }
    c->last = c->last > c->first ? c->last : c->first;
    return kept;
}

/* Sets the floats that a thread needs: copies of a chunk, and sums of tasks with several chunks.
 * The result is the same for any range of rows of a problem. */
static void plan_room(gradw *c) {
    int64_t longest = 0, panels = (TRMI_TILE_K + c->isa->mr - 1) / c->isa->mr;
    bool adds = false, pairs = c->isa->pair > 1;
    for (int32_t i = 0; i < c->g.blocks_count; i++) {
        block_sum sum;
        choose_chunks(c, &sum, rows_seen(c, i));
        int64_t rows = sum.inner * sum.inner_rows;
        longest = rows > 0 ? trmi_max_i64(longest, trmi_pieces(rows, sum.unit_chunks)) : longest;
        adds = adds || sum.chunks_count != c->splits;
    }
    c->a_floats = pairs        ? trmi_max_i64(panels * TRMI_TILE_COLS, TRMI_TILE_STRIDE) * CHUNK
                  : c->plain_a ? 0
                               : longest * TRMI_TILE_STRIDE;
    c->b_floats = pairs ? CHUNK * TRMI_TILE_STRIDE : c->plain_b ? 0 : longest * TRMI_TILE_STRIDE;
    /* a level for each node that waits for its neighbour, and the one that is being summed */
    int64_t levels = c->problem.blocks > 0 ? trmi_tree_levels(&c->tree) + 1 : 1;
    c->sums_floats = adds ? levels * LEVEL : 0;
    c->thread_floats = trmi_round_up(c->a_floats + c->b_floats + c->sums_floats +
                                         3 * TRMI_TILE_STRIDE + 2 * (CHUNK + 2 * TRMI_TILE_COLS),
                                     16);
}

/* Plans the computation of rows [begin, end) of dW. `splits`: the sums may be split; only for all
 * rows. */
static bool plan_rows(gradw *c, int64_t begin, int64_t end, bool splits) {
    int64_t most = 0, classes = TASKS, nr = c->isa->nr,
            total = trmi_conv_weights_count(&c->problem);
    c->blocks = trmi_arena_alloc(&c->g.arena, (size_t)c->g.blocks_count * sizeof *c->blocks);
    if (c->blocks == NULL) {
        return false;
    }
    int64_t rows = keep_rows(c, begin, end);
    for (int32_t i = c->first; i < c->last; i++) {
        if (!plan_block(c, i)) {
            return false;
        }
        most = trmi_max_i64(most, c->blocks[i].chunks_count);
        classes = trmi_min_i64(classes, c->blocks[i].tree.classes);
    }
    /* Make at least TASKS tasks: blocks of rows times blocks of columns; if these are fewer, the
     * pixels are split, too. */
    c->columns = trmi_min_i64(COLUMNS, trmi_round_up(c->problem.o, nr));
    c->column_blocks = (c->problem.o + c->columns - 1) / c->columns;
    int64_t blocks = (c->last - c->first) * c->column_blocks;
    c->splits = splits ? trmi_max_i64(1, trmi_min_i64((TASKS + blocks - 1) / blocks, most / 2)) : 1;
    while (c->problem.blocks > 0 && ((c->splits & (c->splits - 1)) != 0 || c->splits > classes)) {
        c->splits--; /* a power of two: parts of the tree */
    }
    /* Operands that can be read in place, and whether sums go to dW without a copy. */
    c->plain_b = c->isa->pair == 1 && c->g.out_type == TRM_FLOAT32 && c->problem.o % nr == 0 &&
                 c->g.groups_count == 1 && c->g.out_c <= PLAIN;
    c->plain_a =
        c->isa->pair == 1 && c->g.in_type == TRM_FLOAT32 && c->g.pointwise && c->g.in_c <= PLAIN;
    c->direct = c->splits == 1 && c->problem.weights_type == TRM_FLOAT32;
    c->streams = c->direct && rows * c->problem.o * (int64_t)sizeof(float) >= STREAM_BYTES &&
                 c->problem.o % nr == 0;
    c->shared_floats = c->direct ? 0 : trmi_round_up(c->splits * total, 16);
    plan_room(c);
    return true;
}

static void gradw_destroy(void *state) {
    gradw *c = state;
    if (c != NULL) {
        trmi_conv_geometry_free(&c->g);
        trmi_free(c);
    }
}

/* Makes the state for rows [begin, end) of dW: all of them for one rank, a part for a
 * cooperative gradient. */
static trm_status create_rows(const trmi_gemm_isa *isa, trmi_onednn *backend,
                              const trmi_conv_problem *p, int64_t begin, int64_t end, bool splits,
                              void **state, int64_t *scratch, trm_error *err) {
    gradw *c;
    TRMI_TRY(TRMI_NEW(err, c, 1, "for a convolution"));
    trm_status status = trmi_conv_geometry_init(&c->g, p, TRMI_TILE_K, err);
    if (status != TRM_OK) {
        trmi_free(c);
        return status;
    }
    c->problem = *p;
    c->isa = isa;
    c->threads = backend->threads;
    c->tree = trmi_tree_of(p->blocks > 0 ? p->blocks : 1);
    if (!plan_rows(c, begin, end, splits)) {
        gradw_destroy(c);
        return TRMI_NO_MEMORY(err, "for a convolution");
    }
    *scratch = trmi_scratch_bytes(c->shared_floats * 4, c->thread_floats * 4, c->threads);
    *state = c;
    return TRM_OK;
}

/* Returns the rows of dW: taps times input channels. */
static int64_t rows_of(const trmi_conv_problem *p) { return p->kh * p->kw * p->c; }

/* Creates the algorithm for all rows of dW. */
static trm_status create_gradw(const trmi_conv_algorithm *self, trmi_onednn *backend,
                               const trmi_conv_problem *p, void **state, int64_t *scratch,
                               trm_error *err) {
    return create_rows(self->tile(), backend, p, 0, rows_of(p), true, state, scratch, err);
}

/* Pairs of pixels, so channels may be odd. */
static bool pairs_can(const trmi_conv_problem *p) {
    return gradw_can(p) && trmi_gemm_pairs() != NULL && p->image_type == TRM_BFLOAT16 &&
           p->result_type == TRM_BFLOAT16;
}

/* 5 % more, because both sides are copied to panels. */
static double pairs_guess(const trmi_conv_problem *p, int threads) {
    return gradw_guess(p, threads) * 1.05 / trmi_onednn_pairs_gain();
}

const trmi_conv_algorithm trmi_conv_gradw_gemm = {.name = "gemm",
                                                  .can = gradw_can,
                                                  .guess = gradw_guess,
                                                  .create = create_gradw,
                                                  .tile = trmi_gemm,
                                                  .run = gradw_run,
                                                  .destroy = gradw_destroy};

const trmi_conv_algorithm trmi_conv_gradw_pairs = {.name = "gemm-bf16",
                                                   .can = pairs_can,
                                                   .guess = pairs_guess,
                                                   .create = create_gradw,
                                                   .tile = trmi_gemm_pairs,
                                                   .run = gradw_run,
                                                   .destroy = gradw_destroy};

trm_status trmi_conv_gradw_rows(trmi_onednn *backend, const trmi_conv_problem *p, int64_t begin,
                                int64_t end, const trmi_conv_algorithm **algorithm, void **state,
                                int64_t *scratch, trm_error *err) {
    bool pairs = pairs_can(p) && pairs_guess(p, 1) < gradw_guess(p, 1);
    *algorithm = pairs ? &trmi_conv_gradw_pairs : &trmi_conv_gradw_gemm;
    return create_rows((*algorithm)->tile(), backend, p, begin, end, false, state, scratch, err);
}
