/* exec/peak.h: what this machine reaches at best, measured by loops that do nothing else: the yardstick
 * of `bench ops`, independent of the kernels that it judges.
 *
 *      arithmetic   multiply-adds on registers, no memory
 *      memory       triad a = b + s c over working sets from the caches' size to memory's
 *
 * trm_machine_measure (trireme/exec.h) runs them. */
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

#endif
