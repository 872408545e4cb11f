/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the lines of the launcher itself. The functions are in a file of their own, so that the
 * launcher's files can call them without calling each other. */
#include "comm/launch/launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Formats a line and passes it to the caller's `write`, if there is one. */
static void print_line(const trm_launch_options *options, trm_launch_stream stream,
                       const char *format, va_list args) {
    char line[1200];
    if (options->write != NULL) {
        vsnprintf(line, sizeof line, format, args);
        options->write(options->context, stream, line, strlen(line));
    }
}

void trmi_launch_print(const trm_launch_options *options, const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_line(options, TRM_LAUNCH_NOTE, format, args);
    va_end(args);
}

void trmi_launch_print_failure(const trm_launch_options *options, const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_line(options, TRM_LAUNCH_FAILURE, format, args);
    va_end(args);
}

void trmi_launch_print_result(const trm_launch_options *options, const trm_launch_result *result,
                              int stop_signal) {
    if (result->exit_code == 0) {
        trmi_launch_print(options, "training success");
    } else if (stop_signal != 0) {
        trmi_launch_print(options, "training stopped by signal %d (%s)", stop_signal,
                          strsignal(stop_signal));
    } else {
        trmi_launch_print_failure(options, "training failed");
    }
}
