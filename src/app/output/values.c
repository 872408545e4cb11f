/* SPDX-License-Identifier: Apache-2.0 */
/* Reports as text or as JSON (contract and formats in values.h). `report` is the state of the one
 * report that is open. Text and JSON are gathered and written at once, so that lines of several
 * ranks on one console do not mix.
 *
 *   app_begin -> app_put, app_open_object ... app_close -> app_end
 *      `words`   the text, for stdout or stderr
 *      `object`  the JSON, for stdout (--json), for the record of the run (events), or for the caller
 *
 * One thread of the program writes reports. Where memory is missing they are written unbuffered, so
 * that the report of that very error appears. */
#include "app/output/values.h"

#include "app/output/json.h"
#include "app/output/output.h"
#include "app/output/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Objects and arrays inside each other, at most. */
enum { LEVELS = 8 };

static struct {
    FILE *to;   /* stdout or stderr; NULL: no text is printed */
    FILE *text; /* gathers `words` for `to`; `to` itself where there is no memory */
    char *words;
    size_t bytes;
    FILE *json; /* gathers `object`; stdout where there is no memory; NULL: no JSON is wanted */
    char *object;
    size_t object_bytes;
    bool prints, records;  /* the object goes to stdout, to the record */
    bool line;             /* a line of text was begun, which app_end ends */
    bool first;            /* no comma precedes the next JSON value */
    char brackets[LEVELS]; /* that close the open levels */
    int level;
} report;

/* ---- text ------------------------------------------------------------------------------------ */

/* Prints the value by the conversion at `at`, a percent sign, and returns what follows it. */
static const char *put_conversion(const app_value *v, const char *at) {
    char form[32], text[32];
    size_t length = strspn(at + 1, "-+ #.0123456789") + 1;
    char conversion = at[length];
    const char *rest = at + length + 1;
    double factor = 1, number = v->kind == APP_VALUE_INT ? (double)v->of.integer : v->of.real;
    /* "{1e3}" after a conversion is a factor */
    if (*rest == '{') {
        char *end;
        factor = strtod(rest + 1, &end);
        rest = end + 1;
    }
    if (conversion == '%') {
        fputc('%', report.text);
    } else if (conversion == 'd' || conversion == 'u') {
        snprintf(form, sizeof form, "%.*sll%c", (int)length, at, conversion);
        fprintf(report.text, form, (long long)v->of.integer);
    } else if (conversion == 's' || conversion == 'b' || conversion == 't') {
        snprintf(form, sizeof form, "%.*ss", (int)length, at);
        const char *words = conversion == 'b'    ? app_bytes(number, text, sizeof text)
                            : conversion == 't'  ? app_time(number, text, sizeof text)
                            : v->of.text == NULL ? ""
                                                 : v->of.text;
        fprintf(report.text, form, words);
        report.line = *words == '\0' || words[strlen(words) - 1] != '\n';
    } else {
        snprintf(form, sizeof form, "%.*s%c", (int)length, at, conversion);
        fprintf(report.text, form, number * factor);
    }
    return rest;
}

/* Prints the text of a value. */
static void put_text(const app_value *v) {
    for (const char *at = v->format; *at != '\0';) {
        if (*at == '%') {
            report.line = true;
            at = put_conversion(v, at);
        } else {
            size_t length = strcspn(at, "%");
            fwrite(at, 1, length, report.text);
            at += length;
            report.line = at[-1] != '\n';
        }
    }
}

/* ---- reports --------------------------------------------------------------------------------- */

/* Begins the JSON object, for stdout and for the record of the run, which has events only. */
static void begin_object(app_stream stream, const char *class, const char *name) {
    report.level = 0;
    report.first = true;
    report.prints = app_out.json && stream != APP_RECORD && stream != APP_KEPT;
    report.records = class != NULL && strcmp(class, "event") == 0 && app_record_is_open();
    report.object = NULL;
    report.json = report.prints || report.records || stream == APP_KEPT
                      ? open_memstream(&report.object, &report.object_bytes)
                      : NULL;
    if (report.prints && report.json == NULL) {
        report.json = stdout;
    }
    if (report.json != NULL) {
        fputc('{', report.json);
        if (class != NULL) {
            app_put_json_key(report.json, &report.first, class);
            app_put_json_string(report.json, name);
        }
    }
}

/* Contract in values.h. */
void app_begin(app_stream stream, const char *class, const char *name) {
    report.line = false;
    report.to = app_out.json || stream == APP_RECORD || stream == APP_KEPT ? NULL
                : stream == APP_RESULT                                     ? stdout
                : app_out.quiet || app_out.muted                           ? NULL
                                                                           : stderr;
    report.words = NULL;
    report.text = report.to != NULL ? open_memstream(&report.words, &report.bytes) : NULL;
    report.text = report.text != NULL ? report.text : report.to;
    begin_object(stream, class, name);
}

/* Ends the JSON object. stdout is flushed at once, so that a reader of the pipe sees each event
 * when it happens. */
static void end_object(void) {
    if (report.json == NULL) {
        return;
    }
    fputc('}', report.json);
    if (report.json != stdout) {
        fclose(report.json);
    }
    if (report.prints) {
        app_end_status_line();
        if (report.object != NULL) {
            fwrite(report.object, 1, report.object_bytes, stdout);
        }
        putchar('\n');
        fflush(stdout);
    }
    if (report.records && report.object != NULL &&
        !app_record_line(report.object, report.object_bytes)) {
        app_warn("the record of the run cannot be written; training goes on");
    }
    free(report.object);
}

/* Contract in values.h. */
void app_end(void) {
    end_object();
    if (report.line) {
        fputc('\n', report.text);
    }
    if (report.text != report.to) {
        fclose(report.text);
        if (report.bytes > 0) {
            app_end_status_line();
            fwrite(report.words, 1, report.bytes, report.to);
        }
        free(report.words);
    }
}

/* Contract in values.h. The stream has neither text nor a line on stdout. */
char *app_end_kept(void) {
    if (report.json == NULL) {
        return NULL;
    }
    fputc('}', report.json);
    if (fclose(report.json) != 0) {
        free(report.object);
        return NULL;
    }
    return report.object;
}

/* Contract in values.h. */
void app_put_values(const app_value *values) {
    for (const app_value *v = values; v->kind != APP_VALUE_END; v++) {
        if (report.json != NULL && v->key != NULL) {
            app_put_json_member(report.json, &report.first, v);
        }
        if (report.text != NULL && v->format != NULL &&
            (v->kind != APP_VALUE_BOOL || v->of.boolean)) {
            put_text(v);
        }
    }
}

/* Opens an object or an array. */
static void open_level(const char *key, char bracket, char closing) {
    if (report.json != NULL) {
        app_put_json_key(report.json, &report.first, key);
        fputc(bracket, report.json);
        report.first = true;
        report.brackets[report.level++] = closing;
    }
}

void app_open_object(const char *key) { open_level(key, '{', '}'); }
void app_open_array(const char *key) { open_level(key, '[', ']'); }
void app_open_item(void) { open_level(NULL, '{', '}'); }

void app_close(void) {
    if (report.json != NULL) {
        fputc(report.brackets[--report.level], report.json);
        report.first = false;
    }
}

/* Contract in values.h. */
int app_report(const trm_error *err) {
    int code = trm_status_exit_code((trm_status)err->status);
    /* TRM_PENDING is no success: a rank table that is not yet complete */
    code = code == 0 ? 2 : code;
    app_print_label("error", "1;31", err->message);
    if (app_out.verbose && err->file[0] != '\0') {
        fprintf(stderr, "trireme: decided at %s:%d (%s)\n", err->file, (int)err->line,
                trm_status_name((trm_status)err->status));
    }
    app_tell(APP_RESULT, "event", "error",
             app_text("status", trm_status_name((trm_status)err->status), NULL),
             app_text("message", err->message, NULL), app_int("exit_code", code, NULL));
    return code;
}

/* Contract in values.h. */
void app_print_report(const char *text) {
    app_end_status_line();
    fputs(text, stdout);
    if (app_out.json) {
        putchar('\n');
        fflush(stdout);
    }
}
