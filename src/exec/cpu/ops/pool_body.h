/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/pool_body.h: pooling of one output row, a vector of channels at a time; the body of
 * memory_kernels.c, compiled for each instruction set (base/simd/isa.h).
 *
 *   forward    max or mean over the part of the window that lies inside the image
 *   backward   max: dy goes to the first element that equals the maximum, as in PyTorch, found by
 *              comparing again, since no index is kept; mean: dy * scale to all of them
 *
 * Windows of 3x3 inside the image, nearly all there are, have constant loop bounds; the others take
 * the same code with variable ones. Plain images (one channel) are pooled by scalars. */

/* Writes the columns [begin, end) of the window of output column `at` that are inside the image. */
TRMI_INLINE void window_columns(const trmi_pool_row *r, int64_t at, int64_t *begin, int64_t *end) {
    int64_t w = at * r->stride - r->pad;
    *begin = w < 0 ? 0 : w;
    *end = w + r->kernel > r->width ? r->width : w + r->kernel;
}

/* Returns 1 over the elements of a mean: all of the window, or those inside the image. */
TRMI_INLINE float window_scale(const trmi_pool_row *r, int64_t columns) {
    int64_t size = r->count_padding ? r->kernel_rows * r->kernel : (r->last - r->first) * columns;
    return 1.0f / (float)size;
}

/* Nearly all windows are 3x3 and inside the image; for them `rows` and `columns` are constants and
 * loops are unrolled. */
#if defined(                                                                                       \
    __clang__) /* unrolls where they are constants, and warns of a wish where they are not */
#define WINDOW_UNROLL
#else
#define WINDOW_UNROLL _Pragma("GCC unroll 3")
#endif
/* Returns whether the window is the common one, 3x3 inside the image. */
TRMI_INLINE bool is_three(const trmi_pool_row *r, int64_t begin, int64_t end) {
    return r->last - r->first == 3 && end - begin == 3;
}

/* Prefetches the rows that the window below reads in addition to those of this one. */
TRMI_INLINE void prefetch_below(const trmi_pool_row *r, const void *x, int64_t begin, int64_t c,
                                int half) {
    int64_t row = r->width * r->channels, at = r->last * row + begin * r->channels + c,
            bytes = half ? 2 : 4;
    uintptr_t base = (uintptr_t)x;
    for (int64_t h = 0; h < 2; h++) { /* a prefetch past the end does nothing */
        __builtin_prefetch((const void *)(base + (uintptr_t)((at + h * row) * bytes)), 0, 3);
        __builtin_prefetch((const void *)(base + (uintptr_t)((at + h * row + r->channels) * bytes)),
                           0, 3);
    }
}

/* Returns the maximum of `rows` x `columns` elements from column `begin` on. */
TRMI_INLINE vf window_max_of(const trmi_pool_row *r, const void *x, int64_t begin, int64_t c,
                             int half, int n, const int64_t rows, const int64_t columns) {
    /* NaN is tracked separately, so that the dependent chain has one instruction a tap */
    vf most = vf_set(-INFINITY), nan = vf_zero();
    WINDOW_UNROLL for (int64_t h = 0; h < rows; h++) {
        WINDOW_UNROLL for (int64_t w = 0; w < columns; w++) {
            vf v = vf_lanes(x, ((r->first + h) * r->width + begin + w) * r->channels + c, half, n);
            most = vf_max(v, most);
            nan = vf_select(vf_nan(v), v, nan);
        }
    }
    return vf_select(vf_nan(nan), nan, most);
}

/* Calls window_max_of, with constants for the common window. */
TRMI_INLINE vf window_max(const trmi_pool_row *r, const void *x, int64_t begin, int64_t end,
                          int64_t c, int half, int n) {
    prefetch_below(r, x, begin, c, half);
    return is_three(r, begin, end)
               ? window_max_of(r, x, begin, c, half, n, 3, 3)
               : window_max_of(r, x, begin, c, half, n, r->last - r->first, end - begin);
}

/* Returns the sum of a window. */
TRMI_INLINE vf window_sum(const trmi_pool_row *r, const void *x, int64_t begin, int64_t end,
                          int64_t c, int half, int n) {
    vf sum = vf_zero();
    for (int64_t h = r->first; h < r->last; h++) {
        for (int64_t w = begin; w < end; w++) {
            sum = vf_add(sum, vf_lanes(x, (h * r->width + w) * r->channels + c, half, n));
        }
    }
    return sum;
}

/* Returns element i as float32. */
TRMI_INLINE float load_scalar(const void *x, int64_t i, int half) {
    return half ? trmi_bf16_to_float(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* Pools one channel (plain images), by scalars. */
TRMI_INLINE void pool_plain(const trmi_pool_row *r, const void *x, void *y, int half, int max) {
    for (int64_t o = 0; o < r->out_width; o++) {
        int64_t begin, end;
        window_columns(r, o, &begin, &end);
        float sum = max ? -INFINITY : 0.0f, nan = 0;
        for (int64_t h = r->first; h < r->last; h++) {
            for (int64_t w = begin; w < end; w++) {
                float v = load_scalar(x, h * r->width + w, half);
                nan = v != v ? v : nan;
                sum = max ? (v > sum ? v : sum) : sum + v;
            }
        }
        float value = max ? (nan != nan ? nan : sum) : sum * window_scale(r, end - begin);
        if (half) {
            ((uint16_t *)y)[o] = trmi_float_to_bf16(value);
        } else {
            ((float *)y)[o] = value;
        }
    }
}

/* Adds the gradients of one output row of a plain image. `left` is what is not handed out yet:
 * after the first maximum it is 0. */
TRMI_INLINE void pool_grad_plain(const trmi_pool_row *r, const void *dy, const void *x,
                                 const void *y, float *const *dx, int half, int max) {
    for (int64_t o = 0; o < r->out_width; o++) {
        int64_t begin, end;
        window_columns(r, o, &begin, &end);
        float left = load_scalar(dy, o, half), most = max ? load_scalar(y, o, half) : 0;
        left = max ? left : left * window_scale(r, end - begin);
        for (int64_t h = r->first; h < r->last; h++) {
            for (int64_t w = begin; w < end; w++) {
                bool takes = !max || load_scalar(x, h * r->width + w, half) == most;
                dx[h - r->first][w] += takes ? left : 0.0f;
                left = max && takes ? 0.0f : left;
            }
        }
    }
}

/* Computes one output row: whole vectors of channels, then the tail. */
TRMI_INLINE void pool_loop(const trmi_pool_row *r, const void *x, void *y, int half, int max) {
    if (r->channels == 1) {
        pool_plain(r, x, y, half, max);
        return;
    }
    for (int64_t o = 0; o < r->out_width; o++) {
        int64_t begin, end, c = 0;
        window_columns(r, o, &begin, &end);
        vf scale = vf_set(window_scale(r, end - begin));
        for (; c + VL <= r->channels; c += VL) {
            vf v = max ? window_max(r, x, begin, end, c, half, VL)
                       : vf_mul(window_sum(r, x, begin, end, c, half, VL), scale);
            vf_put(y, o * r->channels + c, half, v);
        }
        if (c < r->channels) {
            int n = (int)(r->channels - c);
            vf v = max ? window_max(r, x, begin, end, c, half, n)
                       : vf_mul(window_sum(r, x, begin, end, c, half, n), scale);
            vf_put_n(y, o * r->channels + c, half, n, v);
        }
    }
}
/* The functions of the table: they make type and kind of pooling constants of the loops. */
static void max_pool_row(const trmi_pool_row *r, const void *x, void *y) {
    if (r->half) {
        pool_loop(r, x, y, 1, 1);
    } else {
        pool_loop(r, x, y, 0, 1);
    }
}
static void avg_pool_row(const trmi_pool_row *r, const void *x, void *y) {
    if (r->half) {
        pool_loop(r, x, y, 1, 0);
    } else {
        pool_loop(r, x, y, 0, 0);
    }
}

/* State of the maximum's gradient: dy is added to the first element of the window that equals the
 * maximum; then `left` is zero.
 * Lanes [c, c + n) of an output column; channel c of the stripe is channel c0 + c of the image. */
typedef struct pool_grad_lanes {
    const void *x;    /* the image */
    float *const *dx; /* [rows of the window]: gradients of the stripe's channels, row by row */
    vf left, most;    /* of dy that is not yet added; the window's maximum */
    int64_t begin;    /* first column of the window */
    int64_t c0, c;
    int64_t channels; /* of the stripe */
} pool_grad_lanes;

/* Adds dy to the first maximum of each lane's window; `left` becomes 0 there. */
TRMI_INLINE void max_pool_grad_of(const trmi_pool_row *r, const pool_grad_lanes *l, int half, int n,
                                  const int64_t rows, const int64_t columns) {
    vf left = l->left, most = l->most;
    WINDOW_UNROLL for (int64_t h = 0; h < rows; h++) {
        float *to = l->dx[h] + l->begin * l->channels + l->c;
        int64_t at = ((r->first + h) * r->width + l->begin) * r->channels + l->c0 + l->c;
        WINDOW_UNROLL for (int64_t w = 0; w < columns; w++) {
            vm equal = vf_eq(vf_lanes(l->x, at + w * r->channels, half, n), most);
            vf_put_lanes(to, w * l->channels, 0, n,
                         vf_add(vf_lanes(to, w * l->channels, 0, n), vf_keep(equal, left)));
            left = vf_select(equal, vf_zero(), left);
        }
    }
}

/* Does that for n channels of output o, with constants for the common window. */
TRMI_INLINE void max_pool_grad_lanes(const trmi_pool_row *r, const void *dy, const void *x,
                                     const void *y, float *const *dx, int64_t o, int64_t c0,
                                     int64_t c, int64_t channels, int half, int n) {
    int64_t begin, end;
    window_columns(r, o, &begin, &end);
    const pool_grad_lanes l = {.x = x,
                               .dx = dx,
                               .begin = begin,
                               .c0 = c0,
                               .c = c,
                               .channels = channels,
                               .left = vf_lanes(dy, o * r->channels + c0 + c, half, n),
                               .most = vf_lanes(y, o * r->channels + c0 + c, half, n)};
    prefetch_below(r, x, begin, c0 + c, half);
    if (is_three(r, begin, end)) {
        max_pool_grad_of(r, &l, half, n, 3, 3);
    } else {
        max_pool_grad_of(r, &l, half, n, r->last - r->first, end - begin);
    }
}

/* Adds the gradients of one output row. */
TRMI_INLINE void max_pool_grad_loop(const trmi_pool_row *r, const void *dy, const void *x,
                                    const void *y, float *const *dx, int64_t c0, int64_t channels,
                                    int half) {
    if (r->channels == 1) {
        pool_grad_plain(r, dy, x, y, dx, half, 1);
        return;
    }
    for (int64_t o = 0; o < r->out_width; o++) {
        int64_t c = 0;
        for (; c + VL <= channels; c += VL) {
            max_pool_grad_lanes(r, dy, x, y, dx, o, c0, c, channels, half, VL);
        }
        if (c < channels) {
            max_pool_grad_lanes(r, dy, x, y, dx, o, c0, c, channels, half, (int)(channels - c));
        }
    }
}
static void max_pool_grad_row(const trmi_pool_row *r, const void *dy, const void *x, const void *y,
                              float *const *dx, int64_t c, int64_t n) {
    if (r->half) {
        max_pool_grad_loop(r, dy, x, y, dx, c, n, 1);
    } else {
        max_pool_grad_loop(r, dy, x, y, dx, c, n, 0);
    }
}

/* Adds dy * scale to all elements of each window. */
static void avg_pool_grad_row(const trmi_pool_row *r, const void *dy, float *const *dx, int64_t c0,
                              int64_t channels) {
    if (r->channels == 1) {
        pool_grad_plain(r, dy, NULL, NULL, dx, r->half, 0);
        return;
    }
    for (int64_t o = 0; o < r->out_width; o++) {
        int64_t begin, end;
        window_columns(r, o, &begin, &end);
        vf scale = vf_set(window_scale(r, end - begin));
        for (int64_t c = 0; c < channels; c += VL) {
            int n = channels - c < VL ? (int)(channels - c) : VL;
            vf d = vf_mul(vf_lanes(dy, o * r->channels + c0 + c, r->half, n), scale);
            for (int64_t h = r->first; h < r->last; h++) {
                for (int64_t w = begin; w < end; w++) {
                    float *to = dx[h - r->first] + w * channels + c;
                    vf_put_lanes(to, 0, 0, n, vf_add(vf_lanes(to, 0, 0, n), d));
                }
            }
        }
    }
}
