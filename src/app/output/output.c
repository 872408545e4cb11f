/* SPDX-License-Identifier: Apache-2.0 */
/* All output of the program (contracts in output.h). A progress line without a newline may be open
 * on the terminal; every other output ends it first (app_end_status_line).
 *
 *   results   stdout; with --json one object a line
 *   progress  stderr; nothing with --quiet, and in ranks that are muted
 *   warnings  stderr, always
 *
 * Of a job whose ranks share one console only the first rank shows results and progress
 * (app_output_mute); an elastic job whose first rank dies shows those of the next one
 * (app_output_show). Errors of writing to stdout are found at the end and become exit code 4. */
#include "app/output/output.h"

#include "app/options/flags.h"
#include "app/output/record.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

app_output app_out;

/* ---- begin and end --------------------------------------------------------------------------- */

void app_end_status_line(void) {
    if (app_out.line_open) {
        fputc('\n', stderr);
        app_out.line_open = false;
    }
}

/* Contract in output.h. */
void app_print_label(const char *label, const char *escape, const char *line) {
    app_end_status_line();
    if (app_out.color) {
        fprintf(stderr, "trireme: \033[%sm%s:\033[0m %s\n", escape, label, line);
    } else {
        fprintf(stderr, "trireme: %s: %s\n", label, line);
    }
}

/* Prints the library's log: errors and warnings always, other lines with --verbose, and the
 * lines of a plan search, which can take minutes. The record of the run has all of them. */
static void log_sink(void *context, trm_log_level level, const char *room, const char *line) {
    (void)context;
    app_record_log(level == TRM_LOG_ERROR  ? "error"
                   : level == TRM_LOG_WARN ? "warning"
                   : level == TRM_LOG_INFO ? "info"
                                           : "debug",
                   room, line);
    if (level == TRM_LOG_ERROR || level == TRM_LOG_WARN) {
        app_print_label(level == TRM_LOG_ERROR ? "error" : "warning", "1;33", line);
    } else if (app_out.verbose || strcmp(room, "plan") == 0 || strcmp(room, "ranks") == 0) {
        app_end_status_line();
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
    app_end_status_line();
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "trireme: error: the standard output could not be written\n");
        return code == 0 ? 4 : code;
    }
    return code;
}

/* Contract in output.h. Results are muted by the stream, progress by the flag; warnings and
 * errors remain. */
trm_status app_output_mute(trm_error *err) {
    app_end_status_line();
    app_out.muted = true;
    app_out.terminal = false;
    app_out.console = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    fflush(stdout);
    return freopen("/dev/null", "w", stdout) != NULL
               ? TRM_OK
               : app_fail(err, TRM_IO, "/dev/null cannot be written");
}

/* Contract in output.h. A muted rank shows its output where it would have, another one where its
 * launcher shows that of rank 0. */
void app_output_show(void) {
    int out = app_out.console, err = -1;
    const char *given = getenv("TRIREME_CONSOLE");
    if (out <= 0 && (given == NULL || sscanf(given, "%d,%d", &out, &err) != 2)) {
        return;
    }
    app_end_status_line();
    fflush(stdout);
    fflush(stderr);
    (void)!dup2(out, STDOUT_FILENO);
    if (err > STDERR_FILENO) {
        (void)!dup2(err, STDERR_FILENO);
    }
    app_out.muted = false;
    app_out.console = 0;
    unsetenv("TRIREME_CONSOLE");
}

/* ---- lines for people ------------------------------------------------------------------------ */

void app_print(const char *format, ...) {
    if (app_out.json) {
        return;
    }
    app_end_status_line();
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}

/* Prints to stderr. */
static void print_stderr(const char *format, va_list args) {
    app_end_status_line();
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
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    app_record_log("warning", "app", line);
    if (app_out.quiet) {
        return;
    }
    app_print_label("warning", "1;33", line);
}

/* ---- units ----------------------------------------------------------------------------------- */

/* Contract in output.h. Units are powers of 1000. */
const char *app_bytes(double bytes, char *text, size_t size) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    int u = 0;
    while (bytes >= 1000 && u < 5) {
        bytes /= 1000;
        u++;
    }
    snprintf(text, size,
             u == 0         ? "%.0f %s"
             : bytes < 10   ? "%.2f %s"
             : bytes < 1000 ? "%.1f %s"
                            : "%.3g %s",
             bytes, units[u]);
    return text;
}

const char *app_time(double seconds, char *text, size_t size) {
    long long s = seconds >= 0 && seconds < 1e15 ? (long long)(seconds + 0.5) : 0;
    if (s >= 3600) {
        snprintf(text, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    } else {
        snprintf(text, size, "%lld:%02lld", s / 60, s % 60);
    }
    return text;
}
