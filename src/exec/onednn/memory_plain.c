#define MEMORY_TABLE trmi_memory_kernels_plain
#include "exec/onednn/memory_body.h"

#include "base/cpu.h"

const trmi_memory_kernels *trmi_memory_kernels_best(void) {
#if defined(__x86_64__)
    if (trmi_cpu()->avx512_bf16) {
        return &trmi_memory_kernels_avx512bf16;
    }
#endif
    return TRMI_CPU_CHOICE(&trmi_memory_kernels);
}
