/* SPDX-License-Identifier: Apache-2.0 */
/* top: the newest state of a training, in the terminal, from its record (run.h).
 *
 *      each second: app_run_read --> a screen of lines --> one write
 *
 * On a terminal the screen is an alternate one without a cursor, which the end restores, also after
 * SIGINT and SIGTERM; keys are read without waiting for a line. Elsewhere, and with --once, the
 * same lines are printed once. */
#include "app/app.h"
#include "app/output/run.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* Size of the screen, in characters. */
typedef struct screen {
    int columns, rows;
} screen;

/* ---- the curve ------------------------------------------------------------------------------- */

/* Rows of the drawn curve, and points of it, at most. */
enum { CURVE_ROWS = 6, CURVE_MOST = 400 };

/* Writes the loss as a curve of block characters: `columns` wide, each column the mean of its
 * steps. */
static void put_curve(FILE *to, const app_run *run, int columns) {
    static const char *const blocks[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588"};
    double means[CURVE_MOST], low = INFINITY, high = -INFINITY;
    int64_t points = run->point_count;
    int wide = columns < CURVE_MOST ? columns : CURVE_MOST;
    int count = points < wide ? (int)points : wide;
    /* Compute each column's mean, and their range; steps without a loss do not count. */
    for (int c = 0; c < count; c++) {
        double sum = 0;
        int64_t begin = points * c / count, end = points * (c + 1) / count, known = 0;
        for (int64_t i = begin; i < end; i++) {
            double loss = run->points[i][APP_CURVE_LOSS];
            sum += isfinite(loss) ? loss : 0;
            known += isfinite(loss);
        }
        means[c] = known > 0 ? sum / (double)known : NAN;
        low = fmin(low, means[c]);
        high = fmax(high, means[c]);
    }
    if (count < 2 || !isfinite(low)) {
        return;
    }
    double range = high > low ? high - low : 1;
    /* Each character has eight heights: a column fills whole characters up to its mean. */
    for (int row = CURVE_ROWS - 1; row >= 0; row--) {
        char label[16] = "";
        if (row == CURVE_ROWS - 1 || row == 0) {
            snprintf(label, sizeof label, "%.4g", row == 0 ? low : high);
        }
        fprintf(to, "  %9s \u2502", label);
        for (int c = 0; c < count; c++) {
            double height = (means[c] - low) / range * (CURVE_ROWS * 8 - 1) + 1 - row * 8;
            int block = isnan(height) || height < 0 ? 0 : height > 8 ? 8 : (int)height;
            fputs(blocks[block], to);
        }
        fputc('\n', to);
    }
    fprintf(to, "  %9s  step %.0f to %.0f\n", "loss", run->points[0][APP_CURVE_STEP],
            run->points[points - 1][APP_CURVE_STEP]);
}

/* Writes a bar of progress and the time that is left. */
static void put_progress(FILE *to, const json_t *run, int columns) {
    double step = json_number_value(json_object_get(run, "global_step"));
    double goal = json_number_value(json_object_get(run, "goal_steps"));
    double step_seconds = json_number_value(json_object_get(run, "step_seconds"));
    bool training = strcmp(json_string_value(json_object_get(run, "state")), "training") == 0;
    char left[32];
    int wide = columns > 70 ? 40 : columns > 50 ? columns - 40 : 10;
    fprintf(to, "step %.0f", step);
    if (goal > 0) {
        double part = fmin(step / goal, 1);
        fprintf(to, " of %.0f  ", goal);
        for (int i = 0; i < wide; i++) {
            fputs(i < (int)(part * wide + 0.5) ? "\u2588" : "\u2591", to);
        }
        fprintf(to, " %.0f %%", 100 * part);
        if (training && step_seconds > 0 && goal > step) {
            fprintf(to, ", %s left", app_time((goal - step) * step_seconds, left, sizeof left));
        }
    }
    fputc('\n', to);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Writes a value of the newest step with what stands around it; nothing if the step has none. */
static void put_value(FILE *to, const char *before, double value, const char *format,
                      const char *after) {
    if (isfinite(value)) {
        fputs(before, to);
        fprintf(to, format, value);
        fputs(after, to);
    }
}

/* Writes the values of the newest step that its line has. */
static void put_newest(FILE *to, const app_run *run, const json_t *report) {
    char memory[32], unit[80];
    const double *p = run->points[run->point_count - 1];
    double whole = p[APP_CURVE_STEP_SECONDS] + p[APP_CURVE_DATA_WAIT];
    const json_t *least = json_object_get(report, "least_loss");
    put_value(to, "loss ", p[APP_CURVE_LOSS], "%.6g", "");
    put_value(to, " (least ", json_is_number(least) ? json_number_value(least) : NAN, "%.6g", ")");
    put_value(to, "   learning rate ", p[APP_CURVE_LEARNING_RATE], "%.4g", "");
    snprintf(unit, sizeof unit, " %.60s/s", json_string_value(json_object_get(report, "unit")));
    put_value(to, "   ", p[APP_CURVE_RATE], "%.4g", unit);
    put_value(to, "   ", 1e3 * p[APP_CURVE_STEP_SECONDS], "%.1f", " ms a step");
    fputc('\n', to);
    if (whole > 0) {
        put_value(to, "waiting: data ", 100 * p[APP_CURVE_DATA_WAIT] / whole, "%.1f", " %");
        put_value(to, ", other ranks ", 100 * p[APP_CURVE_RANK_WAIT] / whole, "%.1f", " %");
        if (isfinite(p[APP_CURVE_PEAK_BYTES])) {
            fprintf(to, "   peak memory %s",
                    app_bytes(p[APP_CURVE_PEAK_BYTES], memory, sizeof memory));
        }
        fputc('\n', to);
    }
}

/* Writes the newest evaluation and checkpoint. */
static void put_saved(FILE *to, const json_t *report) {
    const json_t *evaluations = json_object_get(report, "evaluations"), *value;
    const json_t *checkpoints = json_object_get(report, "checkpoints");
    json_t *evaluation = json_array_get(evaluations, json_array_size(evaluations) - 1);
    const json_t *checkpoint = json_array_get(checkpoints, json_array_size(checkpoints) - 1);
    const char *key;
    if (evaluation != NULL) {
        fprintf(to, "evaluation at step %.0f:",
                json_number_value(json_object_get(evaluation, "global_step")));
        json_object_foreach(evaluation, key, value) {
            if (json_is_real(value) && strcmp(key, "seconds") != 0) {
                fprintf(to, " %s %.6g", key, json_real_value(value));
            }
        }
        fputc('\n', to);
    }
    if (checkpoint != NULL) {
        fprintf(to, "checkpoint at step %.0f: %s\n",
                json_number_value(json_object_get(checkpoint, "global_step")),
                json_string_value(json_object_get(checkpoint, "path")));
    }
}

/* Writes a text in at most `columns`. */
static void put_text(FILE *to, const char *text, int columns) {
    for (int used = 0; *text != '\0' && used <= columns; text++) {
        used += ((unsigned char)*text & 0xC0) != 0x80; /* of UTF-8 the first byte of a character */
        if (used <= columns) {
            fputc(*text, to);
        }
    }
    fputc('\n', to);
}

/* Writes the other processes, then the newest events, in at most `rows` lines. */
static void put_processes(FILE *to, const json_t *report, screen size, int rows) {
    const json_t *roles = json_object_get(report, "roles"),
                 *events = json_object_get(report, "events");
    const json_t *role, *event;
    char line[600], at[32];
    size_t i, count = json_array_size(events);
    json_array_foreach(roles, i, role) {
        if (json_array_size(roles) > 1 && rows-- > 4) {
            const json_t *data = json_object_get(role, "data_wait_fraction");
            int length = snprintf(
                line, sizeof line, "  %-14s %-9s last line after %s",
                json_string_value(json_object_get(role, "who")),
                json_string_value(json_object_get(role, "state")),
                app_time(json_number_value(json_object_get(role, "last_seconds")), at, sizeof at));
            if (json_is_real(data)) {
                snprintf(line + length, sizeof line - (size_t)length,
                         ", waiting: data %.1f %%, other ranks %.1f %%",
                         100 * json_real_value(data),
                         100 * json_number_value(json_object_get(role, "rank_wait_fraction")));
            }
            put_text(to, line, size.columns);
        }
    }
    /* the rows that are left are for the newest events */
    size_t shown = rows > 0 && (size_t)rows < count ? (size_t)rows : rows > 0 ? count : 0;
    for (i = count - shown; i < count; i++) {
        event = json_array_get(events, i);
        const char *who = json_string_value(json_object_get(event, "who"));
        snprintf(line, sizeof line, "  %8s %s%s%s",
                 app_time(json_number_value(json_object_get(event, "seconds")), at, sizeof at), who,
                 *who != '\0' ? ": " : "", json_string_value(json_object_get(event, "text")));
        put_text(to, line, size.columns);
    }
}

/* Writes the whole screen. */
static void put_screen(FILE *to, const app_run *run, screen size) {
    json_t *made = app_run_json((app_run *const[]){(app_run *)run}, 1), *problem;
    json_t *report = app_run_plain(made);
    json_decref(made);
    const json_t *r = json_array_get(json_object_get(report, "runs"), 0);
    char line[600], at[32];
    size_t i;
    const char *model = json_string_value(json_object_get(r, "model"));
    const json_t *seconds = json_object_get(r, "seconds");
    snprintf(line, sizeof line, "%s: %s, %s%s%s", json_string_value(json_object_get(r, "name")),
             model != NULL ? model : "unknown model",
             json_string_value(json_object_get(r, "state")), json_is_number(seconds) ? ", " : "",
             json_is_number(seconds) ? app_time(json_number_value(seconds), at, sizeof at) : "");
    put_text(to, line, size.columns);
    json_array_foreach(json_object_get(r, "problems"), i, problem) {
        put_text(to, json_string_value(problem), size.columns);
    }
    if (run->point_count > 0) {
        put_progress(to, r, size.columns);
        put_newest(to, run, r);
        put_curve(to, run, size.columns - 14);
    }
    put_saved(to, r);
    put_processes(to, r, size, size.rows - 16);
    json_decref(report);
}

/* ---- the terminal ---------------------------------------------------------------------------- */

static volatile sig_atomic_t ended;
/* Handles SIGINT and SIGTERM: only notes them, so that the loop restores the terminal. */
static void note_end(int signal_number) { ended = signal_number; }

/* Returns the size of the terminal, 80 x 24 where it is not known. */
static screen size_of_screen(void) {
    struct winsize w;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 && w.ws_row > 0
               ? (screen){w.ws_col, w.ws_row}
               : (screen){80, 24};
}

/* Waits a second for a key. Returns whether it ends the command. */
static bool wait_for_end(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char key;
    if (poll(&input, 1, 1000) > 0) {
        ssize_t got = read(STDIN_FILENO, &key, 1);
        if (got == 0) { /* no keys come from there: only signals end */
            poll(NULL, 0, 1000);
        }
        return got == 1 && (key == 'q' || key == 'Q' || key == 3);
    }
    return false;
}

/* Shows one screen; lines that are too long or too many are cut by the terminal's own rules, which
 * are switched off for line breaks. */
static trm_status show_screen(app_run *run, trm_error *err) {
    trm_status status = app_run_read(run, err);
    char *text = NULL;
    size_t bytes;
    FILE *to = status == TRM_OK ? open_memstream(&text, &bytes) : NULL;
    if (to == NULL) {
        return status != TRM_OK ? status : app_no_memory(err, "for the screen");
    }
    screen size = size_of_screen();
    put_screen(to, run, size);
    fclose(to);
    fputs("\033[H", stdout);
    int rows = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL && ++rows < size.rows;
         line = end + 1) {
        printf("%.*s\033[K\n", (int)(end - line), line);
    }
    fputs("\033[Jq ends", stdout);
    fflush(stdout);
    free(text);
    return TRM_OK;
}

/* Refreshes the screen until q or a signal. */
static trm_status watch_run(app_run *run, trm_error *err) {
    struct termios before, raw;
    struct sigaction action = {.sa_handler = note_end};
    bool keys = tcgetattr(STDIN_FILENO, &before) == 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    /* keys arrive at once, and are not shown */
    if (keys) {
        raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l\033[?7l", stdout); /* alternate screen, no cursor, no wrapping */
    trm_status status = TRM_OK;
    do {
        status = show_screen(run, err);
    } while (status == TRM_OK && ended == 0 && !wait_for_end() && ended == 0);
    fputs("\033[?7h\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (keys) {
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
    return status;
}

/* Runs `top`. With --json it prints the run once, as report does. */
int app_run_top(app_context *app) {
    trm_error err;
    app_run *run = NULL;
    trm_status status = app_run_open(app->parsed.arguments[0], &run, &err);
    if (status == TRM_OK && !app->o.once && !app_out.json && isatty(STDOUT_FILENO)) {
        status = watch_run(run, &err);
    } else if (status == TRM_OK && app_out.json) {
        json_t *report = app_run_json(&run, 1);
        char *json = json_dumps(report, JSON_COMPACT | JSON_REAL_PRECISION(9));
        status = json != NULL ? TRM_OK : app_no_memory(&err, "for the report");
        app_print_report(json != NULL ? json : "{}");
        free(json);
        json_decref(report);
    } else if (status == TRM_OK) {
        put_screen(stdout, run, (screen){80, 40});
    }
    app_run_close(run);
    return status == TRM_OK ? 0 : app_report(&err);
}
