#define UPDATE_TABLE trmi_update_kernels_plain
#include "exec/update_body.h"

#include "base/cpu.h"

const trmi_update_kernels *trmi_update_kernels_best(void) {
#if defined(__x86_64__)
    if (trmi_cpu()->avx512) {
        return &trmi_update_kernels_avx512;
    }
    if (trmi_cpu()->avx2) {
        return &trmi_update_kernels_avx2;
    }
#endif
    return &trmi_update_kernels_plain;
}
