/* SPDX-License-Identifier: Apache-2.0 */
/* exec/optimizer/update_kernels.h: the optimisers' inner loops, one table per instruction set. */
#ifndef TRMI_EXEC_UPDATE_KERNELS_H
#define TRMI_EXEC_UPDATE_KERNELS_H

#include "trireme/exec.h"

#include "exec/optimizer/update.h"

#include "base/cpu.h"
#include "base/optimizer_rule.h"

/* Applies the rule to `count` elements of w and the slots (NULL where the rule has none); g:
 * gradient. */
typedef void (*trmi_rule_pass)(const trmi_rule *rule, float *w, const float *g, float *slot0,
                               float *slot1, int64_t count);

/* Where a rule reads the slots of `count` elements and where it writes them: memories that do not
 * overlap and lie equally to multiples of 64 bytes. NULL where the rule has none. */
typedef struct trmi_slot_turn {
    const float *from[TRMI_SLOTS_MAX];
    float *to[TRMI_SLOTS_MAX];
} trmi_slot_turn;
/* Applies the rule to `count` elements of w, with the bits of trmi_rule_pass. Writes the slots past
 * the caches: they are read next in the following update. Copies w to `old` (trmi_update_old), also
 * past the caches. */
typedef void (*trmi_rule_turn)(const trmi_rule *rule, float *w, const float *g,
                               const trmi_slot_turn *slots, const trmi_update_old *old,
                               int64_t count);

/* Applies the rule to `rows` rows of `width` at w + at[i] and at the same offsets of the slots.
 * Their gradients are contiguous in g. */
typedef void (*trmi_rule_rows)(const trmi_rule *rule, float *w, const float *g, float *slot0,
                               float *slot1, const int64_t *at, int64_t rows, int64_t width);

/* A part of left^T right, rows x columns. Element (r, j) is the sum over s < factors, in order, of
 * left[s * left_step + r] * right[s * right_step + j]. */
typedef struct trmi_product {
    const float *left, *right;
    int64_t left_step, right_step, factors;
    int64_t rows, columns;
    int64_t step; /* elements between rows of the destination */
} trmi_product;

/* Applies the rule to w[r * step + j], and the same elements of the slots, with element (r, j) of
 * the product as the gradient. */
typedef void (*trmi_rule_product)(const trmi_rule *rule, const trmi_product *product, float *w,
                                  float *slot0, float *slot1);

typedef struct trmi_update_kernels {
    trmi_rule_pass rule[TRMI_OPTIMIZERS]; /* these and others by kind: NULL for rules of tables */
    trmi_rule_rows rows[TRMI_OPTIMIZERS];
    trmi_rule_turn turn[TRMI_OPTIMIZERS];
    /* Sums rows by group, in order: sums[group[i]] += row p of `from` [.., width], where p is the
     * low half of keys[i]. Groups are numbered in the order of their first key. */
    void (*sum_rows)(const float *from, const uint64_t *keys, const uint32_t *group, int64_t count,
                     int64_t width, float *sums);
    trmi_rule_product product[TRMI_OPTIMIZERS];
    /* out[r * step + j] = the product's element (r, j). */
    void (*multiply)(const trmi_product *product, float *out);
    float (*inner)(const float *x, const float *y, int64_t count); /* inner product in float */
    /* Sum of squares in float: not finite if an element is not, or its square overflows. */
    float (*squares)(const float *x, int64_t count);
    void (*accumulate)(float *sum, const float *x, int64_t count, float scale, bool first);
    void (*copy_aside)(float *to, const float *from, int64_t count); /* trmi_update_copy_aside */
} trmi_update_kernels;

extern const trmi_update_kernels trmi_update_kernels_plain;
#if defined(__x86_64__)
extern const trmi_update_kernels trmi_update_kernels_avx2, trmi_update_kernels_avx512;
#endif
static inline const trmi_update_kernels *trmi_update_kernels_best(void) {
    return TRMI_CPU_CHOICE(&trmi_update_kernels);
}

#endif
