/* SPDX-License-Identifier: Apache-2.0 */
/* plan/solve/minplus_kernels.c: the (min,+) product, compiled for each instruction set
 * (base/simd/isa.h). A tile of four rows by two vectors of c stays in registers while j runs. Each
 * element has the same sums and minima in the same order in all of them, so the results have the
 * same bits. */
#include "plan/solve/solve.h"

#include "base/simd/isa.h"
#include "base/simd/vec.h"

#include <math.h>
#include <string.h>

/* Computes a tile c[4][2 vectors] from four rows of a (stride js) and two vectors of each row of b.
 */
static void compute_tile(const float *a, int64_t js, const float *b, int64_t stride, float *c,
                         int64_t c_stride) {
    vf s00 = vf_set(INFINITY), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00,
       s31 = s00;
    /* Compute c = min over j of a[.][j] + b[j][.]. */
    for (int64_t j = 0; j < js; j++) {
        vf b0 = vf_load(b + j * stride), b1 = vf_load(b + j * stride + VL), x;
        x = vf_set(a[j]);
        s00 = vf_min(s00, vf_add(x, b0));
        s01 = vf_min(s01, vf_add(x, b1));
        x = vf_set(a[js + j]);
        s10 = vf_min(s10, vf_add(x, b0));
        s11 = vf_min(s11, vf_add(x, b1));
        x = vf_set(a[2 * js + j]);
        s20 = vf_min(s20, vf_add(x, b0));
        s21 = vf_min(s21, vf_add(x, b1));
        x = vf_set(a[3 * js + j]);
        s30 = vf_min(s30, vf_add(x, b0));
        s31 = vf_min(s31, vf_add(x, b1));
    }
    vf_store(c, s00);
    vf_store(c + VL, s01);
    vf_store(c + c_stride, s10);
    vf_store(c + c_stride + VL, s11);
    vf_store(c + 2 * c_stride, s20);
    vf_store(c + 2 * c_stride + VL, s21);
    vf_store(c + 3 * c_stride, s30);
    vf_store(c + 3 * c_stride + VL, s31);
}

/* Computes the product: first tiles, then the remaining columns and rows with scalar code. */
void TRMI_FOR_ISA(trmi_minplus)(const float *a, const float *b, float *c, int32_t m, int32_t js,
                                int32_t n) {
    enum { WIDE = 2 * VL };
    int32_t rows = m / 4 * 4, columns = n / WIDE * WIDE;
    for (int32_t k = 0; k < columns; k += WIDE) {
        for (int32_t i = 0; i < rows; i += 4) {
            compute_tile(a + (int64_t)i * js, js, b + k, n, c + (int64_t)i * n + k, n);
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
