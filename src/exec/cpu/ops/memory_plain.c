/* SPDX-License-Identifier: Apache-2.0 */
#define MEMORY_TABLE trmi_memory_kernels_plain
#include "exec/cpu/ops/memory_body.h"

#include "base/cpu.h"

const trmi_memory_kernels *trmi_memory_kernels_best(void) {
    return TRMI_CPU_CHOICE_OF_FOUR(&trmi_memory_kernels);
}
