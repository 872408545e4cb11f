/* SPDX-License-Identifier: Apache-2.0 */
/* The log sink of the process. Set it before threads start: it is not locked. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

/* Is the sink until the program sets another: warnings and errors go to stderr. */
static void print_line(void *context, trm_log_level level, const char *room, const char *line) {
    (void)context;
    fprintf(stderr, "trireme: %s: %s: %s\n", level == TRM_LOG_ERROR ? "error" : "warning", room,
            line);
}

static struct {
    trm_log_sink sink;
    void *context;
    trm_log_level most_verbose;
} log_state = {.sink = print_line, .most_verbose = TRM_LOG_WARN};

void trm_log_set_sink(trm_log_sink sink, void *context, trm_log_level most_verbose) {
    log_state.sink = sink;
    log_state.context = context;
    log_state.most_verbose = most_verbose;
}

/* Contract in log.h. Lines that the sink does not want are not formatted. */
void trmi_log(trm_log_level level, const char *room, const char *format, ...) {
    if (log_state.sink == NULL || level > log_state.most_verbose) {
        return;
    }
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log_state.sink(log_state.context, level, room, line);
}
