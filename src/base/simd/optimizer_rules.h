/* SPDX-License-Identifier: Apache-2.0 */
/* base/simd/optimizer_rules.h: the optimisers' rules, for kernel files.
 *
 * Each rule is a function on one vector of elements (sgd_lane, adam_lane ...). From it
 * TRMI_RULE_PASS makes a pass over an array (sgd_pass ...). Every sum of a product is written as
 * vf_fma and no other product is added to anything, so that a compiler that fuses multiplications
 * and additions finds none to choose: the bits do not depend on the file that includes this one. */
#ifndef TRMI_BASE_OPTIMIZER_RULES_H
#define TRMI_BASE_OPTIMIZER_RULES_H

#include "base/inline.h"
#include "base/optimizer_rule.h"
#include "base/simd/vec.h"

/* One vector of elements: parameter w, gradient g, slots s0 and s1. */
typedef struct lane {
    vf w, g, s0, s1;
} lane;

/* How many slots a rule has. */
#define SLOTS_OF_sgd 0
#define SLOTS_OF_momentum 1
#define SLOTS_OF_nesterov 1
#define SLOTS_OF_adam 2
#define SLOTS_OF_lars 1
#define SLOTS_OF_adagrad 1
#define SLOTS_OF_ftrl 2

/* Returns the gradient with scale and L2 decay. */
TRMI_INLINE vf scaled_gradient(const trmi_rule *r, vf w, vf g) {
    return vf_fma(vf_set(r->decay), w, vf_mul(vf_set(r->scale), g));
}

/* w -= lr g. */
TRMI_INLINE lane sgd_lane(const trmi_rule *r, lane x) {
    x.g = scaled_gradient(r, x.w, x.g);
    x.w = vf_fma(vf_set(-r->lr), x.g, x.w);
    return x;
}

/* m = momentum m + g; w -= lr m. */
TRMI_INLINE lane momentum_lane(const trmi_rule *r, lane x) {
    x.g = scaled_gradient(r, x.w, x.g);
    x.s0 = vf_fma(vf_set(r->momentum), x.s0, x.g);
    x.w = vf_fma(vf_set(-r->lr), x.s0, x.w);
    return x;
}

/* m = momentum m + g; w -= lr (g + momentum m). */
TRMI_INLINE lane nesterov_lane(const trmi_rule *r, lane x) {
    x.g = scaled_gradient(r, x.w, x.g);
    x.s0 = vf_fma(vf_set(r->momentum), x.s0, x.g);
    x.w = vf_fma(vf_set(-r->lr), vf_fma(vf_set(r->momentum), x.s0, x.g), x.w);
    return x;
}

/* Applies Adam (Kingma and Ba, 2014); with shrink != 1 AdamW (Loshchilov and Hutter, 2017). */
TRMI_INLINE lane adam_lane(const trmi_rule *r, lane x) {
    x.g = scaled_gradient(r, x.w, x.g);
    x.s0 = vf_fma(vf_set(r->keep1), x.s0, vf_mul(vf_set(r->blend1), x.g));
    x.s1 = vf_fma(vf_set(r->keep2), x.s1, vf_mul(vf_set(r->blend2), vf_mul(x.g, x.g)));
    vf root = vf_fma(vf_sqrt(x.s1), vf_set(r->root_scale), vf_set(r->epsilon));
    vf step = vf_div(vf_mul(vf_set(-r->step_size), x.s0), root);
    x.w = vf_fma(vf_set(r->shrink), x.w, step);
    return x;
}

/* Applies LARS (You, Gitman and Ginsburg, 2017). The slot includes the learning rate. */
TRMI_INLINE lane lars_lane(const trmi_rule *r, lane x) {
    x.g = scaled_gradient(r, x.w, x.g);
    x.s0 = vf_fma(vf_set(r->momentum), x.s0, vf_mul(vf_set(r->local), x.g));
    x.w = vf_sub(x.w, x.s0);
    return x;
}

/* Applies Adagrad (Duchi, Hazan and Singer, 2011). */
TRMI_INLINE lane adagrad_lane(const trmi_rule *r, lane x) {
    x.g = scaled_gradient(r, x.w, x.g);
    x.s0 = vf_fma(x.g, x.g, x.s0);
    vf root = vf_add(vf_sqrt(x.s0), vf_set(r->epsilon));
    x.w = vf_sub(x.w, vf_div(vf_mul(vf_set(r->lr), x.g), root));
    return x;
}

/* Applies FTRL-Proximal (McMahan et al., 2013), with s0 = n and s1 = z:
 *   n' = n + g^2; z += g - (sqrt(n') - sqrt(n)) / lr w
 *   w = 0 where |z| <= l1, else -(z - sign(z) l1) / (sqrt(n') / lr + curve)
 * with curve = 2 l2 + beta / lr. */
TRMI_INLINE lane ftrl_lane(const trmi_rule *r, lane x) {
    x.g = scaled_gradient(r, x.w, x.g);
    vf n = vf_fma(x.g, x.g, x.s0), root = vf_sqrt(n);
    vf sigma = vf_mul(vf_sub(vf_sqrt(x.s0), root), vf_set(r->lr_inverse)); /* negative */
    x.s0 = n;
    x.s1 = vf_fma(sigma, x.w, vf_add(x.s1, x.g));
    vf quadratic = vf_fma(root, vf_set(r->lr_inverse), vf_set(r->curve));
    vf l1 = vf_select(vf_gt(x.s1, vf_zero()), vf_set(r->l1), vf_set(-r->l1));
    vf w = vf_div(vf_sub(l1, x.s1), quadratic);
    w = vf_keep(vf_gt(vf_abs(x.s1), vf_set(r->l1)), w);
    x.w = vf_keep(vf_gt(quadratic, vf_zero()), w);
    return x;
}

/* Defines NAME_pass, which applies the rule to `count` elements of w and the slots (ignored where
 * the rule has none). Elements that fill no vector are taken one by one, each in all lanes: masked
 * stores are slow on some CPUs, and a row of a table may be a single element. */
#define TRMI_RULE_PASS(name)                                                                       \
    TRMI_INLINE void name##_pass(const trmi_rule *r, float *w, const float *g, float *s0,          \
                                 float *s1, int64_t count) {                                       \
        const int slots = SLOTS_OF_##name;                                                         \
        int64_t i = 0;                                                                             \
        for (; i + VL <= count; i += VL) {                                                         \
            lane x = {vf_load(w + i), vf_load(g + i), vf_zero(), vf_zero()};                       \
            x.s0 = slots > 0 ? vf_load(s0 + i) : x.s0;                                             \
            x.s1 = slots > 1 ? vf_load(s1 + i) : x.s1;                                             \
            x = name##_lane(r, x);                                                                 \
            vf_store(w + i, x.w);                                                                  \
            if (slots > 0) {                                                                       \
                vf_store(s0 + i, x.s0);                                                            \
            }                                                                                      \
            if (slots > 1) {                                                                       \
                vf_store(s1 + i, x.s1);                                                            \
            }                                                                                      \
        }                                                                                          \
        for (; i < count; i++) {                                                                   \
            lane x = {vf_set(w[i]), vf_set(g[i]), vf_zero(), vf_zero()};                           \
            x.s0 = slots > 0 ? vf_set(s0[i]) : x.s0;                                               \
            x.s1 = slots > 1 ? vf_set(s1[i]) : x.s1;                                               \
            x = name##_lane(r, x);                                                                 \
            w[i] = vf_first(x.w);                                                                  \
            if (slots > 0) {                                                                       \
                s0[i] = vf_first(x.s0);                                                            \
            }                                                                                      \
            if (slots > 1) {                                                                       \
                s1[i] = vf_first(x.s1);                                                            \
            }                                                                                      \
        }                                                                                          \
    }
TRMI_RULE_PASS(sgd)
TRMI_RULE_PASS(momentum)
TRMI_RULE_PASS(nesterov)
TRMI_RULE_PASS(adam)
TRMI_RULE_PASS(lars)
TRMI_RULE_PASS(adagrad)
TRMI_RULE_PASS(ftrl)

#endif
