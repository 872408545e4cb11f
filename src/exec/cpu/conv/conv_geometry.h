/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/conv/conv_geometry.h: a convolution as matrix products over gathered rows.
 *
 * A row is one output pixel; its k are taps x channels of the input pixels it sees:
 *
 *      row (n, y, x)  =  [ input(n, y*step + dy0, x*step + dx0, 0..C) | tap 1 | tap 2 | ... ]
 *
 * FORWARD   input x,  output y,  k = taps * C, columns O
 * DATA      input dy, output dx, k = taps * O, columns C; a stride s gives s*s classes of output
 *           pixels, each with its own taps and none wasted
 * WEIGHTS   as FORWARD: the rows are what is summed over
 *
 * Rows with the same taps form a group. On tiny images every position is its own group, so that
 * taps that only see padding cost nothing (on 1x1 images 8 of 9).
 */
#ifndef TRMI_EXEC_CPU_CONV_GEOMETRY_H
#define TRMI_EXEC_CPU_CONV_GEOMETRY_H

#include "base/memory.h"

#include "exec/cpu/conv/conv.h"
#include "exec/cpu/gemm/gemm_isa.h"

/* A part of k: whole taps [tap, tap + taps) with all channels, or one tap with some. */
typedef struct trmi_conv_block {
    int32_t tap, taps; /* in gather order */
    int64_t channel, channels;
    int64_t k; /* taps * channels */
} trmi_conv_block;

/* Neighbouring taps in one image row: dx, dx + 1, ... */
typedef struct trmi_conv_run {
    int64_t dy, dx;
    int32_t taps;
} trmi_conv_run;

/* The use of a block of k by one group. */
typedef struct trmi_conv_use {
    int32_t block, runs, runs_count; /* runs: first index in geometry->runs */
} trmi_conv_use;

/* Output positions that use the same taps. */
typedef struct trmi_conv_group {
    int64_t gh, gw;                       /* positions per image */
    int64_t out_y, out_x, out_dy, out_dx; /* position (i, j) is pixel (out_y + i * out_dy, ...) */
    int64_t in_dy, in_dx;                 /* and sees input (i * in_dy + tap's dy, ...) */
    int32_t uses, uses_count;             /* first index in geometry->uses */
    int64_t rows;
} trmi_conv_group;

/* All tables of a convolution; read only after creation, so threads share it. */
typedef struct trmi_conv_geometry {
    trmi_arena arena;
    int64_t n, in_h, in_w, in_c, out_h, out_w, out_c; /* input: what is gathered */
    trm_dtype in_type, out_type;
    int32_t taps;            /* kernel height * width */
    bool flipped;            /* gather order is the reverse of the weights' order */
    bool pointwise;          /* one tap, no offset, stride 1: rows are the input's rows */
    trmi_conv_block *blocks; /* pieces of the summed dimension, taps x channels */
    trmi_conv_use *uses;     /* which blocks a group uses, and by which runs */
    trmi_conv_run *runs;     /* neighbouring taps in a row of the image */
    trmi_conv_group *groups; /* output positions that use the same taps */
    int32_t blocks_count, uses_count, runs_count, groups_count;
    bool *block_used; /* some group uses the block */
} trmi_conv_geometry;

/* Returns whether a problem has the layout that gathering reads: channels last, one group. */
static inline bool trmi_conv_gathers(const trmi_conv_problem *p) {
    return p->layout == TRMI_CHANNELS_LAST && p->weights_layout == TRMI_CHANNELS_LAST &&
           p->groups == 1;
}

/* Returns the FLOPs for a guess of the time. In images of at most 4x4 many taps of a filter meet
 * nothing but padding, and their products are left out. */
static inline double trmi_conv_gathered_flops(const trmi_conv_problem *p) {
    int64_t pixels = p->oh * p->ow;
    bool small = p->kh * p->kw > 1 && pixels <= 16 && p->n >= 8;
    return trmi_conv_flops(p) * (!small ? 1 : pixels == 1 ? 0.15 : pixels <= 4 ? 0.5 : 0.8);
}

/* Makes the tables of a problem: CHANNELS_LAST, one group of channels, HWIO weights.
 *   param   depth: the longest k of a block
 *   errors  NOMEM */
trm_status trmi_conv_geometry_init(trmi_conv_geometry *g, const trmi_conv_problem *p, int64_t depth,
                                   trm_error *err);
void trmi_conv_geometry_free(trmi_conv_geometry *g);

/* Returns the bytes of the output. */
static inline int64_t trmi_conv_out_bytes(const trmi_conv_geometry *g) {
    return g->n * g->out_h * g->out_w * g->out_c * (int64_t)trm_dtype_bytes(g->out_type);
}

/* Returns the index in the weights of tap `tap` of the gather order. */
static inline int32_t trmi_conv_weight_tap(const trmi_conv_geometry *g, int32_t tap) {
    return g->flipped ? g->taps - 1 - tap : tap;
}

/* Gathers the k of one block for rows [row, row + count) of a group, converted to isa->row_type;
 * row i goes to to[i * stride]. Pixels outside the image are zero. */
void trmi_conv_gather(const trmi_conv_geometry *g, const trmi_gemm_isa *isa, const void *input,
                      const trmi_conv_group *group, const trmi_conv_use *use, int64_t row,
                      int64_t count, float *to, int64_t stride);

enum { TRMI_CONV_AHEAD = 4 }; /* runs of taps that are prefetched */
/* Sets the prefetches for gathering `count` rows from `row` on, where they are evenly spaced. None
 * for count 0. */
void trmi_conv_prefetches(const trmi_conv_geometry *g, const void *input,
                          const trmi_conv_group *group, const trmi_conv_use *use, int64_t row,
                          int64_t count, trmi_prefetch soon[TRMI_CONV_AHEAD]);

/* Writes the element offset of the output pixel of each row. */
void trmi_conv_row_offsets(const trmi_conv_geometry *g, const trmi_conv_group *group, int64_t row,
                           int64_t count, int64_t *offsets);

#endif
