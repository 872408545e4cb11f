/* SPDX-License-Identifier: Apache-2.0 */
/* app/flags.h: a table of flags, and the parser that fills a struct by it.
 *
 *     static const app_flag flags[] = {
 *         {"epochs", APP_INT, OPTION(epochs), "N", "passes over the data", 1, 1e9},
 *     };
 *
 * `--flag VALUE` and `--flag=VALUE`; a repeated flag, an unknown one (the nearest is named), a
 * missing or an impossible value are errors of one sentence. */
#ifndef TRIREME_APP_FLAGS_H
#define TRIREME_APP_FLAGS_H

#include "trireme/base.h"

typedef enum app_kind {
    APP_BOOL,     /* bool, no value */
    APP_INT,      /* int64_t, from `low` to `high` */
    APP_REAL,     /* double, from `low` to `high` */
    APP_TEXT,     /* const char *, not empty */
    APP_CHOICE,   /* const char *, one of the words of `value` ("a|b|c") */
    APP_OPTIONAL, /* as APP_CHOICE; without a value it is "true" */
    APP_BYTES     /* int64_t, with K, M, G, KB, MB, GB (powers of 1000 with B, of 1024 without) */
} app_kind;

typedef struct app_flag {
    const char *name; /* "epochs" for --epochs; "n" for -n */
    app_kind kind;
    size_t offset;     /* in the struct of options */
    const char *value; /* what help shows: "N", "DIR", "a|b|c" */
    const char *help;
    double low, high; /* both 0: any */
} app_flag;

typedef struct app_group {
    const char *title;
    const app_flag *flags;
    int count;
} app_group;

enum { APP_GROUPS_MAX = 16, APP_FLAGS_MAX = 128, APP_ARGUMENTS_MAX = 64 };

/* What was on the command line. */
typedef struct app_parsed {
    const app_flag *given[APP_FLAGS_MAX];
    int given_count;
    const char *arguments[APP_ARGUMENTS_MAX];
    int arguments_count;
    char **rest; /* after "--", NULL when there is none */
} app_parsed;

/* Parses argv[0 .. argc) into `options`. `label` names the command in sentences ("train").
 *   error  INVALID */
TRM_MUST_USE trm_status app_parse(const app_group *const *groups, const char *label, int argc,
                                  char **argv, void *options, app_parsed *out, trm_error *err);
bool app_given(const app_parsed *parsed, const char *name);
/* One that may stand without a value and stood so, perhaps, or NULL. */
const app_flag *app_given_optional(const app_parsed *parsed);
/* The word of `words` nearest to `word`, NULL when none is near. */
const char *app_nearest(const char *word, const char *const *words, int count);
/* Writes an error record as the library does. */
trm_status app_fail(trm_error *err, trm_status status, const char *format, ...) TRM_PRINTF(3, 4);

#endif
