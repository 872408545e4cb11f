/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses Winograd's transforms for this CPU. */
#include "exec/cpu/conv/winograd_isa.h"

#include "base/cpu.h"

const trmi_winograd_isa *trmi_winograd(void) { return TRMI_CPU_CHOICE_OF_FOUR(&trmi_winograd); }
