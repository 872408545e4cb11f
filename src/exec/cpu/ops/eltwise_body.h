/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/eltwise_body.h: loops of elementwise operators; the body of memory_kernels.c,
 * compiled for each instruction set.
 *
 *   unary_loop    y[i] = f(x[i])
 *   binary_loop   y[i] = f(a[i], b[i]), either side may be one number
 *   swiglu_grad   two gradients in one pass
 *   dropout_loop  the mask from a counter
 *
 * Kind and types are constants in each call of an inlined loop, so that no branch is left inside;
 * the macros UNARY and BINARY make one function of each. An element's value depends neither on its
 * place in a vector nor on the thread. */

/* ---- GELU and SiLU: tests hold them against exec/ref/ref_eltwise.c ---- */

static const float GELU_ROOT = 0.797884560802865356f, /* sqrt(2 / pi) */
    GELU_CUBE = 0.044715f, INV_ROOT_2 = 0.707106781186547524f,
                   INV_ROOT_2_PI = 0.398942280401432678f;

/* Returns (1 + tanh(u)) / 2 of u = sqrt(2 / pi) (x + 0.044715 x^3), as sigmoid(2u). */
TRMI_INLINE vf gelu_share(vf x) {
    vf z = vf_mul(x, x);
    vf u = vf_mul(x, vf_fma(z, vf_set(2 * GELU_ROOT * GELU_CUBE), vf_set(2 * GELU_ROOT)));
    return vf_sigmoid(u);
}
/* Returns Phi(x), the normal distribution at x. */
TRMI_INLINE vf normal_share(vf x) {
    vf half = vf_set(0.5f);
    return vf_fma(half, vf_erf(vf_mul(x, vf_set(INV_ROOT_2))), half);
}
/* Returns dy (Phi(x) + x phi(x)), with the normal distribution's share Phi and density phi. */
TRMI_INLINE vf gelu_grad_of(vf dy, vf x) {
    vf density = vf_mul(vf_set(INV_ROOT_2_PI), vf_exp_below(vf_mul(vf_mul(x, x), vf_set(-0.5f))));
    return vf_mul(dy, vf_fma(x, density, normal_share(x)));
}
/* Returns dy d(x s)/dx = dy (s + x s (1 - s) 2 u'), with s = sigmoid(2u). */
TRMI_INLINE vf gelu_tanh_grad_of(vf dy, vf x) {
    vf s = gelu_share(x), one = vf_set(1.0f);
    vf slope = vf_fma(vf_mul(x, x), vf_set(6 * GELU_ROOT * GELU_CUBE), vf_set(2 * GELU_ROOT));
    return vf_mul(dy, vf_fma(vf_mul(vf_mul(x, s), vf_sub(one, s)), slope, s));
}
/* Returns dy s (1 + x (1 - s)), s = sigmoid(x). */
TRMI_INLINE vf silu_grad_of(vf dy, vf x) {
    vf s = vf_sigmoid(x), one = vf_set(1.0f);
    return vf_mul(vf_mul(dy, s), vf_fma(x, vf_sub(one, s), one));
}

/* Computes f(x); `kind` is a constant of the caller, so one case is left. */
TRMI_INLINE vf unary_of(trmi_unary kind, vf x, vf factor) {
    switch (kind) {
    case TRMI_UNARY_RELU:
        return vf_select(vf_gt(vf_zero(), x), vf_zero(), x); /* NaN passes, to be seen */
    case TRMI_UNARY_SIGMOID: return vf_sigmoid(x);
    case TRMI_UNARY_TANH: return vf_tanh(x);
    case TRMI_UNARY_EXP: return vf_exp(x);
    case TRMI_UNARY_LOG: return vf_log(x);
    case TRMI_UNARY_SQRT: return vf_sqrt(x);
    case TRMI_UNARY_SCALE: return vf_mul(x, factor);
    case TRMI_UNARY_GELU: return vf_mul(x, normal_share(x));
    case TRMI_UNARY_GELU_TANH: return vf_mul(x, gelu_share(x));
    case TRMI_UNARY_SILU: return vf_mul(x, vf_sigmoid(x));
    case TRMI_UNARY_COPY:
    case TRMI_UNARIES: break;
    }
    return x;
}

/* Computes y = f(x) for a contiguous run; half_x, half_y: bfloat16. */
TRMI_INLINE void unary_loop(trmi_unary kind, const void *x, void *y, int64_t count, int half_x,
                            int half_y, float factor) {
    vf by = vf_set(factor);
    VF_LOOP(count, vf_put(y, i, half_y, unary_of(kind, vf_get(x, i, half_x), by)),
            vf_put_n(y, i, half_y, n, unary_of(kind, vf_get_n(x, i, half_x, n), by)));
}

#define UNARY(name, kind)                                                                          \
    static void name##_unary(const void *x, void *y, int64_t count, bool half_x, bool half_y,      \
                             float factor) {                                                       \
        if (half_x) {                                                                              \
            if (half_y) {                                                                          \
                unary_loop(kind, x, y, count, 1, 1, factor);                                       \
            } else {                                                                               \
                unary_loop(kind, x, y, count, 1, 0, factor);                                       \
            }                                                                                      \
        } else if (half_y) {                                                                       \
            unary_loop(kind, x, y, count, 0, 1, factor);                                           \
        } else {                                                                                   \
            unary_loop(kind, x, y, count, 0, 0, factor);                                           \
        }                                                                                          \
    }
UNARY(copy, TRMI_UNARY_COPY)
UNARY(relu, TRMI_UNARY_RELU)
UNARY(sigmoid, TRMI_UNARY_SIGMOID)
UNARY(tanh, TRMI_UNARY_TANH)
UNARY(exp, TRMI_UNARY_EXP)
UNARY(log, TRMI_UNARY_LOG)
UNARY(sqrt, TRMI_UNARY_SQRT)
UNARY(scale, TRMI_UNARY_SCALE)
UNARY(gelu, TRMI_UNARY_GELU)
UNARY(gelu_tanh, TRMI_UNARY_GELU_TANH)
UNARY(silu, TRMI_UNARY_SILU)

/* Scales rows in one call: rows of a head are two to eight vectors. */
TRMI_INLINE void scale_rows_loop(const trmi_scaled_rows *r, int half_x, int half_y) {
    const char *x = r->x;
    char *y = r->y;
    for (int64_t i = 0; i < r->rows; i++, x += r->x_step, y += r->y_step) {
        unary_loop(TRMI_UNARY_SCALE, x, y, r->count, half_x, half_y,
                   r->factors[i * r->factors_step]);
    }
}
static void scale_rows(const trmi_scaled_rows *r) {
    if (r->half_x) {
        r->half_y ? scale_rows_loop(r, 1, 1) : scale_rows_loop(r, 1, 0);
    } else {
        r->half_y ? scale_rows_loop(r, 0, 1) : scale_rows_loop(r, 0, 0);
    }
}

/* Computes f(a, b); of gradients a is dy, and b what the forward operator has kept. */
TRMI_INLINE vf binary_of(trmi_binary kind, vf a, vf b) {
    switch (kind) {
    case TRMI_BINARY_ADD: return vf_add(a, b);
    case TRMI_BINARY_SUB: return vf_sub(a, b);
    case TRMI_BINARY_MUL: return vf_mul(a, b);
    case TRMI_BINARY_DIV: return vf_div(a, b);
    case TRMI_BINARY_RELU_GRAD: /* as the reference: NaN of y lets dy pass */
        return vf_select(vf_nan(b), a, vf_keep(vf_gt(b, vf_zero()), a));
    case TRMI_BINARY_SIGMOID_GRAD: return vf_mul(vf_mul(a, b), vf_sub(vf_set(1.0f), b));
    case TRMI_BINARY_TANH_GRAD: return vf_mul(a, vf_sub(vf_set(1.0f), vf_mul(b, b)));
    case TRMI_BINARY_GELU_GRAD: return gelu_grad_of(a, b);
    case TRMI_BINARY_GELU_TANH_GRAD: return gelu_tanh_grad_of(a, b);
    case TRMI_BINARY_SILU_GRAD: return silu_grad_of(a, b);
    case TRMI_BINARY_SWIGLU: return vf_mul(vf_mul(a, vf_sigmoid(a)), b);
    case TRMI_BINARIES: break;
    }
    return a;
}

/* Returns n elements from i on; step 0: one number for all lanes. */
TRMI_INLINE vf load_operand(const void *x, int64_t i, int step, int half, int n) {
    if (step == 0) {
        return vf_set(half ? trmi_bf16_to_float(*(const uint16_t *)x) : *(const float *)x);
    }
    return n == VL ? vf_get(x, i, half) : vf_get_n(x, i, half, n);
}

/* Computes y = f(a, b) for a run; steps are 0 or 1. */
TRMI_INLINE void binary_loop(trmi_binary kind, const void *a, const void *b, void *y, int64_t count,
                             int step_a, int step_b, int half) {
    VF_LOOP(count,
            vf_put(y, i, half,
                   binary_of(kind, load_operand(a, i, step_a, half, VL),
                             load_operand(b, i, step_b, half, VL))),
            vf_put_n(y, i, half, n,
                     binary_of(kind, load_operand(a, i, step_a, half, n),
                               load_operand(b, i, step_b, half, n))));
}

#define BINARY_STEPS(kind, half)                                                                   \
    do {                                                                                           \
        if (step_a == 0) {                                                                         \
            binary_loop(kind, a, b, y, count, 0, step_b, half);                                    \
        } else if (step_b == 0) {                                                                  \
            binary_loop(kind, a, b, y, count, 1, 0, half);                                         \
        } else {                                                                                   \
            binary_loop(kind, a, b, y, count, 1, 1, half);                                         \
        }                                                                                          \
    } while (0)
#define BINARY(name, kind)                                                                         \
    static void name##_binary(const void *a, const void *b, void *y, int64_t count, int step_a,    \
                              int step_b, bool half) {                                             \
        if (half) {                                                                                \
            BINARY_STEPS(kind, 1);                                                                 \
        } else {                                                                                   \
            BINARY_STEPS(kind, 0);                                                                 \
        }                                                                                          \
    }
BINARY(add, TRMI_BINARY_ADD)
BINARY(sub, TRMI_BINARY_SUB)
BINARY(mul, TRMI_BINARY_MUL)
BINARY(div, TRMI_BINARY_DIV)
BINARY(relu_grad, TRMI_BINARY_RELU_GRAD)
BINARY(sigmoid_grad, TRMI_BINARY_SIGMOID_GRAD)
BINARY(tanh_grad, TRMI_BINARY_TANH_GRAD)
BINARY(gelu_grad, TRMI_BINARY_GELU_GRAD)
BINARY(gelu_tanh_grad, TRMI_BINARY_GELU_TANH_GRAD)
BINARY(silu_grad, TRMI_BINARY_SILU_GRAD)
BINARY(swiglu, TRMI_BINARY_SWIGLU)

/* Computes both gradients of y = silu(gate) up in one pass, which reads dy, gate and up once. */
TRMI_INLINE void swiglu_grad_loop(const void *dy, const void *gate, const void *up, void *dgate,
                                  void *dup, int64_t count, int half) {
    for (int64_t i = 0; i < count; i += VL) {
        int n = count - i < VL ? (int)(count - i) : VL;
        vf d = vf_lanes(dy, i, half, n), g = vf_lanes(gate, i, half, n);
        vf u = vf_lanes(up, i, half, n);
        vf_put_lanes(dgate, i, half, n, silu_grad_of(vf_mul(d, u), g));
        vf_put_lanes(dup, i, half, n, vf_mul(d, vf_mul(g, vf_sigmoid(g))));
    }
}
static void swiglu_grad(const void *dy, const void *gate, const void *up, void *dgate, void *dup,
                        int64_t count, bool half) {
    if (half) {
        swiglu_grad_loop(dy, gate, up, dgate, dup, count, 1);
    } else {
        swiglu_grad_loop(dy, gate, up, dgate, dup, count, 0);
    }
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* Blocks of random numbers that are made beside each other, four numbers each. */
enum { PHILOX_BLOCKS = 16, PHILOX_ELEMENTS = 4 * PHILOX_BLOCKS };

/* base/rng.h's trmi_philox for PHILOX_BLOCKS counters in a row: block b's four words are the two
 * elements 2b and 2b + 1. */
static void philox_blocks(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t *words) {
    for (int b = 0; b < PHILOX_BLOCKS; b += VQ) {
        uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
        vq c0 = vq_count(counter + (uint64_t)b), c1 = vq_high(c0);
        vq c2 = vq_set(stream), c3 = vq_high(c2);
        for (int round = 0; round < 10; round++) {
            vq p0 = vq_mul32(vq_set(0xD2511F53u), c0), p1 = vq_mul32(vq_set(0xCD9E8D57u), c2);
            c0 = vq_xor(vq_xor(vq_high(p1), c1), vq_set(key0));
            c2 = vq_xor(vq_xor(vq_high(p0), c3), vq_set(key1));
            c1 = p1;
            c3 = p0;
            key0 += 0x9E3779B9u;
            key1 += 0xBB67AE85u;
        }
        uint64_t low[VQ], high[VQ];
        vq_store(low, vq_pair(c0, c1));
        vq_store(high, vq_pair(c2, c3));
        for (int l = 0; l < VQ; l++) {
            words[2 * (b + l)] = low[l];
            words[2 * (b + l) + 1] = high[l];
        }
    }
}

/* Applies dropout to elements [begin, begin + count) of a tensor. The decision about an element
 * depends on seed, stream and its index only (Philox, four elements a block), so that backward
 * and other thread counts meet the same ones. */
static void dropout_loop(const void *x, void *y, int64_t begin, int64_t count, bool half,
                         uint64_t seed, uint64_t stream, double rate) {
    uint64_t words[PHILOX_ELEMENTS / 2];
    uint32_t bits[PHILOX_ELEMENTS];
    float factor[PHILOX_ELEMENTS];
    const float kept = (float)(1 / (1 - rate));
    /* An element is kept where (bits >> 8) * 2^-24 >= rate, in integers. */
    const double bound = rate * 0x1p24;
    const uint32_t least = (uint32_t)bound + ((double)(uint32_t)bound < bound);
    for (int64_t at = 0; at < count; at += PHILOX_ELEMENTS) {
        int64_t n = count - at < PHILOX_ELEMENTS ? count - at : PHILOX_ELEMENTS;
        philox_blocks(seed, stream, (uint64_t)((begin + at) / 4), words);
        memcpy(bits, words, sizeof bits); /* little-endian, as all that trireme builds for */
        for (int j = 0; j < PHILOX_ELEMENTS; j++) {
            factor[j] = bits[j] >> 8 >= least ? kept : 0.0f;
        }
        for (int64_t j = 0; j < n; j += VL) {
            int lanes = n - j < VL ? (int)(n - j) : VL;
            vf f = vf_load(factor + j);
            vf v = vf_lanes(x, at + j, half, lanes);
            /* Zero where dropped, whatever x is: 0 * NaN would be NaN. */
            vf_put_lanes(y, at + j, half, lanes, vf_keep(vf_gt(f, vf_zero()), vf_mul(v, f)));
        }
    }
}
