/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/loss_body.h: reductions, softmax and losses over one row; see memory_kernels.h.
 *
 * Maxima are found first and subtracted, so that no exponential overflows. NaN is not lost: a
 * maximum with NaN is NaN, and so is what follows. Sums are made in lanes, then across lanes, in a
 * fixed order for each instruction set; the rows of a task belong to one thread, so the bits do not
 * depend on the number of threads. */

/* Loads n values from element i of x on; the lanes beyond n are `fill`. */
TRMI_INLINE vf lanes_or(const void *x, int64_t i, int half, int n, float fill) {
    return n == VL ? vf_get(x, i, half) : vf_fill(vf_get_n(x, i, half, n), n, fill);
}
/* Walks over `count` values, a vector at a time; the number of values of the vector at `i`. */
#define EACH_LANES(count) for (int64_t i = 0; i < (count); i += VL)
#define LANES_LEFT(count) ((count)-i < VL ? (int)((count)-i) : VL)

/* Returns the larger; NaN wins, so that it is seen: vf_max already gives b where either is NaN. */
TRMI_INLINE vf larger_of(vf a, vf b) { return vf_select(vf_nan(a), a, vf_max(a, b)); }

/* Adds x to `into`, or takes the larger ones. */
TRMI_INLINE void fold_rows_loop(float *into, const void *x, int64_t count, int half, int sum) {
    EACH_LANES(count) {
        int n = LANES_LEFT(count);
        vf a = vf_lanes(into, i, 0, n), b = vf_lanes(x, i, half, n);
        vf_put_lanes(into, i, 0, n, sum ? vf_add(a, b) : larger_of(a, b));
    }
}
static void fold_rows(float *into, const void *x, int64_t count, bool half,
                      trmi_row_reduction what) {
    if (what == TRMI_REDUCE_MAX_OF) {
        fold_rows_loop(into, x, count, half, 0);
    } else if (half) {
        fold_rows_loop(into, x, count, 1, 1);
    } else {
        fold_rows_loop(into, x, count, 0, 1);
    }
}

/* Adds row after row to `into`, eight of them in one pass over it. */
TRMI_INLINE void sum_rows_loop(float *into, const void *x, int64_t stride, int64_t rows,
                               int64_t count, int half) {
    const char *from = x;
    int64_t row = 0, step = stride * (half ? 2 : 4);
    for (; row + 8 <= rows; row += 8, from += 8 * step) {
        EACH_LANES(count) {
            int n = LANES_LEFT(count);
            vf a = vf_lanes(into, i, 0, n);
            for (int r = 0; r < 8; r++) {
                a = vf_add(a, vf_lanes(from + r * step, i, half, n));
            }
            vf_put_lanes(into, i, 0, n, a);
        }
    }
    for (; row < rows; row++, from += step) {
        fold_rows_loop(into, from, count, half, 1);
    }
}
static void sum_rows(float *into, const void *x, int64_t stride, int64_t rows, int64_t count,
                     bool half) {
    if (half) {
        sum_rows_loop(into, x, stride, rows, count, 1);
    } else {
        sum_rows_loop(into, x, stride, rows, count, 0);
    }
}

/* Reduces a contiguous run of values to one: a maximum, in which a NaN wins, or a sum, in four
 * independent chains so that additions do not wait for each other. */
static float fold_run(const void *x, int64_t count, bool half, trmi_row_reduction what) {
    if (what == TRMI_REDUCE_MAX_OF) {
        float most = -INFINITY;
        vf a = vf_set(most);
        int nan = 0;
        EACH_LANES(count) {
            vf v = lanes_or(x, i, half, LANES_LEFT(count), most);
            a = vf_max(a, v);
            nan |= vf_sum(vf_select(vf_nan(v), vf_set(1.0f), vf_zero())) > 0;
        }
        return nan ? NAN : vf_largest(a);
    }
    vf a = vf_zero(), b = vf_zero(), c = vf_zero(), d = vf_zero();
    int64_t i = 0;
    for (; i + 4 * VL <= count; i += 4 * VL) {
        a = vf_add(a, vf_get(x, i, half));
        b = vf_add(b, vf_get(x, i + VL, half));
        c = vf_add(c, vf_get(x, i + 2 * VL, half));
        d = vf_add(d, vf_get(x, i + 3 * VL, half));
    }
    for (; i < count; i += VL) {
        a = vf_add(a, vf_lanes(x, i, half, LANES_LEFT(count)));
    }
    return vf_sum(vf_add(vf_add(a, b), vf_add(c, d)));
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* Returns the largest element of a row. */
TRMI_INLINE float row_max(const void *z, int64_t classes, int half) {
    vf most = vf_set(-INFINITY);
    EACH_LANES(classes) {
        most = vf_max(most, lanes_or(z, i, half, LANES_LEFT(classes), -INFINITY));
    }
    return vf_largest(most);
}
/* Returns the sum of exp(z - most). */
TRMI_INLINE float row_exp_sum(const void *z, int64_t classes, int half, float most) {
    vf sum = vf_zero(), shift = vf_set(most);
    EACH_LANES(classes) {
        sum = vf_add(
            sum, vf_exp_below(vf_sub(lanes_or(z, i, half, LANES_LEFT(classes), -INFINITY), shift)));
    }
    return vf_sum(sum);
}
/* Returns the log of the sum of exponentials. It is finite for any finite row. */
static float log_sum_exp(const void *z, int64_t classes, bool half) {
    float most = row_max(z, classes, half);
    return most + logf(row_exp_sum(z, classes, half, most));
}

/* Computes softmax. In float32 the exponentials wait in y; in bfloat16 they would be rounded before
 * they are divided, so they are computed twice. */
static void softmax_row(const void *x, void *y, int64_t classes, bool half) {
    float most = row_max(x, classes, half);
    if (!half) { /* each exponential once, kept in y */
        vf sum = vf_zero(), by = vf_set(most);
        EACH_LANES(classes) {
            int n = LANES_LEFT(classes);
            vf e = vf_exp_below(vf_sub(lanes_or(x, i, 0, n, -INFINITY), by));
            sum = vf_add(sum, e);
            vf_put_lanes(y, i, 0, n, e);
        }
        scale_unary(y, y, classes, false, false, 1.0f / vf_sum(sum));
        return;
    }
    vf inverse = vf_set(1.0f / row_exp_sum(x, classes, half, most)), shift = vf_set(most);
    EACH_LANES(classes) {
        int n = LANES_LEFT(classes);
        vf e = vf_exp_below(vf_sub(vf_lanes(x, i, half, n), shift));
        vf_put_lanes(y, i, half, n, vf_mul(e, inverse));
    }
}

/* Computes dx = y (dy - sum of dy y). */
static void softmax_grad_row(const void *dy, const void *y, void *dx, int64_t classes, bool half) {
    vf sum = vf_zero();
    EACH_LANES(classes) {
        int n = LANES_LEFT(classes);
        sum = vf_fma(vf_lanes(dy, i, half, n), vf_lanes(y, i, half, n), sum);
    }
    vf dot = vf_set(vf_sum(sum));
    EACH_LANES(classes) {
        int n = LANES_LEFT(classes);
        vf d = vf_sub(vf_lanes(dy, i, half, n), dot);
        vf_put_lanes(dx, i, half, n, vf_mul(d, vf_lanes(y, i, half, n)));
    }
}

/* Contract in memory_kernels.h (xent_grad). `off`: the target of classes that are not the label
 * (smoothing). */
static void xent_grad_row(const void *z, void *dz, int64_t classes, bool half, float lse,
                          float scale, float off) {
    vf shift = vf_set(lse), target = vf_set(off), factor = vf_set(scale);
    EACH_LANES(classes) {
        int n = LANES_LEFT(classes);
        vf p = vf_exp_below(vf_sub(vf_lanes(z, i, half, n), shift));
        vf_put_lanes(dz, i, half, n, vf_mul(factor, vf_sub(p, target)));
    }
}

/* ---- binary cross-entropy -------------------------------------------------------------------- */

/* Returns the sum over all elements of max(z, 0) - z t + ln(1 + e^-|z|). */
static double bce_run(const void *z, const void *t, int64_t count, bool half) {
    vf sum = vf_zero(), one = vf_set(1.0f);
    EACH_LANES(count) {
        int n = LANES_LEFT(count);
        vf x = vf_lanes(z, i, half, n), target = vf_lanes(t, i, half, n);
        vf e = vf_exp_below(vf_sub(vf_zero(), vf_abs(x)));
        vf loss = vf_add(vf_sub(vf_select(vf_gt(vf_zero(), x), vf_zero(), x), vf_mul(x, target)),
                         vf_log(vf_add(one, e)));
        float whole[VL];
        vf_store(whole, loss);
        for (int l = n; l < VL; l++) {
            whole[l] = 0;
        }
        sum = vf_add(sum, n == VL ? loss : vf_load(whole));
    }
    return (double)vf_sum(sum);
}

/* Computes dz = scale (sigmoid(z) - t). */
static void bce_grad_run(const void *z, const void *t, void *dz, int64_t count, bool half,
                         float scale) {
    vf factor = vf_set(scale);
    EACH_LANES(count) {
        int n = LANES_LEFT(count);
        vf p = vf_sigmoid(vf_lanes(z, i, half, n));
        vf_put_lanes(dz, i, half, n, vf_mul(factor, vf_sub(p, vf_lanes(t, i, half, n))));
    }
}
