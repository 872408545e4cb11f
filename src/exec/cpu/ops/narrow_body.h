/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/narrow_body.h: rows of weights times one row of numbers; part of memory_body.h. The
 * time is that of reading the weights, so the loops read them as memory is fastest: along rows, in
 * one stream (inner products) or two that are far apart (sums of rows). Several rows beside each
 * other share pages, where the CPU's prefetcher does not follow them: on a Zen 4 a core then reads
 * 13 to 16 GB/s instead of 26 to 30. Prefetch instructions do not help there.
 *
 * A vector of bfloat16 is loaded whole and widened in two instructions, to the numbers of even
 * index and to those of odd index; loading half a vector twice takes twice as many, more than
 * memory leaves time for. So the row of float32 that belongs to bfloat16 weights is split in the
 * same way:
 *
 *      plain                 0  1  2  3  4  5  6  7 | ...      each line of PAIRS_LINE numbers, by blocks
 *      split, vectors of 4   0  2  4  6  1  3  5  7 | ...      of two vectors; a shorter end stays plain */

enum { PAIRS_LINE = 32 /* bfloat16 of a cache line; at least two vectors of float32 */ };

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

/* Adds the products of one line of x and of a row of w to two sums. */
TRMI_INLINE void dot_line(const float *x, const void *w, int64_t at, int half, vf sum[2]) {
    vf two[2];
    for (int64_t j = 0; j < PAIRS_LINE; j += 2 * VL) {
        load_two(w, at + j, half, two);
        sum[0] = vf_fma(vf_load(x + j), two[0], sum[0]);
        sum[1] = vf_fma(vf_load(x + j + VL), two[1], sum[1]);
    }
}

/* Returns the inner product of x and the row from element `at` of w on. Four sums hide the latency
 * of multiply-adds. */
TRMI_INLINE float dot_row(const float *x, const void *w, int64_t at, int64_t k, int half) {
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + 2 * PAIRS_LINE <= k; i += 2 * PAIRS_LINE) {
        dot_line(x + i, w, at + i, half, sum);
        dot_line(x + i + PAIRS_LINE, w, at + i + PAIRS_LINE, half, sum + 2);
    }
    for (; i + PAIRS_LINE <= k; i += PAIRS_LINE) {
        dot_line(x + i, w, at + i, half, sum);
    }
    for (int n; i < k; i += n) {
        n = (int)(k - i < VL ? k - i : VL);
        sum[0] = vf_fma(vf_lanes(x, i, 0, n), vf_lanes(w, at + i, half, n), sum[0]);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

/* Computes the rows one after the other, each in one stream. */
TRMI_INLINE void dot_rows_loop(float *y, const float *x, const void *w, int64_t rows, int64_t k,
                               int half) {
    for (int64_t r = 0; r < rows; r++) {
        y[r] = dot_row(x, w, r * k, k, half);
    }
}
static void dot_rows(float *y, const float *x, const void *w, int64_t rows, int64_t k, bool half) {
    if (half) {
        dot_rows_loop(y, x, w, rows, k, 1);
    } else {
        dot_rows_loop(y, x, w, rows, k, 0);
    }
}

/* Adds `streams` rows, a constant, each times a number of x: row `first` and others that lie
 * `distance` rows apart. */
TRMI_INLINE void add_some(float *y, const float *x, const void *w, int64_t first, int64_t distance,
                          int64_t width, int half, const int streams) {
    vf factor[2], two[2];
    int64_t i = 0;
    for (int s = 0; s < streams; s++) {
        factor[s] = vf_set(x[first + s * distance]);
    }
    for (; i + PAIRS_LINE <= width; i += PAIRS_LINE) {
        for (int64_t j = i; j < i + PAIRS_LINE; j += 2 * VL) {
            vf even = vf_load(y + j), odd = vf_load(y + j + VL);
#pragma GCC unroll 2
            for (int s = 0; s < streams; s++) {
                load_two(w, (first + s * distance) * width + j, half, two);
                even = vf_fma(factor[s], two[0], even);
                odd = vf_fma(factor[s], two[1], odd);
            }
            vf_store(y + j, even);
            vf_store(y + j + VL, odd);
        }
    }
    for (int n; i < width; i += n) {
        n = (int)(width - i < VL ? width - i : VL);
        vf sum = vf_lanes(y, i, 0, n);
        for (int s = 0; s < streams; s++) {
            vf row = vf_lanes(w, (first + s * distance) * width + i, half, n);
            sum = vf_fma(factor[s], row, sum);
        }
        vf_put_lanes(y, i, 0, n, sum);
    }
}

/* Adds the rows of the first and of the second half side by side, then the last of an odd
 * number. */
TRMI_INLINE void add_rows_loop(float *y, const float *x, const void *w, int64_t rows, int64_t width,
                               int half) {
    for (int64_t r = 0; r < rows / 2; r++) {
        add_some(y, x, w, r, rows / 2, width, half, 2);
    }
    if (rows % 2 != 0) {
        add_some(y, x, w, rows - 1, 0, width, half, 1);
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

/* Contract in memory_kernels.h. The order within a line is that in which load_pairs widens a
 * vector. */
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

/* Contract in memory_kernels.h. The reverse of split_pairs for bfloat16. */
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
