/* SPDX-License-Identifier: Apache-2.0 */
/* Flags of many ranks, and --context, as one trm_context (contracts in app.h). Each option has
 * one value: a flag and --context must not both give it. */
#include "app/app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Flags that are options of the context under another name. */
typedef struct translation {
    const char *flag, *option;
} translation;
static const translation translations[] = {
    {"parallel-mode", "parallel_mode"},
    {"reduce", "gradients_mean"},
    {"wire", "gradient_wire"},
    {"bucket", "comm_fusion"},
    {"shard-optimizer", "enable_parallel_optimizer"},
    {"sync-batch-norm", "sync_batch_norm"},
    {"layerwise", "layerwise_parameters"},
    {"accumulate", "grad_accumulation_step"},
    {"deterministic", "deterministic"},
    {"deterministic-block", "deterministic_block"},
    {"full-batch", "full_batch"},
};

/* Returns the flag's value in the words of the option; `text` is memory for it. */
static const char *value_of(const app_options *o, const char *flag, char *text, size_t size) {
    if (strcmp(flag, "reduce") == 0) {
        return strcmp(o->reduce, "mean") == 0 ? "true" : "false";
    }
    if (strcmp(flag, "bucket") == 0) {
        bool word = strcmp(o->bucket, "auto") == 0 || strcmp(o->bucket, "off") == 0;
        bool list = strchr(o->bucket, ',') != NULL;
        snprintf(text, size, "%s%s", word ? "" : list ? "index:" : "size:", o->bucket);
        return text;
    }
    if (strcmp(flag, "accumulate") == 0 || strcmp(flag, "deterministic-block") == 0) {
        snprintf(text, size, "%lld",
                 (long long)(flag[0] == 'a' ? o->accumulate : o->deterministic_block));
        return text;
    }
    return strcmp(flag, "parallel-mode") == 0     ? o->parallel_mode
           : strcmp(flag, "wire") == 0            ? o->wire
           : strcmp(flag, "shard-optimizer") == 0 ? "true"
           : strcmp(flag, "full-batch") == 0      ? "true"
           : strcmp(flag, "sync-batch-norm") == 0 ? o->sync_batch_norm
           : strcmp(flag, "layerwise") == 0       ? o->layerwise
                                                  : o->deterministic;
}

/* Sets the option of a flag if the flag was given.
 *   error  INVALID */
static trm_status set_flag(app_context *app, const translation *t, trm_error *err) {
    char text[600];
    trm_error why;
    if (!app_given(&app->parsed, t->flag)) {
        return TRM_OK;
    }
    const char *value = value_of(&app->o, t->flag, text, sizeof text);
    if (trm_context_is_set(app->context, t->option)) {
        return app_fail(err, TRM_INVALID,
                        "--%s and %s in --context are the same option; give one of them", t->flag,
                        t->option);
    }
    trm_status status = trm_context_set(app->context, t->option, value, &why);
    /* the context's message has its own words for the value, not the flag's */
    if (status == TRM_INVALID && strcmp(t->flag, "bucket") == 0) {
        return app_fail(err, status,
                        "--bucket '%.60s': auto, off, megabytes, or ascending numbers of gradients "
                        "(3,7) expected",
                        app->o.bucket);
    }
    return status == TRM_OK ? TRM_OK : app_fail(err, status, "--%s: %.180s", t->flag, why.message);
}

/* Sets the options of "NAME=VALUE; NAME=VALUE".
 *   error  INVALID */
static trm_status set_text(app_context *app, const char *given, trm_error *err) {
    char text[2048], *rest = NULL;
    if ((size_t)snprintf(text, sizeof text, "%s", given) >= sizeof text) {
        return app_fail(err, TRM_INVALID, "--context: at most %zu letters", sizeof text - 1);
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
    for (size_t i = 0; i < sizeof translations / sizeof translations[0] && status == TRM_OK; i++) {
        status = set_flag(app, &translations[i], err);
    }
    status = status == TRM_OK ? set_defaults(app, err) : status;
    if (status == TRM_OK) { /* values that other files read from the options */
        app->o.accumulate = strtoll(app_context_option(app, "grad_accumulation_step"), NULL, 10);
        app->o.deterministic = app_context_option(app, "deterministic");
    }
    return status;
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
    for (size_t i = 0; i < sizeof translations / sizeof translations[0]; i++) {
        const translation *t = &translations[i];
        if (app_given(&app->parsed, t->flag) &&
            strncmp(why->message, t->option, strlen(t->option)) == 0) {
            return app_fail(err, status, "--%s: %.200s", t->flag, why->message);
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
