#include "exec/onednn/gemm_isa.h"

#include "base/cpu.h"

const trmi_gemm_isa *trmi_gemm(void) {
#if defined(__x86_64__)
    if (trmi_cpu()->avx512) {
        return &trmi_gemm_avx512;
    }
    if (trmi_cpu()->avx2) {
        return &trmi_gemm_avx2;
    }
#endif
    return &trmi_gemm_plain;
}

const trmi_gemm_isa *trmi_gemm_pairs(void) {
#if defined(__x86_64__)
    if (trmi_cpu()->avx512_bf16) {
        return &trmi_gemm_avx512bf16;
    }
#endif
    return NULL;
}
