/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/click_body.h: loops of click models: inner products of all pairs of one sample's
 * rows; bags; sums by group. Part of the body of memory_kernels.c, compiled for each instruction
 * set.
 *
 * No function starts a thread, and none adds the numbers of a sample in an order that depends on
 * other samples of the call: any division of the samples among threads gives the same bits. */

enum {
    PAIRS_TILE = 32 /* columns at a time */,
    PAIRS_ROWS = 8 /* sums that run beside each other */
};

/* Writes rows i to i + count of the triangle of products, for the columns of one tile. Vectors run
 * past the last row: there `turned` holds zeros, and nothing is stored. */
TRMI_INLINE void pair_rows(const float *x, float turned[PAIRS_TILE][TRMI_PAIRS_ROWS_MAX], float *y,
                           int64_t i, int64_t count, int64_t width, const int64_t n, bool first) {
    const float *own[PAIRS_ROWS];
    for (int64_t r = 0; r < PAIRS_ROWS; r++) {
        own[r] = x + (i + (r < count ? r : 0)) * width;
    }
    for (int64_t j = 0; j < i + count - 1; j += VL) {
        vf sum[PAIRS_ROWS];
        for (int r = 0; r < PAIRS_ROWS; r++) {
            sum[r] = vf_zero();
        }
        for (int64_t k = 0; k < n; k++) {
            vf others = vf_load(turned[k] + j);
            for (int r = 0; r < PAIRS_ROWS; r++) {
                sum[r] = vf_fma(vf_set(own[r][k]), others, sum[r]);
            }
        }
        for (int64_t r = 0; r < count; r++) {
            int stored = (int)(i + r - j < VL ? i + r - j : VL);
            float *to = y + (i + r) * (i + r - 1) / 2;
            if (stored > 0) {
                vf before = first ? vf_zero() : vf_lanes(to, j, 0, stored);
                vf_put_lanes(to, j, 0, stored, vf_add(before, sum[r]));
            }
        }
    }
}

/* Adds the products of n columns to all pairs. Columns are turned first, so that the vector lanes
 * are the rows j of pairs (i, j); lanes beyond the last row are zero. */
TRMI_INLINE void pair_tile(const float *x, float *y, int64_t rows, int64_t width, const int64_t n,
                           bool first) {
    float turned[PAIRS_TILE][TRMI_PAIRS_ROWS_MAX];
    int64_t padded = (rows + VL - 1) / VL * VL;
    for (int64_t j = 0; j < rows; j++) {
        for (int64_t k = 0; k < n; k++) {
            turned[k][j] = x[j * width + k];
        }
    }
    for (int64_t k = 0; k < n && padded > rows; k++) {
        memset(turned[k] + rows, 0, (size_t)(padded - rows) * sizeof(float));
    }
    for (int64_t i = 1; i < rows; i += PAIRS_ROWS) {
        pair_rows(x, turned, y, i, rows - i < PAIRS_ROWS ? rows - i : PAIRS_ROWS, width, n, first);
    }
}

/* Computes y[i (i - 1) / 2 + j] = <x_i, x_j>, j < i. Vectors run along j, over a transposed
 * tile. */
static void pair_dots(const float *x, float *y, int64_t rows, int64_t width) {
    if (width == 16) { /* the usual one, unrolled */
        pair_tile(x, y, rows, 16, 16, true);
        return;
    }
    for (int64_t begin = 0; begin < width; begin += PAIRS_TILE) {
        pair_tile(x + begin, y, rows, width,
                  width - begin < PAIRS_TILE ? width - begin : PAIRS_TILE, begin == 0);
    }
}

/* Computes dx_i = sum over j of d(i, j) x_j, with d symmetric. */
static void pair_dots_grad(const float *dy, const float *x, float *dx, int64_t rows,
                           int64_t width) {
    float d[TRMI_PAIRS_ROWS_MAX][TRMI_PAIRS_ROWS_MAX];
    for (int64_t i = 0; i < rows; i++) {
        d[i][i] = 0;
        for (int64_t j = 0; j < i; j++) {
            d[i][j] = d[j][i] = *dy++;
        }
    }
    for (int64_t i = 0; i < rows; i += PAIRS_ROWS) {
        const float *own[PAIRS_ROWS];
        for (int64_t r = 0; r < PAIRS_ROWS; r++) {
            own[r] = d[i + r < rows ? i + r : i];
        }
        for (int64_t k = 0; k < width; k += VL) {
            int lanes = (int)(width - k < VL ? width - k : VL);
            vf sum[PAIRS_ROWS];
            for (int r = 0; r < PAIRS_ROWS; r++) {
                sum[r] = vf_zero();
            }
            for (int64_t j = 0; j < rows; j++) {
                vf row = vf_lanes(x, j * width + k, 0, lanes);
                for (int r = 0; r < PAIRS_ROWS; r++) {
                    sum[r] = vf_fma(vf_set(own[r][j]), row, sum[r]);
                }
            }
            for (int64_t r = 0; r < PAIRS_ROWS && i + r < rows; r++) {
                vf_put_lanes(dx, (i + r) * width + k, 0, lanes, sum[r]);
            }
        }
    }
}

/* Adds scale * x to `into`. */
static void add_scaled(float *into, const float *x, int64_t count, float scale) {
    VF_LOOP(count, vf_store(into + i, vf_fma(vf_set(scale), vf_load(x + i), vf_load(into + i))),
            vf_store_n(into + i, n,
                       vf_fma(vf_set(scale), vf_load_n(x + i, n), vf_load_n(into + i, n))));
}

/* ---- sums by group --------------------------------------------------------------------------- */

/* Returns the sum of the vectors at [j, j + VL) of one sample: its own one and the one of each
 * group. */
static inline vf group_vector(const trmi_group_sum *s, int64_t n, int64_t j) {
    vf sum = vf_load(s->from + n * s->columns + j);
    for (int64_t f = 0; f < s->fields; f++) {
        sum = vf_add(sum, vf_load(s->tables[f] + s->groups[f][n] * s->columns + j));
    }
    return s->relu ? vf_select(vf_gt(vf_zero(), sum), vf_zero(), sum) : sum;
}

/* Adds up samples of two vectors, the usual width, so that groups are read once. */
static inline void sum_pair(const trmi_group_sum *s, int64_t n) {
    const float *from = s->from + n * 2 * VL;
    vf a = vf_load(from), b = vf_load(from + VL);
    for (int64_t f = 0; f < s->fields; f++) {
        const float *row = s->tables[f] + (int64_t)s->groups[f][n] * 2 * VL;
        a = vf_add(a, vf_load(row));
        b = vf_add(b, vf_load(row + VL));
    }
    if (s->relu) {
        a = vf_select(vf_gt(vf_zero(), a), vf_zero(), a);
        b = vf_select(vf_gt(vf_zero(), b), vf_zero(), b);
    }
    vf_store(s->to + n * s->to_stride, a);
    vf_store(s->to + n * s->to_stride + VL, b);
}

/* Adds up the vectors of each sample. columns: a multiple of VL. */
static void sum_groups(const trmi_group_sum *s) {
    for (int64_t n = 0; n < s->samples; n++) {
        if (s->columns == 2 * VL) {
            sum_pair(s, n);
            continue;
        }
        for (int64_t j = 0; j < s->columns; j += VL) {
            vf_store(s->to + n * s->to_stride + j, group_vector(s, n, j));
        }
    }
}

/* Contract in memory_kernels.h. The first row of a group is copied, so that sums need no
 * zeroing. */
static void add_to_groups(float *sums, const float *rows, int64_t columns, const int32_t *first,
                          int64_t count, const int32_t *groups, const int32_t *rest,
                          int64_t rest_count) {
    for (int64_t g = 0; g < count; g++) {
        for (int64_t j = 0; j < columns; j += VL) {
            vf_store(sums + g * columns + j, vf_load(rows + first[g] * columns + j));
        }
    }
    for (int64_t i = 0; i < rest_count; i++) {
        const float *from = rows + rest[i] * columns;
        float *to = sums + groups[rest[i]] * columns;
        for (int64_t j = 0; j < columns; j += VL) {
            vf_store(to + j, vf_add(vf_load(to + j), vf_load(from + j)));
        }
    }
}
