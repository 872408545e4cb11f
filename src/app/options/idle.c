/* SPDX-License-Identifier: Apache-2.0 */
/* Flags that were given and have no effect. They are reported as warnings, not refused, so that
 * a script may keep them when it changes the optimiser or the model. Refused are flags of jobs
 * with servers, without which the run would not be such a job, and flags of `plan`, whose files a
 * script expects.
 *
 * A row of options.c names its conditions in `use`, "CONDITION;CONDITION". A condition is a row of
 * the table below, or one of these, each with ":what it is for" after it where the words of the
 * condition do not say that:
 *
 *      option=word|word      the option has one of these values (command=...: the command)
 *      option                the option is not 0, and given if it is a text
 *      !option               the opposite */
#include "app/models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- conditions ------------------------------------------------------------------------------ */

/* Returns whether a text that may be absent equals a word. */
static bool is_word(const char *text, const char *word) {
    return text != NULL && strcmp(text, word) == 0;
}

/* The conditions of the table below: each tells from the options whether something is in use. */
static bool generates_data(const app_context *app) {
    const app_options *o = &app->o;
    return is_word(o->data, "synth") || is_word(o->data, "clicks") || is_word(o->dataset, "clicks");
}

static bool reads_images(const app_context *app) { return app->model->kind->reads_images; }

static bool is_resnet(const app_context *app) { return app->model->is_resnet; }

static bool predicts_masked(const app_context *app) {
    return trm_language_is_masked(app->model->name);
}

static bool has_experts(const app_context *app) { return is_word(app->model->name, "moe"); }

static bool is_llama(const app_context *app) { return is_word(app->model->name, "llama"); }

/* Returns whether the data may be JSON lines: it has not been opened yet. */
static bool reads_json_lines(const app_context *app) {
    const app_options *o = &app->o;
    return is_word(o->dataset, "jsonl") || o->data == NULL ||
           (!app_ends_in(o->data, ".bin") && !app_ends_in(o->data, ".txt"));
}

static bool normalises_batches(const app_context *app) {
    return app->model->is_resnet || app->ranks == NULL;
}

static bool has_ranks(const app_context *app) { return app->ranks != NULL; }

/* Returns whether the flags of a launcher have an effect: also where one started this process. */
static bool is_launched(const app_context *app) {
    return app->ranks != NULL || getenv("TRIREME_RANK") != NULL;
}

static bool searches_plan(const app_context *app) {
    return app->ranks == NULL || is_word(app_context_option(app, "parallel_mode"), "auto_parallel");
}

static bool plans_ranks(const app_context *app) {
    return app_given(&app->parsed, "n") || app->o.plan_mesh != NULL || app->o.plan_given != NULL;
}

static bool plans_alone(const app_context *app) { return !plans_ranks(app); }

static bool validates_plan(const app_context *app) { return app->o.plan_validate; }

/* The named conditions under which a flag has an effect. */
static const struct {
    const char *name;                      /* as the rows of options.c write it (.use) */
    app_stage stage;                       /* from which the condition is known */
    bool (*holds)(const app_context *app); /* true: flags of this use have an effect */
    const char *is_for;                    /* for the warning: "--x is for ..." */
} conditions[] = {
    {"generated", APP_STAGE_MODEL, generates_data, "--data synth"},
    {"images", APP_STAGE_MODEL, reads_images, "models of images"},
    {"resnet", APP_STAGE_MODEL, is_resnet, "resnets"},
    {"masked", APP_STAGE_MODEL, predicts_masked, "bert"},
    {"experts", APP_STAGE_MODEL, has_experts, "moe"},
    {"llama", APP_STAGE_MODEL, is_llama, "llama"},
    {"json-lines", APP_STAGE_MODEL, reads_json_lines, "JSON lines"},
    {"normalises", APP_STAGE_MODEL, normalises_batches,
     "models that normalise over batches, the resnets"},
    {"ranks", APP_STAGE_RANKS, has_ranks, "several ranks (-n)"},
    {"launched", APP_STAGE_RANKS, is_launched, "several ranks (-n)"},
    {"searched", APP_STAGE_RANKS, searches_plan, "--parallel-mode auto_parallel"},
    {"many", APP_STAGE_PLAN, plans_ranks,
     "a plan of many ranks: with -n N, --mesh AxB or --plan FILE"},
    {"validates", APP_STAGE_PLAN, validates_plan, "--validate"},
    {"alone", APP_STAGE_PLAN, plans_alone,
     "the program of one process: without -n, --mesh and --plan"},
};

/* Returns the row of an option of the command; NULL if there is none. */
static const app_flag *row_of(const app_context *app, const char *name) {
    for (int g = 0; app->command->groups[g] != NULL; g++) {
        const app_flag *f;
        for (int i = 0; (f = app_group_flag(app->command->groups[g], i)) != NULL; i++) {
            if (strcmp(f->name, name) == 0) {
                return f;
            }
        }
    }
    return NULL;
}

/* Returns whether an option has one of the words "a|b"; without words, whether it is set. */
static bool has_value(const app_context *app, const char *name, const char *words) {
    const app_flag *f = row_of(app, name);
    const void *at = f != NULL ? (const char *)&app->o + f->offset : NULL;
    const char *text = is_word(name, "command") ? app->command->name : NULL;
    if (f != NULL && f->kind == APP_BOOL) {
        return *(const bool *)at;
    }
    if (f != NULL && (f->kind == APP_INT || f->kind == APP_BYTES)) {
        return *(const int64_t *)at != 0;
    }
    if (f != NULL && f->kind == APP_REAL) {
        return *(const double *)at != 0;
    }
    text = f != NULL ? *(const char *const *)at : text;
    return text != NULL && (words[0] == '\0' || app_is_choice(words, text));
}

/* Writes "--optimizer adam and adamw" for "optimizer" and "adam|adamw". */
static void describe_flag(const char *name, const char *words, char *text, size_t size) {
    const char *last = strrchr(words, '|');
    size_t at = (size_t)snprintf(text, size, "--%s%s", name, words[0] != '\0' ? " " : "");
    for (const char *w = words; *w != '\0' && at + 8 < size; w++) {
        const char character[] = {*w, '\0'};
        at += (size_t)snprintf(text + at, size - at, "%s",
                               w == last   ? " and "
                               : *w == '|' ? ", "
                                           : character);
    }
}

/* Checks one condition of a row, "CONDITION[:IS_FOR]". Returns false if it is of this stage and
 * does not hold, and writes what the flag is for. */
static bool condition_holds(const app_context *app, app_stage stage, const char *condition,
                            char *is_for, size_t size) {
    char text[128];
    snprintf(text, sizeof text, "%s", condition);
    char *told = strchr(text, ':');
    if (told != NULL) {
        *told++ = '\0';
    }
    /* The condition has a name of its own. */
    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++) {
        if (strcmp(text, conditions[i].name) == 0) {
            snprintf(is_for, size, "%s", conditions[i].is_for);
            return conditions[i].stage != stage || conditions[i].holds(app);
        }
    }
    /* otherwise a flag that must have, or (!) must not have, a value */
    bool opposite = text[0] == '!';
    char *name = text + opposite, *words = strchr(name, '=');
    if (words != NULL) {
        *words++ = '\0';
    }
    if (told != NULL) {
        snprintf(is_for, size, "%s", told);
    } else {
        describe_flag(name, words != NULL ? words : "", is_for, size);
    }
    return stage != APP_STAGE_MODEL || has_value(app, name, words != NULL ? words : "") != opposite;
}

/* Returns whether a given flag has an effect as far as this stage knows; if not, writes what it is
 * for. */
static bool has_effect(const app_context *app, app_stage stage, const app_given_flag *given,
                       char *is_for, size_t size) {
    const char *kinds = given->group->kind;
    /* The flag is of other kinds of models. */
    if (stage == APP_STAGE_MODEL && kinds != NULL &&
        !app_is_choice(kinds, app->model->kind->title)) {
        size_t at = 0;
        for (int k = 0; app_model_kinds[k] != NULL && at < size; k++) {
            const app_model_kind *reader = app_model_kinds[k];
            if (app_is_choice(kinds, reader->title)) {
                at += (size_t)snprintf(is_for + at, size - at, "%s%s", at > 0 ? " and " : "",
                                       reader->is_for);
            }
        }
        return false;
    }
    char use[200], *rest = NULL;
    snprintf(use, sizeof use, "%s", given->flag->use != NULL ? given->flag->use : "");
    for (char *c = strtok_r(use, ";", &rest); c != NULL; c = strtok_r(NULL, ";", &rest)) {
        if (!condition_holds(app, stage, c, is_for, size)) {
            return false;
        }
    }
    return true;
}

/* ---- warnings -------------------------------------------------------------------------------- */

void app_warn_idle_flags(const app_context *app, app_stage stage) {
    char is_for[160];
    for (int i = 0; i < app->parsed.given_count; i++) {
        const app_given_flag *given = &app->parsed.given[i];
        if (!has_effect(app, stage, given, is_for, sizeof is_for)) {
            app_warn("--%s has no effect here: it is for %s", given->flag->name, is_for);
        }
    }
}

/* Contract in app.h. The first such flag is reported. */
trm_status app_refuse_idle_flags(const app_context *app, app_stage stage, trm_error *err) {
    char is_for[160];
    for (int i = 0; i < app->parsed.given_count; i++) {
        const app_given_flag *given = &app->parsed.given[i];
        if (!has_effect(app, stage, given, is_for, sizeof is_for)) {
            return app_fail(err, TRM_INVALID, "--%s has no effect here: it is for %s",
                            given->flag->name, is_for);
        }
    }
    return TRM_OK;
}

/* ---- jobs with parameter servers ------------------------------------------------------------- */

/* Contract in app.h. The group of flags is the list: a new flag of such jobs is refused without
 * a change here. */
trm_status app_refuse_job_flags(const app_context *app, trm_error *err) {
    const app_flag *f;
    for (int i = 0; (f = app_group_flag(&app_group_roles, i)) != NULL; i++) {
        const char *name = f->name;
        /* aliases of --output and --dry-run, which every training has */
        bool everywhere = strcmp(name, "model_dir") == 0 || strcmp(name, "check") == 0;
        if (!everywhere && app_given(&app->parsed, name)) {
            return app_fail(err, TRM_INVALID,
                            "--%s is of jobs with parameter servers: give --ps N too", name);
        }
    }
    return TRM_OK;
}
