/* SPDX-License-Identifier: Apache-2.0 */
/* 6 x 16 tiles: 12 of 16 registers hold sums. */
#if defined(__x86_64__)
#define NAME avx2
#define VL 8
#define VN 2
#define MR 6
#include "exec/cpu/gemm/dense_isa_body.h"
#else
typedef int trmi_not_x86;
#endif
