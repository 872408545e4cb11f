/* SPDX-License-Identifier: Apache-2.0 */
/* 14 x 32 tiles: 28 of 32 registers hold sums. */
#if defined(__x86_64__)
#define NAME avx512
#define VL 16
#define VN 2
#define MR 14
#include "exec/cpu/gemm/dense_isa_body.h"
#else
typedef int trmi_not_x86;
#endif
