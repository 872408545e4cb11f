/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/narrow_body.h: rows of weights times one row of numbers; part of memory_body.h. Four
 * rows are read at a time. Their lines are prefetched: with bfloat16 the instructions that a CPU
 * looks ahead do not reach far enough.
 *
 * A vector of bfloat16 is loaded whole and widened in two instructions, to the numbers of even
 * index and to those of odd index; loading half a vector twice takes twice as many, more than
 * memory leaves time for. So the row of float32 that belongs to bfloat16 weights is split in the
 * same way:
 *
 *      plain                 0  1  2  3  4  5  6  7 | ...      each line of PAIRS_LINE numbers, by blocks
 *      split, vectors of 4   0  2  4  6  1  3  5  7 | ...      of two vectors; a shorter end stays plain */

enum {
    NARROW_AHEAD = 512, /* bytes of a row between a load and its prefetch */
    NARROW_ROWS = 4,
    PAIRS_LINE = 32, /* bfloat16 of a cache line; at least two vectors of float32 */
    FLOATS_LINE = 16 /* float32 of a cache line */
};

/* Numbers that the loops below take at a time: a cache line, and at least two vectors. */
#define NARROW_STEP(half) ((half) || 2 * VL > FLOATS_LINE ? PAIRS_LINE : FLOATS_LINE)

/* Prefetches, for `rows` rows of w [.., width] from element `at` on, the lines of one step that
 * begin NARROW_AHEAD after element i: of the next rows where these have ended. */
TRMI_INLINE void prefetch_rows(const void *w, int64_t at, int64_t i, int64_t width, int half,
                               const int rows) {
    int64_t element = half ? 2 : 4, ahead = i + NARROW_AHEAD / element;
    const char *to =
        (const char *)w + (at + ahead + (ahead < width ? 0 : (rows - 1) * width)) * element;
    for (int row = 0; row < rows; row++) {
        for (int64_t line = 0; line < NARROW_STEP(half) * element; line += 64) {
            __builtin_prefetch(to + row * width * element + line);
        }
    }
}

/* Loads two vectors of bfloat16: those of even and those of odd index. */
TRMI_INLINE void load_pairs(const void *from, int64_t at, vf *even, vf *odd) {
    const uint16_t *first = (const uint16_t *)from + at;
#if VL == 1
    *even = vf_load_bf(first);
    *odd = vf_load_bf(first + 1);
#else
    trmi_words both;
    memcpy(&both, first, sizeof both);
    *even = (vf)(both << 16);
    *odd = (vf)(both & 0xFFFF0000u);
#endif
}

/* Loads two vectors of a row of weights, in the order of a row that is split for their type. */
TRMI_INLINE void load_two(const void *w, int64_t at, int half, vf two[2]) {
    if (half) {
        load_pairs(w, at, &two[0], &two[1]);
    } else {
        two[0] = vf_get(w, at, 0);
        two[1] = vf_get(w, at + VL, 0);
    }
}

/* Computes the inner products of `rows` rows, a constant, from element `at` of w on. */
TRMI_INLINE void dot_some(float *y, const float *x, const void *w, int64_t at, int64_t k, int half,
                          const int rows) {
    const int64_t line = NARROW_STEP(half);
    vf sum[NARROW_ROWS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}, two[2];
    int64_t i = 0;
    for (; i + PAIRS_LINE <= k; i += line) {
        prefetch_rows(w, at, i, k, half, rows);
        for (int64_t j = i; j < i + line; j += 2 * VL) {
            vf first = vf_load(x + j), second = vf_load(x + j + VL);
#pragma GCC unroll 4
            for (int row = 0; row < rows; row++) {
                load_two(w, at + row * k + j, half, two);
                sum[row] = vf_fma(first, two[0], sum[row]);
                sum[row] = vf_fma(second, two[1], sum[row]);
            }
        }
    }
    for (int n; i < k; i += n) {
        n = (int)(k - i < VL ? k - i : VL);
        vf v = vf_lanes(x, i, 0, n);
        for (int row = 0; row < rows; row++) {
            sum[row] = vf_fma(v, vf_lanes(w, at + row * k + i, half, n), sum[row]);
        }
    }
    for (int row = 0; row < rows; row++) {
        y[row] = vf_sum(sum[row]);
    }
}

TRMI_INLINE void dot_rows_loop(float *y, const float *x, const void *w, int64_t rows, int64_t k,
                               int half) {
    int64_t r = 0;
    for (; r + NARROW_ROWS <= rows; r += NARROW_ROWS) {
        dot_some(y + r, x, w, r * k, k, half, NARROW_ROWS);
    }
    for (; r < rows; r++) {
        dot_some(y + r, x, w, r * k, k, half, 1);
    }
}
static void dot_rows(float *y, const float *x, const void *w, int64_t rows, int64_t k, bool half) {
    if (half) {
        dot_rows_loop(y, x, w, rows, k, 1);
    } else {
        dot_rows_loop(y, x, w, rows, k, 0);
    }
}

/* Adds `rows` rows, a constant, from element `at` of w on, each times a number of x. */
TRMI_INLINE void add_some(float *y, const float *x, const void *w, int64_t at, int64_t width,
                          int half, const int rows) {
    const int64_t line = NARROW_STEP(half);
    vf factor[NARROW_ROWS], two[2];
    int64_t i = 0;
    for (int row = 0; row < rows; row++) {
        factor[row] = vf_set(x[row]);
    }
    for (; i + PAIRS_LINE <= width; i += line) {
        prefetch_rows(w, at, i, width, half, rows);
        for (int64_t j = i; j < i + line; j += 2 * VL) {
            vf first = vf_load(y + j), second = vf_load(y + j + VL);
#pragma GCC unroll 4
            for (int row = 0; row < rows; row++) {
                load_two(w, at + row * width + j, half, two);
                first = vf_fma(factor[row], two[0], first);
                second = vf_fma(factor[row], two[1], second);
            }
            vf_store(y + j, first);
            vf_store(y + j + VL, second);
        }
    }
    for (int n; i < width; i += n) {
        n = (int)(width - i < VL ? width - i : VL);
        vf sum = vf_lanes(y, i, 0, n);
        for (int row = 0; row < rows; row++) {
            sum = vf_fma(factor[row], vf_lanes(w, at + row * width + i, half, n), sum);
        }
        vf_put_lanes(y, i, 0, n, sum);
    }
}

TRMI_INLINE void add_rows_loop(float *y, const float *x, const void *w, int64_t rows, int64_t width,
                               int half) {
    int64_t r = 0;
    for (; r + NARROW_ROWS <= rows; r += NARROW_ROWS) {
        add_some(y, x + r, w, r * width, width, half, NARROW_ROWS);
    }
    for (; r < rows; r++) {
        add_some(y, x + r, w, r * width, width, half, 1);
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

static void split_pairs(float *to, const void *from, int64_t count, bool half) {
    const int64_t lines = count / PAIRS_LINE * PAIRS_LINE;
    for (int64_t i = 0; half && i < lines; i += 2 * VL) {
        vf even, odd;
        load_pairs(from, i, &even, &odd);
        vf_store(to + i, even);
        vf_store(to + i + VL, odd);
    }
    for (int64_t i = 0; !half && i < lines; i += 2 * VL) {
        const float *pairs = (const float *)from + i;
        for (int lane = 0; lane < VL; lane++) {
            to[i + lane] = pairs[2 * lane];
            to[i + VL + lane] = pairs[2 * lane + 1];
        }
    }
    for (int64_t i = lines, n; i < count; i += n) {
        n = count - i < VL ? count - i : VL;
        vf_put_lanes(to, i, 0, (int)n, vf_lanes(from, i, half, (int)n));
    }
}

static void join_pairs(float *to, const float *from, int64_t count) {
    const int64_t lines = count / PAIRS_LINE * PAIRS_LINE;
    for (int64_t i = 0; i < lines; i += 2 * VL) {
        for (int lane = 0; lane < VL; lane++) {
            to[i + 2 * lane] = from[i + lane];
            to[i + 2 * lane + 1] = from[i + VL + lane];
        }
    }
    memcpy(to + lines, from + lines, (size_t)(count - lines) * sizeof *to);
}
