/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/narrow_body.h: rows of weights times one row of numbers; part of memory_body.h. Four
 * rows are read at a time. Their lines are prefetched: with bfloat16 the instructions that a CPU
 * looks ahead do not reach far enough. */

enum { NARROW_AHEAD = 512 /* bytes of a row between a load and its prefetch */ };

/* Prefetches, for four rows of w [.., width] from element `at` on, the line NARROW_AHEAD behind
 * element i: of the next four rows where these have ended. */
TRMI_INLINE void prefetch_rows(const void *w, int64_t at, int64_t i, int64_t width, int half) {
    int64_t element = half ? 2 : 4, ahead = i + NARROW_AHEAD / element;
    const char *to = (const char *)w + (at + ahead + (ahead < width ? 0 : 3 * width)) * element;
    for (int row = 0; row < 4; row++) {
        __builtin_prefetch(to + row * width * element);
    }
}

TRMI_INLINE void dot_rows_loop(float *y, const float *x, const void *w, int64_t rows, int64_t k,
                               int half) {
    const int64_t line = half ? 32 : 16;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        int64_t at = r * k, i = 0;
        for (; i + line <= k; i += line) {
            prefetch_rows(w, at, i, k, half);
            for (int64_t j = i; j < i + line; j += VL) {
                vf v = vf_load(x + j);
#pragma GCC unroll 4
                for (int row = 0; row < 4; row++) {
                    sum[row] = vf_fma(v, vf_get(w, at + row * k + j, half), sum[row]);
                }
            }
        }
        for (int n; i < k; i += n) {
            n = (int)(k - i < VL ? k - i : VL);
            vf v = vf_lanes(x, i, 0, n);
            for (int row = 0; row < 4; row++) {
                sum[row] = vf_fma(v, vf_lanes(w, at + row * k + i, half, n), sum[row]);
            }
        }
        for (int row = 0; row < 4; row++) {
            y[r + row] = vf_sum(sum[row]);
        }
    }
    for (; r < rows; r++) {
        vf sum = vf_zero();
        VF_LOOP(k, sum = vf_fma(vf_load(x + i), vf_get(w, r * k + i, half), sum),
                sum = vf_fma(vf_load_n(x + i, n), vf_get_n(w, r * k + i, half, n), sum));
        y[r] = vf_sum(sum);
    }
}
static void dot_rows(float *y, const float *x, const void *w, int64_t rows, int64_t k, bool half) {
    if (half) {
        dot_rows_loop(y, x, w, rows, k, 1);
    } else {
        dot_rows_loop(y, x, w, rows, k, 0);
    }
}

TRMI_INLINE void add_rows_loop(float *y, const float *x, const void *w, int64_t rows, int64_t width,
                               int half) {
    const int64_t line = half ? 32 : 16;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const vf factor[4] = {vf_set(x[r]), vf_set(x[r + 1]), vf_set(x[r + 2]), vf_set(x[r + 3])};
        int64_t at = r * width, i = 0;
        for (; i + line <= width; i += line) {
            prefetch_rows(w, at, i, width, half);
            for (int64_t j = i; j < i + line; j += VL) {
                vf sum = vf_load(y + j);
#pragma GCC unroll 4
                for (int row = 0; row < 4; row++) {
                    sum = vf_fma(factor[row], vf_get(w, at + row * width + j, half), sum);
                }
                vf_store(y + j, sum);
            }
        }
        for (int n; i < width; i += n) {
            n = (int)(width - i < VL ? width - i : VL);
            vf sum = vf_lanes(y, i, 0, n);
            for (int row = 0; row < 4; row++) {
                sum = vf_fma(factor[row], vf_lanes(w, at + row * width + i, half, n), sum);
            }
            vf_put_lanes(y, i, 0, n, sum);
        }
    }
    for (; r < rows; r++) {
        vf factor = vf_set(x[r]);
        VF_LOOP(
            width, vf_store(y + i, vf_fma(factor, vf_get(w, r * width + i, half), vf_load(y + i))),
            vf_store_n(y + i, n,
                       vf_fma(factor, vf_get_n(w, r * width + i, half, n), vf_load_n(y + i, n))));
    }
}
static void add_rows(float *y, const float *x, const void *w, int64_t rows, int64_t width,
                     bool half) {
    if (half) {
        add_rows_loop(y, x, w, rows, width, 1);
    } else {
        add_rows_loop(y, x, w, rows, width, 0);
    }
}
