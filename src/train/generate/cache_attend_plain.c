/* SPDX-License-Identifier: Apache-2.0 */
#define CACHE_ATTEND trmi_cache_attend_plain
#include "train/generate/cache_attend_body.h"
