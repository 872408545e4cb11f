/* exec/peak.h: what this machine reaches, measured by loops that do nothing else: the yardstick of `bench ops`,
 * independent of the kernels that it judges.
 *
 *      arithmetic   multiply-adds on registers, no memory
 *      memory       triad a = b + s c over working sets from the caches' size to memory's
 *
 * trm_machine (trireme/exec.h) runs them, again and again: a shared machine's clock and its neighbours change within
 * seconds, so that the best of a few trials is not what operators that run for seconds could have had. */
#ifndef TRMI_EXEC_PEAK_H
#define TRMI_EXEC_PEAK_H

#include "trireme/exec.h"

/* One table per instruction set (peak_body.h). */
typedef struct trmi_peak_kernels {
    /* Runs `rounds` of the loop; returns its flops. `sink` keeps the compiler from dropping it. */
    double (*multiply_add)(int64_t rounds, float *sink);
    void (*triad)(float *a, const float *b, const float *c, int64_t count);
    /* The same with a stored past the caches; all 64-byte aligned, count in multiples of 16. */
    void (*triad_stream)(float *a, const float *b, const float *c, int64_t count);
} trmi_peak_kernels;
extern const trmi_peak_kernels trmi_peak_plain;
#if defined(__x86_64__)
extern const trmi_peak_kernels trmi_peak_avx2, trmi_peak_avx512;
/* peak_avx512bf16.c: sums of products of pairs of bfloat16; as multiply_add. */
double trmi_peak_pairs(int64_t rounds, float *sink);
#endif

/* The loops on registers once: they leave the caches alone. */
void trmi_machine_sample_arithmetic(trm_machine *machine);

#endif
