/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cluster/cluster_json.h: JSON of cluster descriptions. Bytes come from users and files: size,
 * depth and number of values are bounded before jansson sees them, duplicate keys are refused, and
 * every getter writes the sentence "FILE: PATH: expected, found, what to do". */
#ifndef TRMI_COMM_CLUSTER_JSON_H
#define TRMI_COMM_CLUSTER_JSON_H

#include "trireme/base.h"

#include <jansson.h>

typedef struct trmi_cjson_limits {
    size_t bytes;
    size_t values; /* scalars, lists and objects together, roughly (commas and brackets) */
    int depth;
} trmi_cjson_limits;

/* Parses one document whose root is an object.
 *   owns   caller json_decrefs *out     error  INVALID with line and column, NOMEM */
trm_status trmi_cjson_load(const char *name, const char *text, size_t bytes,
                           const trmi_cjson_limits *limits, json_t **out, trm_error *err);

/* "the number 3", "the string \"abc\"", "a list", "nothing": for messages. Returns `text`. */
const char *trmi_cjson_found(const json_t *value, char *text, size_t size);

/* A place in a document: the file's short name and the path of an object in it. */
typedef struct trmi_cjson_at {
    const char *name;
    char path[88]; /* "" at the root */
} trmi_cjson_at;

/* The place of `key` (index < 0) or of key[index] below `at`. */
trmi_cjson_at trmi_cjson_below(const trmi_cjson_at *at, const char *key, int64_t index);
/* "PATH.key" for messages, in a buffer of the caller. */
const char *trmi_cjson_path(const trmi_cjson_at *at, const char *key, char *text, size_t size);

/* Members of an object. Strings are borrowed from the document. A missing optional member gives
 * NULL, resp. leaves *out as it is.   error INVALID */
trm_status trmi_cjson_string(const trmi_cjson_at *at, const json_t *object, const char *key,
                             bool required, const char **out, trm_error *err);
/* A decimal number from `low` to `high`, written as a string ("3"); also as a plain number when
 * `plain` is set. */
trm_status trmi_cjson_integer(const trmi_cjson_at *at, const json_t *object, const char *key,
                              bool required, bool plain, int64_t low, int64_t high, int64_t *out,
                              trm_error *err);
trm_status trmi_cjson_list(const trmi_cjson_at *at, const json_t *object, const char *key,
                           bool required, const json_t **out, trm_error *err);

/* Digits only, no sign, no blanks, at most 18 of them. */
bool trmi_decimal(const char *text, int64_t *out);
/* The tail of a path, at most 47 bytes, cut at the front with "...". Returns `text`. */
const char *trmi_short_name(const char *path, char text[48]);
/* Printable copy of what a user wrote, cut to `size`. Returns `text`. */
const char *trmi_printable(const char *value, char *text, size_t size);

#endif
