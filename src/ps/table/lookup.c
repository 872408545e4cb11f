/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the lookup for this CPU. */
#include "ps/table/lookup.h"

#include "base/cpu.h"

const trmi_lookup *trmi_lookup_here(void) { return TRMI_CPU_CHOICE(&trmi_lookup); }
