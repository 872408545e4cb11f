/* SPDX-License-Identifier: Apache-2.0 */
/* Flags of many ranks, and --context, as one trm_context (contracts in app.h).
 *
 *   --context NAME=VALUE;...  -> set_text
 *   flags with a context name -> set_flag     given twice: INVALID, with both places
 *   the program's defaults    -> set_defaults
 *
 * Each option has one value, from one place. The library checks whether options fit each other and
 * knows no flags; name_flag adds to its messages the flag that was given. */
#include "app/app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns a flag's value as its option spells it: --reduce mean is gradients_mean=true, and
 * --bucket 3,7 is comm_fusion=index:3,7. `text`: memory for it. */
static const char *value_of(const app_given_flag *given, char *text, size_t size) {
    const char *value = given->text;
    if (strcmp(given->flag->name, "reduce") == 0) {
        return strcmp(value, "mean") == 0 ? "true" : "false";
    }
    if (strcmp(given->flag->name, "bucket") == 0) {
        bool word = strcmp(value, "auto") == 0 || strcmp(value, "off") == 0;
        snprintf(text, size, "%s%s",
                 word                         ? ""
                 : strchr(value, ',') != NULL ? "index:"
                                              : "size:",
                 value);
        return text;
    }
    return value;
}

/* Sets the option of a given flag.
 *   errors  INVALID */
static trm_status set_flag(app_context *app, const app_given_flag *given, trm_error *err) {
    char text[600];
    trm_error why;
    const char *flag = given->flag->name, *option = given->flag->context;
    if (trm_context_is_set(app->context, option)) {
        return app_fail(err, TRM_INVALID,
                        "--%s and %s in --context are the same option; give one of them", flag,
                        option);
    }
    trm_status status =
        trm_context_set(app->context, option, value_of(given, text, sizeof text), &why);
    /* the context's message has its own words for the value, not the flag's */
    if (status == TRM_INVALID && strcmp(flag, "bucket") == 0) {
        return app_fail(err, status,
                        "--bucket '%.60s': auto, off, megabytes, or ascending numbers of gradients "
                        "(3,7) expected",
                        given->text);
    }
    return status == TRM_OK ? TRM_OK : app_fail(err, status, "--%s: %.180s", flag, why.message);
}

/* Sets the options of "NAME=VALUE; NAME=VALUE".
 *   errors  INVALID */
static trm_status set_text(app_context *app, const char *given, trm_error *err) {
    char text[2048], *rest = NULL;
    if ((size_t)snprintf(text, sizeof text, "%s", given) >= sizeof text) {
        return app_fail(err, TRM_INVALID, "--context: at most %zu characters", sizeof text - 1);
    }
    for (char *item = strtok_r(text, ";", &rest); item != NULL; item = strtok_r(NULL, ";", &rest)) {
        item += strspn(item, " ");
        char *value = strchr(item, '=');
        if (value == NULL) {
            return app_fail(err, TRM_INVALID,
                            "--context '%.60s': NAME=VALUE is expected, several with ; between",
                            item);
        }
        *value++ = '\0';
        if (trm_context_is_set(app->context, item)) {
            return app_fail(err, TRM_INVALID, "--context: %.60s is given twice", item);
        }
        trm_status status = trm_context_set(app->context, item, value, err);
        if (status != TRM_OK) {
            return status;
        }
    }
    return TRM_OK;
}

/* Sets the stages of --stages, or those of a plan file, which flags would have set.
 *   errors  INVALID (given twice), those of app_take_stages */
static trm_status set_stages(app_context *app, trm_error *err) {
    const app_options *o = &app->o;
    trm_status status = app_take_stages(app, err);
    if (status == TRM_OK && o->stages_text != NULL &&
        trm_context_is_set(app->context, "pipeline_stages")) {
        return app_fail(err, TRM_INVALID,
                        "--stages and pipeline_stages in --context are the same option; give one "
                        "of them");
    }
    return status == TRM_OK && (o->stages_of_plan || o->stages > 0) ? app_set_stages(app, err)
                                                                    : status;
}

/* Sets the defaults of the program: ranks work on parts of the data, and their gradients are
 * averaged. */
static trm_status set_defaults(app_context *app, trm_error *err) {
    trm_status status = TRM_OK;
    if (!trm_context_is_set(app->context, "parallel_mode")) {
        status = trm_context_set(app->context, "parallel_mode", "data_parallel", err);
    }
    bool ranks = strcmp(app_context_option(app, "parallel_mode"), "stand_alone") != 0;
    if (status == TRM_OK && ranks && !trm_context_is_set(app->context, "gradients_mean")) {
        status = trm_context_set(app->context, "gradients_mean", "true", err);
    }
    return status;
}

/* Contract in app.h. Order: --context, then flags, then defaults. */
trm_status app_set_context(app_context *app, trm_error *err) {
    if (app->context != NULL) {
        return TRM_OK;
    }
    trm_status status = trm_context_create(&app->context, err);
    if (status == TRM_OK && app->o.context != NULL) {
        status = set_text(app, app->o.context, err);
    }
    for (int i = 0; i < app->parsed.given_count && status == TRM_OK; i++) {
        const app_given_flag *given = &app->parsed.given[i];
        status = given->flag->context != NULL ? set_flag(app, given, err) : TRM_OK;
    }
    status = status == TRM_OK ? set_stages(app, err) : status;
    status = status == TRM_OK ? set_defaults(app, err) : status;
    if (status == TRM_OK) { /* values that other files read from the options */
        app->o.accumulate = strtoll(app_context_option(app, "grad_accumulation_step"), NULL, 10);
        app->o.deterministic = app_context_option(app, "deterministic");
    }
    return status;
}

trm_status app_check_pipeline(const app_context *app, trm_error *err) {
    const app_options *o = &app->o;
    if (o->micro_batches > 1 && !o->micro_batches_done && !o->stages_searched) {
        return app_fail(
            err, TRM_INVALID,
            "--micro-batches %lld does not divide the batch of %lld samples (--batch-size)",
            (long long)o->micro_batches, (long long)o->batch_size);
    }
    return TRM_OK;
}

trm_status app_check_split_flags(const app_context *app, trm_error *err) {
    const char *mode = app_context_option(app, "parallel_mode");
    bool splits = strcmp(mode, "semi_auto_parallel") == 0 || strcmp(mode, "auto_parallel") == 0;
    return splits || (app->o.split_plan == NULL && app->o.split_mesh == NULL)
               ? TRM_OK
               : app_fail(err, TRM_INVALID,
                          "--%s is for --parallel-mode semi_auto_parallel and auto_parallel; the "
                          "mode is %s",
                          app->o.split_plan != NULL ? "plan" : "mesh", mode);
}

/* Adds the flag to a message that names an option, if the option was given as a flag. */
static trm_status name_flag(const app_context *app, trm_status status, const trm_error *why,
                            trm_error *err) {
    for (int i = 0; i < app->parsed.given_count; i++) {
        const app_flag *f = app->parsed.given[i].flag;
        if (f->context != NULL && strncmp(why->message, f->context, strlen(f->context)) == 0) {
            return app_fail(err, status, "--%s: %.200s", f->name, why->message);
        }
    }
    *err = *why;
    return status;
}

/* Contract in app.h. The library's check knows options, not flags; name_flag adds the flag. */
trm_status app_check_modes(app_context *app, trm_error *err) {
    trm_error why;
    trm_status status = app_set_context(app, err);
    if (status == TRM_OK && (status = trm_context_check(app->context, &why)) != TRM_OK) {
        return name_flag(app, status, &why, err);
    }
    return status == TRM_OK ? app_check_split_flags(app, err) : status;
}

const char *app_context_option(const app_context *app, const char *option) {
    return trm_context_get(app->context, option);
}
