/* SPDX-License-Identifier: Apache-2.0 */
/* Documents from files of lines (contracts in json_lines.h): of JSON lines, each an object of
 * which one member is the text, or of plain lines, each a document. Empty lines are none.
 *
 * A line that is not such an object is CORRUPT, with its number and column. The texts are copied
 * one after the other, because escapes make them shorter than the file. */
#include "data/text/json_lines.h"

#include "base/error.h"

#include <jansson.h>
#include <string.h>

/* Appends a string as a document. */
static trm_status add_document(trmi_documents *out, const char *text, size_t bytes,
                               trm_error *err) {
    TRMI_TRY(TRMI_GROW(err, out->ends, out->capacity, out->count + 1, "for documents"));
    trmi_text_append(&out->text, text, bytes);
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
    } else if (!json_is_object(object)) {
        status = TRMI_FAIL(err, TRM_CORRUPT,
                           "%s: line %lld: an array; JSON lines have an object in each line",
                           line->name, (long long)line->number);
    } else if (!json_is_string(value)) {
        status = TRMI_FAIL(err, TRM_CORRUPT,
                           "%s: line %lld: %s '%.60s', a string expected; name the field with "
                           "--text-field",
                           line->name, (long long)line->number,
                           value == NULL ? "no field" : "another type in field", field);
    } else {
        status = add_document(out, json_string_value(value), json_string_length(value), err);
    }
    json_decref(object);
    return status;
}

/* Returns whether a line is white space. */
static bool is_blank(const char *line, size_t bytes) {
    size_t at = 0;
    while (at < bytes && line[at] != '\0' && strchr(" \t\r", line[at]) != NULL) {
        at++;
    }
    return at == bytes;
}

/* Contract in json_lines.h. The last line needs no newline. A byte order mark, which some programs
 * write first, is no part of the first object. */
trm_status trmi_json_lines_parse(const char *name, const char *data, size_t bytes,
                                 const char *field, trmi_documents *out, trm_error *err) {
    static const char mark[] = {'\xEF', '\xBB', '\xBF'};
    bool marked = bytes >= sizeof mark && memcmp(data, mark, sizeof mark) == 0;
    int64_t number = 1;
    for (size_t at = marked ? sizeof mark : 0; at < bytes; number++) {
        const char *newline = memchr(data + at, '\n', bytes - at);
        size_t end = newline != NULL ? (size_t)(newline - data) : bytes;
        if (!is_blank(data + at, end - at)) {
            const json_line line = {name, number, data + at, end - at};
            TRMI_TRY(parse_line(&line, field, out, err));
        }
        at = end + 1;
    }
    return TRM_OK;
}

/* Contract in json_lines.h. Both kinds of line breaks are taken. */
trm_status trmi_documents_add_lines(trmi_documents *documents, const char *text, size_t bytes,
                                    trm_error *err) {
    for (size_t at = 0, end; at < bytes; at = end + 1) {
        const char *newline = memchr(text + at, '\n', bytes - at);
        end = newline != NULL ? (size_t)(newline - text) : bytes;
        size_t length = end - at;
        length -= length > 0 && text[end - 1] == '\r';
        if (!is_blank(text + at, length)) {
            TRMI_TRY(add_document(documents, text + at, length, err));
        }
    }
    return TRM_OK;
}

void trmi_documents_free(trmi_documents *documents) {
    trmi_text_free(&documents->text);
    trmi_free(documents->ends);
    *documents = (trmi_documents){0};
}
