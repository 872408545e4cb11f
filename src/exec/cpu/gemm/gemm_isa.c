/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the products for this CPU: the widest instruction set for float32, and pairs of bfloat16
 * where the CPU multiplies them. */
#include "exec/cpu/gemm/gemm_isa.h"

#include "base/cpu.h"

const trmi_gemm_isa *trmi_gemm(void) { return TRMI_CPU_CHOICE(&trmi_gemm); }

const trmi_gemm_isa *trmi_gemm_pairs(void) {
#if defined(__x86_64__)
    if (trmi_cpu()->avx512_bf16) {
        return &trmi_gemm_avx512bf16;
    }
#endif
    return NULL;
}
