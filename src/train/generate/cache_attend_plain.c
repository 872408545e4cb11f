/* SPDX-License-Identifier: Apache-2.0 */
/* Attention to cached tokens (cache_attend_body.h) for CPUs without AVX2. */
#define CACHE_ATTEND trmi_cache_attend_plain
#include "train/generate/cache_attend_body.h"
