/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/row_body.h: loops over the rows of transformers: layer and RMS norms, attention
 * weights, rotary positions; see memory_kernels.h. Uses loss_body.h.
 *
 * A row stays in the nearest cache, so a loop may pass over it several times (mean, squared
 * distances, output). Attention weights are made block by block with a running maximum and sum
 * (online softmax), so that no row of all scores is kept. Sums are made lane by lane and then
 * across lanes, in a fixed order for each instruction set. */

/* Sum of (x - mean)^2. */
TRMI_INLINE float sum_squares(const void *x, int64_t count, int half, float mean) {
    vf a = vf_zero(), b = vf_zero(), m = vf_set(mean);
    int64_t i = 0;
    for (; i + 2 * VL <= count; i += 2 * VL) {
        vf u = vf_sub(vf_get(x, i, half), m), v = vf_sub(vf_get(x, i + VL, half), m);
        a = vf_fma(u, u, a);
        b = vf_fma(v, v, b);
    }
    for (; i < count; i += VL) {
        vf u = vf_sub(lanes_or(x, i, half, LANES_LEFT(count), mean), m);
        a = vf_fma(u, u, a);
    }
    return vf_sum(vf_add(a, b));
}

/* Normalises one row: layer norm (`centred`) or RMS norm, whose mean is 0 by definition. */
TRMI_INLINE void row_norm_loop(const trmi_row_norm *n, const void *x, void *y, float *mean,
                               float *inv_std, int half, int centred) {
    float by = 1 / (float)n->width;
    float middle = centred ? fold_run(x, n->width, half, TRMI_REDUCE_SUM_OF) * by : 0;
    float inv = 1 / sqrtf(sum_squares(x, n->width, half, middle) * by + n->epsilon);
    vf m = vf_set(middle), v = vf_set(inv);
    EACH_LANES(n->width) {
        int lanes = LANES_LEFT(n->width);
        vf u = vf_mul(vf_sub(vf_lanes(x, i, half, lanes), m), v);
        u = vf_mul(u, vf_lanes(n->gamma, i, 0, lanes));
        u = centred ? vf_add(u, vf_lanes(n->beta, i, 0, lanes)) : u;
        vf_put_lanes(y, i, half, lanes, u);
    }
    if (centred) {
        *mean = middle;
    }
    *inv_std = inv;
}
/* The functions of the table: they make the type, and whether there is a mean, constants of the
 * loops. */
static void row_norm(const trmi_row_norm *n, const void *x, void *y, float *mean, float *inv_std) {
    if (n->half) {
        n->beta != NULL ? row_norm_loop(n, x, y, mean, inv_std, 1, 1)
                        : row_norm_loop(n, x, y, mean, inv_std, 1, 0);
    } else {
        n->beta != NULL ? row_norm_loop(n, x, y, mean, inv_std, 0, 1)
                        : row_norm_loop(n, x, y, mean, inv_std, 0, 0);
    }
}

/* Computes dx of one row of a layer norm (`centred`) or RMS norm, and adds to dgamma and dbeta.
 * With u = (x - mean) / deviation and g = dy gamma: dx = (g - mean(g) - u mean(g u)) /
 * deviation; RMS norm has no mean(g). */
TRMI_INLINE void row_norm_grad_loop(const trmi_row_norm *n, const void *dy, const void *x, void *dx,
                                    float mean, float inv_std, int half, int centred) {
    vf m = vf_set(mean), v = vf_set(inv_std), sum = vf_zero(), dot = vf_zero();
    EACH_LANES(n->width) {
        int lanes = LANES_LEFT(n->width);
        vf d = vf_lanes(dy, i, half, lanes);
        vf u = vf_mul(vf_sub(vf_lanes(x, i, half, lanes), m), v);
        vf g = vf_mul(d, vf_lanes(n->gamma, i, 0, lanes));
        vf_put_lanes(n->dgamma, i, 0, lanes, vf_fma(d, u, vf_lanes(n->dgamma, i, 0, lanes)));
        if (centred) {
            vf_put_lanes(n->dbeta, i, 0, lanes, vf_add(d, vf_lanes(n->dbeta, i, 0, lanes)));
            sum = vf_add(sum, g);
        }
        dot = vf_fma(g, u, dot); /* lanes beyond the row have g = 0 */
    }
    float by = 1 / (float)n->width;
    vf s = vf_set(vf_sum(sum) * by), t = vf_set(vf_sum(dot) * by);
    EACH_LANES(n->width) {
        int lanes = LANES_LEFT(n->width);
        vf u = vf_mul(vf_sub(vf_lanes(x, i, half, lanes), m), v);
        vf g = vf_mul(vf_lanes(dy, i, half, lanes), vf_lanes(n->gamma, i, 0, lanes));
        g = vf_sub(g, vf_mul(u, t));
        g = centred ? vf_sub(g, s) : g;
        vf_put_lanes(dx, i, half, lanes, vf_mul(g, v));
    }
}
static void row_norm_grad(const trmi_row_norm *n, const void *dy, const void *x, void *dx,
                          const float *mean, float inv_std) {
    if (n->half) {
        mean != NULL ? row_norm_grad_loop(n, dy, x, dx, *mean, inv_std, 1, 1)
                     : row_norm_grad_loop(n, dy, x, dx, 0, inv_std, 1, 0);
    } else {
        mean != NULL ? row_norm_grad_loop(n, dy, x, dx, *mean, inv_std, 0, 1)
                     : row_norm_grad_loop(n, dy, x, dx, 0, inv_std, 0, 0);
    }
}

/* ---- attention ---- */

/* Zeros from the last of the vectors that hold `count` numbers to `room`. */
TRMI_INLINE void clear_behind(float *x, int64_t count, int64_t room, int half) {
    int64_t size = half ? 2 : 4, whole = (count + VL - 1) / VL * VL;
    if (whole < room) {
        memset((char *)x + whole * size, 0, (size_t)((room - whole) * size));
    }
}

/* Turns a block of scores of one query into weights, with a running maximum and sum (online
 * softmax, Milakov and Gimelshein 2018). Returns the factor by which the sums and outputs of
 * earlier blocks must be multiplied, because the maximum has grown. Weights in bfloat16 (`half`)
 * take the places of scores that have been read. */
TRMI_INLINE float attend_loop(float *scores, const float *hidden, int64_t count, int64_t room,
                              float scale, float *most, float *sum, int half) {
    vf largest = vf_set(*most), times = vf_set(scale);
    EACH_LANES(count) {
        int lanes = LANES_LEFT(count);
        vf s = lanes_or(scores, i, 0, lanes, -INFINITY);
        if (hidden != NULL) {
            s = vf_fma(s, times, vf_lanes(hidden, i, 0, lanes));
            vf_put_lanes(scores, i, 0, lanes, s);
        } else {
            s = vf_mul(s, times);
        }
        largest = vf_max(largest, s);
    }
    times = hidden != NULL ? vf_set(1.0f) : times;
    float now = vf_largest(largest), before = *most;
    if (now == -INFINITY) { /* no key so far */
        clear_behind(scores, 0, room, half);
        return 1;
    }
    vf shift = vf_set(-now), total = vf_zero();
    EACH_LANES(count) {
        int lanes = LANES_LEFT(count);
        vf p = vf_exp_below(vf_fma(lanes_or(scores, i, 0, lanes, -INFINITY), times, shift));
        total = vf_add(total, p);
        vf_put(scores, i, half, p); /* zeros behind the last one */
    }
    clear_behind(scores, count, room, half);
    /* a row that has read no key has a sum and outputs of 0, so no factor changes them */
    float factor = before == now || before == -INFINITY ? 1 : expf(before - now);
    *sum = *sum * factor + vf_sum(total);
    *most = now;
    return factor;
}
static float attend_scores(float *scores, const float *hidden, int64_t count, int64_t room,
                           float scale, bool half, float *most, float *sum) {
    return half ? attend_loop(scores, hidden, count, room, scale, most, sum, 1)
                : attend_loop(scores, hidden, count, room, scale, most, sum, 0);
}

/* Turns a block of scores into weights p = exp(scale score - lse), and dp into the gradient of the
 * scores, p (dp - e). */
TRMI_INLINE void attend_grad_loop(float *scores, float *dp, const float *hidden, int64_t count,
                                  int64_t room, float scale, float lse, float e, int half) {
    vf shift = vf_set(-lse), less = vf_set(e), times = vf_set(scale);
    EACH_LANES(count) {
        int lanes = LANES_LEFT(count);
        vf s = vf_fma(vf_lanes(scores, i, 0, lanes), times, shift);
        s = hidden != NULL ? vf_add(s, vf_lanes(hidden, i, 0, lanes)) : s;
        vf p = vf_exp_below(s), d = vf_lanes(dp, i, 0, lanes);
        p = lanes < VL ? vf_fill(p, lanes, 0) : p;
        vf_put(scores, i, half, p);
        vf_put(dp, i, half, vf_mul(p, vf_sub(d, less)));
    }
    clear_behind(scores, count, room, half);
    clear_behind(dp, count, room, half);
}
static void attend_grad(float *scores, float *dp, const float *hidden, int64_t count, int64_t room,
                        float scale, bool half, float lse, float e) {
    if (half) {
        attend_grad_loop(scores, dp, hidden, count, room, scale, lse, e, 1);
    } else {
        attend_grad_loop(scores, dp, hidden, count, room, scale, lse, e, 0);
    }
}

/* Returns the inner product of two rows. */
TRMI_INLINE double dot_loop(const void *x, const void *y, int64_t count, int half) {
    vf sum = vf_zero();
    EACH_LANES(count) {
        int lanes = LANES_LEFT(count);
        sum = vf_fma(vf_lanes(x, i, half, lanes), vf_lanes(y, i, half, lanes), sum);
    }
    return (double)vf_sum(sum);
}
static double dot_run(const void *x, const void *y, int64_t count, bool half) {
    return half ? dot_loop(x, y, count, 1) : dot_loop(x, y, count, 0);
}

/* ---- rotary positions ---- */

/* Rotates the pairs (i, width / 2 + i) of a row by their angles. */
TRMI_INLINE void rotate_loop(const void *x, void *y, const float *cos, const float *sin,
                             int64_t half_width, int half) {
    EACH_LANES(half_width) {
        int lanes = LANES_LEFT(half_width);
        vf a = vf_lanes(x, i, half, lanes), b = vf_lanes(x, half_width + i, half, lanes);
        vf c = vf_lanes(cos, i, 0, lanes), s = vf_lanes(sin, i, 0, lanes);
        vf_put_lanes(y, i, half, lanes, vf_sub(vf_mul(a, c), vf_mul(b, s)));
        vf_put_lanes(y, half_width + i, half, lanes, vf_fma(a, s, vf_mul(b, c)));
    }
}
static void rotate_row(const void *x, void *y, const float *cos, const float *sin, int64_t width,
                       bool half) {
    if (half) {
        rotate_loop(x, y, cos, sin, width / 2, 1);
    } else {
        rotate_loop(x, y, cos, sin, width / 2, 0);
    }
}
