/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/splits.h: sums that threads made apart become one.
 *
 *      split   0   1   2   3 | 4   5   6   7        by the first half of the threads | by the second
 *              \___\___\___\___/___/___/___/        first each half's own, where they were made
 *                        0 + 4                      then each thread a part of both
 *
 * so that one sum of each half passes from one CPU's cache to another's. Which sums are added first
 * depends on their number only.
 */
#ifndef TRMI_EXEC_ONEDNN_SPLITS_H
#define TRMI_EXEC_ONEDNN_SPLITS_H

#include "exec/cpu/gemm/gemm_isa.h"

/* to[i] = sum over s of sums[s * count + i], as `type`, FLOAT32 or BFLOAT16; `sums` are
 * overwritten. By all threads of a team, who have made them before. */
void trmi_splits_add(const trmi_gemm_isa *isa, float *sums, int64_t splits, int64_t count, void *to,
                     trm_dtype type);
/* The same where splits are 2^k parts of a tree: neighbours are added to each other. */
void trmi_splits_join(const trmi_gemm_isa *isa, float *sums, int64_t splits, int64_t count,
                      void *to, trm_dtype type);

#endif
