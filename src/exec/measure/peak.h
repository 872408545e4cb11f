/* SPDX-License-Identifier: Apache-2.0 */
/* exec/measure/peak.h: what this machine reaches, measured by loops that do nothing else: the
 * yardstick of `bench ops`, independent of the kernels that it judges.
 *
 *      arithmetic   multiply-adds on registers, no memory
 *      memory       four loops over working sets from the caches' size to memory's, because what reads more than it
 *                   writes meets other limits than what copies: read sum(a), triad a = b + s c,
 *                   copy a = b, write a = 1
 *
 * trm_meter (trireme/exec.h) runs them, again and again: a shared machine's clock and its
 * neighbours change within seconds, so that the best of a few trials is not what operators that run
 * for seconds could have had.
 */
#ifndef TRMI_EXEC_PEAK_H
#define TRMI_EXEC_PEAK_H

#include "trireme/exec.h"

/* One table per instruction set (peak_body.h). */
typedef struct trmi_peak_kernels {
    /* Runs `rounds` of the loop; returns its flops. `sink` keeps the compiler from dropping it. */
    double (*multiply_add)(int64_t rounds, float *sink);
    /* Over one array (read: its sum into a[0]; write), two (copy b to a) or three (triad); 64-byte
     * aligned, count in multiples of 16. The second of each with a stored past the caches, NULL
     * where nothing is. */
    void (*memory[TRM_PEAK_MIXES][2])(float *a, const float *b, const float *c, int64_t count);
} trmi_peak_kernels;
extern const trmi_peak_kernels trmi_peak_plain;
#if defined(__x86_64__)
extern const trmi_peak_kernels trmi_peak_avx2, trmi_peak_avx512;
/* peak_avx512bf16.c: sums of products of pairs of bfloat16; as multiply_add. */
double trmi_peak_pairs(int64_t rounds, float *sink);
#endif

/* The loops on registers once: they leave the caches alone. */
void trmi_meter_sample_arithmetic(trm_meter *machine);

#endif
