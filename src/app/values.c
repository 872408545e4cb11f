/* SPDX-License-Identifier: Apache-2.0 */
/* Reports as text or as JSON (contract and formats in values.h). Both are written directly.
 * `report` is the state of the one report that is open. Text is gathered and written at once, so
 * that lines of several ranks on one console do not mix. */
#include "app/values.h"

#include "app/output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 8 };

static struct {
    FILE *to;   /* stdout or stderr; NULL: no text is printed */
    FILE *text; /* gathers `words` for `to`; `to` itself where there is no memory */
    char *words;
    size_t bytes;
    bool line;             /* a line of text was begun, which app_end ends */
    bool first;            /* no comma precedes the next JSON value */
    char brackets[LEVELS]; /* that close the open levels */
    int level;
} report;

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Writes the comma before a value, if needed, and its key. */
static void put_key(const char *key) {
    if (!report.first) {
        putchar(',');
    }
    report.first = false;
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

/* Writes an array of ids. */
static void put_ids(const int32_t *ids, int64_t count) {
    putchar('[');
    for (int64_t i = 0; i < count; i++) {
        printf("%s%d", i == 0 ? "" : ",", (int)ids[i]);
    }
    putchar(']');
}

/* Writes one member of the open object. */
static void put_member(const app_value *v) {
    put_key(v->kind != APP_VALUE_ELEMENT ? v->key : NULL);
    if (v->kind == APP_VALUE_INT || v->kind == APP_VALUE_ELEMENT) {
        printf("%lld", (long long)v->of.integer);
    } else if (v->kind == APP_VALUE_REAL && isfinite(v->of.real)) {
        printf("%.9g", v->of.real);
    } else if (v->kind == APP_VALUE_BOOL) {
        fputs(v->of.boolean ? "true" : "false", stdout);
    } else if (v->kind == APP_VALUE_IDS) {
        put_ids(v->of.ids, v->count);
    } else if (v->kind == APP_VALUE_REAL || v->of.text == NULL) {
        fputs("null", stdout);
    } else if (v->kind == APP_VALUE_RAW) {
        fputs(v->of.text, stdout);
    } else {
        put_string(v->of.text);
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Prints the value by the conversion at `at`, a percent sign, and returns what follows it. */
static const char *put_conversion(const app_value *v, const char *at) {
    char form[32], text[32];
    size_t length = strspn(at + 1, "-+ #.0123456789") + 1;
    char letter = at[length];
    const char *rest = at + length + 1;
    double factor = 1, number = v->kind == APP_VALUE_INT ? (double)v->of.integer : v->of.real;
    if (*rest == '{') {
        char *end;
        factor = strtod(rest + 1, &end);
        rest = end + 1;
    }
    if (letter == '%') {
        fputc('%', report.text);
    } else if (letter == 'd' || letter == 'u') {
        snprintf(form, sizeof form, "%.*sll%c", (int)length, at, letter);
        fprintf(report.text, form, (long long)v->of.integer);
    } else if (letter == 's' || letter == 'b' || letter == 't') {
        snprintf(form, sizeof form, "%.*ss", (int)length, at);
        const char *words = letter == 'b'        ? app_bytes(number, text, sizeof text)
                            : letter == 't'      ? app_time(number, text, sizeof text)
                            : v->of.text == NULL ? ""
                                                 : v->of.text;
        fprintf(report.text, form, words);
        report.line = *words == '\0' || words[strlen(words) - 1] != '\n';
    } else {
        snprintf(form, sizeof form, "%.*s%c", (int)length, at, letter);
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

/* Contract in values.h. */
void app_begin(app_stream stream, const char *class, const char *name) {
    report.line = false;
    report.to = app_out.json                     ? NULL
                : stream == APP_RESULT           ? stdout
                : app_out.quiet || app_out.muted ? NULL
                                                 : stderr;
    report.words = NULL;
    report.text = report.to != NULL ? open_memstream(&report.words, &report.bytes) : NULL;
    report.text = report.text != NULL ? report.text : report.to;
    report.level = 0;
    report.first = true;
    if (app_out.json) {
        app_end_status_line();
        putchar('{');
        if (class != NULL) {
            app_put(app_text(class, name, NULL));
        }
    }
}

/* Contract in values.h. JSON is flushed at once, so that a reader of the pipe sees each event when
 * it happens. */
void app_end(void) {
    if (app_out.json) {
        fputs("}\n", stdout);
        fflush(stdout);
        return;
    }
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

/* Contract in values.h. */
void app_put_values(const app_value *values) {
    for (const app_value *v = values; v->kind != APP_VALUE_END; v++) {
        if (app_out.json && v->key != NULL) {
            put_member(v);
        } else if (report.text != NULL && v->format != NULL &&
                   (v->kind != APP_VALUE_BOOL || v->of.boolean)) {
            put_text(v);
        }
    }
}

/* Opens an object or an array. */
static void open_level(const char *key, char bracket, char closing) {
    if (app_out.json) {
        put_key(key);
        putchar(bracket);
        report.first = true;
        report.brackets[report.level++] = closing;
    }
}

void app_open_object(const char *key) { open_level(key, '{', '}'); }
void app_open_array(const char *key) { open_level(key, '[', ']'); }
void app_open_item(void) { open_level(NULL, '{', '}'); }

void app_close(void) {
    if (app_out.json) {
        putchar(report.brackets[--report.level]);
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
