/* SPDX-License-Identifier: Apache-2.0 */
#define UPDATE_TABLE trmi_update_kernels_plain
#include "exec/optimizer/update_body.h"

#include "base/cpu.h"

const trmi_update_kernels *trmi_update_kernels_best(void) {
    return TRMI_CPU_CHOICE(&trmi_update_kernels);
}
