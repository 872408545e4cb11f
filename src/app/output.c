/* SPDX-License-Identifier: Apache-2.0 */
/* All output of the program (contracts in output.h). A progress line without a newline may be
 * open on the terminal; every other output ends it first (end_status_line). JSON is written
 * directly, without a tree: `first_of_level` determines whether a comma precedes the next value. */
#include "app/output.h"

#include "app/flags.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

app_output app_out;

/* ---- begin and end --------------------------------------------------------------------------- */

/* Ends an open progress line. */
static void end_status_line(void) {
    if (app_out.line_open) {
        fputc('\n', stderr);
        app_out.line_open = false;
    }
}

/* Prints "trireme: LABEL: LINE" to stderr, in colour if app_out.color. */
static void labelled(const char *label, const char *escape, const char *line) {
    end_status_line();
    if (app_out.color) {
        fprintf(stderr, "trireme: \033[%sm%s:\033[0m %s\n", escape, label, line);
    } else {
        fprintf(stderr, "trireme: %s: %s\n", label, line);
    }
}

/* Prints the library's log: errors and warnings always, other lines with --verbose, and the
 * lines of a plan search, which can take minutes. */
static void log_sink(void *context, trm_log_level level, const char *room, const char *line) {
    (void)context;
    if (level == TRM_LOG_ERROR || level == TRM_LOG_WARN) {
        labelled(level == TRM_LOG_ERROR ? "error" : "warning", "1;33", line);
    } else if (app_out.verbose || strcmp(room, "plan") == 0 || strcmp(room, "ranks") == 0) {
        end_status_line();
        fprintf(stderr, "trireme: %s: %s\n", room, line);
    }
}

/* Contract in output.h. stdout gets a descriptor for reading, so that writing to it fails and
 * app_output_end reports it. */
void app_output_keep_streams(void) {
    static const int modes[] = {
        [STDIN_FILENO] = O_RDONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_WRONLY};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            (void)!open("/dev/null", modes[fd]); /* open returns the lowest free number: fd */
        }
    }
}

/* Contract in output.h. */
void app_output_begin(bool json, bool quiet, bool verbose, const char *color) {
    app_out.json = json;
    app_out.quiet = quiet;
    app_out.verbose = verbose;
    const char *term = getenv("TERM");
    const char *no_color = getenv("NO_COLOR");
    bool smart = isatty(STDERR_FILENO) && term != NULL && strcmp(term, "dumb") != 0;
    app_out.terminal = smart && !quiet && !json;
    app_out.color = strcmp(color, "always") == 0 || (strcmp(color, "auto") == 0 && smart &&
                                                     (no_color == NULL || *no_color == '\0'));
    trm_log_set_sink(log_sink, NULL,
                     verbose ? TRM_LOG_DEBUG
                     : quiet ? TRM_LOG_ERROR
                             : TRM_LOG_INFO);
}

/* Contract in output.h. Buffered output may fail only now. */
int app_output_end(int code) {
    end_status_line();
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "trireme: error: the standard output could not be written\n");
        return code == 0 ? 4 : code;
    }
    return code;
}

/* Contract in output.h. Results are muted by the stream, progress by the flag; warnings and
 * errors remain. */
trm_status app_output_mute(trm_error *err) {
    end_status_line();
    app_out.muted = true;
    app_out.terminal = false;
    fflush(stdout);
    return freopen("/dev/null", "w", stdout) != NULL
               ? TRM_OK
               : app_fail(err, TRM_IO, "/dev/null cannot be written");
}

/* ---- lines for people ------------------------------------------------------------------------ */

void app_print(const char *format, ...) {
    if (app_out.json) {
        return;
    }
    end_status_line();
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}

/* Prints to stderr. */
static void print_stderr(const char *format, va_list args) {
    end_status_line();
    vfprintf(stderr, format, args);
}

void app_print_failure(const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_stderr(format, args);
    va_end(args);
}

void app_print_progress(const char *format, ...) {
    if (app_out.quiet || app_out.json || app_out.muted) {
        return;
    }
    va_list args;
    va_start(args, format);
    print_stderr(format, args);
    va_end(args);
}

/* Contract in output.h. Returns to the start of the line and clears its rest. */
void app_status_line(const char *format, ...) {
    if (!app_out.terminal) {
        return;
    }
    va_list args;
    va_start(args, format);
    fputc('\r', stderr);
    vfprintf(stderr, format, args);
    fputs("\033[K", stderr);
    va_end(args);
    fflush(stderr);
    app_out.line_open = true;
}

/* Contract in output.h. With --quiet nothing; a muted rank still warns. */
void app_warn(const char *format, ...) {
    if (app_out.quiet) {
        return;
    }
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    labelled("warning", "1;33", line);
}

int app_report(const trm_error *err) {
    int code = trm_status_exit_code((trm_status)err->status);
    /* TRM_PENDING is no success: a rank table that is not yet complete */
    code = code == 0 ? 2 : code;
    labelled("error", "1;31", err->message);
    if (app_out.verbose && err->file[0] != '\0') {
        fprintf(stderr, "trireme: decided at %s:%d (%s)\n", err->file, (int)err->line,
                trm_status_name((trm_status)err->status));
    }
    app_json_open();
    app_json_text("event", "error");
    app_json_text("status", trm_status_name((trm_status)err->status));
    app_json_text("message", err->message);
    app_json_int("exit_code", code);
    app_json_close();
    return code;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static bool first_of_level = true;

/* Writes the comma before a value, if needed, and its key. */
static void comma_key(const char *key) {
    if (!first_of_level) {
        putchar(',');
    }
    first_of_level = false;
    if (key != NULL) {
        printf("\"%s\":", key);
    }
}

/* Returns the bytes of the UTF-8 sequence at `s`, 0 if it is not valid. */
static int utf8_length(const unsigned char *s) {
    int n = s[0] < 0x80                   ? 1
            : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
            : (s[0] & 0xF0) == 0xE0       ? 3
            : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                          : 0;
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    bool overlong = n == 3 && s[0] == 0xE0 && s[1] < 0xA0;
    bool surrogate = n == 3 && s[0] == 0xED && s[1] >= 0xA0;
    bool range = n == 4 && ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] >= 0x90));
    return overlong || surrogate || range ? 0 : n;
}

/* Writes a JSON string; a byte that is not UTF-8 becomes U+FFFD. */
static void put_string(const char *value) {
    const unsigned char *s = (const unsigned char *)value;
    putchar('"');
    while (*s != '\0') {
        int n = utf8_length(s);
        if (n == 0) {
            fputs("\\ufffd", stdout);
            n = 1;
        } else if (*s == '"' || *s == '\\') {
            printf("\\%c", *s);
        } else if (*s < 0x20) {
            printf("\\u%04x", *s);
        } else {
            fwrite(s, 1, (size_t)n, stdout);
        }
        s += n;
    }
    putchar('"');
}

/* Opens an object or an array. */
static void open_bracket(const char *key, char bracket) {
    if (app_out.json) {
        comma_key(key);
        putchar(bracket);
        first_of_level = true;
    }
}

static void close_bracket(char bracket) {
    if (app_out.json) {
        putchar(bracket);
        first_of_level = false;
    }
}

/* Contract in output.h. Flushed at once, so that a reader of the pipe sees each event when it
 * happens. */
void app_json_line(const char *object) {
    if (app_out.json) {
        end_status_line();
        fputs(object, stdout);
        putchar('\n');
        fflush(stdout);
    }
}

void app_json_open(void) {
    if (app_out.json) {
        end_status_line();
        putchar('{');
        first_of_level = true;
    }
}

void app_json_close(void) {
    if (app_out.json) {
        fputs("}\n", stdout);
        fflush(stdout);
    }
}

/* Contract in output.h. NULL becomes null. */
void app_json_text(const char *key, const char *value) {
    if (app_out.json) {
        comma_key(key);
        if (value == NULL) {
            fputs("null", stdout);
        } else {
            put_string(value);
        }
    }
}

void app_json_int(const char *key, int64_t value) {
    if (app_out.json) {
        comma_key(key);
        printf("%lld", (long long)value);
    }
}

/* Contract in output.h. NaN and infinity become null, because JSON has neither. */
void app_json_real(const char *key, double value) {
    if (app_out.json) {
        comma_key(key);
        if (isfinite(value)) {
            printf("%.9g", value);
        } else {
            fputs("null", stdout);
        }
    }
}

void app_json_bool(const char *key, bool value) {
    if (app_out.json) {
        comma_key(key);
        fputs(value ? "true" : "false", stdout);
    }
}

void app_json_raw(const char *key, const char *json) {
    if (app_out.json) {
        comma_key(key);
        fputs(json, stdout);
    }
}

void app_json_ids(const char *key, const int32_t *ids, int64_t count) {
    app_json_raw(key, "[");
    for (int64_t i = 0; app_out.json && i < count; i++) {
        printf("%s%d", i == 0 ? "" : ",", (int)ids[i]);
    }
    if (app_out.json) {
        putchar(']');
    }
}

void app_json_open_object(const char *key) { open_bracket(key, '{'); }
void app_json_close_object(void) { close_bracket('}'); }
void app_json_open_array(const char *key) { open_bracket(key, '['); }
void app_json_open_item(void) { open_bracket(NULL, '{'); }
void app_json_close_item(void) { close_bracket('}'); }
void app_json_close_array(void) { close_bracket(']'); }

/* ---- units ----------------------------------------------------------------------------------- */

/* Contract in output.h. Units are powers of 1000. */
const char *app_bytes(double bytes, char *text, size_t size) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    int u = 0;
    while (bytes >= 1000 && u < 4) {
        bytes /= 1000;
        u++;
    }
    snprintf(text, size, u == 0 ? "%.0f %s" : bytes < 10 ? "%.2f %s" : "%.1f %s", bytes, units[u]);
    return text;
}

const char *app_time(double seconds, char *text, size_t size) {
    long long s = (long long)(seconds + 0.5);
    if (s >= 3600) {
        snprintf(text, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    } else {
        snprintf(text, size, "%lld:%02lld", s / 60, s % 60);
    }
    return text;
}
