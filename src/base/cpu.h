/* SPDX-License-Identifier: Apache-2.0 */
/* base/cpu.h: instruction sets and caches of this CPU, detected once.
 * TRIREME_ISA=plain|avx2|avx512|avx512_bf16 lowers them; it is read once and exists for tests of
 * the fallbacks only. */
#ifndef TRMI_BASE_CPU_H
#define TRMI_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* Features of this CPU; those of instructions are false on CPUs other than x86-64. */
typedef struct trmi_cpu_features {
    bool sse42;
    bool avx2;        /* with FMA and F16C */
    bool avx512;      /* F, BW, DQ, VL */
    bool avx512_bf16; /* dot product of bf16 pairs */
    bool amx_bf16;
    /* AMD: its first-level cache supports as many outstanding misses as the second-level cache */
    bool amd;
    /* of the second-level cache, between 256 KB and 2 MB: 512 KB where it is unknown */
    int64_t l2_bytes;
    char model[64]; /* "Intel(R) Xeon(R) Processor" */
    /* family, model, stepping (x86: CPUID 1, EAX), because different CPUs can have one name; 0 =
     * unknown */
    unsigned signature;
} trmi_cpu_features;

/* Returns the features; detects them in the first call. Thread-safe; static memory. */
const trmi_cpu_features *trmi_cpu(void);

/* Selects the widest of the three versions of a kernel that this CPU runs. `name` precedes _avx512,
 * _avx2 and _plain: a function, or the address of a table (TRMI_CPU_CHOICE(&trmi_reduce)). */
#if defined(__x86_64__)
#define TRMI_CPU_CHOICE(name)                                                                      \
    (trmi_cpu()->avx512 ? name##_avx512 : trmi_cpu()->avx2 ? name##_avx2 : name##_plain)
/* Selects among four versions: the fourth, _avx512bf16, uses bfloat16 instructions. */
#define TRMI_CPU_CHOICE_OF_FOUR(name)                                                              \
    (trmi_cpu()->avx512_bf16 ? name##_avx512bf16 : TRMI_CPU_CHOICE(name))
#else
#define TRMI_CPU_CHOICE(name) name##_plain
#define TRMI_CPU_CHOICE_OF_FOUR(name) name##_plain
#endif

#endif
