/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings of descriptions of a cluster (warnings.h). */
#include "comm/cluster/warnings.h"

#include <stdarg.h>
#include <stdio.h>

void trmi_warnings_add(trmi_warnings *warnings, trmi_arena *arena, const char *format, ...) {
    char line[640];
    if (warnings->count == TRMI_WARNINGS_MAX) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const char *copy = trmi_arena_strdup(arena, line);
    if (copy != NULL) {
        warnings->lines[warnings->count++] = copy;
    }
}
