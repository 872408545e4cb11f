/* SPDX-License-Identifier: Apache-2.0 */
/* Returns the gradient with scaling and weight decay. */
static inline V RULE(gradient)(const float *w, const float *g, const trmi_apply_args *a) {
    return MADD(LOAD(w), SET(a->optimizer.weight_decay), LOAD(g) * a->gradient_scale);
}

static inline void RULE(sgd)(float *w, float *s, const float *g, int32_t width,
                             const trmi_apply_args *a) {
    (void)s;
    (void)width;
    STORE(w, LOAD(w) - RULE(gradient)(w, g, a) * a->rate);
}

/* Momentum and Nesterov: m = momentum m + g. */
static inline void RULE(momentum)(float *w, float *s, const float *g, int32_t width,
                                  const trmi_apply_args *a) {
    (void)width;
    V gradient = RULE(gradient)(w, g, a);
    V m = LOAD(s) * a->optimizer.momentum + gradient;
    STORE(s, m);
    const float ahead = a->optimizer.nesterov ? 1.0f : 0.0f;
    const float along = a->optimizer.nesterov ? a->optimizer.momentum : 1.0f;
    STORE(w, LOAD(w) - MADD(m, SET(along), gradient * ahead) * a->rate);
}

/* Adagrad (Duchi et al., 2011): sum += g^2; w -= rate g / (sqrt(sum) + epsilon). */
static inline void RULE(adagrad)(float *w, float *s, const float *g, int32_t width,
                                 const trmi_apply_args *a) {
    (void)width;
    V gradient = RULE(gradient)(w, g, a);
    V sum = LOAD(s) + gradient * gradient;
    STORE(s, sum);
    STORE(w, LOAD(w) - gradient * a->rate / (SQRT(sum) + a->optimizer.epsilon));
}

/* Adam (Kingma and Ba, 2014), with decays for ticks in which the row had no gradient. */
static inline void RULE(adam)(float *w, float *s, const float *g, int32_t width,
                              const trmi_apply_args *a) {
    const float beta1 = a->optimizer.beta1, beta2 = a->optimizer.beta2;
    V gradient = RULE(gradient)(w, g, a);
    V m = MADD(LOAD(s), SET(beta1 * a->decay1), gradient * (1.0f - beta1));
    V v = MADD(LOAD(s + width), SET(beta2 * a->decay2), gradient * gradient * (1.0f - beta2));
    STORE(s, m);
    STORE(s + width, v);
    V step = m * (a->rate * a->correction1);
    STORE(w, LOAD(w) * a->shrink - step / (SQRT(v * a->correction2) + a->optimizer.epsilon));
}

/* FTRL-Proximal (McMahan et al., 2013): n, z are the slots. */
static inline void RULE(ftrl)(float *w, float *s, const float *g, int32_t width,
                              const trmi_apply_args *a) {
    const trm_row_optimizer *o = &a->optimizer;
    V gradient = RULE(gradient)(w, g, a);
    V n_old = LOAD(s), n = n_old + gradient * gradient;
    V root = SQRT(n);
    V z = LOAD(s + width) + gradient - LOAD(w) * ((root - SQRT(n_old)) / a->rate);
    STORE(s, n);
    STORE(s + width, z);
    /* the part of z beyond +-l1; exactly 0 within */
    V beyond = z - MINIMUM(MAXIMUM(z, SET(-o->l1)), SET(o->l1));
    V curve = (root + o->beta) / a->rate + o->l2;
    STORE(w, SET(0.0f) - beyond / MAXIMUM(curve, SET(1e-30f)));
}

#undef V
#undef LOAD
#undef STORE
#undef SQRT
#undef MINIMUM
#undef MAXIMUM
#undef SET
#undef MADD
#undef RULE
