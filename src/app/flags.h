/* SPDX-License-Identifier: Apache-2.0 */
/* app/flags.h: tables of flags, and the parser that fills in a struct of options from them.
 *
 *       static const app_flag flags[] = {
 *           {"epochs", APP_INT, OPTION(epochs), "N", "passes over the data", 1, 1e9},
 *       };
 *
 * The parser accepts `--flag VALUE` and `--flag=VALUE`. It refuses a repeated flag, an unknown
 * one (the message names the nearest), a missing value and a value out of range, each with a
 * message of one sentence. Texts point into argv: nothing is copied. */
#ifndef TRIREME_APP_FLAGS_H
#define TRIREME_APP_FLAGS_H

#include "trireme/base.h"

/* The type of a flag's value, and of the member of the struct that it sets. */
typedef enum app_kind {
    APP_BOOL,     /* bool, no value */
    APP_INT,      /* int64_t, from `low` to `high` */
    APP_REAL,     /* double, from `low` to `high` */
    APP_TEXT,     /* const char *, not empty */
    APP_CHOICE,   /* const char *, one of the words of `value` ("a|b|c") */
    APP_OPTIONAL, /* as APP_CHOICE; without a value it is "true" */
    APP_BYTES     /* int64_t, with K, M, G, KB, MB, GB (powers of 1000 with B, of 1024 without) */
} app_kind;

/* One flag: one row of a table. */
typedef struct app_flag {
    const char *name; /* "epochs" for --epochs; "n" for -n */
    app_kind kind;
    size_t offset;     /* of the member in the struct of options */
    const char *value; /* text in --help */
    const char *help;
    double low, high; /* limits; both 0: none */
} app_flag;

/* A titled group of flags, as --help prints it; commands are made of groups. */
typedef struct app_group {
    const char *title;
    const app_flag *flags;
    int count;
} app_group;

enum { APP_GROUPS_MAX = 16, APP_FLAGS_MAX = 128, APP_ARGUMENTS_MAX = 64 };

/* The result of parsing: the given flags, the arguments, and the part behind "--". */
typedef struct app_parsed {
    const app_flag *given[APP_FLAGS_MAX];
    int given_count;
    const char *arguments[APP_ARGUMENTS_MAX];
    int arguments_count;
    char **rest; /* after "--", NULL when there is none */
} app_parsed;

/* Parses argv[0 .. argc) into `options`. `label` names the command in messages ("train").
 *   error  INVALID */
TRM_MUST_USE trm_status app_parse(const app_group *const *groups, const char *label, int argc,
                                  char **argv, void *options, app_parsed *out, trm_error *err);
/* Returns whether the flag `name` was on the command line. */
bool app_given(const app_parsed *parsed, const char *name);
/* Returns a given flag of kind APP_OPTIONAL, or NULL. The message about a surplus argument names
 * it: the argument may have been meant as its value. */
const app_flag *app_given_optional(const app_parsed *parsed);
/* Returns the word of `words` that is nearest to `word`, NULL if none is near. */
const char *app_nearest(const char *word, const char *const *words, int count);
/* Fills in an error record in the way of the library and returns `status`. */
trm_status app_fail(trm_error *err, trm_status status, const char *format, ...) TRM_PRINTF(3, 4);

#endif
