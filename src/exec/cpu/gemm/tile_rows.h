/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/tile_rows.h: the register tile of each instruction set: MR rows at most by VN
 * vectors. Each number of rows has a function of its own: TILE_EACH(DO) is DO(1) ... DO(MR),
 * TILES(x) is the list x1, ... xMR. */
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

#endif
