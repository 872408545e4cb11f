/* SPDX-License-Identifier: Apache-2.0 */
/* app/output.h: how the program speaks. Results go to stdout, progress and log lines to stderr;
 * with --json stdout carries one object a line and nothing else. */
#ifndef TRIREME_APP_OUTPUT_H
#define TRIREME_APP_OUTPUT_H

#include "trireme/base.h"

typedef struct app_output {
    bool json, quiet, verbose;
    bool color;     /* of stderr */
    bool terminal;  /* stderr is one: progress is one line that is refreshed */
    bool muted;     /* app_output_mute */
    bool line_open; /* such a line is on the screen */
} app_output;

extern app_output app_out;

/* First of all: standard streams that are closed become ones of nothing, or a file or socket of
 * ours would be one and take what is printed. What goes to a closed stdout is missed by
 * app_output_end. */
void app_output_keep_streams(void);
/* Sets app_out and the library's log sink. `color` is auto, always or never. */
void app_output_begin(bool json, bool quiet, bool verbose, const char *color);
/* The exit code, or 4 when stdout could not be written. */
int app_output_end(int code);

/* From here on this process prints errors and warnings only: another one says the same on the same console.   error IO
 */
TRM_MUST_USE trm_status app_output_mute(trm_error *err);

/* A result, for people: stdout, nothing with --json. */
void app_say(const char *format, ...) TRM_PRINTF(1, 2);
/* Progress and remarks: stderr, nothing with --quiet or --json. */
void app_note(const char *format, ...) TRM_PRINTF(1, 2);
void app_blame(const char *format, ...) TRM_PRINTF(1, 2); /* of a job that fails: always told */
/* The refreshed line of a terminal (nothing elsewhere); the next output of any kind ends it. */
void app_status_line(const char *format, ...) TRM_PRINTF(1, 2);
/* "trireme: error: ..." on stderr, and {"event":"error",...} with --json. Returns the exit code. */
int app_report(const trm_error *err);
void app_warn(const char *format, ...) TRM_PRINTF(1, 2);

/* A whole object that somebody else wrote, on its line. */
void app_json_line(const char *object);
/* One JSON object on a line of stdout; silent without --json. Between open and close any of the
 * others; reals have 9 significant digits. */
void app_json_open(void);
void app_json_text(const char *key, const char *value);
void app_json_int(const char *key, int64_t value);
void app_json_real(const char *key, double value);
void app_json_bool(const char *key, bool value);
void app_json_raw(const char *key, const char *json);
void app_json_close(void);
/* Nested: {"key":{ ... } and {"key":[{ ... },{ ... }] */
void app_json_open_object(const char *key);
void app_json_close_object(void);
void app_json_open_array(const char *key);
void app_json_open_item(void);
void app_json_close_item(void);
void app_json_close_array(void);

/* "1.53 GB", "12.3 MB"; "1:02:03"; both into `text`. */
const char *app_bytes(double bytes, char *text, size_t size);
const char *app_time(double seconds, char *text, size_t size);

#endif
