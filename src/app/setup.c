/* SPDX-License-Identifier: Apache-2.0 */
/* From flags to trm_model_options: precision, optimiser, learning rate, loss scale, network,
 * split (contracts in app.h). Each word of a flag maps to an enumerator here and nowhere else. */
#include "app/app.h"

#include "trireme/nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the precision of --precision; MindSpore's words mean the same. */
static trm_precision precision_of(const app_options *o) {
    if (strcmp(o->precision, "mixed") == 0 || strcmp(o->precision, "allow_mix_precision") == 0) {
        return TRM_PRECISION_MIXED;
    }
    if (strcmp(o->precision, "origin") == 0 ||
        strcmp(o->precision, "must_keep_origin_dtype") == 0) {
        return TRM_PRECISION_ORIGIN;
    }
    return TRM_PRECISION_FP32;
}

/* Sets the options of --optimizer and its parameters.
 *   error  INVALID */
static trm_status optimizer_of(const app_options *o, trm_optimizer_options *out, trm_error *err) {
    static const char *const names[] = {"sgd",   "momentum", "nesterov", "adam",
                                        "adamw", "lars",     "adagrad",  "ftrl"};
    static const trm_optimizer_kind kinds[] = {TRM_SGD,  TRM_MOMENTUM, TRM_NESTEROV, TRM_ADAM,
                                               TRM_ADAM, TRM_LARS,     TRM_ADAGRAD,  TRM_FTRL};
    *out = (trm_optimizer_options){.momentum = o->momentum,
                                   .weight_decay = o->weight_decay,
                                   .clip_norm = o->clip_norm,
                                   .initial_accumulator = 0.1};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(o->optimizer, names[i]) == 0) {
            out->kind = kinds[i];
        }
    }
    out->decoupled = strcmp(o->optimizer, "adamw") == 0;
    int end = 0;
    if (o->betas != NULL && (sscanf(o->betas, "%lf,%lf%n", &out->beta1, &out->beta2, &end) != 2 ||
                             o->betas[end] != '\0' || !(out->beta1 > 0 && out->beta1 < 1) ||
                             !(out->beta2 > 0 && out->beta2 < 1))) {
        return app_fail(err, TRM_INVALID,
                        "--betas %.60s: two numbers between 0 and 1, such as 0.9,0.95, expected",
                        o->betas);
    }
    return TRM_OK;
}

/* Parses --loss-scale: off, fixed, dynamic, fixed:1024, dynamic:65536.
 *   error  INVALID */
static trm_status loss_scale_of(const app_options *o, trm_loss_scale_options *out, trm_error *err) {
    const char *text = o->loss_scale, *colon = text != NULL ? strchr(text, ':') : NULL;
    *out = (trm_loss_scale_options){0};
    if (text == NULL || strcmp(text, "off") == 0) {
        return TRM_OK;
    }
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    char *end = NULL;
    out->on = true;
    out->dynamic = length == 7 && strncmp(text, "dynamic", 7) == 0;
    out->initial = colon != NULL ? strtod(colon + 1, &end) : 0;
    bool number = colon == NULL ||
                  (end != colon + 1 && *end == '\0' && out->initial >= 1 && out->initial <= 1e38);
    if (!(out->dynamic || (length == 5 && strncmp(text, "fixed", 5) == 0)) || !number) {
        return app_fail(err, TRM_INVALID,
                        "--loss-scale '%.40s': off, fixed, dynamic, or fixed:X and dynamic:X "
                        "with X of at least 1 are expected",
                        text);
    }
    return TRM_OK;
}

/* Returns the schedule of the learning rate. */
static trm_learning_rate rate_of(const app_options *o) {
    static const char *const names[] = {"constant", "step", "cosine", "polynomial", "wsd"};
    static const trm_decay decays[] = {TRM_DECAY_CONSTANT, TRM_DECAY_STEP, TRM_DECAY_COSINE,
                                       TRM_DECAY_POLYNOMIAL, TRM_DECAY_WSD};
    trm_learning_rate out = {.base = o->learning_rate,
                             .end = o->end_learning_rate,
                             .gamma = o->gamma,
                             .every_steps = o->decay_steps,
                             .power = o->power,
                             .warmup_steps = o->warmup_steps,
                             .warmup_start = o->warmup_start};
    for (size_t i = 0; i < sizeof decays / sizeof decays[0]; i++) {
        if (strcmp(o->schedule, names[i]) == 0) {
            out.decay = decays[i];
        }
    }
    return out;
}

/* Builds the graph of an image model: a trm_model_options.network. */
static trm_node build(trm_graph *graph, const trm_inputs *inputs, void *context) {
    const app_network *n = context;
    const trm_network_options options = {.classes = n->classes,
                                         .stem = strcmp(n->stem, "cifar") == 0 ? TRM_STEM_CIFAR
                                                                               : TRM_STEM_IMAGENET};
    return trm_network_build(graph, n->name, trm_inputs_get(inputs, "image"), &options);
}

/* Returns the name of model `index`: image models, then click models, then language models; NULL
 * behind the last. */
static const char *name_at(int32_t index) {
    int32_t images = 0;
    while (trm_network_name(images) != NULL) {
        images++;
    }
    if (index < images) {
        return trm_network_name(index);
    }
    int32_t others = index - images, clicks = 0;
    while (trm_recommender_name(clicks) != NULL) {
        clicks++;
    }
    return others < clicks ? trm_recommender_name(others) : trm_language_name(others - clicks);
}

/* The kinds of models, and what their rates count. */
enum { IMAGES, CLICKS, LANGUAGE };
static const struct {
    const char *unit, *rate_key;
} kinds[] = {{"images", "images_per_second"},
             {"samples", "samples_per_second"},
             {"tokens", "tokens_per_second"}};

/* Returns the row of `kinds` of the command's MODEL. */
static int kind_of(const app_context *app) {
    const char *name = app->parsed.arguments_count > 0 ? app->parsed.arguments[0] : "";
    return app_is_recommender(name) ? CLICKS : app_is_language(name) ? LANGUAGE : IMAGES;
}

const char *app_unit(const app_context *app) { return kinds[kind_of(app)].unit; }
const char *app_rate_key(const app_context *app) { return kinds[kind_of(app)].rate_key; }
double app_units_a_sample(const app_context *app) {
    return kind_of(app) == LANGUAGE ? (double)app->o.context_tokens : 1;
}

void app_print_input(const app_context *app, char *text, size_t size) {
    const app_options *o = &app->o;
    text[0] = '\0';
    if (kind_of(app) == IMAGES) {
        snprintf(text, size, ", %lldx%lld", (long long)o->image_size, (long long)o->image_size);
    } else if (kind_of(app) == LANGUAGE) {
        snprintf(text, size, ", %lld tokens", (long long)o->context_tokens);
    }
}

void app_json_input(const app_context *app) {
    if (kind_of(app) == IMAGES) {
        app_json_int("image_size", app->o.image_size);
    } else if (kind_of(app) == LANGUAGE) {
        app_json_int("context", app->o.context_tokens);
    }
}

/* Contract in app.h. */
trm_status app_check_model_name(const char *name, trm_error *err) {
    const char *words[64];
    char list[160] = "";
    int count = 0;
    while (count < 64 && (words[count] = name_at(count)) != NULL) {
        if (strcmp(words[count], name) == 0) {
            return TRM_OK;
        }
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", count ? ", " : "", words[count]);
        count++;
    }
    const char *nearest = app_nearest(name, words, count);
    return nearest != NULL
               ? app_fail(err, TRM_INVALID, "no model '%.40s'; the nearest is %s", name, nearest)
               : app_fail(err, TRM_INVALID, "no model '%.40s'; there are: %s", name, list);
}

/* Sets the number of classes: --classes, else the data's, else 10.
 *   error  INVALID if the data has more */
static trm_status settle_classes(app_network *network, const app_options *o, trm_dataset *data,
                                 trm_error *err) {
    int64_t present = trm_dataset_class_count(data);
    network->classes = o->classes > 0 ? o->classes : present > 0 ? present : 10;
    if (network->classes < present) {
        return app_fail(err, TRM_INVALID, "the data has %lld classes, the network %lld (--classes)",
                        (long long)present, (long long)network->classes);
    }
    return TRM_OK;
}

/* Writes the description of the run that checkpoints keep, as JSON. No text needs escapes: all
 * are words of fixed choice, and the model's name is in the list of models. */
static void describe(const app_options *o, const app_network *n, char *text, size_t size) {
    char own[2048] = "";
    if (app_is_recommender(n->name)) {
        snprintf(own, sizeof own, ",\"click\":");
        app_click_describe(n, own + strlen(own), sizeof own - strlen(own));
    } else if (app_is_language(n->name)) {
        snprintf(own, sizeof own, ",\"language\":");
        app_language_describe(n, own + strlen(own), sizeof own - strlen(own));
    }
    snprintf(
        text, size,
        "{\"model\":\"%s\",\"classes\":%lld,\"stem\":\"%s\",\"image_size\":%lld,\"batch_size\":%"
        "lld,"
        "\"precision\":\"%s\",\"optimizer\":\"%s\",\"learning_rate\":%.9g,\"momentum\":%.9g,"
        "\"weight_decay\":%.9g,\"schedule\":\"%s\",\"warmup_steps\":%lld,\"label_smoothing\":%.9g,"
        "\"loss\":\"%s\",\"epochs\":%lld,\"steps\":%lld,\"exact_guide\":%s,\"version\":\"%s\"%s}",
        n->name, (long long)n->classes, n->stem, (long long)o->image_size, (long long)o->batch_size,
        o->precision, o->optimizer, o->learning_rate, o->momentum, o->weight_decay, o->schedule,
        (long long)o->warmup_steps, o->label_smoothing, o->loss, (long long)o->epochs,
        (long long)o->steps, o->exact_guide ? "true" : "false", trm_version(), own);
}

/* Contract in app.h. A model is made only once in a process: the text of its plan is kept in
 * static memory. */
trm_status app_model_options(app_context *app, const char *name, trm_dataset *data,
                             bool evaluation_only, app_network *network, char *description,
                             trm_model_options *out, trm_error *err) {
    const app_options *o = &app->o;
    bool recommender = app_is_recommender(name), language = app_is_language(name);
    trm_status status = app_check_model_name(name, err);
    *network = (app_network){
        .name = name, .stem = o->stem, .xent = {.label_smoothing = o->label_smoothing}};
    if (status == TRM_OK) {
        status = recommender ? app_click_network_of(app, data, &network->click, err)
                 : language  ? app_language_network_of(app, data, &network->language, err)
                             : settle_classes(network, o, data, err);
    }
    trm_loss_scale_options loss_scale = {0};
    trm_optimizer_options optimizer = {0};
    if (status == TRM_OK) {
        status = optimizer_of(o, &optimizer, err);
    }
    if (status == TRM_OK) {
        status = loss_scale_of(o, &loss_scale, err);
    }
    if (status == TRM_OK) {
        status = app_set_context(app, err);
    }
    if (status == TRM_OK) {
        status = app_settle_slices(app, err);
    }
    if (status != TRM_OK) {
        return status;
    }
    static char *plan; /* the model copies it */
    bool splits = app_splits(app);
    if (o->split_plan != NULL && splits && plan == NULL) {
        status = app_read_plan(o->split_plan, &plan, err);
        if (status != TRM_OK) {
            return status;
        }
    }
    /* one rank: --plan and --mesh have no effect, and app_warn_idle_rank_flags warns */
    if (app_rank_count(app) > 1 && (status = app_check_split_flags(app, err)) != TRM_OK) {
        return status;
    }
    if (o->click.preset != NULL && strcmp(name, "widedeep") != 0 && !language) {
        return app_fail(err, TRM_INVALID, "--preset peer is of widedeep and language models");
    }
    /* jobs with servers refuse such flags before they start a role */
    if (app_rank(app) == 0 && !app_is_job(app)) {
        app_warn_idle_flags(app, name);
    }
    describe(o, network, description, APP_DESCRIPTION_BYTES);
    bool expand = strcmp(o->loss, "expand") == 0;
    *out = (trm_model_options){
        .network = recommender ? app_click_build
                   : language  ? app_language_build
                               : build,
        .network_context = network,
        .loss = recommender ? trm_loss_logistic
                : language  ? app_language_loss
                : expand    ? trm_loss_softmax_expand
                            : trm_loss_softmax,
        .loss_context = language                ? (void *)network
                        : recommender || expand ? NULL
                                                : &network->xent,
        .optimizer = optimizer,
        .learning_rate = rate_of(o),
        .data = data,
        .backend = o->backend,
        .precision = precision_of(o),
        .loss_scale = loss_scale,
        .threads = (int)o->threads,
        .seed = (uint64_t)o->seed,
        .no_fusion = o->no_fusion,
        .tuning_file = o->tuning_file,
        .retune_seconds = o->retune_seconds,
        .memory_bytes = o->plan_memory,
        .choices_file = o->choices_file,
        .evaluation_only = evaluation_only,
        .accept_changes = o->accept_changes,
        .description = description,
        .parallel = {.comm = app_comm(app),
                     .mesh = splits ? o->split_mesh : NULL,
                     .plan = splits ? plan : NULL,
                     .trial_seconds = app_trial_seconds(o),
                     .whole_batch = splits && !app_reads_own(app),
                     .stand_alone = app_comm(app) == NULL},
        .context = app->context,
    };
    return TRM_OK;
}

/* Contract in app.h. The library copies the description. */
trm_status app_make_model(app_context *app, const char *name, trm_dataset *data,
                          bool evaluation_only, app_network *network, trm_model **out,
                          trm_error *err) {
    char description[APP_DESCRIPTION_BYTES];
    trm_model_options options;
    trm_status status =
        app_model_options(app, name, data, evaluation_only, network, description, &options, err);
    return status == TRM_OK ? trm_model_create(&options, out, err) : status;
}
