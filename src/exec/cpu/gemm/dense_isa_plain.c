/* SPDX-License-Identifier: Apache-2.0 */
/* 4 x 16 tiles in the 128-bit vectors that every x86-64 and ARM64 has. */
#define NAME plain
#define VL 4
#define VN 4
#define MR 4
#include "exec/cpu/gemm/dense_isa_body.h"
