/* SPDX-License-Identifier: Apache-2.0 */
/* Batched lookup for AVX2. */
#if defined(__AVX2__)
#include "ps/table/lookup_loop.h"

#define LOOKUP trmi_lookup_avx2
#include "ps/table/lookup_find.h"
#else
typedef int trmi_not_empty;
#endif
