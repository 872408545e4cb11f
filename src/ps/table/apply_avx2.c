/* SPDX-License-Identifier: Apache-2.0 */
/* The row kernels by AVX2, FMA and F16C. */
#if defined(__AVX2__)
#include "ps/table/apply.h"
#include "ps/table/lookup_loop.h"

#include "base/half.h"

#include <immintrin.h>
#include <math.h>

#define ISA avx2
#define ISA_TEXT "avx2"
#define ISA_LANES 8
#include "ps/table/apply_rows.h"

const trmi_apply_kernels trmi_apply_avx2 = ISA_KERNELS;
#else
typedef int trmi_not_empty;
#endif
