/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling of bags of rows with its gradient, and feature hashing (trireme/ps.h).
 *
 *     rows      [r0][r1][r2][r3][r4]          offsets 0, 2, 2, 5: three bags, the second is empty
 *     bags       0-----  -  2----------
 *     out       [w0 r0 + w1 r1] * scale    [0]    [w2 r2 + w3 r3 + w4 r4] * scale
 *
 *     pooling   scale of a bag
 *     SUM       1
 *     MEAN      1 / sum of w
 *     SQRT_N    1 / root of the sum of w^2
 *
 * A bag whose weights sum to nothing gets 0, not infinity. Sums of weights and inner products are
 * made in double, results are float. Pure functions; any thread. */
#include "ps/table/apply.h"

#include "base/arguments.h"

#include <math.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Returns the weight of a row; without weights 1. */
static double weight_at(const float *weights, int64_t i) {
    return weights == NULL ? 1.0 : (double)weights[i];
}

/* Returns the factor of bag b; *sum: what it is computed from. Bags whose weights sum to nothing
 * get 0. */
static float bag_scale(const trm_bags *bags, int64_t b, double *sum) {
    *sum = 0;
    for (int64_t i = bags->offsets[b]; i < bags->offsets[b + 1]; i++) {
        double w = weight_at(bags->weights, i);
        *sum += bags->pooling == TRM_BAG_SQRT_N ? w * w : w;
    }
    if (bags->pooling == TRM_BAG_SUM) {
        return 1.0f;
    }
    double divisor = bags->pooling == TRM_BAG_SQRT_N ? sqrt(*sum) : *sum;
    return divisor == 0 ? 0.0f : (float)(1.0 / divisor);
}

/* Contract in trireme/ps.h. An empty bag gives zeros. */
void trm_pool_rows(const trm_bags *bags, float *out) {
    TRMI_NEED_OR(, NULL, bags, out);
    if (bags->count > 0) {
        TRMI_NEED_OR(, NULL, bags->rows, bags->offsets);
    }
    const trmi_apply_kernels *kernels = trmi_apply_kernels_here();
    int32_t width = bags->width;
    for (int64_t b = 0; b < bags->count; b++) {
        double sum;
        float scale = bag_scale(bags, b, &sum);
        float *to = out + b * width;
        memset(to, 0, (size_t)width * sizeof *to);
        for (int64_t i = bags->offsets[b]; i < bags->offsets[b + 1]; i++) {
            kernels->add_scaled(to, bags->rows + i * width,
                                scale * (float)weight_at(bags->weights, i), width);
        }
    }
}

/* Returns the dot product of two rows. */
static double dot_product(const float *a, const float *b, int32_t width) {
    double sum = 0;
    for (int32_t i = 0; i < width; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

/* Computes the gradient of the weights of bag b. out = scale * sum(w_i r_i), so d_w_i = scale *
 * r_i.d_out + d_scale/d_w_i * (sum w r).d_out. `sum` and `scale`: those of bag_scale. */
static void weights_gradient(const trm_bags *bags, int64_t b, double sum, double scale,
                             const float *d_out, float *d_weights) {
    int64_t begin = bags->offsets[b], end = bags->offsets[b + 1];
    int32_t width = bags->width;
    double whole = 0;
    for (int64_t i = begin; i < end; i++) {
        whole += weight_at(bags->weights, i) * dot_product(bags->rows + i * width, d_out, width);
    }
    for (int64_t i = begin; i < end; i++) {
        double d_scale = 0;
        if (bags->pooling == TRM_BAG_MEAN && sum != 0) {
            d_scale = -scale / sum;
        } else if (bags->pooling == TRM_BAG_SQRT_N && sum != 0) {
            d_scale = -scale * weight_at(bags->weights, i) / sum;
        }
        d_weights[i] =
            (float)(scale * dot_product(bags->rows + i * width, d_out, width) + d_scale * whole);
    }
}

/* Contract in trireme/ps.h. A row that occurs in several bags has a gradient in each place; the
 * push sums them by key. */
void trm_pool_rows_gradient(const trm_bags *bags, const float *d_out, float *d_rows,
                            float *d_weights) {
    TRMI_NEED_OR(, NULL, bags, d_out, d_rows);
    if (bags->count > 0) {
        TRMI_NEED_OR(, NULL, bags->offsets);
    }
    int32_t width = bags->width;
    for (int64_t b = 0; b < bags->count; b++) {
        double sum;
        float scale = bag_scale(bags, b, &sum);
        const float *from = d_out + b * width;
        for (int64_t i = bags->offsets[b]; i < bags->offsets[b + 1]; i++) {
            float factor = scale * (float)weight_at(bags->weights, i);
            for (int32_t j = 0; j < width; j++) {
                d_rows[i * width + j] = factor * from[j];
            }
        }
        if (d_weights != NULL) {
            weights_gradient(bags, b, sum, (double)scale, from, d_weights);
        }
    }
}

/* Contract in trireme/ps.h. The feature's number is multiplied by 2^64 / golden ratio, so that
 * small numbers give seeds that differ in most bits. */
uint64_t trm_feature_key(uint32_t feature, const void *value, size_t bytes, uint64_t buckets) {
    if (bytes > 0) {
        TRMI_NEED_OR(0, NULL, value);
    }
    uint64_t hash = XXH3_64bits_withSeed(value, bytes, (uint64_t)feature * 0x9E3779B97F4A7C15u);
    /* multiply-shift: negligible bias, no division */
    return buckets == 0 ? hash : (uint64_t)((unsigned __int128)hash * buckets >> 64);
}
