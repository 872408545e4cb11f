/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution, forward and data gradient, as matrix products over gathered rows (conv_geometry.h).
 * Two forms; create_gather chooses by the number of rows:
 *
 *   tall (many rows)   weights packed once, in parallel; then blocks of rows: gather k by k into A
 *                      (L2), multiply with every panel of B
 *   wide (few rows)    all rows gathered once, or by each of few threads; then panels: pack a piece of B (L1), use it for all
 *                      rows of all groups at once, so that large weights are read exactly once
 *
 *   scratch:  [ packed B | per thread: A, row offsets, sums ]
 *             wide: [ per thread, or A once: A, block by block, where the sums of its rows go, B,
 *             row offsets, sums ]
 *
 * Sums are in fixed order: the bits do not depend on the number of threads.
 */
#include "exec/cpu/conv/conv_geometry.h"
#include "exec/cpu/tuning/rates.h"
#include "exec/cpu/scratch.h"
#include "exec/cpu/share.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <omp.h>
#include <string.h>

/* Sizes of the two forms: rows of a task at most and panels at a time (tall); rows up to which the
 * form is wide; channels from which a 1x1 convolution to fewer channels is priced as slower; and
 * how many times smaller than others the last tasks of a cut are. */
enum { ROWS = 168, PANELS = 16, WIDE_ROWS = 256, MANY_CHANNELS = 512, SMALLER = 4 };
/* up to so many threads each gathers its own A: that costs less than sharing cache lines of one
 * A */
enum { OWN_A_THREADS = 4 };
enum { AHEAD = 1 + TRMI_CONV_AHEAD }; /* the next panel of B, what is gathered next */

typedef struct task {
    const trmi_conv_group *group;
    int64_t row, rows;
} task;

/* The rows of one group that are gathered for a block of k, and where in A they lie. */
typedef struct part {
    int32_t group, use;
    int64_t at, row, rows; /* rows: of the group */
    int64_t first;         /* row of their first among all groups' */
} part;

/* Wide: the rows of A that are multiplied with a block of k; first those whose sums begin with
 * it. */
typedef struct wide_block {
    int64_t at, begins, rows;
} wide_block;

typedef struct gather_conv {
    trmi_conv_problem problem;
    trmi_conv_geometry g;
    const trmi_gemm_isa *isa;
    int threads;
    bool wide, direct; /* direct: tiles store float32 sums into the output */
    bool rounds;       /* the last tile of a sum stores bfloat16 into the output */
    bool streams;      /* the output is too large for the caches */
    bool own_a;        /* wide: each thread gathers an A of its own */
    int64_t panels, ldb;
    int64_t *block_at;                    /* floats: where a block's panels begin in packed B */
    int64_t shared_floats, thread_floats; /* scratch */
    task *tasks;
    int64_t tasks_count;
    part *parts;             /* wide: [cuts][uses] */
    wide_block *wide_blocks; /* [cuts][blocks] */
    int64_t cuts;            /* wide: of the images; a thread takes panels of one */
    int64_t rows, gathered;  /* wide: of the output; of a cut's A at most, rounded up */
} gather_conv;

/* A thread's part of the scratch. */
typedef struct workspace {
    float *a, *sums;
    int64_t *offsets, *sum_offsets;
    float *rows; /* wide: A, and where the sums of its rows go */
    int64_t *places;
} workspace;

/* Divides the scratch of a run among packed weights and threads. */
static trmi_scratch scratch_of(const gather_conv *c, const trmi_conv_args *args) {
    return trmi_scratch_cut(args->scratch, args->scratch_bytes, c->shared_floats * 4,
                            c->thread_floats * 4, c->threads);
}

/* Returns the floats of A and of the offsets of its sums. */
static int64_t gathered_floats(const gather_conv *c) {
    return c->gathered * (TRMI_TILE_STRIDE + 2);
}

/* Divides the calling thread's scratch; workspace_floats counts the same arrays. */
static workspace workspace_of(const gather_conv *c, const trmi_scratch *scratch) {
    int64_t rows = c->wide ? c->rows : ROWS;
    float *own = (float *)(void *)trmi_scratch_own(scratch, omp_get_thread_num());
    workspace w = {.rows = c->own_a ? own : (float *)(void *)trmi_scratch_shared(scratch)};
    w.places = (int64_t *)(void *)(w.rows + c->gathered * TRMI_TILE_STRIDE);
    w.offsets = (int64_t *)(void *)(own + (c->own_a ? gathered_floats(c) : 0));
    w.sum_offsets = w.offsets + rows;
    w.a = (float *)(w.sum_offsets + rows);
    w.sums = w.a + (c->wide ? TRMI_TILE_K * TRMI_TILE_NR_MAX : ROWS * TRMI_TILE_STRIDE);
    return w;
}

/* Returns the floats of a thread: gathered rows (wide, if each thread gathers), offsets (8 bytes
 * each), A, and sums where the output cannot be summed in place. */
static int64_t workspace_floats(const gather_conv *c) {
    int64_t rows = c->wide ? c->rows : ROWS;
    int64_t a = c->wide ? TRMI_TILE_K * TRMI_TILE_NR_MAX : ROWS * TRMI_TILE_STRIDE;
    int64_t sums = c->direct ? 0 : rows * c->isa->nr * (c->wide ? 1 : PANELS);
    return trmi_round_up((c->own_a ? gathered_floats(c) : 0) + rows * 4 + a + sums, 16);
}

/* ---- B --------------------------------------------------------------------------------------- */

/* Packs panel `panel` of block `b` from the weights [tap][I][O]. Forward: k = input channels,
 * columns = O; data gradient: k = O, columns = I. */
static void pack_panel(const gather_conv *c, const void *weights, const trmi_conv_block *b,
                       int64_t panel, float *to) {
    const trmi_conv_problem *p = &c->problem;
    int64_t nr = c->isa->nr, column = panel * nr, bytes = (int64_t)trm_dtype_bytes(p->weights_type);
    int columns = (int)trmi_min_i64(nr, c->g.out_c - column);
    const char *w = weights;
    if (!c->g.flipped) {
        int64_t at = (b->tap * p->c + b->channel) * p->o + column;
        c->isa->pack(to, w + at * bytes, p->weights_type, p->o, b->k, columns);
        return;
    }
    for (int32_t t = 0; t < b->taps; t++) {
        int64_t tap = trmi_conv_weight_tap(&c->g, b->tap + t);
        int64_t at = (tap * p->c + column) * p->o + b->channel;
        c->isa->pack_transposed(to + t * b->channels * nr / c->isa->pair, w + at * bytes,
                                p->weights_type, p->o, b->channels, columns);
    }
}

/* Returns the floats of a panel of B that is k deep. */
static int64_t panel_floats(const gather_conv *c, int64_t k) {
    return k / c->isa->pair * c->isa->nr;
}

/* Packs all weights, by the threads of the enclosing parallel region. */
static void pack_all(const gather_conv *c, const void *weights, float *packed) {
    int64_t items = c->g.blocks_count * c->panels;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < items; i++) {
        int64_t block = i / c->panels, panel = i % c->panels;
        if (c->g.block_used[block]) {
            const trmi_conv_block *b = &c->g.blocks[block];
            pack_panel(c, weights, b, panel,
                       packed + c->block_at[block] + panel * panel_floats(c, b->k));
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* Multiplies all rows of A with one panel, in tiles of nearly equal height. `tile` has the members
 * that are the same for all of them. */
static void multiply_panel(const gather_conv *c, int64_t rows, const float *a, int64_t k,
                           trmi_tile tile, trmi_prefetch soon[TRMI_CONV_AHEAD]) {
    const int64_t *offsets = tile.row_offset, *rounded = tile.rounded_offset;
    tile.k = k / c->isa->pair;
    int64_t tiles = (rows + c->isa->mr - 1) / c->isa->mr, low = rows / tiles, more = rows % tiles;
    for (int64_t i = 0, row = 0; i < tiles; i++) {
        tile.rows = (int)(low + (i < more));
        tile.a = a + row * TRMI_TILE_STRIDE;
        tile.row_offset = offsets + row;
        tile.rounded_offset = tile.rounded != NULL ? rounded + row : NULL;
        c->isa->tile_rows(&tile, trmi_prefetch_next(soon, AHEAD));
        row += tile.rows;
    }
}

/* Adds the bias to sums of `count` columns from `column` on, rounds and stores them. */
static void finish_rows(const gather_conv *c, const trmi_conv_args *args, void *out,
                        const float *sums, int64_t ld, const int64_t *offsets, int64_t rows,
                        int64_t column, int64_t count) {
    int64_t bytes = (int64_t)trm_dtype_bytes(c->g.out_type);
    const float *bias = c->problem.bias ? args->bias + column : NULL;
    for (int64_t r = 0; r < rows; r++) {
        c->isa->narrow((char *)out + (offsets[r] + column) * bytes, c->g.out_type, sums + r * ld,
                       bias, count);
    }
}

/* Writes rows that no tap reaches: zero, or the bias. */
static void write_empty_rows(const gather_conv *c, const trmi_conv_args *args, void *out,
                             const int64_t *offsets, int64_t rows, const workspace *w) {
    int64_t bytes = (int64_t)trm_dtype_bytes(c->g.out_type), wide = c->isa->nr;
    if (c->direct) {
        for (int64_t r = 0; r < rows; r++) {
            memset((char *)out + offsets[r] * bytes, 0, (size_t)(c->g.out_c * bytes));
        }
        return;
    }
    memset(w->sums, 0, (size_t)(rows * wide) * sizeof *w->sums);
    for (int64_t column = 0; column < c->g.out_c; column += wide) {
        finish_rows(c, args, out, w->sums, wide, offsets, rows, column,
                    trmi_min_i64(wide, c->g.out_c - column));
    }
}

/* ---- tall ------------------------------------------------------------------------------------ */

/* Sets the prefetches of what the next gather reads: the next k of these rows, or the rows
 * after. */
static void next_rows(const gather_conv *c, const void *input, const task *t, int32_t use,
                      bool last_panels, trmi_prefetch soon[TRMI_CONV_AHEAD]) {
    const trmi_conv_use *uses = &c->g.uses[t->group->uses];
    int64_t row = t->row, rows = t->rows;
    int32_t next = use + 1;
    if (next == t->group->uses_count) {
        next = 0;
        row += last_panels ? t->rows : 0;
        rows = trmi_min_i64(rows, t->group->rows - row);
        if (!last_panels && t->group->uses_count == 1) {
            rows = 0; /* A stays */
        }
    }
    trmi_conv_prefetches(&c->g, input, t->group, &uses[next], row, rows, soon);
}

/* Returns a tile with the destination of the sums of panel `j`; `last`: with the last block of
 * k. */
static trmi_tile tile_at(const gather_conv *c, void *out, int64_t j, const workspace *w,
                         bool last) {
    int64_t column = j * c->isa->nr;
    trmi_tile tile = {.columns = (int)trmi_min_i64(c->isa->nr, c->g.out_c - column)};
    tile.c = c->direct ? (float *)out + column : w->sums + j % PANELS * c->isa->nr;
    tile.row_offset = c->direct ? w->offsets : w->sum_offsets;
    if (c->rounds && last) {
        tile.rounded = (uint16_t *)out + column;
        tile.rounded_offset = w->offsets;
    }
    return tile;
}

/* Computes one task of `tall`: some rows, all columns, PANELS panels at a time. */
static void run_rows(const gather_conv *c, const trmi_conv_args *args, const void *input, void *out,
                     const float *packed, const task *t, const workspace *w) {
    int64_t nr = c->isa->nr, wide = PANELS * nr;
    bool large = c->direct && t->group->uses_count == 1 && c->streams && (uintptr_t)out % 64 == 0;
    trmi_tile_store stream = large ? TRMI_TILE_STREAM : TRMI_TILE_SET;
    trmi_conv_row_offsets(&c->g, t->group, t->row, t->rows, w->offsets);
    /* No tap reaches these pixels: they get zero or the bias. */
    if (t->group->uses_count == 0) {
        write_empty_rows(c, args, out, w->offsets, t->rows, w);
        return;
    }
    const trmi_conv_use *uses = &c->g.uses[t->group->uses];
    /* For some panels at a time: add the products of all blocks of K that the group uses. */
    for (int64_t first = 0; first < c->panels; first += PANELS) {
        int64_t last = trmi_min_i64(first + PANELS, c->panels);
        for (int32_t u = 0; u < t->group->uses_count; u++) {
            int64_t k = c->g.blocks[uses[u].block].k;
            /* With a single block the gathered rows are still there from the panels before. */
            if (first == 0 || t->group->uses_count > 1) {
                trmi_conv_gather(&c->g, c->isa, input, t->group, &uses[u], t->row, t->rows, w->a,
                                 TRMI_TILE_STRIDE);
            }
            trmi_prefetch soon[AHEAD];
            next_rows(c, input, t, u, last == c->panels, soon + 1);
            for (int64_t j = first; j < last; j++) {
                trmi_tile tile = tile_at(c, out, j, w, u + 1 == t->group->uses_count);
                tile.b = packed + c->block_at[uses[u].block] + j * panel_floats(c, k);
                tile.store = u > 0 ? TRMI_TILE_ADD : stream;
                int64_t bytes = panel_floats(c, k) * 4;
                soon[0] = trmi_prefetch_rows(tile.b + bytes / 4, bytes, j + 1 < last, bytes);
                multiply_panel(c, t->rows, w->a, k, tile, soon);
            }
        }
        /* Sums in the workspace get bias and type of the output now. */
        if (!c->direct && !c->rounds) {
            finish_rows(c, args, out, w->sums, wide, w->offsets, t->rows, first * nr,
                        trmi_min_i64(wide, c->g.out_c - first * nr));
        }
    }
}

/* Runs the form `tall`: all threads pack the weights, then take tasks. */
static void run_tall(const gather_conv *c, const trmi_conv_args *args, const void *input,
                     void *out) {
    const trmi_scratch scratch = scratch_of(c, args);
    float *packed = (float *)(void *)trmi_scratch_shared(&scratch);
    trmi_share tasks;
    trmi_share_begin(&tasks, c->tasks_count, c->threads);
#pragma omp parallel num_threads(c->threads)
    {
        workspace w = workspace_of(c, &scratch);
        for (int64_t i = 0; i < ROWS; i++) {
            w.sum_offsets[i] = i * PANELS * c->isa->nr;
        }
        pack_all(c, args->weights, packed);
        for (int64_t i; (i = trmi_share_take(&tasks, omp_get_thread_num())) >= 0;) {
            run_rows(c, args, input, out, packed, &c->tasks[i], &w);
        }
        c->isa->fence();
    }
}

/* ---- wide ------------------------------------------------------------------------------------ */

/* Gathers the rows of one part to A, and sets the offsets of their sums: in the output, or in the
 * thread's own sums. */
static void gather_part(const gather_conv *c, const part *p, const void *input,
                        const workspace *w) {
    const trmi_conv_group *group = &c->g.groups[p->group];
    trmi_conv_gather(&c->g, c->isa, input, group, &c->g.uses[p->use], p->row, p->rows,
                     w->rows + p->at * TRMI_TILE_STRIDE, TRMI_TILE_STRIDE);
    if (c->direct) {
        trmi_conv_row_offsets(&c->g, group, p->row, p->rows, w->places + p->at);
    }
    for (int64_t r = 0; r < (c->direct ? 0 : p->rows); r++) {
        w->places[p->at + r] = (p->first + r) * c->isa->nr;
    }
}

/* Gathers the rows of a cut to the calling thread's own A. */
static void gather_cut(const gather_conv *c, int64_t cut, const void *input, const workspace *w) {
    for (int64_t i = 0; i < c->g.uses_count; i++) {
        gather_part(c, &c->parts[cut * c->g.uses_count + i], input, w);
    }
}

/* Gathers all rows to the shared A, by all threads. */
static void gather_all(const gather_conv *c, const void *input, const workspace *w) {
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < c->g.uses_count; i++) {
        gather_part(c, &c->parts[i], input, w);
    }
}

/* Moves on to the next pair of block and panel that some group uses; false after the last. */
static bool next_used(const gather_conv *c, int32_t *block, int64_t *panel) {
    do {
        if (++*block == c->g.blocks_count) {
            *block = 0;
            ++*panel;
        }
    } while (!c->g.block_used[*block]);
    return *panel < c->panels;
}

/* Returns the piece of the weights that is packed next: of these columns, or of the next panel. */
static trmi_prefetch next_piece(const gather_conv *c, const void *weights, int32_t block,
                                int64_t panel) {
    const trmi_conv_problem *p = &c->problem;
    int64_t nr = c->isa->nr, bytes = (int64_t)trm_dtype_bytes(p->weights_type);
    if (!next_used(c, &block, &panel)) {
        return (trmi_prefetch){0};
    }
    const trmi_conv_block *b = &c->g.blocks[block];
    int64_t column = panel * nr, columns = trmi_min_i64(nr, c->g.out_c - column);
    if (!c->g.flipped) {
        int64_t at = (b->tap * p->c + b->channel) * p->o + column;
        return trmi_prefetch_rows((const char *)weights + at * bytes, p->o * bytes, b->k,
                                  columns * bytes);
    }
    int64_t tap = trmi_conv_weight_tap(&c->g, b->tap);
    return trmi_prefetch_rows((const char *)weights +
                                  ((tap * p->c + column) * p->o + b->channel) * bytes,
                              p->o * bytes, columns, b->taps > 1 ? 0 : b->k * bytes);
}

/* Returns the first row of a part of a group. */
static int64_t row_of_cut(const gather_conv *c, const trmi_conv_group *group, int64_t cut) {
    return trmi_cut_at(group->rows, c->cuts, cut);
}

/* Computes one panel for the rows of a cut: each block of B is packed once and multiplied with all
 * rows that use it. */
static void run_panel(const gather_conv *c, const trmi_conv_args *args, void *out, int64_t cut,
                      int64_t j, const workspace *w) {
    int64_t nr = c->isa->nr;
    int columns = (int)trmi_min_i64(nr, c->g.out_c - j * nr);
    float *to = c->direct ? (float *)out + j * nr : w->sums;
    for (int32_t b = 0; b < c->g.blocks_count; b++) {
        const wide_block *rows = &c->wide_blocks[cut * c->g.blocks_count + b];
        if (!c->g.block_used[b]) {
            continue;
        }
        pack_panel(c, args->weights, &c->g.blocks[b], j, w->a);
        trmi_prefetch soon[AHEAD] = {next_piece(c, args->weights, b, j)};
        /* Rows whose sums begin with this block are set, the others are added to. */
        const int64_t begin[2] = {rows->at, rows->at + rows->begins},
                      count[2] = {rows->begins, rows->rows - rows->begins};
        for (int i = 0; i < 2; i++) {
            if (count[i] > 0) {
                trmi_tile tile = {.b = w->a,
                                  .c = to,
                                  .row_offset = w->places + begin[i],
                                  .columns = columns,
                                  .store = i == 0 ? TRMI_TILE_SET : TRMI_TILE_ADD};
                /* there is one group, so rows of A are in the order of the output */
                if (c->rounds && b + 1 == c->g.blocks_count) {
                    tile.rounded = (uint16_t *)out + j * nr;
                    tile.rounded_offset = w->offsets;
                }
                multiply_panel(c, count[i], w->rows + begin[i] * TRMI_TILE_STRIDE, c->g.blocks[b].k,
                               tile, soon);
            }
        }
    }
}

/* Completes a panel: zeros groups that no tap reaches, and stores sums that are not in the
 * output. */
static void finish_panel(const gather_conv *c, const trmi_conv_args *args, void *out, int64_t cut,
                         int64_t j, const workspace *w) {
    int64_t nr = c->isa->nr, first = 0, rows;
    for (int32_t i = 0; i < c->g.groups_count; i++, first += rows) {
        const trmi_conv_group *group = &c->g.groups[i];
        int64_t row = row_of_cut(c, group, cut);
        bool empty = group->uses_count == 0;
        rows = row_of_cut(c, group, cut + 1) - row;
        /* With `rounds` the tiles have stored the output. With `direct` only groups that no tap
         * reaches are left, and they are zeroed once, with the first panel. */
        if (c->rounds || (c->direct && (!empty || j > 0))) {
            continue;
        }
        trmi_conv_row_offsets(&c->g, group, row, rows, w->offsets);
        if (c->direct) {
            write_empty_rows(c, args, out, w->offsets, rows, w);
            continue;
        }
        if (empty) {
            memset(w->sums + first * nr, 0, (size_t)(rows * nr) * sizeof *w->sums);
        }
        finish_rows(c, args, out, w->sums + first * nr, nr, w->offsets, rows, j * nr,
                    trmi_min_i64(nr, c->g.out_c - j * nr));
    }
}

/* Prepares the rows of a cut for its panels. */
static void begin_cut(const gather_conv *c, int64_t cut, const void *input, const workspace *w) {
    if (c->own_a) {
        gather_cut(c, cut, input, w);
    }
    if (c->rounds) {
        int64_t row = row_of_cut(c, c->g.groups, cut);
        trmi_conv_row_offsets(&c->g, c->g.groups, row, row_of_cut(c, c->g.groups, cut + 1) - row,
                              w->offsets);
    }
}

/* Runs the form `wide`: threads take panels of cuts. */
static void run_wide(const gather_conv *c, const trmi_conv_args *args, const void *input,
                     void *out) {
    const trmi_scratch scratch = scratch_of(c, args);
    trmi_share panels;
    trmi_share_begin(&panels, c->cuts * c->panels, c->threads);
#pragma omp parallel num_threads(c->threads)
    {
        workspace w = workspace_of(c, &scratch);
        int64_t at = -1;
        if (!c->own_a) {
            gather_all(c, input, &w);
        }
        for (int64_t i; (i = trmi_share_take(&panels, omp_get_thread_num())) >= 0;) {
            /* The panels of a cut are taken one after the other, so its rows are gathered once a
             * thread. */
            if (i / c->panels != at) {
                at = i / c->panels;
                begin_cut(c, at, input, &w);
            }
            run_panel(c, args, out, at, i % c->panels, &w);
            finish_panel(c, args, out, at, i % c->panels, &w);
        }
    }
}

/* ---- the algorithm --------------------------------------------------------------------------- */

static bool gather_can(const trmi_conv_problem *p) {
    return p->direction != TRMI_CONV_WEIGHTS && trmi_conv_gathers(p);
}

/* Guesses the time from rates that were measured on one core. A 1x1 convolution from many channels
 * to fewer is slower, because it copies more rows for the same FLOPs. */
static double gather_guess(const trmi_conv_problem *p, int threads) {
    double rate = p->c < 16 ? 90e9 : 162e9;
    if (p->kh * p->kw == 1 && p->c >= 16) {
        bool narrows = p->direction == TRMI_CONV_FORWARD && p->c >= MANY_CHANNELS && p->o < p->c;
        rate = narrows ? 160e9 : 172e9;
    }
    return trmi_conv_gathered_flops(p) / rate / threads + 10e-6;
}

/* Returns the most rows of a task: fewer where there would be too few tasks for the threads. The
 * sums of a row do not depend on its task. */
static int64_t task_rows(const gather_conv *c) {
    int64_t rows = 0, least = 2 * c->isa->mr;
    for (int32_t i = 0; i < c->g.groups_count; i++) {
        rows += c->g.groups[i].rows;
    }
    int64_t share = trmi_round_up(rows / (2 * c->threads) + 1, c->isa->mr);
    return trmi_min_i64(ROWS, trmi_max_i64(least, share));
}

/* Returns into how many parts all groups are cut, so that a thread works on the same images in each
 * group. */
static int64_t cuts_of(const gather_conv *c) {
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < c->g.groups_count; i++) {
        least = trmi_min_i64(least, c->g.groups[i].rows);
    }
    return trmi_max_i64(1, trmi_min_i64(c->threads, least / (2 * c->isa->mr)));
}

/* Adds `rows` rows from `row` on as tasks of nearly equal size, none above `most`. */
static void add_tasks(gather_conv *c, const trmi_conv_group *group, int64_t row, int64_t rows,
                      int64_t most) {
    int64_t parts = trmi_pieces(rows, most);
    for (int64_t k = 0; k < parts; k++) {
        int64_t begin = row + trmi_cut_at(rows, parts, k),
                end = row + trmi_cut_at(rows, parts, k + 1);
        c->tasks[c->tasks_count++] = (task){.group = group, .row = begin, .rows = end - begin};
    }
}

/* Makes the tasks, cut by cut, group by group. A cut ends with small tasks, so that threads do not
 * wait long for the last one. */
static void make_tasks(gather_conv *c, int64_t cuts, int64_t most) {
    int64_t groups = c->g.groups_count, least = trmi_round_up(most / SMALLER, c->isa->mr);
    for (int64_t i = 0; i < cuts * groups; i++) {
        const trmi_conv_group *group = &c->g.groups[i % groups];
        int64_t row = trmi_cut_at(group->rows, cuts, i / groups),
                end = trmi_cut_at(group->rows, cuts, i / groups + 1);
        int64_t last = i % groups == groups - 1 ? trmi_max_i64(row, end - most) : end;
        add_tasks(c, group, row, last - row, most);
        add_tasks(c, group, last, end - last, least);
    }
}

/* Makes the tasks of `tall` and the offsets of packed blocks. */
static bool plan_tall(gather_conv *c) {
    int64_t total = 0, room = 0, most = task_rows(c), cuts = cuts_of(c);
    for (int32_t i = 0; i < c->g.groups_count; i++) {
        room += trmi_pieces(c->g.groups[i].rows, most) + cuts;
    }
    room += cuts * (SMALLER + 1);
    c->tasks = trmi_arena_alloc(&c->g.arena, (size_t)room * sizeof *c->tasks);
    c->block_at = trmi_arena_alloc(&c->g.arena, (size_t)c->g.blocks_count * sizeof *c->block_at);
    if (c->tasks == NULL || c->block_at == NULL) {
        return false;
    }
    make_tasks(c, cuts, most);
    for (int32_t i = 0; i < c->g.blocks_count; i++) {
        c->block_at[i] = total;
        total += c->g.block_used[i] ? panel_floats(c, c->g.blocks[i].k) * c->panels : 0;
    }
    c->shared_floats = trmi_round_up(total, 16);
    return true;
}

/* Returns into how many cuts of the images the form `wide` is divided; 0: the form is `tall`. One
 * cut if there are few rows in all, or few in each group and no weights that several groups use
 * (data gradient with stride). As many cuts as threads if those are few: packing the weights in
 * each thread may cost less than reading shared ones, and there may be fewer panels than
 * threads. */
static int64_t wide_cuts(const gather_conv *c) {
    int64_t most = 0, least = INT64_MAX, each = c->rows / c->threads;
    for (int32_t i = 0; i < c->g.groups_count; i++) {
        most = trmi_max_i64(most, c->g.groups[i].rows);
        least = trmi_min_i64(least, c->g.groups[i].rows);
    }
    bool few = c->threads <= OWN_A_THREADS && least >= c->threads * c->isa->mr;
    if (c->rows <= WIDE_ROWS) {
        return few && c->panels < c->threads ? c->threads : 1;
    }
    if (most <= WIDE_ROWS && c->g.uses_count <= c->g.blocks_count) {
        return 1;
    }
    return few && each <= WIDE_ROWS && c->isa->pair == 2 ? c->threads : 0;
}

/* Lists the parts of a cut that use block b, from row `at` of A on; first those with the first
 * block of their group, whose sums begin with it. */
static void plan_block(gather_conv *c, int64_t cut, int32_t b, part **next, int64_t *at) {
    const trmi_conv_geometry *g = &c->g;
    wide_block *rows = &c->wide_blocks[cut * g->blocks_count + b];
    rows->at = *at;
    /* Pass 1: parts whose first block this is; pass 2: the others. */
    for (int first = 1; first >= 0; first--) {
        int64_t row = 0, count;
        for (int32_t i = 0; i < g->groups_count; i++, row += count) {
            const trmi_conv_group *group = &g->groups[i];
            int64_t begin = row_of_cut(c, group, cut);
            count = row_of_cut(c, group, cut + 1) - begin;
            for (int32_t u = group->uses; u < group->uses + group->uses_count; u++) {
                if (g->uses[u].block == b && (u == group->uses) == first) {
                    *(*next)++ = (part){
                        .group = i, .use = u, .at = *at, .row = begin, .rows = count, .first = row};
                    *at += count;
                }
            }
        }
        rows->begins = first ? *at - rows->at : rows->begins;
    }
    rows->rows = *at - rows->at;
}

/* Makes the parts of `wide` for each cut and block. */
static bool plan_wide(gather_conv *c) {
    const trmi_conv_geometry *g = &c->g;
    c->parts =
        trmi_arena_alloc(&c->g.arena, (size_t)(c->cuts * g->uses_count + 1) * sizeof *c->parts);
    c->wide_blocks =
        trmi_arena_alloc(&c->g.arena, (size_t)(c->cuts * g->blocks_count) * sizeof *c->wide_blocks);
    if (c->parts == NULL || c->wide_blocks == NULL) {
        return false;
    }
    part *next = c->parts;
    for (int64_t cut = 0; cut < c->cuts; cut++) {
        int64_t at = 0;
        for (int32_t b = 0; b < g->blocks_count; b++) {
            plan_block(c, cut, b, &next, &at);
        }
        c->gathered = trmi_max_i64(c->gathered, trmi_round_up(at, 16));
    }
    c->own_a = c->threads <= OWN_A_THREADS;
    c->shared_floats = c->own_a ? 0 : gathered_floats(c);
    return true;
}

static void gather_destroy(void *state) {
    gather_conv *c = state;
    if (c != NULL) {
        trmi_conv_geometry_free(&c->g);
        trmi_free(c);
    }
}

/* Makes the state of the convolution: the geometry's tables, the choice between wide and tall
 * tiles (plan_wide, plan_tall), and the size of the scratch. `direct`: products are written
 * straight to the output. `streams`: an output beyond the caches is written with non-temporal
 * stores. `rounds`: the tile rounds to bfloat16 as it stores, which needs each output tile to be
 * finished by one product. */
static trm_status create_gather(const trmi_conv_algorithm *self, trmi_onednn *backend,
                                const trmi_conv_problem *p, void **state, int64_t *scratch,
                                trm_error *err) {
    const trmi_gemm_isa *isa = self->tile();
    gather_conv *c;
    TRMI_TRY(TRMI_NEW(err, c, 1, "for a convolution"));
    /* a block of pairs is as many floats */
    trm_status status = trmi_conv_geometry_init(&c->g, p, TRMI_TILE_K * isa->pair, err);
    if (status != TRM_OK) {
        trmi_free(c);
        return status;
    }
    /* Choose what the shape and the types allow, in the words of the comment above. */
    c->problem = *p;
    c->isa = isa;
    c->threads = backend->threads;
    c->panels = (c->g.out_c + c->isa->nr - 1) / c->isa->nr;
    c->direct = c->g.out_type == TRM_FLOAT32 && !p->bias;
    c->streams = trmi_conv_out_bytes(&c->g) > TRMI_STREAM_BYTES && c->g.out_c % c->isa->nr == 0;
    c->rows = c->g.n * c->g.out_h * c->g.out_w;
    c->cuts = wide_cuts(c);
    c->wide = c->cuts > 0;
    /* A tile can round only if it holds the complete sum when it stores, and its rows lie in the
     * order of the output. */
    bool in_order = !c->wide || (c->g.groups_count == 1 && c->g.uses_count == c->g.blocks_count);
    c->rounds = in_order && c->g.out_type == TRM_BFLOAT16 && !p->bias;
    if (!(c->wide ? plan_wide(c) : plan_tall(c))) {
        gather_destroy(c);
        return TRMI_NO_MEMORY(err, "for a convolution");
    }
    c->thread_floats = workspace_floats(c);
    *scratch = trmi_scratch_bytes(c->shared_floats * 4, c->thread_floats * 4, c->threads);
    *state = c;
    return TRM_OK;
}

/* Pairs of channels of a bfloat16 input; weights are rounded to bfloat16, as the library does. */
static bool pairs_can(const trmi_conv_problem *p) {
    bool data = p->direction == TRMI_CONV_DATA;
    return gather_can(p) && trmi_gemm_pairs() != NULL &&
           (data ? p->result_type : p->image_type) == TRM_BFLOAT16 && (data ? p->o : p->c) % 2 == 0;
}

/* Pairs do not reduce the copies of rows, which weigh most in dense 1x1 convolutions. */
static double pairs_guess(const trmi_conv_problem *p, int threads) {
    double copies = p->kh * p->kw == 1 && p->stride[0] == 1 && p->oh * p->ow >= 16 ? 1.15 : 1.08;
    return gather_guess(p, threads) * copies / trmi_onednn_pairs_gain();
}

/* Runs a convolution or the gradient of its image: `flipped` swaps input and output. */
static trm_status gather_run(const void *state, const trmi_conv_args *args, trm_error *err) {
    const gather_conv *c = state;
    (void)err;
    const void *input = c->g.flipped ? args->result : args->image;
    void *out = c->g.flipped ? args->image : args->result;
    if (c->wide) {
        run_wide(c, args, input, out);
    } else {
        run_tall(c, args, input, out);
    }
    return TRM_OK;
}

const trmi_conv_algorithm trmi_conv_gather_gemm = {.name = "gemm",
                                                   .can = gather_can,
                                                   .guess = gather_guess,
                                                   .create = create_gather,
                                                   .tile = trmi_gemm,
                                                   .run = gather_run,
                                                   .destroy = gather_destroy};

const trmi_conv_algorithm trmi_conv_gather_pairs = {.name = "gemm-bf16",
                                                    .can = pairs_can,
                                                    .guess = pairs_guess,
                                                    .create = create_gather,
                                                    .tile = trmi_gemm_pairs,
                                                    .run = gather_run,
                                                    .destroy = gather_destroy};
