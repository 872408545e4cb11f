/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cluster/warnings.h: what is unusual in a description of a cluster, but not wrong: one
 * sentence each, in the arena of the description. */
#ifndef TRMI_COMM_WARNINGS_H
#define TRMI_COMM_WARNINGS_H

#include "base/memory.h"

enum { TRMI_WARNINGS_MAX = 16 }; /* that are kept */

/* The warnings of one source. */
typedef struct trmi_warnings {
    const char *lines[TRMI_WARNINGS_MAX];
    int32_t count;
} trmi_warnings;

/* Adds a warning, unless there is no more room or memory. */
void trmi_warnings_add(trmi_warnings *warnings, trmi_arena *arena, const char *format, ...)
    TRM_PRINTF(3, 4);

#endif
