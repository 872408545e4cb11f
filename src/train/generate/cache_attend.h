/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/cache_attend.h: attention of one query, once for each instruction set. */
#ifndef TRMI_TRAIN_GENERATE_CACHE_ATTEND_H
#define TRMI_TRAIN_GENERATE_CACHE_ATTEND_H

#include <stdint.h>

/* y [width] = softmax(scale q keys^T) values; q [width], keys and values [count, width], count at
 * least 1, scores [count] for work. */
typedef void (*trmi_cache_attend)(const float *q, const float *keys, const float *values,
                                  int64_t count, int64_t width, float scale, float *scores,
                                  float *y);

void trmi_cache_attend_plain(const float *q, const float *keys, const float *values, int64_t count,
                             int64_t width, float scale, float *scores, float *y);
void trmi_cache_attend_avx2(const float *q, const float *keys, const float *values, int64_t count,
                            int64_t width, float scale, float *scores, float *y);
void trmi_cache_attend_avx512(const float *q, const float *keys, const float *values, int64_t count,
                              int64_t width, float scale, float *scores, float *y);

#endif
