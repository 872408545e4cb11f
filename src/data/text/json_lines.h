/* SPDX-License-Identifier: Apache-2.0 */
/* data/text/json_lines.h: documents in files of JSON objects, one a line, and lines as
 * documents. */
#ifndef TRMI_DATA_JSON_LINES_H
#define TRMI_DATA_JSON_LINES_H

#include "base/memory.h"

/* Documents, one after the other. Starts as {0}. */
typedef struct trmi_documents {
    trmi_text text;
    size_t *ends; /* in the text */
    int64_t count, capacity;
} trmi_documents;

/* Appends the documents of a file's bytes: the string `field` of each line's object. Empty lines
 * are skipped, and a byte order mark at the begin. `name` is for messages.
 *   owns    *out: caller, trmi_documents_free, on failure too
 *   errors  CORRUPT (line and column of what is no JSON, has no such field, or another type),
 *           NOMEM */
trm_status trmi_json_lines_parse(const char *name, const char *data, size_t bytes,
                                 const char *field, trmi_documents *out, trm_error *err);
/* Appends the lines of a text, without their ends (LF or CR LF), as documents. Lines of white space
 * are skipped.
 *   errors  NOMEM */
trm_status trmi_documents_add_lines(trmi_documents *documents, const char *text, size_t bytes,
                                    trm_error *err);
void trmi_documents_free(trmi_documents *documents);

#endif
