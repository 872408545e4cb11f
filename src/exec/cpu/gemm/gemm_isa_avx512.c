/* SPDX-License-Identifier: Apache-2.0 */
/* 14 x 32 tiles: 28 of 32 registers hold sums.
 *
 * Three of four rows of A are broadcast by the multiply-adds themselves: 36 instructions for 28
 * multiply-adds, not 44. Where another thread has every second cycle of the core's front end (two
 * hardware threads, or a neighbour of a virtual machine on the other one) that is what limits a
 * tile. All rows so would need more loads than there are ports. */
#if defined(__x86_64__)
#include <immintrin.h>

#define NAME avx512
#define VL 16
#define VN 2
#define MR 14
#define STREAM(to, value) _mm512_stream_ps(to, (__m512)(value))
#define FENCE() _mm_sfence()
#define FROM_MEMORY(row) ((row) % 4 != 0)
/* The other by name, too: of products that it makes itself the compiler may keep two sums in
 * memory, a tenth of the speed. */
#define MULTIPLY_ADD(sum, left, right)                                                             \
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(right), "v"(_mm512_set1_ps(left)))
#define MULTIPLY_ADD_FROM(sum, left, right)                                                        \
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(right), "m"(*(left)))
#include "exec/cpu/gemm/gemm_isa_body.h"
#else
typedef int trmi_not_x86;
#endif
