/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of command lines (contracts in flags.h).
 *
 *      app_parse --> take_flag (one flag and its text) --> find_flag
 *      app_store_given --> find_flag --> app_store --> parse_int, parse_real, parse_bytes, app_is_choice
 *
 * All messages are made here, so that every command reports a wrong flag in the same words. */
#include "app/options/flags.h"

#include "trireme/exec.h"
#include "trireme/io.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Contract in flags.h. Place and rank are left empty: the error is the user's, not the
 * library's. */
trm_status app_fail(trm_error *err, trm_status status, const char *format, ...) {
    if (err != NULL) {
        va_list args;
        memset(err, 0, sizeof *err);
        err->status = status;
        err->rank = -1;
        va_start(args, format);
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
    }
    return status;
}

trm_status app_no_memory(trm_error *err, const char *purpose, ...) {
    char text[sizeof err->message];
    va_list args;
    va_start(args, purpose);
    vsnprintf(text, sizeof text, purpose, args);
    va_end(args);
    return app_fail(err, TRM_NOMEM, "no memory %s", text);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Returns the dashes in front of a flag in messages: one for -n. */
static const char *dashes_of(const app_flag *f) { return strlen(f->name) == 1 ? "-" : "--"; }

/* Parses an integer within the limits of the flag.
 *   errors  INVALID */
static trm_status parse_int(const app_flag *f, const char *text, int64_t *out, trm_error *err) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool any = f->low == 0 && f->high == 0;
    if (end == text || *end != '\0' || errno != 0 ||
        (!any && ((double)value < f->low || (double)value > f->high))) {
        if (any) {
            return app_fail(err, TRM_INVALID, "%s%s '%s': an integer is expected", dashes_of(f),
                            f->name, text);
        }
        return app_fail(err, TRM_INVALID, "%s%s '%s': an integer from %.0f to %.0f is expected",
                        dashes_of(f), f->name, text, f->low, f->high);
    }
    *out = value;
    return TRM_OK;
}

/* Parses a finite number within the limits of the flag.
 *   errors  INVALID */
static trm_status parse_real(const app_flag *f, const char *text, double *out, trm_error *err) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    bool any = f->low == 0 && f->high == 0;
    if (end == text || *end != '\0' || !isfinite(value) ||
        (!any && (value < f->low || value > f->high))) {
        if (any) {
            return app_fail(err, TRM_INVALID, "%s%s '%s': a number is expected", dashes_of(f),
                            f->name, text);
        }
        return app_fail(err, TRM_INVALID, "%s%s '%s': a number from %g to %g is expected",
                        dashes_of(f), f->name, text, f->low, f->high);
    }
    *out = value;
    return TRM_OK;
}

/* Parses a number of bytes with an optional unit: K, M, G and KiB, MiB, GiB are powers of 1024, KB,
 * MB, GB and TB of 1000. The number may have a fraction ("1.5GB").
 *   errors  INVALID */
static trm_status parse_bytes(const app_flag *f, const char *text, int64_t *out, trm_error *err) {
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1},      {"K", 1024},   {"M", 1048576.0},   {"G", 1073741824.0},
                 {"B", 1},     {"KB", 1e3},   {"MB", 1e6},        {"GB", 1e9},
                 {"TB", 1e12}, {"KiB", 1024}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
    char *end;
    double value = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].name) == 0 && value > 0 && value * units[i].factor < 9e18) {
            *out = (int64_t)(value * units[i].factor);
            return TRM_OK;
        }
    }
    return app_fail(err, TRM_INVALID,
                    "%s%s '%s': bytes are expected, such as 4096, 64K, 500MB or 4GB", dashes_of(f),
                    f->name, text);
}

/* Contract in flags.h. */
bool app_is_choice(const char *words, const char *text) {
    size_t length = strchr(text, '|') != NULL ? 0 : strlen(text);
    for (const char *w = words; w != NULL && length > 0; w = strchr(w, '|')) {
        w += *w == '|';
        if (strncmp(w, text, length) == 0 && (w[length] == '|' || w[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Contract in flags.h. A flag without a value (APP_BOOL) has no default. */
app_flag app_complete_row(const app_flag *flag) {
    app_flag row = *flag;
    trm_context_option o;
    for (int32_t i = 0; row.context != NULL && trm_context_option_at(i, &o); i++) {
        if (strcmp(o.name, row.context) != 0) {
            continue;
        }
        bool takes_value = row.kind != APP_BOOL;
        row.value = row.value == NULL && takes_value ? o.values : row.value;
        row.fallback = row.fallback == NULL && takes_value ? o.fallback : row.fallback;
        row.help = row.help == NULL ? o.meaning : row.help;
        row.low = row.kind == APP_INT ? (double)o.least : row.low;
        row.high = row.kind == APP_INT ? (double)o.most : row.high;
    }
    row.fallback = row.fallback != NULL && *row.fallback == '\0' ? NULL : row.fallback;
    return row;
}

/* Contract in flags.h. */
trm_status app_store(const app_flag *flag, const char *text, void *options, trm_error *err) {
    const app_flag row = app_complete_row(flag), *f = &row;
    char *place = (char *)options + f->offset;
    switch (f->kind) {
    case APP_BOOL: *(bool *)place = true; return TRM_OK;
    case APP_INT: return parse_int(f, text, (int64_t *)place, err);
    case APP_REAL: return parse_real(f, text, (double *)place, err);
    case APP_BYTES: return parse_bytes(f, text, (int64_t *)place, err);
    case APP_CHOICE:
    case APP_OPTIONAL:
        if (!app_is_choice(f->value, text)) {
            return app_fail(err, TRM_INVALID, "%s%s '%s': one of %s is expected", dashes_of(f),
                            f->name, text, f->value);
        }
        break;
    case APP_TEXT:
        if (*text == '\0') {
            return app_fail(err, TRM_INVALID, "%s%s: its value is empty; %s expected", dashes_of(f),
                            f->name, f->value);
        }
        break;
    }
    *(const char **)place = text;
    return TRM_OK;
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Returns whether the word of a group ("output@export") names this row. */
static bool names_row(const char *word, size_t length, const app_flag *f) {
    size_t base = strcspn(word, "@ "), tag = length - base;
    bool same = strlen(f->name) == base && strncmp(f->name, word, base) == 0;
    return same && (tag == 0 ? f->tag == NULL
                             : f->tag != NULL && strlen(f->tag) == tag - 1 &&
                                   strncmp(f->tag, word + base + 1, tag - 1) == 0);
}

/* Contract in flags.h. */
const app_flag *app_group_flag(const app_group *group, int index) {
    const char *word = group->names;
    for (; index > 0 && *word != '\0'; index--) {
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
    const app_flag *f = group->rows;
    while (*word != '\0' && f->name != NULL && !names_row(word, strcspn(word, " "), f)) {
        f++;
    }
    return *word != '\0' && f->name != NULL ? f : NULL;
}

/* Finds the row of this name in the groups: of `kind` if there is one, else the first. Sets *group.
 * Returns NULL if there is none. */
static const app_flag *find_flag(const app_group *const *groups, const char *kind, const char *name,
                                 size_t length, const app_group **group) {
    const app_flag *found = NULL;
    for (; *groups != NULL; groups++) {
        const app_flag *f;
        for (int i = 0; (f = app_group_flag(*groups, i)) != NULL; i++) {
            bool same = strlen(f->name) == length && strncmp(f->name, name, length) == 0;
            const char *of = (*groups)->kind;
            bool own = kind != NULL && of != NULL && app_is_choice(of, kind);
            if (same && (found == NULL || own)) {
                found = f;
                *group = *groups;
            }
        }
    }
    return found;
}

/* Returns the error for an unknown flag, with the nearest one of the command.
 *   param   given: the argument; name: behind its dashes, [length]
 *   errors  INVALID */
static trm_status fail_unknown_flag(const app_group *const *groups, const char *label,
                                    const char *given, const char *name, size_t length,
                                    trm_error *err) {
    const char *words[APP_FLAGS_MAX];
    char word[48];
    int count = 0;
    for (; *groups != NULL; groups++) {
        const app_flag *f;
        for (int i = 0; (f = app_group_flag(*groups, i)) != NULL && count < APP_FLAGS_MAX; i++) {
            words[count++] = f->name;
        }
    }
    snprintf(word, sizeof word, "%.*s", (int)(length < 40 ? length : 40), name);
    const char *nearest = trm_nearest_word(word, words, count);
    int dashes = (int)(name - given);
    if (nearest != NULL) {
        return app_fail(err, TRM_INVALID, "%s has no flag %.*s%s; the nearest is --%s", label,
                        dashes, given, word, nearest);
    }
    return app_fail(err, TRM_INVALID, "%s has no flag %.*s%s; see trireme %s --help", label, dashes,
                    given, word, label);
}

/* Contract in flags.h. */
trm_status app_check_paths(const app_parsed *parsed, trm_error *err) {
    trm_status status = TRM_OK;
    for (int i = 0; status == TRM_OK && i < parsed->given_count; i++) {
        app_writes writes = parsed->given[i].flag->writes;
        status = writes != APP_WRITES_NOTHING
                     ? trm_path_check(parsed->given[i].text, writes == APP_WRITES_FOLDER, err)
                     : TRM_OK;
    }
    return status;
}

bool app_given(const app_parsed *parsed, const char *name) {
    for (int i = 0; i < parsed->given_count; i++) {
        if (strcmp(parsed->given[i].flag->name, name) == 0) {
            return true;
        }
    }
    return false;
}

const app_flag *app_given_optional(const app_parsed *parsed) {
    for (int i = 0; i < parsed->given_count; i++) {
        if (parsed->given[i].flag->kind == APP_OPTIONAL) {
            return parsed->given[i].flag;
        }
    }
    return NULL;
}

/* Parses the flag at argv[*at] and moves *at past its value. */
static trm_status take_flag(const app_group *const *groups, const char *label, int argc,
                            char **argv, int *at, app_parsed *out, trm_error *err) {
    /* A flag is --name VALUE, --name=VALUE, or -name. */
    const char *name = argv[*at] + (argv[*at][1] == '-' ? 2 : 1);
    size_t length = strcspn(name, "=");
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    const app_group *group;
    const app_flag *f = find_flag(groups, NULL, name, length, &group);
    if (f == NULL) {
        return fail_unknown_flag(groups, label, argv[*at], name, length, err);
    }
    const char *values = app_complete_row(f).value;
    const char *dashes = dashes_of(f);
    if (app_given(out, f->name)) {
        return app_fail(err, TRM_INVALID, "%s%s is given twice", dashes, f->name);
    }
    if (f->kind == APP_BOOL && value != NULL) {
        return app_fail(err, TRM_INVALID, "%s%s takes no value, '%s' was given", dashes, f->name,
                        value);
    }
    /* a value that may be left out: the next word counts only if it is one of the choices */
    if (f->kind == APP_OPTIONAL && value == NULL &&
        (*at + 1 >= argc || !app_is_choice(values, argv[*at + 1]))) {
        value = "true";
    }
    /* the value is the next word */
    if (f->kind != APP_BOOL && value == NULL) {
        if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0) {
            return app_fail(err, TRM_INVALID, "%s%s needs a value: %s", dashes, f->name, values);
        }
        value = argv[++*at];
    }
    if (out->given_count == APP_FLAGS_MAX) {
        return app_fail(err, TRM_INVALID, "more than %d flags", APP_FLAGS_MAX);
    }
    out->given[out->given_count++] =
        (app_given_flag){f, group, f->kind == APP_BOOL ? "true" : value};
    return TRM_OK;
}

/* Contract in flags.h. */
trm_status app_store_given(const app_group *const *groups, const char *kind, app_parsed *parsed,
                           void *options, trm_error *err) {
    trm_status status = TRM_OK;
    for (int i = 0; status == TRM_OK && i < parsed->given_count; i++) {
        app_given_flag *given = &parsed->given[i];
        const char *name = given->flag->name;
        given->flag = find_flag(groups, kind, name, strlen(name), &given->group);
        status = app_store(given->flag, given->text, options, err);
    }
    return status;
}

/* Contract in flags.h. A negative number is an argument, not a flag. */
trm_status app_parse(const app_group *const *groups, const char *label, int argc, char **argv,
                     app_parsed *out, trm_error *err) {
    memset(out, 0, sizeof *out);
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            out->rest = argv + i + 1;
            break;
        }
        bool negative = argv[i][0] == '-' && argv[i][1] >= '0' && argv[i][1] <= '9';
        if (argv[i][0] == '-' && argv[i][1] != '\0' && !negative) {
            trm_status status = take_flag(groups, label, argc, argv, &i, out, err);
            if (status != TRM_OK) {
                return status;
            }
        } else if (out->arguments_count == APP_ARGUMENTS_MAX) {
            return app_fail(err, TRM_INVALID, "more than %d arguments", APP_ARGUMENTS_MAX);
        } else {
            out->arguments[out->arguments_count++] = argv[i];
        }
    }
    return TRM_OK;
}
