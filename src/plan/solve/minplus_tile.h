/* SPDX-License-Identifier: Apache-2.0 */
/* plan/solve/minplus_tile.h: body of the AVX2 and AVX-512 (min,+) products. A tile of four rows by
 * two vectors of c stays in registers while j runs. Each element has the same sums and minima in
 * the same order as in trmi_minplus_plain(), so the results have the same bits.
 *
 * The including file defines VEC, LANES, LOAD, STORE, SET1, ADD, MIN, NAME. */
#include "plan/solve/solve.h"

#include <math.h>
#include <string.h>

/* Computes a tile c[4][2 vectors] from four rows of a (stride js) and two vectors of each row of b.
 */
static void tile(const float *a, int64_t js, const float *b, int64_t stride, float *c,
                 int64_t c_stride) {
    VEC s00 = SET1(INFINITY), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00,
        s31 = s00;
    for (int64_t j = 0; j < js; j++) {
        VEC b0 = LOAD(b + j * stride), b1 = LOAD(b + j * stride + LANES), x;
        x = SET1(a[j]);
        s00 = MIN(s00, ADD(x, b0));
        s01 = MIN(s01, ADD(x, b1));
        x = SET1(a[js + j]);
        s10 = MIN(s10, ADD(x, b0));
        s11 = MIN(s11, ADD(x, b1));
        x = SET1(a[2 * js + j]);
        s20 = MIN(s20, ADD(x, b0));
        s21 = MIN(s21, ADD(x, b1));
        x = SET1(a[3 * js + j]);
        s30 = MIN(s30, ADD(x, b0));
        s31 = MIN(s31, ADD(x, b1));
    }
    STORE(c, s00);
    STORE(c + LANES, s01);
    STORE(c + c_stride, s10);
    STORE(c + c_stride + LANES, s11);
    STORE(c + 2 * c_stride, s20);
    STORE(c + 2 * c_stride + LANES, s21);
    STORE(c + 3 * c_stride, s30);
    STORE(c + 3 * c_stride + LANES, s31);
}

/* The product: tiles first, then the remaining columns and rows with scalar code. */
void NAME(const float *a, const float *b, float *c, int32_t m, int32_t js, int32_t n) {
    enum { WIDE = 2 * LANES };
    int32_t rows = m / 4 * 4, columns = n / WIDE * WIDE;
    for (int32_t k = 0; k < columns; k += WIDE) {
        for (int32_t i = 0; i < rows; i += 4) {
            tile(a + (int64_t)i * js, js, b + k, n, c + (int64_t)i * n + k, n);
        }
    }
    for (int32_t i = 0; i < m; i++) {
        int32_t from = i < rows ? columns : 0;
        float *row = c + (int64_t)i * n;
        for (int32_t k = from; k < n; k++) {
            row[k] = INFINITY;
        }
        for (int32_t j = 0; j < js; j++) {
            const float left = a[(int64_t)i * js + j], *right = b + (int64_t)j * n;
            for (int32_t k = from; k < n; k++) {
                float sum = left + right[k];
                row[k] = sum < row[k] ? sum : row[k];
            }
        }
    }
}
