/* SPDX-License-Identifier: Apache-2.0 */
/* exec/measure/peak.h: the peak rates of this machine, measured by loops for this purpose. `bench
 * ops` compares kernels with them, so they are independent of the kernels.
 *
 *      arithmetic   multiply-adds on registers, no memory
 *      memory       four loops over working sets from cache size to main memory, because the limits
 * differ with the
 *                   mix of reads and writes: read sum(a), triad a = b + s c, copy a = b, write a =
 * 1
 *
 * trm_meter (trireme/exec.h) samples them repeatedly: clock and load of a shared machine change
 * within seconds, so the best of a few trials is not what operators could reach over seconds.
 */
#ifndef TRMI_EXEC_PEAK_H
#define TRMI_EXEC_PEAK_H

#include "trireme/exec.h"

/* One table per instruction set (peak_kernels.c). */
typedef struct trmi_peak_kernels {
    /* Runs `rounds` of the loop; returns its FLOPs. `sink` keeps the compiler from removing it. */
    double (*multiply_add)(int64_t rounds, float *sink);
    /* Run over one array (read: sum into a[0]; write), two (copy b to a) or three (triad), 64-byte
     * aligned, count a multiple of 16. [1]: with stores past the caches; NULL for read. */
    void (*memory[TRM_PEAK_MIXES][2])(float *a, const float *b, const float *c, int64_t count);
} trmi_peak_kernels;
extern const trmi_peak_kernels trmi_peak_plain;
#if defined(__x86_64__)
extern const trmi_peak_kernels trmi_peak_avx2, trmi_peak_avx512;
/* peak_avx512bf16.c: sums products of pairs of bfloat16; as multiply_add. */
double trmi_peak_pairs(int64_t rounds, float *sink);
#endif

/* Takes one sample of arithmetic, which does not touch the caches. */
void trmi_meter_sample_arithmetic(trm_meter *meter);

#endif
