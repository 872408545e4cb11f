/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/splits.h: adds partial sums of several threads.
 *
 *      split   0   1   2   3 | 4   5   6   7        by the first half of the threads | by the second
 *              \___\___\___\___/___/___/___/        first each half's own, where they were made
 *                        0 + 4                      then each thread a part of both
 *
 * Only one sum of each half is read from another CPU's cache. The order of additions depends only
 * on the number of splits.
 */
#ifndef TRMI_EXEC_CPU_SPLITS_H
#define TRMI_EXEC_CPU_SPLITS_H

#include "exec/cpu/gemm/gemm_isa.h"

/* Computes to[i] = sum over s of sums[s * count + i], as `type` (FLOAT32 or BFLOAT16); overwrites
 * `sums`. Called by all threads of the team that computed the sums, after a barrier. */
void trmi_splits_add(const trmi_gemm_isa *isa, float *sums, int64_t splits, int64_t count, void *to,
                     trm_dtype type);
/* Adds up splits that are 2^k parts of a tree: neighbours are added to each other. */
void trmi_splits_join(const trmi_gemm_isa *isa, float *sums, int64_t splits, int64_t count,
                      void *to, trm_dtype type);

#endif
