/* SPDX-License-Identifier: Apache-2.0 */
/* From flags to trm_model_options: precision, optimiser, learning rate, loss scale, network, split
 * (contracts in app.h). Each word of a flag maps to an enumerator here and nowhere else, and all
 * commands make their models by these functions, so that a flag means the same in all of them.
 *
 * Words that are wrong are reported with the words that exist. A description of the run (which
 * flags it had) goes into each checkpoint. */
#include "app/models/models.h"

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

const app_word app_optimizers[] = {{"sgd", TRM_SGD},
                                   {"momentum", TRM_MOMENTUM},
                                   {"nesterov", TRM_NESTEROV},
                                   {"adam", TRM_ADAM},
                                   {"lazy_adam", TRM_LAZY_ADAM},
                                   {"lars", TRM_LARS},
                                   {"adagrad", TRM_ADAGRAD},
                                   {"rowwise_adagrad", TRM_ROWWISE_ADAGRAD},
                                   {"ftrl", TRM_FTRL},
                                   {NULL, 0}};

/* Sets the options of --optimizer and its parameters.
 *   errors  INVALID */
static trm_status parse_optimizer(const app_options *o, trm_optimizer_options *out,
                                  trm_error *err) {
    *out = (trm_optimizer_options){
        .weight_decay = o->weight_decay, .clip_norm = o->clip_norm, .initial_accumulator = 0.1};
    out->decoupled = strcmp(o->optimizer, "adamw") == 0;
    out->kind = TRM_ADAM; /* adamw; others follow */
    for (const app_word *w = app_optimizers; w->name != NULL; w++) {
        if (strcmp(o->optimizer, w->name) == 0) {
            out->kind = (trm_optimizer_kind)w->value;
        }
    }
    if (out->kind == TRM_MOMENTUM || out->kind == TRM_NESTEROV || out->kind == TRM_LARS) {
        out->momentum = o->momentum;
    }
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
 *   errors  INVALID */
static trm_status parse_loss_scale(const app_options *o, trm_loss_scale_options *out,
                                   trm_error *err) {
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

/* Returns the schedule of a pipeline. */
static trm_schedule schedule_of(const app_options *o) {
    const char *name = o->pipeline_schedule;
    return name == NULL || strcmp(name, "1f1b") == 0 ? TRM_SCHEDULE_1F1B
           : strcmp(name, "gpipe") == 0              ? TRM_SCHEDULE_GPIPE
                                                     : TRM_SCHEDULE_INTERLEAVED;
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

/* Writes the description of the run that checkpoints keep, as JSON.
 *   errors  NOMEM; INVALID: longer than a description may be */
static trm_status describe_run(const app_options *o, app_network *n, trm_error *err) {
    const app_model_kind *kind = n->model->kind;
    app_begin(APP_KEPT, NULL, NULL);
    app_put(
        app_text("model", n->model->name, NULL), app_int("classes", n->classes, NULL),
        app_text("stem", n->stem, NULL), app_int("image_size", o->image_size, NULL),
        app_int("batch_size", o->batch_size, NULL), app_text("precision", o->precision, NULL),
        app_text("optimizer", o->optimizer, NULL),
        app_real("learning_rate", o->learning_rate, NULL), app_real("momentum", o->momentum, NULL),
        app_real("weight_decay", o->weight_decay, NULL), app_text("schedule", o->schedule, NULL),
        app_int("warmup_steps", o->warmup_steps, NULL),
        app_real("label_smoothing", o->label_smoothing, NULL), app_text("loss", o->loss, NULL),
        app_int("epochs", o->epochs, NULL), app_int("steps", o->steps, NULL),
        app_bool("exact_guide", o->fixed_recipe, NULL), app_text("version", trm_version(), NULL));
    if (kind->key != NULL) {
        app_open_object(kind->key);
        kind->describe(n);
        app_close();
    }
    char *text = app_end_kept();
    if (text == NULL) {
        return app_no_memory(err, "for the description of a model");
    }
    int bytes = snprintf(n->description, APP_DESCRIPTION_BYTES, "%s", text);
    free(text);
    return bytes < APP_DESCRIPTION_BYTES
               ? TRM_OK
               : app_fail(err, TRM_INVALID,
                          "the flags that checkpoints keep: %d bytes found, at most %d expected",
                          bytes, APP_DESCRIPTION_BYTES - 1);
}

/* Returns whether a model that is not trained gets all its values from files. Adapters that a
 * folder of Hugging Face may lack begin with their own. */
static bool reads_all_values(const app_options *o) {
    return (o->checkpoint != NULL || o->from != NULL) && o->transformer.lora == NULL;
}

/* Contract in app.h. A model is made only once in a process: the text of its plan is kept in
 * static memory. */
trm_status app_model_options(app_context *app, trm_dataset *data, bool evaluation_only,
                             app_network *network, trm_model_options *out, trm_error *err) {
    /* Network, optimiser, loss scale and context, each of which may refuse its flags. */
    const app_options *o = &app->o;
    /* not NULL: main.c has checked the name */
    const app_model *model = app_model_of(app->parsed.arguments[0]);
    *network = (app_network){
        .model = model, .stem = o->stem, .xent = {.label_smoothing = o->label_smoothing}};
    trm_status status = model->kind->network_of(app, data, network, err);
    trm_loss_scale_options loss_scale = {0};
    trm_optimizer_options optimizer = {0};
    if (status == TRM_OK) {
        status = parse_optimizer(o, &optimizer, err);
    }
    if (status == TRM_OK) {
        status = parse_loss_scale(o, &loss_scale, err);
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
    /* For one rank --plan and --mesh have no effect, and app_warn_idle_flags warns. */
    if ((status = app_check_pipeline(app, err)) != TRM_OK) {
        return status;
    }
    if (app_rank_count(app) > 1 && (status = app_check_split_flags(app, err)) != TRM_OK) {
        return status;
    }
    if (o->click.preset != NULL && !model->has_preset) {
        return app_fail(err, TRM_INVALID, "--preset peer is of widedeep and language models");
    }
    /* jobs with servers refuse such flags before they start a role */
    if (app_rank(app) == 0 && !app_is_job(app)) {
        app_warn_idle_flags(app, APP_STAGE_MODEL);
        if (o->context_tokens > 0 && !model->kind->counts_inputs) {
            app_warn("--context %lld has no effect here: a number of tokens is for language models",
                     (long long)o->context_tokens);
        }
        if (strcmp(app->command->name, "train") == 0 && o->transformer.lora != NULL &&
            o->init == NULL && !o->resume) {
            app_warn("--lora without --init: the frozen weights are random, and stay so");
        }
    }
    /* The options. A kind of model with a loss of its own gets its network as context. */
    if ((status = describe_run(o, network, err)) != TRM_OK) {
        return status;
    }
    app_compare_start(app, network, data);
    bool expand = strcmp(o->loss, "expand") == 0;
    *out = (trm_model_options){
        .network = model->kind->build,
        .network_context = network,
        .loss = model->kind->loss != NULL ? model->kind->loss
                : expand                  ? trm_loss_softmax_expand
                                          : trm_loss_softmax,
        .loss_context = model->kind->loss != NULL ? (void *)network
                        : expand                  ? NULL
                                                  : &network->xent,
        .exec.optimizer = optimizer,
        .learning_rate = rate_of(o),
        .data = data,
        .exec.backend = o->backend,
        .exec.precision = precision_of(o),
        .exec.recompute = o->recompute != NULL && strcmp(o->recompute, "block") == 0,
        .exec.loss_scale = loss_scale,
        .exec.threads = (int)o->threads,
        .exec.seed = (uint64_t)o->seed,
        .exec.fusion = o->no_fusion ? TRM_OFF : TRM_DEFAULT,
        .exec.initialise = evaluation_only && reads_all_values(o) ? TRM_OFF : TRM_DEFAULT,
        .exec.tuning_file = o->tuning_file,
        .exec.retune_seconds = o->retune_seconds,
        .exec.memory_bytes = o->plan_memory,
        .exec.choices_file = o->choices_file,
        .evaluation_only = evaluation_only,
        .accept_changes = o->accept_changes,
        .description = network->description,
        .exec.parallel = {.comm = app_comm(app),
                          .split.mesh = splits ? o->split_mesh : NULL,
                          .split.plan = !splits                 ? NULL
                                        : o->found_plan != NULL ? o->found_plan
                                                                : plan,
                          .pipeline = {.schedule = schedule_of(o),
                                       .chunks = (int32_t)o->chunks,
                                       .begins = o->stage_begins},
                          .split.trials = o->plan_trial == 0 ? TRM_OFF : TRM_DEFAULT,
                          .split.trial_seconds = o->plan_trial > 0 ? o->plan_trial : 0,
                          .batch =
                              splits && !app_reads_own(app) ? TRM_BATCH_OF_JOB : TRM_BATCH_DEFAULT,
                          .stand_alone = app_comm(app) == NULL},
        .context = app->context,
        .elastic = app_elastic(app),
        .elastic_batch = o->elastic_batch != NULL && strcmp(o->elastic_batch, "rank") == 0
                             ? TRM_ELASTIC_BATCH_RANK
                             : TRM_ELASTIC_BATCH_GLOBAL,
    };
    return TRM_OK;
}

/* Contract in app.h. The library copies the description. */
trm_status app_make_model(app_context *app, trm_dataset *data, bool evaluation_only,
                          app_network *network, trm_model **out, trm_error *err) {
    trm_model_options options;
    trm_status status = app_model_options(app, data, evaluation_only, network, &options, err);
    return status == TRM_OK ? trm_model_create(&options, out, err) : status;
}
