/* SPDX-License-Identifier: Apache-2.0 */
/* Detects the instruction sets of this CPU by CPUID and applies TRIREME_ISA; asks for the
 * caches. */
#include "base/cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Bounds of what is taken as the size of a second-level cache; 0 and sizes beyond them are not
 * believed. */
enum { L2_LEAST = 256 << 10, L2_MOST = 2 << 20 };

static trmi_cpu_features features;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
/* Reads features, vendor, signature and name by CPUID. */
static void ask_x86(void) {
    __builtin_cpu_init();
    features.sse42 = __builtin_cpu_supports("sse4.2");
    features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    features.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    unsigned a, b, c, d;
    if (features.avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        features.avx512_bf16 = a >> 5 & 1;
    }
    if (features.avx512 && __get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        features.amx_bf16 = d >> 22 & 1;
    }
    /* Vendor ("AuthenticAMD" is in three registers, of which one is enough), family and model. */
    if (__get_cpuid(0, &a, &b, &c, &d)) {
        features.amd = b == signature_AMD_ebx;
    }
    if (__get_cpuid(1, &a, &b, &c, &d)) {
        features.signature = a;
    }
    /* The name of the CPU has three leaves of 16 bytes. */
    unsigned brand[12] = {0};
    for (unsigned i = 0; i < 3; i++) {
        __get_cpuid(0x80000002u + i, &brand[4 * i], &brand[4 * i + 1], &brand[4 * i + 2],
                    &brand[4 * i + 3]);
    }
    memcpy(features.model, brand, 48);
}
#endif

/* Reads the size of the second-level cache from the C library. */
static void measure_cache(void) {
    long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    features.l2_bytes = bytes <= 0         ? 512 << 10
                        : bytes < L2_LEAST ? L2_LEAST
                        : bytes > L2_MOST  ? L2_MOST
                                           : bytes;
}

/* Fills in the features; runs once. */
static void detect_features(void) {
    measure_cache();
#if defined(__x86_64__)
    ask_x86();
#endif
    if (features.model[0] == '\0') {
        snprintf(features.model, sizeof features.model, "unknown CPU");
    }
    /* the environment can only lower what the CPU has */
    const char *isa = getenv("TRIREME_ISA");
    if (isa == NULL) {
        return;
    }
    bool avx512_bf16 = strcmp(isa, "avx512_bf16") == 0;
    bool avx512 = avx512_bf16 || strcmp(isa, "avx512") == 0;
    bool avx2 = avx512 || strcmp(isa, "avx2") == 0;
    features.amx_bf16 = false;
    features.avx512_bf16 = features.avx512_bf16 && avx512_bf16;
    features.avx512 = features.avx512 && avx512;
    features.avx2 = features.avx2 && avx2;
    features.sse42 = features.sse42 && avx2;
}

const trmi_cpu_features *trmi_cpu(void) {
    pthread_once(&once, detect_features);
    return &features;
}
