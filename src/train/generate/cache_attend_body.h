/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/cache_attend_body.h: one function of the type trmi_cache_attend (cache_attend.h):
 *
 *      scores[i] = scale * q . keys[i]         y = sum of values[i] * exp(scores[i] - most) / sum
 *
 * `most` is the largest score, so that no exponential overflows. A file for each instruction set
 * includes this one, with the function's name as CACHE_ATTEND. */
#include "base/simd/vec.h"
#include "train/generate/cache_attend.h"

/* Returns the dot product of two vectors. */
static float dot_product(const float *a, const float *b, int64_t count) {
    vf sum = vf_zero();
    VF_LOOP(count, sum = vf_fma(vf_load(a + i), vf_load(b + i), sum),
            sum = vf_fma(vf_load_n(a + i, n), vf_load_n(b + i, n), sum));
    return vf_sum(sum);
}

/* Returns the sum of exp(scores - most), which replace the scores. */
static float sum_exponentials(float *scores, int64_t count, float most) {
    vf sum = vf_zero();
    VF_LOOP(
        count,
        {
            vf p = vf_exp_below(vf_sub(vf_load(scores + i), vf_set(most)));
            vf_store(scores + i, p);
            sum = vf_add(sum, p);
        },
        for (int64_t j = i; j < i + n; j++) {
            vf p = vf_exp_below(vf_set(scores[j] - most));
            vf_store_n(scores + j, 1, p);
            sum = vf_add(sum, vf_load_n(scores + j, 1));
        });
    return vf_sum(sum);
}

/* Adds factor * x to y. */
static void add_scaled(float *y, const float *x, int64_t count, float factor) {
    vf f = vf_set(factor);
    VF_LOOP(count, vf_store(y + i, vf_fma(f, vf_load(x + i), vf_load(y + i))),
            vf_store_n(y + i, n, vf_fma(f, vf_load_n(x + i, n), vf_load_n(y + i, n))));
}

void CACHE_ATTEND(const float *q, const float *keys, const float *values, int64_t count,
                  int64_t width, float scale, float *scores, float *y) {
    float most = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        scores[i] = scale * dot_product(q, keys + i * width, width);
        most = scores[i] > most ? scores[i] : most;
    }
    float sum = sum_exponentials(scores, count, most);
    memset(y, 0, (size_t)width * sizeof *y);
    for (int64_t i = 0; i < count; i++) {
        add_scaled(y, values + i * width, width, scores[i] / sum);
    }
}
