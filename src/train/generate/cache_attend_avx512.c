/* SPDX-License-Identifier: Apache-2.0 */
/* Attention to cached tokens (cache_attend_body.h), compiled for AVX-512. */
#if defined(__x86_64__)
#define CACHE_ATTEND trmi_cache_attend_avx512
#include "train/generate/cache_attend_body.h"
#endif
