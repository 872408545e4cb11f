/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/tile_size.h: the size of a tile of sums in each instruction set: MR rows by VN
 * vectors. */
#ifndef TRMI_EXEC_TILE_SIZE_H
#define TRMI_EXEC_TILE_SIZE_H

#if defined(__AVX512F__) /* 14 x 32: 28 of 32 registers hold sums */
#define VN 2
#define MR 14
#elif defined(__AVX2__) /* 6 x 16: 12 of 16 registers hold sums */
#define VN 2
#define MR 6
#else /* 4 x 16 in vectors of four */
#define VN 4
#define MR 4
#endif

#endif
