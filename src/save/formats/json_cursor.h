/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/json_cursor.h: a strict pull parser for JSON of a known form: no tree, no recursion,
 * and memory for strings only. The first fault is stored with its offset; all later calls fail.
 *
 *      trmi_json_take(&json, '{') -> trmi_json_string(&json) -> trmi_json_take(&json, ':') ...
 *
 * For headers of safetensors alone; all other JSON is read by jansson. Such a header comes from
 * strangers and may have 100 MB. Jansson's tree of it takes 11 times as much memory as the text,
 * and 43 times where a stranger fills it with empty arrays (jansson 2.14: 4.3 GB), before the first
 * check of a tensor; it also loses the offsets of values, which messages about damaged files name.
 * No other reader has input of this size, so no other reader needs this. */
#ifndef TRMI_SAVE_JSON_CURSOR_H
#define TRMI_SAVE_JSON_CURSOR_H

#include "trireme/base.h"

/* The state of the parser. */
typedef struct trmi_json {
    const char *text; /* borrowed; need not be terminated */
    size_t bytes, at; /* length of the text; position of the cursor */
    /* at least `bytes` + 1 long: receives the unescaped strings, one after the other */
    char *strings;
    size_t used;       /* used bytes of `strings` */
    const char *fault; /* what is wrong; NULL: nothing so far */
    size_t fault_at;   /* position of the fault in `text` */
} trmi_json;

/* Stores a fault at the cursor, if it is the first. Returns false. */
bool trmi_json_fault(trmi_json *json, const char *fault);
/* Returns whether `c` is the next character after blanks. */
bool trmi_json_peek(trmi_json *json, char c);
/* Consumes `c`, which must be the next character after blanks. */
bool trmi_json_take(trmi_json *json, char c);
/* Consumes a string and returns it unescaped and terminated; it is valid UTF-8 without NUL. Returns
 * NULL after a fault. */
const char *trmi_json_string(trmi_json *json);
/* Consumes an integer from 0 to 2^63-1 without sign, fraction or exponent. */
bool trmi_json_uint(trmi_json *json, int64_t *out);
/* Returns whether only blanks are left. */
bool trmi_json_end(trmi_json *json);

#endif
