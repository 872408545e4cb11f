/* SPDX-License-Identifier: Apache-2.0 */
/* The tables by which a convolution becomes matrix products (conv_geometry.h): which input pixels
 * form a row of A for each output position.
 *
 *      axis    classes of output positions of one dimension: with a data gradient of stride s
 *              there are s of them, each uses other taps
 *      group   a class of rows times a class of columns: positions that use the same taps
 *      block   a range of k: taps and channels that one panel of B holds
 *      run     neighbouring taps whose pixels lie side by side in the input
 *
 * Tables are made once, at creation; gathering only reads them. */
#include "exec/cpu/conv/conv_geometry.h"

#include "base/checked.h"
#include "base/memory.h"

#include <string.h>

/* One class of positions of a dimension: position i of the class is output out + i * out_step, and
 * its tap t reads input offset[t] + i * in_step. */
typedef struct axis_class {
    int64_t count, out, out_step, in_step; /* count: positions */
    bool *used;                            /* [taps]: the tap may read a pixel of the image */
    int64_t *offset;    /* [taps]; set for used taps only; may lie in the padding (split: never) */
    int64_t used_count; /* taps that are used */
} axis_class;

/* The classes of a dimension; they and their arrays are in the arena of the geometry. */
typedef struct axis {
    axis_class *classes;
    int64_t count;
} axis;

/* Allocates the classes of a dimension with their tables of taps. Returns false without memory. */
static bool axis_alloc(trmi_arena *arena, axis *a, int64_t classes, int64_t taps) {
    a->count = classes;
    a->classes = trmi_arena_alloc(arena, (size_t)classes * sizeof *a->classes);
    for (int64_t i = 0; a->classes != NULL && i < classes; i++) {
        a->classes[i].used = trmi_arena_alloc(arena, (size_t)taps * sizeof(bool));
        a->classes[i].offset = trmi_arena_alloc(arena, (size_t)taps * sizeof(int64_t));
        if (a->classes[i].used == NULL || a->classes[i].offset == NULL) {
            return false;
        }
    }
    return a->classes != NULL;
}

/* Marks a tap as used, with its offset in the input. */
static void use_tap(axis_class *c, int64_t tap, int64_t offset) {
    c->used[tap] = true;
    c->offset[tap] = offset;
    c->used_count++;
}

/* Makes the classes of one dimension (d = 0: height, 1: width). `split`: each position is a class,
 * so that taps that only see padding are left out. Taps are in gather order. */
static bool make_axis(trmi_arena *arena, const trmi_conv_problem *p, int d, bool split, axis *a) {
    bool data = p->direction == TRMI_CONV_DATA;
    int64_t taps = d == 0 ? p->kh : p->kw, pad = p->pad[2 * d];
    int64_t image = d == 0 ? p->h : p->w, result = d == 0 ? p->oh : p->ow;
    int64_t out = data ? image : result, in = data ? result : image;
    int64_t stride = p->stride[d], dilation = p->dilation[d];
    int64_t classes = split ? out : data ? trmi_min_i64(stride, out) : 1;
    if (!axis_alloc(arena, a, classes, taps)) {
        return false;
    }
    /* A class: output positions i, i + step, ... With a gradient of the data, positions of one
     * class have the same remainder by the stride, so the same taps reach them. */
    for (int64_t i = 0; i < classes; i++) {
        axis_class *c = &a->classes[i];
        int64_t step = data ? stride : 1;
        *c = (axis_class){.count = split ? 1 : (out - i + step - 1) / step,
                          .out = i,
                          .out_step = step,
                          .in_step = split  ? 0
                                     : data ? 1
                                            : stride,
                          .used = c->used,
                          .offset = c->offset};
        for (int64_t t = 0; t < taps; t++) {
            /* `at` is the input position that tap k reads for the first output of the class. In a
             * gradient of the data there is one only if the stride divides it. */
            int64_t k = data ? taps - 1 - t : t;
            int64_t at =
                data ? i + pad - k * dilation : (split ? i * stride : 0) - pad + k * dilation;
            if (data && at % stride != 0) {
                continue;
            }
            at = data ? at / stride : at;
            if (!split || (at >= 0 && at < in)) {
                use_tap(c, t, at);
            }
        }
    }
    return true;
}

/* Cuts k into blocks of at most `depth`: several whole taps (`join`: every group uses all taps)
 * or a part of the channels of one tap. */
static bool make_blocks(trmi_conv_geometry *g, int64_t depth, bool join) {
    int64_t c = g->in_c, per_tap = (c + depth - 1) / depth;
    int64_t joined = join && c <= depth ? trmi_min_i64(depth / c, g->taps) : 1;
    int64_t most = g->taps * per_tap;
    g->blocks = trmi_arena_alloc(&g->arena, (size_t)most * sizeof *g->blocks);
    g->block_used = trmi_arena_alloc(&g->arena, (size_t)most * sizeof *g->block_used);
    if (g->blocks == NULL || g->block_used == NULL) {
        return false;
    }
    /* Channels are divided into parts of nearly equal length, in pairs because a product of
     * bfloat16 takes two at a time; blocks of pairs in whole vectors, which packing turns whole. */
    int64_t vectors = depth > TRMI_TILE_K ? 2 * TRMI_TILE_COLS : 2;
    int64_t unit = c % vectors == 0 ? vectors : c % 2 == 0 ? 2 : 1, units = c / unit;
    for (int64_t tap = 0; tap < g->taps; tap += joined) {
        int64_t taps = trmi_min_i64(joined, g->taps - tap), channel = 0;
        for (int64_t i = 0; i < per_tap; i++) {
            int64_t channels = (units / per_tap + (i < units % per_tap)) * unit;
            g->blocks[g->blocks_count++] = (trmi_conv_block){.tap = (int32_t)tap,
                                                             .taps = (int32_t)taps,
                                                             .channel = channel,
                                                             .channels = channels,
                                                             .k = taps * channels};
            channel += channels;
        }
    }
    return true;
}

/* Appends the runs of taps of one block for one group. */
static void make_runs(trmi_conv_geometry *g, const trmi_conv_block *b, const axis_class *y,
                      const axis_class *x, int64_t kw, trmi_conv_use *use) {
    use->runs = g->runs_count;
    for (int32_t t = b->tap; t < b->tap + b->taps; t++) {
        int64_t dy = y->offset[t / kw], dx = x->offset[t % kw];
        trmi_conv_run *last = g->runs_count > use->runs ? &g->runs[g->runs_count - 1] : NULL;
        if (last != NULL && last->dy == dy && last->dx + last->taps == dx) {
            last->taps++;
        } else {
            g->runs[g->runs_count++] = (trmi_conv_run){.dy = dy, .dx = dx, .taps = 1};
        }
    }
    use->runs_count = g->runs_count - use->runs;
}

/* Appends the group of two classes, with its uses of blocks. */
static void make_group(trmi_conv_geometry *g, const axis_class *y, const axis_class *x,
                       int64_t kw) {
    trmi_conv_group *group = &g->groups[g->groups_count++];
    *group = (trmi_conv_group){.gh = y->count,
                               .gw = x->count,
                               .out_y = y->out,
                               .out_x = x->out,
                               .out_dy = y->out_step,
                               .out_dx = x->out_step,
                               .in_dy = y->in_step,
                               .in_dx = x->in_step,
                               .uses = g->uses_count,
                               .rows = g->n * y->count * x->count};
    /* A block is used if both its row and its column of taps reach this group. */
    for (int32_t i = 0; i < g->blocks_count; i++) {
        const trmi_conv_block *b = &g->blocks[i];
        if (!y->used[b->tap / kw] || !x->used[b->tap % kw]) {
            continue;
        }
        trmi_conv_use *use = &g->uses[g->uses_count++];
        use->block = i;
        make_runs(g, b, y, x, kw, use);
        g->block_used[i] = true;
    }
    group->uses_count = g->uses_count - group->uses;
}

/* Makes all tables. Few positions (at most 4x4) and several images: each position is a group. */
static bool fill_tables(trmi_conv_geometry *g, const trmi_conv_problem *p, int64_t depth) {
    int64_t positions = g->out_h * g->out_w;
    bool split = g->taps > 1 && positions <= 16 && (g->n >= 8 || p->blocks > 0);
    axis y, x;
    if (!make_axis(&g->arena, p, 0, split, &y) || !make_axis(&g->arena, p, 1, split, &x)) {
        return false;
    }
    /* Taps can share a block only if the one group uses all of them. */
    bool join =
        y.count * x.count == 1 && y.classes[0].used_count * x.classes[0].used_count == g->taps;
    if (!make_blocks(g, depth, join)) {
        return false;
    }
    int64_t groups = y.count * x.count;
    size_t uses = (size_t)(groups * g->blocks_count);
    size_t runs = join ? (size_t)(g->taps * g->blocks_count) : uses;
    g->groups = trmi_arena_alloc(&g->arena, (size_t)groups * sizeof *g->groups);
    g->uses = trmi_arena_alloc(&g->arena, uses * sizeof *g->uses);
    g->runs = trmi_arena_alloc(&g->arena, (runs + 1) * sizeof *g->runs);
    if (g->groups == NULL || g->uses == NULL || g->runs == NULL) {
        return false;
    }
    for (int64_t i = 0; i < y.count; i++) {
        for (int64_t j = 0; j < x.count; j++) {
            make_group(g, &y.classes[i], &x.classes[j], p->kw);
        }
    }
    return true;
}

/* Contract in conv_geometry.h. The gradient of the data is a convolution as well: the result's
 * gradient is its input, the image's gradient its output, and the filter is flipped. Only this
 * function knows both directions; its readers see `in` and `out`. */
trm_status trmi_conv_geometry_init(trmi_conv_geometry *g, const trmi_conv_problem *p, int64_t depth,
                                   trm_error *err) {
    bool data = p->direction == TRMI_CONV_DATA;
    *g = (trmi_conv_geometry){
        .arena = {.chunk_bytes = 4096}, /* tables are small; a layer has three */
        .n = p->n,
        .in_h = data ? p->oh : p->h,
        .in_w = data ? p->ow : p->w,
        .in_c = data ? p->o : p->c,
        .out_h = data ? p->h : p->oh,
        .out_w = data ? p->w : p->ow,
        .out_c = data ? p->c : p->o,
        .in_type = data ? p->result_type : p->image_type,
        .out_type = data ? p->image_type : p->result_type,
        .taps = (int32_t)(p->kh * p->kw),
        .flipped = data,
        .pointwise = p->kh * p->kw == 1 && p->stride[0] == 1 && p->stride[1] == 1 &&
                     p->pad[0] + p->pad[1] + p->pad[2] + p->pad[3] == 0,
    };
    if (!fill_tables(g, p, depth)) {
        trmi_conv_geometry_free(g);
        return TRMI_NO_MEMORY(err, "for the geometry of a convolution");
    }
    return TRM_OK;
}

void trmi_conv_geometry_free(trmi_conv_geometry *g) { trmi_arena_free(&g->arena); }

/* ---- rows ------------------------------------------------------------------------------------ */

/* A row of A: image n, position (i, j) of the group. */
typedef struct cursor {
    int64_t n, i, j;
} cursor;

/* Returns image and position of a row of a group. */
static cursor cursor_at(const trmi_conv_group *group, int64_t row) {
    int64_t area = group->gh * group->gw;
    return (cursor){row / area, row % area / group->gw, row % group->gw};
}

/* Advances to the next row: along the image row, then down, then to the next image. */
static void cursor_next(const trmi_conv_group *group, cursor *c) {
    if (++c->j == group->gw) {
        c->j = 0;
        if (++c->i == group->gh) {
            c->i = 0;
            c->n++;
        }
    }
}

/* The constants of a gather: geometry, input, block. */
typedef struct source {
    const trmi_conv_geometry *g;
    const trmi_gemm_isa *isa;
    const char *input;
    const trmi_conv_block *b;
    int64_t pixel; /* bytes of the block's channels in A */
} source;

/* Writes `taps` pixels from (y, x) on: copies those inside the image, zeros the others. */
static void gather_run(const source *s, int64_t n, int64_t y, int64_t x, int64_t taps, char *to) {
    const trmi_conv_geometry *g = s->g;
    int64_t begin = trmi_max_i64(0, -x), end = trmi_min_i64(taps, g->in_w - x);
    if (y < 0 || y >= g->in_h || begin >= end) {
        memset(to, 0, (size_t)(taps * s->pixel));
        return;
    }
    if (begin > 0) {
        memset(to, 0, (size_t)(begin * s->pixel));
    }
    if (end < taps) {
        memset(to + end * s->pixel, 0, (size_t)((taps - end) * s->pixel));
    }
    int64_t at = ((n * g->in_h + y) * g->in_w + x + begin) * g->in_c + s->b->channel;
    s->isa->widen(to + begin * s->pixel, s->input + at * (int64_t)trm_dtype_bytes(g->in_type),
                  g->in_type, (end - begin) * s->b->channels);
}

/* Contract in conv_geometry.h. A row of A is a run of pixels for each row of taps; runs that lie in
 * padding become zeros (gather_run). */
void trmi_conv_gather(const trmi_conv_geometry *g, const trmi_gemm_isa *isa, const void *input,
                      const trmi_conv_group *group, const trmi_conv_use *use, int64_t row,
                      int64_t count, float *to, int64_t stride) {
    const trmi_conv_block *b = &g->blocks[use->block];
    const char *in = input;
    /* A 1x1 filter without stride or padding reads the input as it lies. */
    if (g->pointwise) {
        const char *from = in + (row * g->in_c + b->channel) * (int64_t)trm_dtype_bytes(g->in_type);
        isa->widen_rows(to, stride, from, g->in_type, g->in_c, count, b->channels);
        return;
    }
    source from = {g, isa, in, b, b->channels * (int64_t)trm_dtype_bytes(isa->row_type)};
    cursor c = cursor_at(group, row);
    for (int64_t r = 0; r < count; r++, cursor_next(group, &c)) {
        char *at = (char *)(to + r * stride);
        for (int32_t i = use->runs; i < use->runs + use->runs_count; i++) {
            const trmi_conv_run *run = &g->runs[i];
            gather_run(&from, c.n, c.i * group->in_dy + run->dy, c.j * group->in_dx + run->dx,
                       run->taps, at);
            at += run->taps * from.pixel;
        }
    }
}

/* Contract in conv_geometry.h. Addresses of the next rows are described as grids of evenly
 * spaced pieces, which the tile's code prefetches between its products. Where they are not
 * evenly spaced nothing is prefetched: the hint would cost more than it gains. */
void trmi_conv_prefetches(const trmi_conv_geometry *g, const void *input,
                          const trmi_conv_group *group, const trmi_conv_use *use, int64_t row,
                          int64_t count, trmi_prefetch soon[TRMI_CONV_AHEAD]) {
    const trmi_conv_block *b = &g->blocks[use->block];
    int64_t bytes = (int64_t)trm_dtype_bytes(g->in_type), pixel = g->in_c * bytes;
    for (int i = 0; i < TRMI_CONV_AHEAD; i++) {
        soon[i] = (trmi_prefetch){0};
    }
    if (count <= 0 ||
        (!g->pointwise && (g->in_h != group->gh * group->in_dy || b->channels * bytes < 64))) {
        return; /* rows are not evenly spaced over images, or pieces are below a cache line */
    }
    const char *base = (const char *)input + b->channel * bytes;
    if (g->pointwise) {
        soon[0] = trmi_prefetch_rows(base + row * pixel, pixel, count, b->channels * bytes);
        return;
    }
    /* One grid for each run of taps: all positions of the next rows. */
    int64_t first = row / group->gw, rows = (row + count - 1) / group->gw - first + 1;
    for (int32_t i = 0; i < use->runs_count && i < TRMI_CONV_AHEAD; i++) {
        const trmi_conv_run *run = &g->runs[use->runs + i];
        int64_t at = (first * group->in_dy + run->dy) * g->in_w + run->dx;
        at = trmi_max_i64(0, at);
        soon[i] = trmi_prefetch_grid(
            base + at * pixel, (run->taps - 1) * pixel + b->channels * bytes, group->in_dx * pixel,
            group->gw, group->in_dy * g->in_w * pixel, rows);
    }
}

void trmi_conv_row_offsets(const trmi_conv_geometry *g, const trmi_conv_group *group, int64_t row,
                           int64_t count, int64_t *offsets) {
    cursor c = cursor_at(group, row);
    for (int64_t r = 0; r < count; r++, cursor_next(group, &c)) {
        int64_t y = group->out_y + c.i * group->out_dy, x = group->out_x + c.j * group->out_dx;
        offsets[r] = ((c.n * g->out_h + y) * g->out_w + x) * g->out_c;
    }
}
