/* SPDX-License-Identifier: Apache-2.0 */
/* Batched lookup, eight homes at a time. */
#if defined(__AVX512F__)
#include "ps/table/lookup_loop.h"

#define LOOKUP trmi_lookup_avx512
#include "ps/table/lookup_find.h"
#else
typedef int trmi_not_empty;
#endif
