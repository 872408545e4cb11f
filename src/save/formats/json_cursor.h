/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/json_cursor.h: a strict pull parser for JSON whose form is known beforehand: no
 * tree, no recursion, memory for the strings only. The first fault sticks, with its offset. */
#ifndef TRMI_SAVE_JSON_CURSOR_H
#define TRMI_SAVE_JSON_CURSOR_H

#include "trireme/base.h"

typedef struct trmi_json {
    const char *text;
    size_t bytes, at;
    char *strings; /* at least `bytes` + 1 long: unescaped strings go here, one after the other */
    size_t used;
    const char *fault; /* NULL while all is well */
    size_t fault_at;
} trmi_json;

/* Remembers the first fault, at the cursor. Returns false. */
bool trmi_json_fault(trmi_json *json, const char *fault);
/* Is `c` the next character after blanks? */
bool trmi_json_peek(trmi_json *json, char c);
/* Takes `c`, or faults. */
bool trmi_json_take(trmi_json *json, char c);
/* A string, unescaped and terminated; valid UTF-8 without NUL. NULL after a fault. */
const char *trmi_json_string(trmi_json *json);
/* An integer 0 ... 2^63-1 without sign, fraction or exponent. */
bool trmi_json_uint(trmi_json *json, int64_t *out);
/* Nothing but blanks is left. */
bool trmi_json_end(trmi_json *json);

#endif
