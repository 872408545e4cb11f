/* SPDX-License-Identifier: Apache-2.0 */
/* Writes values as JSON (contracts in json.h). It has no state, so that threads which log may call
 * it while the main thread writes a report. */
#include "app/output/json.h"

#include <math.h>
#include <stdlib.h>

/* ---- strings --------------------------------------------------------------------------------- */

/* Returns the bytes of the UTF-8 sequence at `s`; negative where it is not valid: the bytes that a
 * valid one could begin with, at least one (Unicode's maximal subparts, RFC 3629). The NUL at the
 * end of a text continues no sequence. */
static int measure_sequence(const unsigned char *s) {
    const int length = s[0] < 0x80                   ? 1
                       : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
                       : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                       : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                                     : 0;
    /* the second byte shows overlong forms, surrogates and what is beyond U+10FFFF */
    unsigned least = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    unsigned most = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    int n = 1;
    for (; n < length && s[n] >= least && s[n] <= most; n++) {
        least = 0x80;
        most = 0xBF;
    }
    return n == length ? n : -n;
}

/* Contract in json.h. Bytes that are not UTF-8 become U+FFFD, because JSON must be UTF-8. */
void app_put_json_string(FILE *to, const char *value) {
    const unsigned char *s = (const unsigned char *)value;
    fputc('"', to);
    while (*s != '\0') {
        int n = measure_sequence(s);
        if (n < 0) {
            fputs("\\ufffd", to);
            n = -n;
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
