/* SPDX-License-Identifier: Apache-2.0 */
/* exec/optimizer/update_kernels.h: the optimisers' inner loops, one table per instruction set. */
#ifndef TRMI_EXEC_UPDATE_KERNELS_H
#define TRMI_EXEC_UPDATE_KERNELS_H

#include "trireme/exec.h"

enum { TRMI_OPTIMIZERS = TRM_FTRL + 1 };

/* What one pass over a stretch of elements needs; constants of the step and of the segment. */
typedef struct trmi_rule {
    float lr;
    float scale;  /* of the gradient: clipping */
    float decay;  /* L2: the gradient gets decay * w */
    float shrink; /* decoupled decay: w is first multiplied by this */
    float momentum;
    float beta1, beta2;
    float step_size;  /* ADAM: lr / (1 - beta1^step) */
    float root_scale; /* ADAM: 1 / sqrt(1 - beta2^step) */
    float epsilon;
    float local; /* LARS: lr * trust ratio */
    float l1, l2, lr_inverse;
} trmi_rule;

/* w, slots and the optional bfloat16 copy of w (NULL = none) of `count` elements. */
typedef void (*trmi_rule_pass)(const trmi_rule *rule, float *w, const float *g, float *slot0,
                               float *slot1, int64_t count);

/* Rows of `width` at w + at[i] (and so in the slots); their gradients lie side by side in g. */
typedef void (*trmi_rule_rows)(const trmi_rule *rule, float *w, const float *g, float *slot0,
                               float *slot1, const int64_t *at, int64_t rows, int64_t width);

/* A stretch of left^T right, rows x columns: element (r, j) is the sum, in the order of s <
 * factors, of left[s * left_step + r] * right[s * right_step + j]. */
typedef struct trmi_product {
    const float *left, *right;
    int64_t left_step, right_step, factors;
    int64_t rows, columns;
    int64_t step; /* from row to row of what it belongs to */
} trmi_product;

/* The rule where the gradient of w[r * step + j] (and so in the slots) is the product's element (r,
 * j). */
typedef void (*trmi_rule_product)(const trmi_rule *rule, const trmi_product *product, float *w,
                                  float *slot0, float *slot1);

typedef struct trmi_update_kernels {
    trmi_rule_pass rule[TRMI_OPTIMIZERS];
    trmi_rule_rows rows[TRMI_OPTIMIZERS];
    /* sums[group[i]][width] = the sum, in order, of the rows of `from` [.., width] at the
     * positions, the low halves of keys[0 .. count). Groups are numbered as they first come. */
    void (*sum_rows)(const float *from, const uint64_t *keys, const uint32_t *group, int64_t count,
                     int64_t width, float *sums);
    trmi_rule_product product[TRMI_OPTIMIZERS];
    /* out[r * step + j] = the product's element (r, j). */
    void (*multiply)(const trmi_product *product, float *out);
    float (*inner)(const float *x, const float *y, int64_t count);
    /* Sum of squares in float: not finite when an element is not (or is too large to square). */
    float (*squares)(const float *x, int64_t count);
    void (*accumulate)(float *sum, const float *x, int64_t count, float scale, bool first);
} trmi_update_kernels;

extern const trmi_update_kernels trmi_update_kernels_plain;
#if defined(__x86_64__)
extern const trmi_update_kernels trmi_update_kernels_avx2, trmi_update_kernels_avx512;
#endif
const trmi_update_kernels *trmi_update_kernels_best(void);

#endif
