/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#define VECTOR_BYTES 32
#define REDUCE_TABLE trmi_reduce_avx2
#include "comm/api/reduce_kernels.h"
#else
typedef int trmi_reduce_avx2_is_empty_here;
#endif
