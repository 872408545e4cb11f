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
    char model[64]; /* "Intel(R) Xeon(R) Processor" */
    unsigned signature; /* family, model, stepping (x86: CPUID 1, EAX): names alone may be shared; 0 = unknown */
} trmi_cpu_features;

const trmi_cpu_features *trmi_cpu(void);

#endif
