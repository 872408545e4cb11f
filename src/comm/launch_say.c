/* A line of the launcher itself. Apart, so that the launcher's files can call it without calling each other. */
#include "comm/launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void trmi_launch_say(const trmi_launch *launch, const char *format, ...) {
    char line[1024];
    if (launch->options->write == NULL) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    launch->options->write(launch->options->context, TRM_LAUNCH_SAY, line, strlen(line));
}
