/* SPDX-License-Identifier: Apache-2.0 */
/* Writes values as JSON (contracts in json.h). It has no state, so that threads which log may call
 * it while the main thread writes a report. */
#include "app/output/json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

/* ---- strings --------------------------------------------------------------------------------- */

/* Returns the bytes of the UTF-8 sequence at `s`; 0 if it is not valid. Jansson decides: it makes
 * strings of valid UTF-8 only. */
static int measure_sequence(const unsigned char *s) {
    for (int n = 1; n <= 4 && s[n - 1] != '\0'; n++) {
        json_t *one = json_stringn((const char *)s, (size_t)n);
        if (one != NULL) {
            json_decref(one);
            return n;
        }
    }
    return 0;
}

/* Returns whether a text is UTF-8 as a whole, as nearly all are. */
static bool is_utf8(const char *value) {
    json_t *whole = json_string(value);
    json_decref(whole);
    return whole != NULL;
}

/* Contract in json.h. Bytes that are not UTF-8 become U+FFFD, because JSON must be UTF-8. */
void app_put_json_string(FILE *to, const char *value) {
    const unsigned char *s = (const unsigned char *)value;
    const bool valid = is_utf8(value);
    fputc('"', to);
    while (*s != '\0') {
        int n = valid || *s < 0x80 ? 1 : measure_sequence(s);
        if (n == 0) {
            fputs("\\ufffd", to);
            n = 1;
        } else if (*s == '"' || *s == '\\') {
            fprintf(to, "\\%c", *s);
        } else if (*s < 0x20) {
            fprintf(to, "\\u%04x", *s);
        } else {
            fwrite(s, 1, (size_t)n, to);
        }
        s += n;
    }
    fputc('"', to);
}

/* ---- values ---------------------------------------------------------------------------------- */

void app_put_json_key(FILE *json, bool *first, const char *key) {
    if (!*first) {
        fputc(',', json);
    }
    *first = false;
    if (key != NULL) {
        fprintf(json, "\"%s\":", key);
    }
}

/* Writes an array of ids. */
static void put_ids(FILE *json, const int32_t *ids, int64_t count) {
    fputc('[', json);
    for (int64_t i = 0; i < count; i++) {
        fprintf(json, "%s%d", i == 0 ? "" : ",", (int)ids[i]);
    }
    fputc(']', json);
}

void app_put_json_member(FILE *json, bool *first, const app_value *v) {
    const bool real = v->kind == APP_VALUE_REAL || v->kind == APP_VALUE_EXACT;
    app_put_json_key(json, first, v->key[0] != '\0' ? v->key : NULL);
    if (v->kind == APP_VALUE_INT) {
        fprintf(json, "%lld", (long long)v->of.integer);
    } else if (real && isfinite(v->of.real)) {
        fprintf(json, "%.*g", v->kind == APP_VALUE_EXACT ? 17 : 9, v->of.real);
    } else if (v->kind == APP_VALUE_BOOL) {
        fputs(v->of.boolean ? "true" : "false", json);
    } else if (v->kind == APP_VALUE_IDS) {
        put_ids(json, v->of.ids, v->count);
    } else if (real || v->of.text == NULL) {
        fputs("null", json);
    } else if (v->kind == APP_VALUE_RAW || v->kind == APP_VALUE_MEMBERS) {
        fputs(v->of.text, json);
    } else {
        app_put_json_string(json, v->of.text);
    }
}

char *app_object_of(const app_value *values) {
    char *text = NULL;
    size_t bytes;
    bool first = true;
    FILE *json = open_memstream(&text, &bytes);
    if (json == NULL) {
        return NULL;
    }
    fputc('{', json);
    for (const app_value *v = values; v->kind != APP_VALUE_END; v++) {
        app_put_json_member(json, &first, v);
    }
    fputc('}', json);
    if (fclose(json) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
