/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cluster/cluster_json.h: reading JSON of cluster descriptions. The text comes from users and
 * files: size, depth and number of values are limited before jansson parses it, duplicate keys are
 * refused, and every getter writes the message "FILE: PATH: expected, found, what to do". */
#ifndef TRMI_COMM_CLUSTER_JSON_H
#define TRMI_COMM_CLUSTER_JSON_H

#include "trireme/base.h"

#include <jansson.h>

/* Limits of a document. */
typedef struct trmi_cjson_limits {
    size_t bytes;  /* length of the text */
    size_t values; /* scalars, lists and objects together, counted roughly by commas and brackets */
    int depth;     /* nested lists and objects */
} trmi_cjson_limits;

/* Parses one document whose root is an object. `name` leads messages. The caller frees *out with
 * json_decref.
 *   errors  INVALID with line and column, NOMEM */
trm_status trmi_cjson_load(const char *name, const char *text, size_t bytes,
                           const trmi_cjson_limits *limits, json_t **out, trm_error *err);

/* Describes a value for messages: "the number 3", "the string \"abc\"", "a list", "nothing".
 * Returns `text`. */
const char *trmi_cjson_found(const json_t *value, char *text, size_t size);

/* A position in a document, for messages: the file's short name and the path of an object in it. */
typedef struct trmi_cjson_at {
    const char *name;
    char path[88]; /* "" at the root */
} trmi_cjson_at;

/* Returns the position of `key` (index < 0) or of key[index] below `at`. */
trmi_cjson_at trmi_cjson_below(const trmi_cjson_at *at, const char *key, int64_t index);
/* Writes "PATH.key" for messages; returns `text`. */
const char *trmi_cjson_path(const trmi_cjson_at *at, const char *key, char *text, size_t size);

/* Getters for members of an object. Texts are borrowed from the document. A missing optional member
 * sets *out to NULL, or leaves a number unchanged.
 *   errors  INVALID */
trm_status trmi_cjson_string(const trmi_cjson_at *at, const json_t *object, const char *key,
                             bool required, const char **out, trm_error *err);
/* The limits of a decimal number. */
typedef struct trmi_cjson_range {
    int64_t low, high; /* at least, at most */
    bool optional;     /* the member may be missing */
    bool plain;        /* written as a string ("3") or a number, else as a string only */
} trmi_cjson_range;
/* Reads a decimal number. */
trm_status trmi_cjson_integer(const trmi_cjson_at *at, const json_t *object, const char *key,
                              trmi_cjson_range range, int64_t *out, trm_error *err);
trm_status trmi_cjson_list(const trmi_cjson_at *at, const json_t *object, const char *key,
                           bool required, const json_t **out, trm_error *err);

/* Parses decimal digits: no sign, no blanks, at most 18 digits. Returns false for other texts. */
bool trmi_decimal(const char *text, int64_t *out);
/* Writes the end of a path, at most 47 bytes, with "..." in front if it was cut. Returns `text`. */
const char *trmi_short_name(const char *path, char text[48]);
/* Writes a printable copy of a user's text, cut to `size`. Returns `text`. */
const char *trmi_printable(const char *value, char *text, size_t size);

#endif
