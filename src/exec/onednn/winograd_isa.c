#include "exec/onednn/winograd_isa.h"

#include "base/cpu.h"

const trmi_winograd_isa *trmi_winograd(void) {
#if defined(__x86_64__)
    if (trmi_cpu()->avx512) {
        return &trmi_winograd_avx512;
    }
    if (trmi_cpu()->avx2) {
        return &trmi_winograd_avx2;
    }
#endif
    return &trmi_winograd_plain;
}
