/* SPDX-License-Identifier: Apache-2.0 */
/* base/optimizer_rule.h: the constants of an optimiser's rule. The update of a model's parameters
 * (exec) and of the rows of parameter servers (ps) make them; base/simd/optimizer_rules.h applies
 * them, so that a parameter gets the same bits in both places. */
#ifndef TRMI_BASE_OPTIMIZER_RULE_H
#define TRMI_BASE_OPTIMIZER_RULE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* The constants of a rule for one step and one run of parameters. */
typedef struct trmi_rule {
    float lr;
    float scale; /* of the gradient: clipping, loss scale, 1 / workers */
    float decay; /* L2: the gradient gets decay * w */
    float momentum;
    float keep1, blend1; /* Adam: first moment = keep1 * itself + blend1 * gradient */
    float keep2, blend2; /* the same of the second moment and the squared gradient */
    float shrink;        /* Adam, decoupled decay: w is first multiplied by this; 1 = none */
    float step_size;     /* Adam: lr / (1 - beta1^step) */
    float root_scale;    /* Adam: 1 / sqrt(1 - beta2^step) */
    float epsilon;
    float local; /* LARS: lr * trust ratio */
    /* FTRL: L1; 1 / lr; addend of the denominator: L2 (in TensorFlow's form twice l2), beta / lr */
    float l1, lr_inverse, curve;
} trmi_rule;

/* Sets the constants of Adam (Kingma and Ba, 2014) for step 1, 2, ... `sparse`: in the form of
 * PyTorch's SparseAdam, which adds epsilon to the root that is not yet corrected. */
static inline void trmi_rule_set_adam(trmi_rule *r, double lr, double beta1, double beta2,
                                      uint64_t step, bool sparse) {
    double bias1 = 1 - pow(beta1, (double)step), bias2 = 1 - pow(beta2, (double)step);
    r->keep1 = (float)beta1;
    r->keep2 = (float)beta2;
    r->blend1 = 1 - r->keep1;
    r->blend2 = 1 - r->keep2;
    r->step_size = (float)(sparse ? lr * sqrt(bias2) / bias1 : lr / bias1);
    r->root_scale = (float)(sparse ? 1 : 1 / sqrt(bias2));
}

#endif
