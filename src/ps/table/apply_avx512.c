/* SPDX-License-Identifier: Apache-2.0 */
/* The row kernels by AVX-512. */
#if defined(__AVX512F__)
#include "ps/table/apply.h"
#include "ps/table/lookup_loop.h"

#include "base/half.h"

#include <immintrin.h>
#include <math.h>

#define ISA avx512
#define ISA_TEXT "avx512"
#define ISA_LANES 16
#include "ps/table/apply_rows.h"

const trmi_apply_kernels trmi_apply_avx512 = ISA_KERNELS;
#else
typedef int trmi_not_empty;
#endif
