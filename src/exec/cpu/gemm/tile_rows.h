/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/tile_rows.h: a register tile has 1 to MR rows, each number a function of its own.
 * Behind MR, for the instruction sets' bodies: TILE_EACH(DO) does DO(1) ... DO(MR), TILES(x) is the
 * list x1, ... xMR. */
#if MR > 6
#define TILE_EACH(DO)                                                                              \
    DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14)
#define TILES(x)                                                                                   \
    x##1, x##2, x##3, x##4, x##5, x##6, x##7, x##8, x##9, x##10, x##11, x##12, x##13, x##14
#elif MR > 4
#define TILE_EACH(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6)
#define TILES(x) x##1, x##2, x##3, x##4, x##5, x##6
#else
#define TILE_EACH(DO) DO(1) DO(2) DO(3) DO(4)
#define TILES(x) x##1, x##2, x##3, x##4
#endif
