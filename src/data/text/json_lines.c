/* SPDX-License-Identifier: Apache-2.0 */
#include "data/text/json_lines.h"

#include "base/error.h"

#include <jansson.h>
#include <string.h>

/* Appends a string as a document. */
static trm_status add_document(trmi_documents *out, const json_t *value, trm_error *err) {
    TRMI_TRY(TRMI_GROW(err, out->ends, out->capacity, out->count + 1, "for documents"));
    trmi_text_append(&out->text, json_string_value(value), json_string_length(value));
    out->ends[out->count++] = out->text.length;
    return TRMI_CHECK_MEMORY(err, &out->text, "for documents");
}

/* A line of a file. */
typedef struct json_line {
    const char *name; /* of the file */
    int64_t number;
    const char *text;
    size_t bytes;
} json_line;

/* Appends the document of a line. */
static trm_status parse_line(const json_line *line, const char *field, trmi_documents *out,
                             trm_error *err) {
    json_error_t wrong;
    json_t *object = json_loadb(line->text, line->bytes, JSON_ALLOW_NUL, &wrong);
    const json_t *value = json_object_get(object, field);
    trm_status status;
    if (object == NULL) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: line %lld, column %d: %s; a JSON object expected",
                           line->name, (long long)line->number, wrong.column, wrong.text);
    } else if (!json_is_string(value)) {
        status = TRMI_FAIL(err, TRM_CORRUPT,
                           "%s: line %lld: %s '%.60s', a string expected; name the field with "
                           "--text-field",
                           line->name, (long long)line->number,
                           value == NULL ? "no field" : "another type in field", field);
    } else {
        status = add_document(out, value, err);
    }
    json_decref(object);
    return status;
}

trm_status trmi_json_lines_parse(const char *name, const char *data, size_t bytes,
                                 const char *field, trmi_documents *out, trm_error *err) {
    int64_t number = 1;
    for (size_t at = 0; at < bytes; number++) {
        const char *newline = memchr(data + at, '\n', bytes - at);
        size_t end = newline != NULL ? (size_t)(newline - data) : bytes, first = at;
        while (first < end && strchr(" \t\r", data[first]) != NULL && data[first] != '\0') {
            first++;
        }
        if (first < end) {
            const json_line line = {name, number, data + at, end - at};
            TRMI_TRY(parse_line(&line, field, out, err));
        }
        at = end + 1;
    }
    return TRM_OK;
}

void trmi_documents_free(trmi_documents *documents) {
    trmi_text_free(&documents->text);
    trmi_free(documents->ends);
    *documents = (trmi_documents){0};
}
