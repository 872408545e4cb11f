/* Flags that were given and that nothing will look at: told, not refused, so that a script may keep them when it changes
 * the optimiser or the model. */
#include "app/app.h"

#include <string.h>

typedef struct idle_flag {
    const char *flag;
    bool idle;
    const char *is_for;
} idle_flag;

static bool is(const char *text, const char *word) { return text != NULL && strcmp(text, word) == 0; }

static bool has_momentum(const char *optimizer) {
    return is(optimizer, "momentum") || is(optimizer, "nesterov") || is(optimizer, "lars");
}

static void tell(const app_context *app, const char *flag, const char *is_for) {
    if (app_given(&app->parsed, flag)) {
        app_warn("--%s has no effect here: it is for %s", flag, is_for);
    }
}

static void tell_of_training(const app_context *app) {
    const app_options *o = &app->o;
    bool step = is(o->schedule, "step"), polynomial = is(o->schedule, "polynomial");
    const idle_flag table[] = {
        {"momentum", !has_momentum(o->optimizer), "--optimizer momentum, nesterov and lars"},
        {"warmup-start", o->warmup_steps == 0, "--warmup-steps"},
        {"end-learning-rate", !polynomial && !is(o->schedule, "cosine"), "--schedule cosine and polynomial"},
        {"decay-steps", !step, "--schedule step"},
        {"gamma", !step, "--schedule step"},
        {"power", !polynomial, "--schedule polynomial"},
        {"tuning-file", is(o->backend, "ref"), "--backend onednn"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].idle) {
            tell(app, table[i].flag, table[i].is_for);
        }
    }
}

static void tell_of_model(const app_context *app, const char *model) {
    static const char *const of_images[] = {"image-size", "classes", "label-smoothing", "loss"};
    static const app_group *const of_clicks[] = {&app_group_click_data, &app_group_click_model};
    bool clicks = app_is_recommender(model);
    if (strncmp(model, "resnet", 6) != 0) {
        tell(app, "stem", "resnets");
    }
    if (strncmp(model, "resnet", 6) != 0 && app->ranks != NULL) {
        tell(app, "sync-batch-norm", "models that normalise over batches, the resnets");
    }
    for (size_t i = 0; clicks && i < sizeof of_images / sizeof of_images[0]; i++) {
        tell(app, of_images[i], "models of images");
    }
    for (int g = 0; !clicks && g < 2; g++) {
        for (int i = 0; i < of_clicks[g]->count; i++) {
            tell(app, of_clicks[g]->flags[i].name, "recommendation models (trireme help clicks)");
        }
    }
}

void app_tell_idle_rank_flags(const app_context *app) {
    static const char *const of_ranks[] = {"reduce", "wire", "bucket", "shard-optimizer", "sync-batch-norm", "layerwise"};
    for (size_t i = 0; app->ranks == NULL && i < sizeof of_ranks / sizeof of_ranks[0]; i++) {
        tell(app, of_ranks[i], "several ranks (-n)");
    }
}

void app_tell_idle_flags(const app_context *app, const char *model) {
    const app_options *o = &app->o;
    tell_of_training(app);
    tell_of_model(app, model);
    if (!is(o->data, "synth") && !is(o->data, "clicks") && !is(o->dataset, "clicks")) {
        tell(app, "synth-train", "--data synth");
        tell(app, "synth-test", "--data synth");
    }
}
