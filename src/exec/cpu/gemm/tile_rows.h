/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/tile_rows.h: the register tile of each instruction set: MR rows at most by VN
 * vectors. Each number of rows has a function of its own: TILE_EACH(DO) is DO(1) ... DO(MR),
 * TILES(x) is the list x1, ... xMR. And how its products are computed.
 *
 * AVX-512 with bfloat16 multiplies pairs of bfloat16 and sums in float32 (VDPBF16PS): PAIRS.
 *
 * AVX-512: three of four rows of A are broadcast by the multiply-adds themselves (FROM_MEMORY): 36
 * instructions for 28 multiply-adds, not 44. Where another thread has every second cycle of the
 * core's front end (two hardware threads, or a neighbour of a virtual machine on the other one)
 * that is what limits a tile. All rows so would need more loads than there are ports. */
#ifndef TRMI_EXEC_TILE_ROWS_H
#define TRMI_EXEC_TILE_ROWS_H

#if defined(__AVX512F__) /* 14 x 32: 28 of 32 registers hold sums */
#define VN 2
#define MR 14
#define TILE_EACH(DO)                                                                              \
    DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14)
#define TILES(x)                                                                                   \
    x##1, x##2, x##3, x##4, x##5, x##6, x##7, x##8, x##9, x##10, x##11, x##12, x##13, x##14
#elif defined(__AVX2__) /* 6 x 16: 12 of 16 registers hold sums */
#define VN 2
#define MR 6
#define TILE_EACH(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6)
#define TILES(x) x##1, x##2, x##3, x##4, x##5, x##6
#else /* 4 x 16 in vectors of four */
#define VN 4
#define MR 4
#define TILE_EACH(DO) DO(1) DO(2) DO(3) DO(4)
#define TILES(x) x##1, x##2, x##3, x##4
#endif

/* sum += left * right, with one number `left`; MULTIPLY_ADD_FROM: of the number at an address. */
#if defined(__AVX512BF16__)
#define PAIRS
#define MULTIPLY_ADD(sum, left, right)                                                             \
    ((sum) =                                                                                       \
         (vec)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)_mm512_set1_ps(left), (__m512bh)(right)))
#elif defined(__AVX512F__)
/* By name: of products that it makes itself the compiler may keep two sums in memory, a tenth of
 * the speed. */
#define MULTIPLY_ADD(sum, left, right)                                                             \
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(right), "v"(_mm512_set1_ps(left)))
#define FROM_MEMORY(row) ((row) % 4 != 0)
#define MULTIPLY_ADD_FROM(sum, left, right)                                                        \
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(right), "m"(*(left)))
#else
#define MULTIPLY_ADD(sum, left, right) ((sum) += (left) * (right))
#endif
#ifndef FROM_MEMORY
#define FROM_MEMORY(row) false
#define MULTIPLY_ADD_FROM(sum, left, right) MULTIPLY_ADD(sum, *(left), right)
#endif

#endif
