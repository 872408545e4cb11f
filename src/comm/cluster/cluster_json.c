/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON of cluster descriptions: limits, messages, getters. The header describes the
 * functions.
 *
 *   text of a user --> limits (bytes, depth, values) --> jansson --> getters: type, range
 *
 * A message names the file, the path of the member (server_list[2].device[0]), what was expected
 * and what was found. Text of the user in a message goes through trmi_printable, so that it cannot
 * put control characters on a terminal. */
#define _GNU_SOURCE /* memmem */
#include "comm/cluster/cluster_json.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

const char *trmi_printable(const char *value, char *text, size_t size) {
    size_t used = 0;
    for (; *value != '\0' && used + 1 < size; value++) {
        text[used++] = *value >= ' ' && *value != 127 ? *value : '?';
    }
    text[used] = '\0';
    /* Mark a text that was cut. */
    if (*value != '\0' && used >= 3) {
        memcpy(text + used - 3, "...", 3);
    }
    return text;
}

const char *trmi_short_name(const char *path, char text[48]) {
    size_t length = strlen(path);
    if (length < 48) {
        return trmi_printable(path, text, 48);
    }
    /* Keep the end, which has the file's name. */
    memcpy(text, "...", 3);
    trmi_printable(path + length - 44, text + 3, 45);
    return text;
}

/* Contract in cluster_json.h. Digits alone: no sign, no blank, no exponent. */
bool trmi_decimal(const char *text, int64_t *out) {
    size_t length = strlen(text);
    /* 18 digits always fit into int64, so the loop cannot overflow. */
    if (length == 0 || length > 18 || strspn(text, "0123456789") != length) {
        return false;
    }
    int64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        value = value * 10 + (text[i] - '0');
    }
    *out = value;
    return true;
}

const char *trmi_cjson_found(const json_t *value, char *text, size_t size) {
    char part[40];
    if (value == NULL) {
        snprintf(text, size, "nothing");
    } else if (json_is_string(value)) {
        snprintf(text, size, "the string \"%s\"",
                 trmi_printable(json_string_value(value), part, sizeof part));
    } else if (json_is_integer(value)) {
        snprintf(text, size, "the number %lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        snprintf(text, size, "the number %g", json_real_value(value));
    } else {
        snprintf(text, size, "%s",
                 json_is_array(value)    ? "a list"
                 : json_is_object(value) ? "an object"
                 : json_is_true(value)   ? "true"
                 : json_is_false(value)  ? "false"
                                         : "null");
    }
    return text;
}

/* Checks depth and number of values in one pass over the text, which skips strings. It does not
 * check that the text is JSON; jansson does that afterwards. */
static trm_status check_shape(const char *name, const char *text, size_t bytes,
                              const trmi_cjson_limits *limits, trm_error *err) {
    size_t values = 0;
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (quoted) {
            if (c == '\\') {
                i++;
            } else if (c == '"') {
                quoted = false;
            }
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            values++;
            if (++depth > limits->depth) {
                return TRMI_FAIL(err, TRM_INVALID,
                                 "%s: nested deeper than %d levels at byte %zu; this is no cluster "
                                 "description",
                                 name, limits->depth, i);
            }
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == ',') {
            values++;
        }
        if (values > limits->values) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: more than %zu values; this is no cluster "
                             "description",
                             name, limits->values);
        }
    }
    return TRM_OK;
}

/* Contract in cluster_json.h. Mistakes that users make often (an empty file, the guide's
 * placeholder, a key given twice) have messages of their own. */
trm_status trmi_cjson_load(const char *name, const char *text, size_t bytes,
                           const trmi_cjson_limits *limits, json_t **out, trm_error *err) {
    if (bytes > limits->bytes) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %zu bytes, at most %zu expected", name, bytes,
                         limits->bytes);
    }
    /* An empty file is a common mistake, so it has a message of its own. */
    size_t blank = 0;
    while (blank < bytes && strchr(" \t\r\n", text[blank]) != NULL) {
        blank++;
    }
    if (blank == bytes) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: empty; a JSON object expected", name);
    }
    TRMI_TRY(check_shape(name, text, bytes, limits, err));
    json_error_t where;
    /* The same key twice is an error: jansson would keep the last value only. */
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL) {
        if (json_error_code(&where) == json_error_out_of_memory) {
            return TRMI_NO_MEMORY(err, "for the JSON document of %s", name);
        }
        /* A user has copied the example of the guide without filling it in. */
        if (strstr(where.text, "'.'") != NULL && memmem(text, bytes, "[...]", 5) != NULL) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: line %d: \"[...]\" is the guide's placeholder; list one entry "
                             "per device there (trireme cluster make writes a table)",
                             name, where.line);
        }
        char part[96];
        return TRMI_FAIL(err, TRM_INVALID, "%s: line %d, column %d: not JSON: %s", name, where.line,
                         where.column, trmi_printable(where.text, part, sizeof part));
    }
    if (!json_is_object(root)) {
        char found[64];
        trmi_cjson_found(root, found, sizeof found);
        json_decref(root);
        return TRMI_FAIL(err, TRM_INVALID, "%s: a JSON object expected, found %s", name, found);
    }
    *out = root;
    return TRM_OK;
}

const char *trmi_cjson_path(const trmi_cjson_at *at, const char *key, char *text, size_t size) {
    char part[32];
    snprintf(text, size, "%s%s%s", at->path, at->path[0] ? "." : "",
             trmi_printable(key, part, sizeof part));
    return text;
}

trmi_cjson_at trmi_cjson_below(const trmi_cjson_at *at, const char *key, int64_t index) {
    trmi_cjson_at below = {.name = at->name};
    char path[sizeof at->path + 40];
    trmi_cjson_path(at, key, path, sizeof path);
    if (index >= 0) {
        snprintf(path + strlen(path), sizeof path - strlen(path), "[%lld]", (long long)index);
    }
    /* a long path is cut at its end; it is used in messages only */
    size_t length = strlen(path);
    size_t room = sizeof below.path - 1;
    memcpy(below.path, path, length < room ? length : room);
    return below;
}

/* The two usual failures of a getter: the member is missing, or it has another type or value.
 * `expected` is a noun phrase. */
static trm_status fail_missing(const trmi_cjson_at *at, const char *key, const char *expected,
                               trm_error *err) {
    char path[128];
    return TRMI_FAIL(err, TRM_INVALID, "%s: %s is missing; %s expected", at->name,
                     trmi_cjson_path(at, key, path, sizeof path), expected);
}

/* Fails with the path of the member, what was expected and what was found. */
static trm_status fail_wrong(const trmi_cjson_at *at, const char *key, const char *expected,
                             const json_t *value, trm_error *err) {
    char path[128], found[64];
    return TRMI_FAIL(err, TRM_INVALID, "%s: %s: %s expected, found %s", at->name,
                     trmi_cjson_path(at, key, path, sizeof path), expected,
                     trmi_cjson_found(value, found, sizeof found));
}

trm_status trmi_cjson_string(const trmi_cjson_at *at, const json_t *object, const char *key,
                             bool required, const char **out, trm_error *err) {
    json_t *value = json_object_get(object, key);
    *out = NULL;
    if (value == NULL) {
        return required ? fail_missing(at, key, "a string", err) : TRM_OK;
    }
    if (!json_is_string(value)) {
        return fail_wrong(at, key, "a string", value, err);
    }
    *out = json_string_value(value);
    return TRM_OK;
}

/* Contract in cluster_json.h. Digits in quotes are always accepted, a plain number only where
 * range.plain allows it. */
trm_status trmi_cjson_integer(const trmi_cjson_at *at, const json_t *object, const char *key,
                              trmi_cjson_range range, int64_t *out, trm_error *err) {
    const char *kind = range.plain ? "a number" : "a number in quotes";
    json_t *value = json_object_get(object, key);
    char path[128], expected[80], found[64];
    int64_t number;
    if (value == NULL) {
        return range.optional ? TRM_OK : fail_missing(at, key, kind, err);
    }
    /* these forms of table write numbers as strings, and Ascend's reader accepts nothing else */
    if (json_is_integer(value) && !range.plain) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s: numbers are strings in this form, found %lld; write \"%lld\"",
                         at->name, trmi_cjson_path(at, key, path, sizeof path),
                         (long long)json_integer_value(value),
                         (long long)json_integer_value(value));
    }
    if (json_is_integer(value)) {
        number = json_integer_value(value);
    } else if (!json_is_string(value)) {
        return fail_wrong(at, key, kind, value, err);
    } else if (!trmi_decimal(json_string_value(value), &number)) {
        return fail_wrong(at, key, "decimal digits", value, err);
    }
    /* Check the range, and write the result only then. */
    if (number < range.low || number > range.high) {
        snprintf(expected, sizeof expected, "%lld to %lld", (long long)range.low,
                 (long long)range.high);
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s: %s expected, found %s", at->name,
                         trmi_cjson_path(at, key, path, sizeof path), expected,
                         trmi_cjson_found(value, found, sizeof found));
    }
    *out = number;
    return TRM_OK;
}

trm_status trmi_cjson_list(const trmi_cjson_at *at, const json_t *object, const char *key,
                           bool required, const json_t **out, trm_error *err) {
    json_t *value = json_object_get(object, key);
    *out = NULL;
    if (value == NULL) {
        return required ? fail_missing(at, key, "a list", err) : TRM_OK;
    }
    if (!json_is_array(value)) {
        return fail_wrong(at, key, "a list", value, err);
    }
    *out = value;
    return TRM_OK;
}
