/* SPDX-License-Identifier: Apache-2.0 */
/* (min,+) product in plain C: the reference for the vector versions. */
#include "plan/solve/solve.h"

#include <math.h>

void trmi_minplus_plain(const float *a, const float *b, float *c, int32_t m, int32_t js,
                        int32_t n) {
    for (int32_t i = 0; i < m; i++) {
        float *row = c + (int64_t)i * n;
        for (int32_t k = 0; k < n; k++) {
            row[k] = INFINITY;
        }
        for (int32_t j = 0; j < js; j++) {
            const float left = a[(int64_t)i * js + j], *right = b + (int64_t)j * n;
            if (left == INFINITY) {
                continue;
            }
            for (int32_t k = 0; k < n; k++) {
                float sum = left + right[k];
                row[k] = sum < row[k] ? sum : row[k];
            }
        }
    }
}
