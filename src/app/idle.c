/* SPDX-License-Identifier: Apache-2.0 */
/* Flags that were given and have no effect. They are reported as warnings, not refused, so that
 * a script may keep them when it changes the optimiser or the model. Refused are flags of jobs
 * with servers, without which the run would not be such a job. */
#include "app/models.h"

#include <stdlib.h>
#include <string.h>

/* A flag, whether it has no effect in this run, and what it is for. */
typedef struct idle_flag {
    const char *flag;
    bool idle;
    const char *is_for;
} idle_flag;

static bool is(const char *text, const char *word) {
    return text != NULL && strcmp(text, word) == 0;
}

/* Returns whether the optimiser reads --momentum. */
static bool has_momentum(const char *optimizer) {
    return is(optimizer, "momentum") || is(optimizer, "nesterov") || is(optimizer, "lars");
}

/* Warns about a flag if it was given. */
static void print_result(const app_context *app, const char *flag, const char *is_for) {
    if (app_given(&app->parsed, flag)) {
        app_warn("--%s has no effect here: it is for %s", flag, is_for);
    }
}

/* Warns about the given flags of a table that have no effect. */
static void tell_all(const app_context *app, const idle_flag *table, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (table[i].idle) {
            print_result(app, table[i].flag, table[i].is_for);
        }
    }
}

/* Warns about flags of steps and rates with commands that make no update. */
static void tell_of_steps(const app_context *app) {
    static const char *const of_rates[] = {
        "learning-rate",     "schedule",    "warmup-steps", "warmup-start",
        "end-learning-rate", "decay-steps", "gamma",        "power"};
    const char *command = app->command->name;
    bool trains = is(command, "train"),
         updates = trains || is(command, "verify") || is(command, "bench train");
    const idle_flag table[] = {
        {"epochs", !trains, "train"},
        {"steps", !updates, "train and verify"},
        {"sink", !trains, "train"},
        {"log-every", app->o.sink, "training without --sink"},
    };
    tell_all(app, table, sizeof table / sizeof table[0]);
    for (size_t i = 0; !updates && i < sizeof of_rates / sizeof of_rates[0]; i++) {
        print_result(app, of_rates[i], "commands that train");
    }
}

/* Warns about flags that the optimiser, the schedule or the backend does not read. */
static void tell_of_training(const app_context *app) {
    const app_options *o = &app->o;
    bool step = is(o->schedule, "step"), polynomial = is(o->schedule, "polynomial");
    bool wsd = is(o->schedule, "wsd");
    const idle_flag table[] = {
        {"momentum", !has_momentum(o->optimizer), "--optimizer momentum, nesterov and lars"},
        {"betas", strncmp(o->optimizer, "adam", 4) != 0, "--optimizer adam and adamw"},
        {"warmup-start", o->warmup_steps == 0, "--warmup-steps"},
        {"end-learning-rate", !polynomial && !wsd && !is(o->schedule, "cosine"),
         "--schedule cosine, polynomial and wsd"},
        {"decay-steps", !step && !wsd, "--schedule step and wsd"},
        {"gamma", !step, "--schedule step"},
        {"power", !polynomial, "--schedule polynomial"},
        {"tuning-file", is(o->backend, "ref"), "--backend onednn"},
    };
    tell_all(app, table, sizeof table / sizeof table[0]);
}

/* Warns about a flag that other kinds read, if this one does not. */
static void tell_of_kind(const app_context *app, const app_model *model, const char *flag,
                         const app_model_kind *other) {
    if (!app_kind_reads(model->kind, flag)) {
        print_result(app, flag, other->is_for);
    }
}

/* Warns about flags that only models of other kinds read. */
static void tell_of_model(const app_context *app, const app_model *model) {
    if (!model->is_resnet) {
        print_result(app, "stem", "resnets");
    }
    if (!model->is_resnet && app->ranks != NULL) {
        print_result(app, "sync-batch-norm", "models that normalise over batches, the resnets");
    }
    for (int k = 0; app_model_kinds[k] != NULL; k++) {
        const app_model_kind *other = app_model_kinds[k];
        for (int i = 0; other != model->kind && other->own_flags[i] != NULL; i++) {
            tell_of_kind(app, model, other->own_flags[i], other);
        }
        for (int g = 0; other != model->kind && other->groups[g] != NULL; g++) {
            for (int i = 0; i < other->groups[g]->count; i++) {
                tell_of_kind(app, model, other->groups[g]->flags[i].name, other);
            }
        }
    }
}

/* Contract in app.h. Flags of the launcher have an effect where a launcher started this process. */
void app_warn_idle_rank_flags(const app_context *app) {
    static const char *const of_ranks[] = {
        "reduce",    "wire",      "bucket",       "shard-optimizer", "sync-batch-norm",
        "layerwise", "plan",      "mesh",         "full-batch",      "trial-seconds",
        "engine",    "algorithm", "start-timeout"};
    static const char *const of_launchers[] = {"launch-dir", "timeout"};
    for (size_t i = 0; app->ranks == NULL && i < sizeof of_ranks / sizeof of_ranks[0]; i++) {
        print_result(app, of_ranks[i], "several ranks (-n)");
    }
    bool launched = getenv("TRIREME_RANK") != NULL;
    for (size_t i = 0;
         app->ranks == NULL && !launched && i < sizeof of_launchers / sizeof of_launchers[0]; i++) {
        print_result(app, of_launchers[i], "several ranks (-n)");
    }
    if (app->ranks != NULL && !is(app_context_option(app, "parallel_mode"), "auto_parallel")) {
        print_result(app, "trial-seconds", "--parallel-mode auto_parallel");
    }
}

void app_warn_idle_flags(const app_context *app, const app_model *model) {
    const app_options *o = &app->o;
    tell_of_steps(app);
    tell_of_training(app);
    tell_of_model(app, model);
    if (!is(o->data, "synth") && !is(o->data, "clicks") && !is(o->dataset, "clicks")) {
        print_result(app, "synth-train", "--data synth");
        print_result(app, "synth-test", "--data synth");
    }
}

/* ---- jobs with parameter servers ------------------------------------------------------------- */

/* Contract in app.h. The group of flags is the list: a new flag of such jobs is refused without
 * a change here. */
trm_status app_refuse_job_flags(const app_context *app, trm_error *err) {
    for (int i = 0; i < app_group_roles.count; i++) {
        const char *name = app_group_roles.flags[i].name;
        /* aliases of --output and --dry-run, which every training has */
        bool everywhere = strcmp(name, "model_dir") == 0 || strcmp(name, "check") == 0;
        if (!everywhere && app_given(&app->parsed, name)) {
            return app_fail(err, TRM_INVALID,
                            "--%s is of jobs with parameter servers: give --ps N too", name);
        }
    }
    return TRM_OK;
}
