/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics as CSV or JSON lines; the name of the file decides (.csv, .jsonl). Each record is
 * appended as a whole.
 *
 *   global_step,event,loss,...          {"time":..,"event":"step","global_step":3,"loss":0.5,...}
 *   3,step,0.5,...
 *
 * A resumed run continues the file after the last line of the step that it resumes from, so that
 * steps that are computed again do not appear twice. */
#include "trireme/io.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/format/report.h"
#include "base/mapping.h"
#include "base/memory.h"
#include "save/append.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

/* An open file of metrics. */
struct trm_metrics {
    trmi_append file;     /* the open file */
    trmi_arena arena;     /* names of the columns */
    bool csv;             /* otherwise JSON lines */
    char **columns;       /* [column_count] names of the CSV columns */
    int64_t column_count; /* 0 for JSON lines */
    trmi_text line;       /* the line under construction; reused */
};

/* ---- opening --------------------------------------------------------------------------- */

/* Copies the names of the CSV columns to the arena and checks that each can stand in the header
 * without quotes.
 *   errors  INVALID, NOMEM */
static trm_status take_columns(trm_metrics *metrics, const trm_metrics_options *options,
                               const char *path, trm_error *err) {
    if (options->column_count < 1) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: a CSV file needs its columns named",
                         trmi_path_tail(path));
    }
    metrics->columns =
        trmi_arena_alloc(&metrics->arena, (size_t)options->column_count * sizeof(char *));
    if (metrics->columns == NULL) {
        return TRMI_NO_MEMORY(err, "for %s", trmi_path_tail(path));
    }
    /* A name must need no quotes. */
    for (int64_t i = 0; i < options->column_count; i++) {
        if (options->columns[i][0] == '\0' || strpbrk(options->columns[i], ",\"\r\n") != NULL) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: '%.60s' cannot be the name of a column",
                             trmi_path_tail(path), options->columns[i]);
        }
        metrics->columns[i] = trmi_arena_strdup(&metrics->arena, options->columns[i]);
        TRMI_TRY(TRMI_CHECK_MEMORY(err, &metrics->arena, "for %s", trmi_path_tail(path)));
    }
    metrics->column_count = options->column_count;
    return TRM_OK;
}

/* Puts the first line of a CSV file into `line`. */
static void put_csv_header(trm_metrics *metrics) {
    trmi_text_printf(&metrics->line, "global_step,event");
    for (int64_t i = 0; i < metrics->column_count; i++) {
        trmi_text_printf(&metrics->line, ",%s", metrics->columns[i]);
    }
    trmi_text_append(&metrics->line, "\n", 1);
}

/* Returns the step of a line of `bytes` characters without its line break; -1 for a line without
 * one, such as the header of a CSV file. */
static int64_t step_of(const char *line, size_t bytes, bool csv) {
    /* In CSV the step is the first column. */
    int64_t step = -1;
    if (csv) {
        char number[24];
        size_t digits = 0;
        while (digits < bytes && digits < 19 && line[digits] >= '0' && line[digits] <= '9') {
            number[digits] = line[digits];
            digits++;
        }
        number[digits] = '\0';
        return digits > 0 ? strtoll(number, NULL, 10) : -1;
    }
    /* In JSON parse the line. */
    json_t *object = json_loadb(line, bytes, 0, NULL);
    const json_t *value = json_object_get(object, "global_step");
    if (json_is_integer(value)) {
        step = json_integer_value(value);
    }
    json_decref(object);
    return step;
}

/* Returns where an existing file is to be continued: before the first line of a later step, or
 * before an incomplete line. */
static size_t find_end(const char *text, size_t bytes, bool csv, int64_t resume_step) {
    size_t at = 0;
    while (at < bytes) {
        const char *newline = memchr(text + at, '\n', bytes - at);
        if (newline == NULL ||
            step_of(text + at, (size_t)(newline - text) - at, csv) > resume_step) {
            break;
        }
        at = (size_t)(newline - text) + 1;
    }
    return at;
}

/* Finds *keep_bytes, the part of an existing file that stays. A CSV file must have the same
 * columns. */
static trm_status continue_file(trm_metrics *metrics, const char *path, int64_t resume_step,
                                int64_t *keep_bytes, trm_error *err) {
    struct stat info;
    trmi_mapping mapping;
    *keep_bytes = 0;
    if (stat(path, &info) != 0 && errno == ENOENT) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_mapping_open(path, &mapping, err));
    trm_status status = TRM_OK;
    /* lines after the step of the checkpoint are written again: they go away */
    *keep_bytes =
        (int64_t)find_end((const char *)mapping.data, mapping.bytes, metrics->csv, resume_step);
    /* The columns of this run must be those of the file. */
    if (metrics->csv && *keep_bytes > 0) {
        put_csv_header(metrics);
        if ((size_t)*keep_bytes < metrics->line.length ||
            memcmp(mapping.data, metrics->line.data, metrics->line.length) != 0) {
            status = TRMI_FAIL(err, TRM_INVALID,
                               "%s: has other columns than this run writes: move it away",
                               trmi_path_tail(path));
        }
        metrics->line.length = 0;
    }
    status = trmi_mapping_check(&mapping, status, err);
    trmi_mapping_close(&mapping);
    return status;
}

/* Contract in trireme/io.h. */
trm_status trm_metrics_open(const char *path, const trm_metrics_options *options, trm_metrics **out,
                            trm_error *err) {
    TRMI_NEED(err, path, out);
    trm_metrics_options none = {0};
    options = options != NULL ? options : &none;
    bool csv = trmi_ends_with(path, ".csv");
    if (!csv && !trmi_ends_with(path, ".jsonl")) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: a file of metrics must end in .csv or .jsonl",
                         trmi_path_tail(path));
    }
    trm_metrics *metrics;
    TRMI_TRY(TRMI_NEW(err, metrics, 1, "for %s", trmi_path_tail(path)));
    metrics->csv = csv;
    metrics->file.fd = -1;
    trm_status status = TRM_OK;
    int64_t keep_bytes = 0;
    /* Columns of a CSV file, the part of an old file that stays, then the file itself. */
    if (csv) {
        TRMI_TRY_GOTO(status, take_columns(metrics, options, path, err), failed);
    }
    if (options->resumed) {
        TRMI_TRY_GOTO(status, continue_file(metrics, path, options->resume_step, &keep_bytes, err),
                      failed);
    }
    TRMI_TRY_GOTO(status, trmi_append_open(&metrics->file, NULL, path, false, keep_bytes, err),
                  failed);
    /* A new CSV file begins with its header. */
    if (csv && keep_bytes == 0) {
        put_csv_header(metrics);
        status = trmi_append_record(&metrics->file, metrics->line.data, metrics->line.length, err);
    }
    if (status == TRM_OK) {
        *out = metrics;
        return TRM_OK;
    }
failed:
    (void)!trm_metrics_close(metrics, NULL);
    return status;
}

/* ---- lines ----------------------------------------------------------------------------- */

/* Returns whether a value is a float: 9 digits tell it from all others. */
static bool is_float(double value) { return (double)(float)value == value; }

/* Writes 9 digits for a value that is a float, and as many as necessary for a double, so that equal
 * bits give equal text. */
static void put_number(trmi_text *line, double value) {
    if (is_float(value)) {
        trmi_text_printf(line, "%.9g", value);
    } else {
        trmi_text_json_number(line, value);
    }
}

/* Puts a CSV line together. Every value must have a column; a column without a value stays
 * empty. */
static trm_status put_csv(trm_metrics *metrics, const char *event, int64_t global_step,
                          const trm_named_scalar *scalars, int64_t count, trm_error *err) {
    trmi_text *line = &metrics->line;
    int64_t placed = 0;
    trmi_text_printf(line, "%" PRId64 ",%s", global_step, event);
    for (int64_t c = 0; c < metrics->column_count; c++) {
        trmi_text_append(line, ",", 1);
        for (int64_t i = 0; i < count; i++) {
            if (strcmp(scalars[i].name, metrics->columns[c]) == 0) {
                /* numbers that CSV has no digits for, as Python reads them */
                if (isnan(scalars[i].value)) {
                    trmi_text_append(line, "nan", 3);
                } else if (isinf(scalars[i].value)) {
                    trmi_text_printf(line, "%sinf", scalars[i].value < 0 ? "-" : "");
                } else {
                    put_number(line, scalars[i].value);
                }
                placed++;
                break;
            }
        }
    }
    trmi_text_append(line, "\n", 1);
    return placed == count
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID, "%s: %" PRId64 " of %" PRId64 " values have no column",
                           trmi_path_tail(metrics->file.path), count - placed, count);
}

/* Puts a JSON line together. JSON has no NaN and no infinity, so they become null. */
static void put_json(trm_metrics *metrics, const char *event, int64_t global_step,
                     const trm_named_scalar *scalars, int64_t count) {
    trmi_report r;
    char time[40];
    snprintf(time, sizeof time, "%.3f", trmi_os_wall());
    trmi_report_begin_json(&r, &metrics->line);
    r.foreign = true; /* names are the caller's */
    trmi_report_put(&r, trmi_json_value("time", time), trmi_string("event", event),
                    trmi_int("global_step", global_step));
    for (int64_t i = 0; i < count; i++) {
        const char *name = scalars[i].name;
        double value = scalars[i].value;
        trmi_report_put(&r, is_float(value) ? trmi_nine(name, value) : trmi_real(name, value));
    }
    (void)trmi_report_end(&r);
    trmi_text_append(&metrics->line, "\n", 1);
}

/* Contract in trireme/io.h. A line is built in memory kept for this, then appended whole. */
trm_status trm_metrics_write(trm_metrics *metrics, const char *event, int64_t global_step,
                             const trm_named_scalar *scalars, int64_t count, trm_error *err) {
    TRMI_NEED(err, metrics);
    if (count > 0) {
        TRMI_NEED(err, scalars);
    }
    trm_status status = TRM_OK;
    event = event != NULL ? event : "step";
    metrics->line.length = 0;
    /* it would need quotes */
    if (metrics->csv && strpbrk(event, ",\"\r\n") != NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "'%.60s' cannot be the name of an event", event);
    }
    if (metrics->csv) {
        status = put_csv(metrics, event, global_step, scalars, count, err);
    } else {
        put_json(metrics, event, global_step, scalars, count);
    }
    /* A line without memory must not make later lines fail. */
    if (metrics->line.failed) {
        metrics->line.failed = false;
        status = TRMI_NO_MEMORY(err, "for a line of metrics");
    }
    return status != TRM_OK
               ? status
               : trmi_append_record(&metrics->file, metrics->line.data, metrics->line.length, err);
}

trm_status trm_metrics_close(trm_metrics *metrics, trm_error *err) {
    if (metrics == NULL) {
        return TRM_OK;
    }
    trm_status status = trmi_append_close(&metrics->file, err);
    trmi_text_free(&metrics->line);
    trmi_arena_free(&metrics->arena);
    trmi_free(metrics);
    return status;
}
