/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#define VECTOR_BYTES 64
#define REDUCE_TABLE trmi_reduce_avx512
#include "comm/api/reduce_kernels.h"
#else
typedef int trmi_reduce_avx512_is_empty_here;
#endif
