/* SPDX-License-Identifier: Apache-2.0 */
/* base/optimizer_rule.h: the constants of an optimiser's rule. The update of a model's parameters
 * (exec) and of the rows of parameter servers (ps) make them here (trmi_rule_of);
 * base/simd/optimizer_rules.h applies them, so that a parameter gets the same bits in both places. */
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

/* What the constants are made of. */
typedef struct trmi_rule_options {
    double rate; /* learning rate of this step */
    double momentum, decay, epsilon, l1;
    double curve;   /* FTRL, see trmi_rule */
    bool decoupled; /* decay acts on w itself */
    double beta1;   /* 0: the rule is not Adam */
    double beta2;
    uint64_t step; /* Adam: 1, 2, ... */
    /* Adam in the form of PyTorch's SparseAdam: epsilon is added to the root that is not yet
     * corrected */
    bool sparse;
    float scale; /* of the gradient */
} trmi_rule_options;

/* Returns the constants of a rule: Adam is that of Kingma and Ba, 2014. */
static inline trmi_rule trmi_rule_of(const trmi_rule_options *o) {
    trmi_rule r = {.lr = (float)o->rate,
                   .scale = o->scale,
                   .decay = o->decoupled ? 0 : (float)o->decay,
                   .shrink = o->decoupled ? (float)(1 - o->rate * o->decay) : 1,
                   .momentum = (float)o->momentum,
                   .epsilon = (float)o->epsilon,
                   .local = (float)o->rate,
                   .l1 = (float)o->l1,
                   .lr_inverse = o->rate > 0 ? (float)(1 / o->rate) : 0,
                   .curve = (float)o->curve};
    if (o->beta1 > 0) {
        double bias1 = 1 - pow(o->beta1, (double)o->step),
               bias2 = 1 - pow(o->beta2, (double)o->step);
        r.keep1 = (float)o->beta1;
        r.keep2 = (float)o->beta2;
        r.blend1 = 1 - r.keep1;
        r.blend2 = 1 - r.keep2;
        r.step_size = (float)(o->sparse ? o->rate * sqrt(bias2) / bias1 : o->rate / bias1);
        r.root_scale = (float)(o->sparse ? 1 : 1 / sqrt(bias2));
    }
    return r;
}

#endif
