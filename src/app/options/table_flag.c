/* SPDX-License-Identifier: Apache-2.0 */
/* --tables: options of the embedding tables of a job on parameter servers.
 *
 *      rows=bf16,admit=count:2;wide*:optimizer=ftrl,l1=0.1
 *      ---- all tables -------- ---- tables of that name ----      later words win
 *
 * Parts are separated by semicolons; a part is a list of KEY=VALUE. app_table_flag applies the
 * flag to one table and marks the parts that it used; app_table_flag_used finds a part that no
 * table used. */
#include "app/app.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words for the type of rows, and for the rule by which rows leave a full table. */
static const app_word ROWS[] = {
    {"fp32", TRM_FLOAT32}, {"bf16", TRM_BFLOAT16}, {"fp16", TRM_FLOAT16}, {NULL, 0}};
static const app_word CAPS[] = {{"lru", TRM_CAP_LRU}, {"lfu", TRM_CAP_LFU}, {NULL, 0}};

/* Parses one word of a list.
 *   errors  INVALID */
static trm_status one_of(const char *key, const char *text, const app_word *words, int *out,
                         trm_error *err) {
    char names[120] = "";
    for (; words->name != NULL; words++) {
        if (strcmp(words->name, text) == 0) {
            *out = words->value;
            return TRM_OK;
        }
        strncat(names, names[0] != '\0' ? ", " : "", sizeof names - strlen(names) - 1);
        strncat(names, words->name, sizeof names - strlen(names) - 1);
    }
    return app_fail(err, TRM_INVALID, "--tables %s=%.40s: one of %s expected", key, text, names);
}

/* Parses a number within limits.
 *   errors  INVALID */
static trm_status parse_number(const char *key, const char *text, double least, double most,
                               double *out, trm_error *err) {
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= least && *out <= most
               ? TRM_OK
               : app_fail(err, TRM_INVALID, "--tables %s=%.40s: a number from %g to %g expected",
                          key, text, least, most);
}

/* Parses a rule of admission: all, count:N, bloom:N, probability:P.
 *   errors  INVALID */
static trm_status parse_admission(const char *text, trm_admission *a, trm_error *err) {
    double x;
    if (strcmp(text, "all") == 0) {
        a->kind = TRM_ADMIT_ALL;
        return TRM_OK;
    }
    const char *colon = strchr(text, ':');
    size_t length = colon == NULL ? 0 : (size_t)(colon - text);
    if (length == 11 && strncmp(text, "probability", length) == 0) {
        a->kind = TRM_ADMIT_PROBABILITY;
        return parse_number("admit=probability", colon + 1, 1e-9, 1, &a->probability, err);
    }
    if ((length == 5 && strncmp(text, "count", length) == 0) ||
        (length == 5 && strncmp(text, "bloom", length) == 0)) {
        a->kind = text[0] == 'c' ? TRM_ADMIT_COUNT : TRM_ADMIT_BLOOM;
        trm_status status = parse_number("admit", colon + 1, 1, 255, &x, err);
        a->min_count = status == TRM_OK ? (int32_t)x : 0;
        return status;
    }
    return app_fail(err, TRM_INVALID,
                    "--tables admit=%.40s: all, count:N, bloom:N or probability:P expected", text);
}

/* Parses the initial value of rows: zero, constant:X, uniform:X, normal:X. Rows then no longer
 * start with the values that one device gives its array.
 *   errors  INVALID */
static trm_status parse_initial(const char *text, trm_row_init *init, trm_error *err) {
    static const char *const names[] = {"constant", "uniform", "normal"};
    static const trm_row_init_kind kinds[] = {TRM_ROW_INIT_CONSTANT, TRM_ROW_INIT_UNIFORM,
                                              TRM_ROW_INIT_NORMAL};
    const char *colon = strchr(text, ':');
    double x;
    if (strcmp(text, "zero") == 0) {
        *init = (trm_row_init){.kind = TRM_ROW_INIT_CONSTANT};
        return TRM_OK;
    }
    for (int i = 0; i < 3 && colon != NULL; i++) {
        if (strncmp(text, names[i], (size_t)(colon - text)) == 0 &&
            names[i][colon - text] == '\0') {
            trm_status status = parse_number("init", colon + 1, -1e6, 1e6, &x, err);
            *init = (trm_row_init){.kind = kinds[i]};
            *(i == 0 ? &init->value : &init->scale) = status == TRM_OK ? (float)x : 0;
            return status;
        }
    }
    return app_fail(err, TRM_INVALID,
                    "--tables init=%.40s: zero, constant:X, uniform:X or normal:X expected", text);
}

/* A key with a number as value, and the member that it sets. */
typedef struct numeric {
    const char *name;
    double least, most;
    size_t at; /* in trm_table_options */
    enum { INTO_FLOAT, INTO_DOUBLE, INTO_INTEGER } kind;
} numeric;

#define AT(member) offsetof(trm_table_options, member)
/* Keys whose value is a number: range, and member of the options. */
static const numeric NUMBERS[] = {
    {"rate", 1e-12, 1e6, AT(learning_rate), INTO_DOUBLE},
    {"momentum", 0, 1, AT(optimizer.momentum), INTO_DOUBLE},
    {"accumulator", 0, 1e6, AT(optimizer.initial_accumulator), INTO_DOUBLE},
    {"decay", 0, 1e6, AT(optimizer.weight_decay), INTO_DOUBLE},
    {"l1", 0, 1e6, AT(optimizer.l1), INTO_DOUBLE},
    {"l2", 0, 1e6, AT(optimizer.l2), INTO_DOUBLE},
    {"expire-seconds", 0, 1e12, AT(expiry.after_seconds), INTO_DOUBLE},
    {"expire-steps", 0, 1e12, AT(expiry.after_ticks), INTO_INTEGER},
    {"min-score", 0, 1e9, AT(expiry.min_score), INTO_FLOAT},
    {"score-decay", 0, 1, AT(expiry.score_decay), INTO_FLOAT},
    {"min-norm", 0, 1e9, AT(expiry.min_norm), INTO_FLOAT},
    {"max-rows", 0, 1e15, AT(expiry.max_rows), INTO_INTEGER}};

/* Parses a number and stores it in the member's type.
 *   errors  INVALID */
static trm_status set_number(const numeric *n, const char *text, trm_table_options *t,
                             trm_error *err) {
    double x;
    trm_status status = parse_number(n->name, text, n->least, n->most, &x, err);
    void *to = (char *)t + n->at;
    if (status != TRM_OK) {
        return status;
    }
    if (n->kind == INTO_FLOAT) {
        *(float *)to = (float)x;
    } else if (n->kind == INTO_DOUBLE) {
        *(double *)to = x;
    } else {
        *(int64_t *)to = (int64_t)x;
    }
    return TRM_OK;
}

/* Applies one KEY=VALUE to the options of a table.
 *   errors  INVALID */
static trm_status set_one(const char *key, const char *text, trm_table_options *t, trm_error *err) {
    int value = 0;
    trm_status status = TRM_OK;
    /* keys whose value is a number */
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++) {
        if (strcmp(key, NUMBERS[i].name) == 0) {
            return set_number(&NUMBERS[i], text, t, err);
        }
    }
    /* keys whose value is a word */
    if (strcmp(key, "rows") == 0) {
        status = one_of(key, text, ROWS, &value, err);
        t->dtype = (trm_dtype)value;
    } else if (strcmp(key, "rounding") == 0) {
        static const app_word ways[] = {{"stochastic", 0}, {"nearest", 1}, {NULL, 0}};
        status = one_of(key, text, ways, &value, err);
        t->round_to_nearest = value != 0;
    } else if (strcmp(key, "staleness") == 0) {
        double batches = 0;
        status = parse_number(key, text, 0, 1e6, &batches, err);
        t->staleness = batches < 1 ? TRM_STALENESS_NONE : (int32_t)batches;
    } else if (strcmp(key, "optimizer") == 0) {
        status = one_of(key, text, app_optimizers, &value, err);
        t->optimizer.kind = (trm_optimizer_kind)value;
    } else if (strcmp(key, "admit") == 0) {
        status = parse_admission(text, &t->admission, err);
    } else if (strcmp(key, "init") == 0) {
        status = parse_initial(text, &t->init, err);
    } else if (strcmp(key, "cap") == 0) {
        status = one_of(key, text, CAPS, &value, err);
        t->expiry.cap = (trm_cap_policy)value;
    } else {
        status = app_fail(
            err, TRM_INVALID,
            "--tables: '%.40s' is unknown: rows, rounding, staleness, optimizer, rate, momentum, "
            "accumulator, decay, l1, l2, init, admit, expire-seconds, expire-steps, min-score, "
            "score-decay, min-norm, "
            "max-rows and cap are known",
            key);
    }
    return status;
}

/* Applies a list of KEY=VALUE, split in place.
 *   errors  INVALID */
static trm_status set_all(char *words, trm_table_options *options, trm_error *err) {
    for (char *rest = words, *part; (part = strtok_r(rest, ",", &rest)) != NULL;) {
        char *equals = strchr(part, '=');
        if (equals == NULL) {
            return app_fail(err, TRM_INVALID,
                            "--tables: '%.40s' has no '=': name=value,name=value expected", part);
        }
        *equals = '\0';
        trm_status status = set_one(part, equals + 1, options, err);
        if (status != TRM_OK) {
            return status;
        }
    }
    return TRM_OK;
}

/* Splits a part into name and words, in place: "wide*:l1=0.1". Returns the words; *name is NULL
 * if the part has no name. */
static char *words_of(char *part, char **name) {
    char *colon = strchr(part, ':'), *equals = strchr(part, '=');
    bool named = colon != NULL && (equals == NULL || colon < equals);
    *name = named ? part : NULL;
    if (named) {
        *colon = '\0';
    }
    return named ? colon + 1 : part;
}

/* Returns whether a name means a table: its whole name, a pattern, or a name from --field-tables
 * ("user": the embedding and the wide table of those fields). */
static bool is_called(const char *table, const char *name) {
    const char *dot = strchr(table, '.');
    size_t length = strlen(name);
    return fnmatch(name, table, 0) == 0 || (dot != NULL && strncmp(dot + 1, name, length) == 0 &&
                                            strcmp(dot + 1 + length, ".weight") == 0);
}

/* Contract in app.h. */
trm_status app_table_flag(const char *text, trm_table_options *options, uint64_t *used,
                          trm_error *err) {
    char copy[2048];
    if (text == NULL) {
        return TRM_OK;
    }
    if (strlen(text) >= sizeof copy) {
        return app_fail(err, TRM_INVALID, "--tables: %zu characters, at most %zu expected",
                        strlen(text), sizeof copy - 1);
    }
    strcpy(copy, text);
    int part_number = 0;
    for (char *rest = copy, *part; (part = strtok_r(rest, ";", &rest)) != NULL; part_number++) {
        char *name, *words = words_of(part, &name);
        if (part_number == 64) {
            return app_fail(err, TRM_INVALID,
                            "--tables: at most 64 parts between semicolons expected");
        }
        /* The part is for all tables, or for this one; *used lets the caller report parts that fit
         * none. */
        if (name == NULL || options->name == NULL || is_called(options->name, name)) {
            *used |= (uint64_t)1 << part_number;
            trm_status status = set_all(words, options, err);
            if (status != TRM_OK) {
                return status;
            }
        }
    }
    return TRM_OK;
}

/* Contract in app.h. The text has been checked by app_table_flag. */
trm_status app_table_flag_used(const char *text, uint64_t used, trm_error *err) {
    char copy[2048];
    int part_number = 0;
    snprintf(copy, sizeof copy, "%s", text == NULL ? "" : text);
    for (char *rest = copy, *part; (part = strtok_r(rest, ";", &rest)) != NULL; part_number++) {
        char *name;
        words_of(part, &name);
        if ((used >> part_number & 1) == 0) {
            return app_fail(
                err, TRM_INVALID,
                "--tables: no table is called '%.60s'; give one's whole name (embedding.weight), a "
                "pattern (wide*) or a name from --field-tables",
                name == NULL ? part : name);
        }
    }
    return TRM_OK;
}
