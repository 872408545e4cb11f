/* SPDX-License-Identifier: Apache-2.0 */
/* base/cpu.h: what this CPU can do, asked once. TRIREME_ISA=plain|avx2|avx512|avx512_bf16 lowers it
 * (read once, for tests of the fallbacks only: the one environment variable below app). */
#ifndef TRMI_BASE_CPU_H
#define TRMI_BASE_CPU_H

#include <stdbool.h>

typedef struct trmi_cpu_features {
    bool sse42;
    bool avx2;        /* with FMA and F16C */
    bool avx512;      /* F, BW, DQ, VL */
    bool avx512_bf16; /* dot product of bf16 pairs */
    bool amx_bf16;
    bool amd;       /* whose first-level cache waits for as many lines as its second */
    char model[64]; /* "Intel(R) Xeon(R) Processor" */
    /* family, model, stepping (x86: CPUID 1, EAX): names alone may be shared; 0 = unknown */
    unsigned signature;
} trmi_cpu_features;

const trmi_cpu_features *trmi_cpu(void);

/* The widest of the three bodies of a kernel that this CPU runs. `name` is what precedes _avx512,
 * _avx2 and _plain: a function, or a table's address (TRMI_CPU_CHOICE(&trmi_reduce)). */
#if defined(__x86_64__)
#define TRMI_CPU_CHOICE(name)                                                                      \
    (trmi_cpu()->avx512 ? name##_avx512 : trmi_cpu()->avx2 ? name##_avx2 : name##_plain)
/* The same of kernels that have a fourth body, for what rounds to bfloat16. */
#define TRMI_CPU_CHOICE_OF_FOUR(name)                                                              \
    (trmi_cpu()->avx512_bf16 ? name##_avx512bf16 : TRMI_CPU_CHOICE(name))
#else
#define TRMI_CPU_CHOICE(name) name##_plain
#define TRMI_CPU_CHOICE_OF_FOUR(name) name##_plain
#endif

#endif
