/* SPDX-License-Identifier: Apache-2.0 */
/* The output of `trireme inspect`: lines of text, or one JSON object. Names that come from files
 * are made printable before they reach the terminal.
 *
 * Each value is reported twice: trmi_inspect_line writes the line, and does nothing for JSON; the
 * other functions append to the JSON object, and do nothing for lines. So a description needs no
 * branches. */
#include "save/inspect/inspect.h"

#include "base/memory.h"
#include "save/path.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Contract in inspect.h. Longer lines are cut off. */
void trmi_inspect_line(trmi_inspect_report *report, const char *format, ...) {
    if (report->json) {
        return;
    }
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *c = line; *c != '\0'; c++) { /* names from files do not reach the terminal raw */
        *c = (unsigned char)*c < 0x20 || *c == 0x7F ? '?' : *c;
    }
    report->sink(report->context, line);
}

void trmi_inspect_begin(trmi_inspect_report *report, const char *kind) {
    if (report->json) {
        trmi_text_printf(&report->text, "{\"kind\":\"%s\",\"path\":", kind);
        trmi_text_json_string(&report->text, report->probe->path);
    }
}

void trmi_inspect_key(trmi_inspect_report *report, const char *key) {
    if (report->json) {
        trmi_text_printf(&report->text, ",\"%s\":", key);
    }
}

void trmi_inspect_integer(trmi_inspect_report *report, const char *key, int64_t value) {
    trmi_inspect_key(report, key);
    if (report->json) {
        trmi_text_printf(&report->text, "%" PRId64, value);
    }
}

void trmi_inspect_string(trmi_inspect_report *report, const char *key, const char *value) {
    trmi_inspect_key(report, key);
    if (report->json) {
        trmi_text_json_string(&report->text, value);
    }
}

/* Contract in inspect.h. `format` must not insert texts from files; those go through
 * trmi_inspect_string, which escapes them. */
void trmi_inspect_raw(trmi_inspect_report *report, const char *format, ...) {
    if (!report->json) {
        return;
    }
    char piece[512];
    va_list args;
    va_start(args, format);
    vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    trmi_text_append(&report->text, piece, strlen(piece));
}

/* Contract in inspect.h. The report ends in the same way after an error, so that JSON stays one
 * whole object. */
trm_status trmi_inspect_end(trmi_inspect_report *report, trm_status status, trm_error *err) {
    trmi_inspect_key(report, "valid");
    trmi_inspect_raw(report, "%s", status == TRM_OK ? "true" : "false");
    /* The error is a part of the object, so that a program finds everything in one place. */
    if (status != TRM_OK && err != NULL) {
        trmi_inspect_string(report, "error", err->message);
    }
    trmi_inspect_raw(report, "}");
    /* Pass on the object. */
    if (report->json && !report->text.failed) {
        report->sink(report->context, report->text.data);
    } else if (report->json && status == TRM_OK) {
        status = TRMI_NO_MEMORY(err, "to describe %s", trmi_path_tail(report->probe->path));
    }
    trmi_text_free(&report->text);
    return status;
}

void trmi_put_dims(trmi_text *out, const int64_t *dims, int32_t rank) {
    trmi_text_append(out, "[", 1);
    for (int32_t i = 0; i < rank; i++) {
        trmi_text_printf(out, "%s%" PRId64, i > 0 ? ", " : "", dims[i]);
    }
    trmi_text_append(out, "]", 1);
}
