/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/apply.h: the optimiser applied to one row, and the kernels that move values.
 *
 * One source (apply_rows.h) is compiled for plain C, AVX2 and AVX-512; sums run over 16 partial
 * sums in each, so that results differ by no more than fused multiply-add does. */
#ifndef TRMI_PS_APPLY_H
#define TRMI_PS_APPLY_H

#include "ps/table/rows.h"

/* What a push says beyond keys and gradients. */
typedef struct trmi_tick {
    uint32_t tick;        /* number of this push at this shard, from 1 */
    uint32_t time;        /* wall-clock second */
    float rate_scale;     /* times the table's learning rate */
    float gradient_scale; /* 1 / workers for a mean */
} trmi_tick;

typedef struct trmi_apply_args {
    trm_row_optimizer optimizer; /* defaults filled in */
    float rate, gradient_scale;
    float correction1, correction2; /* Adam: 1 / (1 - beta^t) of the first and second moment */
    float decay1, decay2;           /* Adam: beta^(ticks rested) on top of beta */
} trmi_apply_args;

/* One push to rows of float32 that need nothing else: no rule that looks at ticks, no score, no
 * cut under way. */
typedef struct trmi_row_update {
    const trmi_row_layout *layout;
    const trmi_apply_args *args;
    const trmi_tick *tick;
    uint32_t generation;
    char *scratch; /* a record that nobody reads */
} trmi_row_update;

typedef struct trmi_apply_kernels {
    const char *name; /* "avx512" */
    /* w[width] float32 and slots learn from g[width]. */
    void (*apply[TRM_ROW_FTRL + 1])(float *w, float *slots, const float *g, int32_t width,
                                    const trmi_apply_args *args);
    /* keys[count] (at most TRMI_LOOKUP_KEYS, distinct) learn from g[count][width]. Returns how many
     * are absent; their positions are in absent[count]. NULL for Adam, whose rows look at ticks. */
    int64_t (*update[TRM_ROW_FTRL + 1])(const trmi_rows *rows, const trmi_row_update *u,
                                        const uint64_t *keys, int64_t count, const float *g,
                                        int32_t *absent);
    /* A row of 16-bit values to float32 and back. `noise` 0 rounds to nearest even, any other
     * value seeds the stochastic rounding of this row. */
    void (*load[TRM_FLOAT16 + 1])(const void *values, int32_t width, float *out);
    void (*store[TRM_FLOAT16 + 1])(const float *in, int32_t width, uint64_t noise, void *values);
    /* out += scale * in. */
    void (*add_scaled)(float *out, const float *in, float scale, int32_t width);
} trmi_apply_kernels;

extern const trmi_apply_kernels trmi_apply_plain;
#if defined(__x86_64__)
extern const trmi_apply_kernels trmi_apply_avx2, trmi_apply_avx512;
#endif

/* The best that this CPU has. */
const trmi_apply_kernels *trmi_apply_kernels_here(void);

/* Fills an optimiser's defaults; INVALID names the field that is out of range. */
trm_status trmi_row_optimizer_check(const trm_row_optimizer *in, trm_row_optimizer *out,
                                    const char *table, trm_error *err);
/* Arguments for the rows of one push (decay1 and decay2 are the row's own business). */
void trmi_apply_prepare(const trm_row_optimizer *optimizer, const trmi_tick *tick,
                        trmi_apply_args *out);

/* 32 random bits for element `index` of a row: a pure function of (noise, index). */
static inline uint32_t trmi_rounding_bits(uint64_t noise, uint32_t index) {
    uint32_t z = (uint32_t)noise + index * 0x9E3779B9u;
    z = (z ^ (z >> 16)) * 0x7FEB352Du;
    z = (z ^ (z >> 15) ^ (uint32_t)(noise >> 32)) * 0x846CA68Bu;
    return z ^ (z >> 16);
}

#endif
