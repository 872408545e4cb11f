#include "exec/onednn/fuse_isa.h"

#include "base/cpu.h"

const trmi_fuse_isa *trmi_fuse(void) {
#if defined(__x86_64__)
    if (trmi_cpu()->avx512) {
        return &trmi_fuse_avx512;
    }
    if (trmi_cpu()->avx2) {
        return &trmi_fuse_avx2;
    }
#endif
    return &trmi_fuse_plain;
}
