/* SPDX-License-Identifier: Apache-2.0 */
/* app/output/output.h: all output of the program. Results go to stdout; progress and log lines go
 * to stderr. With --json, stdout has one JSON object per line and nothing else. What people and
 * programs both read is a report (values.h); this header has the lines beside it. */
#ifndef TRIREME_APP_OUTPUT_H
#define TRIREME_APP_OUTPUT_H

#include "trireme/base.h"

#include "app/output/values.h"

/* The settings of the output, and its state. */
typedef struct app_output {
    bool json, quiet, verbose;
    bool color;     /* stderr is coloured */
    bool terminal;  /* stderr is a terminal: progress is one line that is refreshed */
    bool muted;     /* app_output_mute */
    int console;    /* muted: descriptor of the stdout that it had; else 0 */
    bool line_open; /* a progress line is on the screen, without a newline */
} app_output;

extern app_output app_out;

/* Opens /dev/null for each standard stream that is closed; otherwise a file or socket of the
 * program could get its number and receive the output. Must be called before anything is opened.
 * app_output_end reports an error if stdout was closed. */
void app_output_keep_streams(void);
/* Sets app_out and the library's log sink. `color` is auto, always or never. */
void app_output_begin(bool json, bool quiet, bool verbose, const char *color);
/* Flushes stdout. Returns `code`, or 4 if stdout could not be written. */
int app_output_end(int code);

/* Limits this process to errors and warnings from now on: another rank prints the same lines to
 * the same console.
 *   errors  IO */
TRM_MUST_USE trm_status app_output_mute(trm_error *err);

/* Makes this process the one whose output is shown, after the rank before it has died: ends
 * app_output_mute, or takes the console that the launcher has passed on (TRIREME_CONSOLE). */
void app_output_show(void);

/* Prints a result for people to stdout; nothing with --json. */
void app_print(const char *format, ...) TRM_PRINTF(1, 2);
/* Prints progress and remarks to stderr; nothing with --quiet or --json, or in a muted process. */
void app_print_progress(const char *format, ...) TRM_PRINTF(1, 2);
void app_print_failure(const char *format, ...)
    TRM_PRINTF(1, 2); /* like app_print_progress, even with --quiet: the cause of a failed job */
/* Refreshes the progress line of a terminal; elsewhere it prints nothing. The next output of any
 * kind ends the line. */
void app_status_line(const char *format, ...) TRM_PRINTF(1, 2);
/* Ends an open progress line; printing to the terminal begins with it. */
void app_end_status_line(void);
/* Prints "trireme: LABEL: LINE" to stderr, the label in the colour `escape` if app_out.color. */
void app_print_label(const char *label, const char *escape, const char *line);
void app_warn(const char *format, ...) TRM_PRINTF(1, 2);

/* Format bytes ("1.53 GB", "12.3 MB") and seconds ("1:02:03") into `text` and return it. */
const char *app_bytes(double bytes, char *text, size_t size);
const char *app_time(double seconds, char *text, size_t size);

#endif
