/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/apply.h: applies the optimiser to rows, and the kernels that convert values.
 *
 * One source (apply_kernels.c) is compiled for plain C, AVX2 and AVX-512. Sums run over 16 partial
 * sums in all three, so that their results differ by no more than fused multiply-add does. */
#ifndef TRMI_PS_APPLY_H
#define TRMI_PS_APPLY_H

#include "ps/table/rows.h"

#include "base/optimizer_rule.h"

/* The parameters of one push. */
typedef struct trmi_tick {
    uint32_t tick;        /* number of this push on this shard, from 1 */
    uint32_t time;        /* wall-clock second */
    float rate_scale;     /* factor on the table's learning rate */
    float gradient_scale; /* 1 / workers for a mean */
} trmi_tick;

/* Applies a rule to a row: w[width] and its slots (float32) with gradient g[width]. `slot1` is
 * where a second slot would be. */
typedef void (*trmi_row_apply)(const trmi_rule *rule, float *w, const float *g, float *slot0,
                               float *slot1, int64_t width);

/* One push to float32 rows in the simple case: no rule that depends on ticks, no score, no
 * snapshot under way. */
typedef struct trmi_row_update {
    const trmi_row_layout *layout;
    const trmi_rule *rule;
    const trmi_tick *tick;
    uint32_t generation;
    char *scratch; /* scratch record, written in place of absent rows */
} trmi_row_update;

/* The kernels of one instruction set. */
typedef struct trmi_apply_kernels {
    const char *name; /* "avx512" */
    trmi_row_apply apply[TRMI_OPTIMIZERS];
    /* Updates the rows of keys[count] (at most TRMI_LOOKUP_KEYS, distinct) with g[count][width].
     * Returns how many keys are absent; their positions are in absent[count]. NULL for Adam,
     * whose rows depend on ticks. */
    int64_t (*update[TRMI_OPTIMIZERS])(const trmi_rows *rows, const trmi_row_update *u,
                                       const uint64_t *keys, int64_t count, const float *g,
                                       int32_t *absent);
    /* Convert a row to float32 and back. `noise` 0 rounds to nearest even, another value seeds
     * the stochastic rounding. */
    void (*load[TRM_FLOAT16 + 1])(const void *values, int32_t width, float *out);
    void (*store[TRM_FLOAT16 + 1])(const float *in, int32_t width, uint64_t noise, void *values);
    /* out += scale * in. */
    void (*add_scaled)(float *out, const float *in, float scale, int32_t width);
} trmi_apply_kernels;

extern const trmi_apply_kernels trmi_apply_plain;
#if defined(__x86_64__)
extern const trmi_apply_kernels trmi_apply_avx2, trmi_apply_avx512;
#endif

/* Returns the best kernels for this CPU. */
const trmi_apply_kernels *trmi_apply_kernels_here(void);

/* Returns the constants of the rule for the rows of one push; `learning_rate` is the table's. */
trmi_rule trmi_row_rule_of(const trm_optimizer_options *optimizer, float learning_rate,
                           const trmi_tick *tick);

/* Returns 32 random bits for element `index` of a row: a pure function of (noise, index). */
static inline uint32_t trmi_rounding_bits(uint64_t noise, uint32_t index) {
    uint32_t z = (uint32_t)noise + index * 0x9E3779B9u;
    z = (z ^ (z >> 16)) * 0x7FEB352Du;
    z = (z ^ (z >> 15) ^ (uint32_t)(noise >> 32)) * 0x846CA68Bu;
    return z ^ (z >> 16);
}

#endif
