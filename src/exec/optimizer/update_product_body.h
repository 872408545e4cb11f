/* SPDX-License-Identifier: Apache-2.0 */
/* exec/optimizer/update_product_body.h: the rules for parameters whose gradients are in factors;
 * part of update_kernels.c. A part of a row of the gradient is computed in registers and used
 * there, while the data of the following parts is prefetched:
 *
 *      left [s] x right [s, 16 vectors], all s  -->  g [16]  --rule-->  w, slots
 *
 * One row at a time, so that parameters and slots are read as contiguous streams. Four rows at a
 * time, which share their reads of `right`, took a fifth longer (100,000 x 256, 16 factors, two
 * ranks a core). */
enum {
    PRODUCT_VECTORS = VL == 16 ? 16 : 8, /* as many as registers hold */
    PRODUCT_AHEAD = 512                  /* elements */
};

typedef lane (*lane_rule)(const trmi_rule *rule, lane x);

TRMI_INLINE void product_prefetch(int64_t at, const int slots, const float *w, const float *s0,
                                  const float *s1) {
    at += PRODUCT_AHEAD;
    for (int j = 0; j < PRODUCT_VECTORS * VL; j += 16) {
        __builtin_prefetch(w + at + j, 1);
        if (slots > 0) {
            __builtin_prefetch(s0 + at + j, 1);
        }
        if (slots > 1) {
            __builtin_prefetch(s1 + at + j, 1);
        }
    }
}

TRMI_INLINE void product_use(const trmi_rule *r, lane_rule rule, const int slots, vf g, float *w,
                             float *s0, float *s1, int64_t at, int n) {
    w += at;
    s0 = slots > 0 ? s0 + at : s0;
    s1 = slots > 1 ? s1 + at : s1;
    lane x = {vf_lanes(w, 0, 0, n), g, vf_zero(), vf_zero()};
    x.s0 = slots > 0 ? vf_lanes(s0, 0, 0, n) : x.s0;
    x.s1 = slots > 1 ? vf_lanes(s1, 0, 0, n) : x.s1;
    x = rule(r, x);
    vf_put_lanes(w, 0, 0, n, x.w);
    if (slots > 0) {
        vf_put_lanes(s0, 0, 0, n, x.s0);
    }
    if (slots > 1) {
        vf_put_lanes(s1, 0, 0, n, x.s1);
    }
}

/* Computes `count` vectors of the gradient from this column on, and applies the rule to them. */
TRMI_INLINE void product_stretch(const trmi_rule *r, const trmi_product *p, lane_rule rule,
                                 const int slots, int64_t row, int64_t column, const int count,
                                 float *w, float *s0, float *s1) {
    vf g[PRODUCT_VECTORS];
    const float *left = p->left + row, *right = p->right + column;
    int64_t at = row * p->step + column;
    product_prefetch(at, slots, w, s0, s1);
    for (int j = 0; j < count; j++) {
        g[j] = vf_zero();
    }
    for (int64_t s = 0; s < p->factors; s++, left += p->left_step, right += p->right_step) {
        vf factor = vf_set(*left);
#pragma GCC unroll 16
        for (int j = 0; j < count; j++) {
            g[j] = vf_fma(factor, vf_load(right + j * VL), g[j]);
        }
    }
#pragma GCC unroll 16
    for (int j = 0; j < count; j++) {
        product_use(r, rule, slots, g[j], w, s0, s1, at + j * VL, VL);
    }
}

TRMI_INLINE void product_row(const trmi_rule *r, const trmi_product *p, lane_rule rule,
                             const int slots, int64_t row, float *w, float *s0, float *s1) {
    int64_t column = 0;
    for (; column + PRODUCT_VECTORS * VL <= p->columns; column += PRODUCT_VECTORS * VL) {
        product_stretch(r, p, rule, slots, row, column, PRODUCT_VECTORS, w, s0, s1);
    }
    for (; column + VL <= p->columns; column += VL) {
        product_stretch(r, p, rule, slots, row, column, 1, w, s0, s1);
    }
    if (column < p->columns) {
        int n = (int)(p->columns - column);
        vf g = vf_zero();
        for (int64_t s = 0; s < p->factors; s++) {
            vf right = vf_lanes(p->right + s * p->right_step + column, 0, 0, n);
            g = vf_fma(vf_set(p->left[s * p->left_step + row]), right, g);
        }
        product_use(r, rule, slots, g, w, s0, s1, row * p->step + column, n);
    }
}

TRMI_INLINE void multiply_rows(const trmi_rule *r, const trmi_product *p, lane_rule rule,
                               const int slots, float *w, float *s0, float *s1) {
    for (int64_t row = 0; row < p->rows; row++) {
        product_row(r, p, rule, slots, row, w, s0, s1);
    }
}

#define PRODUCT(name)                                                                              \
    static void name##_product(const trmi_rule *r, const trmi_product *p, float *w, float *s0,     \
                               float *s1) {                                                        \
        multiply_rows(r, p, name##_lane, SLOTS_OF_##name, w, s0, s1);                              \
    }
PRODUCT(sgd)
PRODUCT(momentum)
PRODUCT(nesterov)
PRODUCT(adam)
PRODUCT(lars)
PRODUCT(adagrad)
PRODUCT(ftrl)

static inline lane take_gradient(const trmi_rule *r, lane x) {
    (void)r;
    x.w = x.g;
    return x;
}
static void write_product(const trmi_product *p, float *out) {
    multiply_rows(NULL, p, take_gradient, 0, out, NULL, NULL);
}
