/* exec/update_kernels.h: the optimisers' inner loops, one table per instruction set. */
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
    float step_size;      /* ADAM: lr / (1 - beta1^step) */
    float root_scale;     /* ADAM: 1 / sqrt(1 - beta2^step) */
    float epsilon;
    float local;          /* LARS: lr * trust ratio */
    float l1, l2, lr_inverse;
} trmi_rule;

/* w, slots and the optional bfloat16 copy of w (NULL = none) of `count` elements. */
typedef void (*trmi_rule_pass)(const trmi_rule *rule, float *w, const float *g, float *slot0,
                               float *slot1, int64_t count);

/* Rows of `width` at w + at[i] (and so in the slots); their gradients lie side by side in g. */
typedef void (*trmi_rule_rows)(const trmi_rule *rule, float *w, const float *g, float *slot0,
                               float *slot1, const int64_t *at, int64_t rows, int64_t width);

typedef struct trmi_update_kernels {
    trmi_rule_pass rule[TRMI_OPTIMIZERS];
    trmi_rule_rows rows[TRMI_OPTIMIZERS];
    /* sums[group[i]][width] = the sum, in order, of the rows of `from` [.., width] at the positions, the low
     * halves of keys[0 .. count). Groups are numbered as they first come. */
    void (*sum_rows)(const float *from, const uint64_t *keys, const uint32_t *group, int64_t count, int64_t width,
                     float *sums);
    /* out[j] = sum over s of left[s * left_step] * right[s * right_step + j], in the order of s, j < count. */
    void (*combine_rows)(const float *left, int64_t left_step, const float *right, int64_t right_step, int64_t factors,
                         int64_t count, float *out);
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
