/* SPDX-License-Identifier: Apache-2.0 */
/* --field-tables: the fields of a recommendation model that share a table.
 *
 *      user=0:8,item=1+4-6     field 0 in rows of width 8; fields 1, 4, 5 and 6 share one table; each other field has
 *                              a table of its own, "field2" ...
 *      separate                each field has a table of its own
 *
 * A field belongs to exactly one table. same_as[f] is the first field of f's table, for the
 * dataset. */
#include "app/app.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Letters of a table's name, at most. */
enum { NAME_MAX_LETTERS = 32 };

/* Returns the error about a part of the flag.
 *   errors  INVALID */
static trm_status refuse_part(const char *part, const char *why, trm_error *err) {
    return app_fail(err, TRM_INVALID,
                    "--field-tables: '%.60s': %s; NAME=FIELDS[:WIDTH],... expected, such as "
                    "user=0:8,item=1+3-5, "
                    "or separate",
                    part, why);
}

/* Returns whether a table's name is valid. */
static bool is_name(const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '_') {
            return false;
        }
    }
    return length > 0 && length <= NAME_MAX_LETTERS;
}

/* Parses a number at *at and moves *at after it; -1 if there is none. */
static long take_number(char **at) {
    char *end;
    long value = isdigit((unsigned char)**at) ? strtol(*at, &end, 10) : -1;
    *at = value >= 0 ? end : *at;
    return value;
}

/* Parses the fields of a table, "1+4-6", and adds them to it.
 *   errors  INVALID */
static trm_status take_fields(app_field_tables *t, trm_field_table *table, const char *part,
                              char *at, trm_error *err) {
    for (bool more = true; more; at += more) {
        long first = take_number(&at), last = first;
        if (*at == '-') {
            at++;
            last = take_number(&at);
        }
        if (first < 0 || last < first || last >= APP_FIELDS_MAX) {
            return refuse_part(
                part, "fields are numbers from 0 to 511, joined by +, or ranges such as 3-5", err);
        }
        for (long f = first; f <= last; f++) {
            if (t->same_as[f] >= 0) {
                return refuse_part(part, "one of its fields is in another table, or named twice",
                                   err);
            }
            /* the first field of a table stands for the table */
            t->same_as[f] = table->count == 0 ? (int32_t)f : table->fields[0];
            t->fields[t->fields_count++] = (int32_t)f;
            table->count++;
        }
        more = *at == '+';
    }
    return *at == '\0' ? TRM_OK : refuse_part(part, "fields are joined by +", err);
}

/* Parses one part, NAME=FIELDS[:WIDTH], and adds its table. `part` is split in place; the name
 * stays in it.
 *   errors  INVALID */
static trm_status take_table(app_field_tables *t, char *part, trm_error *err) {
    char whole[64];
    snprintf(whole, sizeof whole, "%s", part);
    char *equals = strchr(part, '='), *colon = strchr(part, ':');
    trm_field_table *table = &t->tables[t->count];
    if (equals == NULL) {
        return refuse_part(whole, "it has no '='", err);
    }
    *equals = '\0';
    *table = (trm_field_table){.name = part, .fields = t->fields + t->fields_count};
    if (!is_name(part)) {
        return refuse_part(whole, "a name has 1 to 32 letters, digits and underscores", err);
    }
    if (colon != NULL) {
        *colon++ = '\0';
        table->width = take_number(&colon);
        if (*colon != '\0' || table->width < 1 || table->width > 65536) {
            return refuse_part(whole, "a width is 1 to 65536", err);
        }
    }
    t->count++;
    return take_fields(t, table, whole, equals + 1, err);
}

/* Parses the whole flag into `t`.
 *   errors  INVALID */
static trm_status parse_field_tables(const char *text, app_field_tables *t, trm_error *err) {
    memset(t, 0, sizeof *t);
    memset(t->same_as, -1, sizeof t->same_as);
    if (strlen(text) >= sizeof t->text) {
        return app_fail(err, TRM_INVALID, "--field-tables: at most %zu characters",
                        sizeof t->text - 1);
    }
    strcpy(t->text, strcmp(text, "separate") == 0 ? "" : text);
    trm_status status = TRM_OK;
    for (char *rest = t->text, *part;
         status == TRM_OK && (part = strtok_r(rest, ",", &rest)) != NULL;) {
        status = take_table(t, part, err);
    }
    for (int32_t f = 0; f < APP_FIELDS_MAX; f++) {
        t->alone[f] = t->same_as[f] < 0;
        t->same_as[f] = t->alone[f] ? f : t->same_as[f];
    }
    return status;
}

/* Contract in click.h. A second call with the same text returns the parsed tables. */
trm_status app_field_tables_of(const char *text, app_field_tables **out, trm_error *err) {
    static app_field_tables tables;
    static char of[sizeof tables.text]; /* the text of these tables, once `parsed` */
    static bool parsed;
    if (text != NULL && (!parsed || strcmp(of, text) != 0)) {
        trm_status status = parse_field_tables(text, &tables, err);
        if (status != TRM_OK) {
            return status;
        }
        strcpy(of, text);
        parsed = true;
    }
    *out = text != NULL ? &tables : NULL;
    return TRM_OK;
}

/* Contract in click.h. Does nothing for fields that are in a table already. */
void app_field_tables_fill(app_field_tables *t, int64_t fields) {
    for (int32_t f = 0; f < fields && f < APP_FIELDS_MAX; f++) {
        if (t->alone[f]) {
            t->alone[f] = false;
            snprintf(t->names[f], sizeof t->names[f], "field%d", f);
            t->own[f] = f;
            t->tables[t->count++] =
                (trm_field_table){.name = t->names[f], .fields = &t->own[f], .count = 1};
        }
    }
}
