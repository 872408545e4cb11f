/* SPDX-License-Identifier: Apache-2.0 */
/* 4 x 16 tiles in the 128-bit vectors that every x86-64 and ARM64 has. */
#define NAME plain
#define VL 4
#define VN 4
#define MR 4
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define STREAM(to, value) (*(vec_memory *)(to) = (value))
#define FENCE() ((void)0)
#include "exec/cpu/gemm/gemm_isa_body.h"
