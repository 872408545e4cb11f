/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/flags.h: the form of the table of options, and the parser that fills in a struct from
 * it.
 *
 *      app_parse: command line --> given flags with their texts, arguments
 *      app_store_given: texts --> members, by the rows of the model's kind
 *
 * The parser accepts `--flag VALUE` and `--flag=VALUE`. It refuses a repeated flag, an unknown one
 * (the message names the nearest), a missing value and a value out of range, each with a message of
 * one sentence. Texts point into argv: nothing is copied. */
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

/* A flag may give the path of a result. The command writes a file or a folder there. */
typedef enum app_writes { APP_WRITES_NOTHING, APP_WRITES_FILE, APP_WRITES_FOLDER } app_writes;

/* One option: one row of the table. */
typedef struct app_flag {
    const char *name; /* "epochs" for --epochs; "n" for -n */
    app_kind kind;
    size_t offset;        /* of the member in the struct of options */
    const char *value;    /* text in --help */
    const char *fallback; /* value without the flag; NULL = 0 or none */
    const char *help;     /* --help adds the fallback, unless the sentence ends with ")" */
    double low, high;     /* limits; both 0: none */
    const char *tag;      /* tells apart rows of one name; NULL = none */
    /* conditions, separated by ";", under which the flag has an effect (idle.c); NULL = always */
    const char *use;
    /* option of --context that the flag sets; NULL = none. What the row leaves out, the library's
     * table of these options has (app_complete_row) */
    const char *context;
    /* after all other work: app_check_paths sees before it whether it can be written */
    app_writes writes;
} app_flag;

/* A titled group of flags, as --help prints it; commands are made of groups. */
typedef struct app_group {
    const char *title; /* NULL = none */
    const char *names; /* of its rows, "NAME" or "NAME@TAG", with blanks between */
    const app_flag *rows;
    const char *kind; /* titles of the kinds of models that read these flags, A|B; NULL = all */
} app_group;

/* Groups of flags of a command, flags in all, and arguments without flag, at most. */
enum { APP_GROUPS_MAX = 20, APP_FLAGS_MAX = 128, APP_ARGUMENTS_MAX = 64 };

/* A flag on the command line. */
typedef struct app_given_flag {
    const app_flag *flag;
    const app_group *group; /* in which its row was found */
    const char *text;       /* its value; of APP_BOOL "true" */
} app_given_flag;

/* The result of parsing: the given flags, the arguments, and the part after "--". */
typedef struct app_parsed {
    app_given_flag given[APP_FLAGS_MAX];
    int given_count;
    const char *arguments[APP_ARGUMENTS_MAX];
    int arguments_count;
    char **rest; /* after "--", NULL when there is none */
} app_parsed;

/* Returns a row with what it leaves out: value, limits, default and sentence of an option of
 * --context are those of trm_context_option_at. A fallback "" is none. */
app_flag app_complete_row(const app_flag *flag);
/* Returns row `index` of a group; NULL after the last. */
const app_flag *app_group_flag(const app_group *group, int index);
/* Parses argv[0 .. argc). `label` names the command in messages ("train").
 *   errors  INVALID */
TRM_MUST_USE trm_status app_parse(const app_group *const *groups, const char *label, int argc,
                                  char **argv, app_parsed *out, trm_error *err);
/* Checks the values of the given flags and stores them in `options`. Of rows of one name the one of
 * `kind` counts, else the first.
 *   errors  INVALID */
TRM_MUST_USE trm_status app_store_given(const app_group *const *groups, const char *kind,
                                        app_parsed *parsed, void *options, trm_error *err);
/* Checks one value and stores it in the member that the row names.
 *   errors  INVALID */
TRM_MUST_USE trm_status app_store(const app_flag *flag, const char *text, void *options,
                                  trm_error *err);
/* Checks that what the given flags name can be written (app_flag.writes), before the work that ends
 * with it.
 *   errors  those of trm_path_check */
TRM_MUST_USE trm_status app_check_paths(const app_parsed *parsed, trm_error *err);
/* Returns whether the flag `name` was on the command line. */
bool app_given(const app_parsed *parsed, const char *name);
/* Returns a given flag of kind APP_OPTIONAL, or NULL. The message about a surplus argument names
 * it: the argument may have been meant as its value. */
const app_flag *app_given_optional(const app_parsed *parsed);
/* Returns whether `text` is one of the words of "a|b|c". */
bool app_is_choice(const char *words, const char *text);
/* Fills in an error record in the way of the library and returns `status`. */
trm_status app_fail(trm_error *err, trm_status status, const char *format, ...) TRM_PRINTF(3, 4);
/* Reports an allocation that has failed: "no memory PURPOSE", as the library does. Returns
 * NOMEM. */
trm_status app_no_memory(trm_error *err, const char *purpose, ...) TRM_PRINTF(2, 3);

#endif
