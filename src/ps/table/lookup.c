/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/table/lookup_loop.h"

#include "base/cpu.h"

#define LOOKUP trmi_lookup_plain
#include "ps/table/lookup_find.h"

const trmi_lookup *trmi_lookup_here(void) { return TRMI_CPU_CHOICE(&trmi_lookup); }
