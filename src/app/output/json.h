/* SPDX-License-Identifier: Apache-2.0 */
/* app/output/json.h: the JSON of values, for reports (values.h) and for lines that threads write
 * (record.h). */
#ifndef TRIREME_APP_JSON_H
#define TRIREME_APP_JSON_H

#include "app/output/values.h"

#include <stdio.h>

/* Makes the JSON of one object. Any thread may do so. Returns text for free(); NULL: no memory. */
#define app_object(...) app_object_of((const app_value[]){__VA_ARGS__, {.kind = APP_VALUE_END}})
char *app_object_of(const app_value *values);

/* Write a member of an object, and the comma before it with its key alone (NULL: none). *first: no
 * comma is needed; it becomes false. */
void app_put_json_member(FILE *json, bool *first, const app_value *value);
void app_put_json_key(FILE *json, bool *first, const char *key);
/* Writes a JSON string with quotes and escapes. Bytes that are not UTF-8 become U+FFFD: one for as
 * many as a valid sequence could begin with. */
void app_put_json_string(FILE *to, const char *value);

#endif
