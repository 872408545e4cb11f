/* SPDX-License-Identifier: Apache-2.0 */
/* Creates a trm_model from the user's options (contract in trireme/train.h), and the small calls
 * that ask or tell it something.
 *
 *       trm_model_create
 *         check_options             what needs neither data nor ranks
 *         copy_options              gradient sink, changes of ranks, ranks, context, texts
 *         sink->check               what the sink forbids
 *         trmi_model_share_data     this rank's share of the dataset
 *         trmi_compile              graph and executor (compile.c)
 *         changes->open             elastic jobs: copies of the state
 *
 * All strings that the model keeps are in its arena, so the options may be freed after the call;
 * the dataset of the options is read here only for its shapes. One thread calls all functions of a
 * model, except trm_model_request_stop and trm_model_request_leave, which a signal handler may
 * call. */
#include "train/gradient_sink.h"
#include "train/model.h"
#include "train/rank_changes.h"

#include "trireme/train.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/log.h"
#include "base/optimizer_rule.h"
#include "exec/distributed/batches.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Contract in model.h. A model for evaluation only has no training program. */
trmi_compiled *trmi_model_owner(trm_model *model) {
    return model->options.evaluation_only ? &model->evaluate : &model->train;
}

/* Checks the learning-rate schedule.
 *   errors  INVALID: base not above 0, negative steps, values that are not finite */
static trm_status check_rate(const trm_learning_rate *r, trm_error *err) {
    if (!(r->base > 0) || !isfinite(r->base)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "learning rate %g: must be greater than 0; set learning_rate.base",
                         r->base);
    }
    bool finite =
        isfinite(r->end) && isfinite(r->gamma) && isfinite(r->power) && isfinite(r->warmup_start);
    if ((unsigned)r->decay > TRM_DECAY_WSD || !finite || r->every_steps < 0 ||
        r->warmup_steps < 0 || r->total_steps < 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "learning rate: decay %d (0 to %d expected), every_steps %lld, warmup_steps "
            "%lld, total_steps %lld (0 or more expected), and finite numbers",
            (int)r->decay, TRM_DECAY_WSD, (long long)r->every_steps, (long long)r->warmup_steps,
            (long long)r->total_steps);
    }
    return TRM_OK;
}

/* Checks that the description for checkpoints is a JSON object. Done at creation, because
 * otherwise the error would appear only at the first save. */
static trm_status check_description(const char *text, trm_error *err) {
    json_error_t why;
    json_t *root = text != NULL ? json_loads(text, JSON_REJECT_DUPLICATES, &why) : NULL;
    bool object = json_is_object(root);
    json_decref(root);
    return text == NULL || object
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "a model's description: a JSON object expected, found '%.60s'", text);
}

/* Returns whether evaluations, events or CSV files have a figure of their own of this name, or one
 * of the first `count` metrics is called so. */
static bool is_taken(const char *name, const trm_metric *metrics, int32_t count) {
    static const char *const figures[] = {
        "epoch",      "step",    "global_step", "learning_rate", "images_per_second",
        "loss",       "samples", "tokens",      "seconds",       "top1",
        "top5",       "auc",     "calibration", "logloss",       "bits_per_byte",
        "perplexity", "accuracy"};
    bool taken = false;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        taken |= strcmp(name, figures[i]) == 0;
    }
    for (int32_t i = 0; i < count; i++) {
        taken |= strcmp(name, metrics[i].name) == 0;
    }
    return taken;
}

/* Checks the user's metrics: each has a name of its own and 1 to TRM_MAX_METRIC_SUMS sums. */
static trm_status check_metrics(const trm_model_options *o, trm_error *err) {
    for (int32_t i = 0; i < TRM_MAX_METRICS && o->metrics[i].add != NULL; i++) {
        const trm_metric *m = &o->metrics[i];
        if (m->name == NULL || m->name[0] == '\0' || m->sum_count < 1 ||
            m->sum_count > TRM_MAX_METRIC_SUMS) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "metric %d (%s): %d sums; a name and 1 to %d expected", (int)i,
                             m->name != NULL ? m->name : "without a name", (int)m->sum_count,
                             TRM_MAX_METRIC_SUMS);
        }
        if (is_taken(m->name, o->metrics, i)) {
            return TRMI_FAIL(
                err, TRM_INVALID,
                "metric '%s': evaluations have a figure of this name already, which it "
                "would hide; give it another name",
                m->name);
        }
    }
    return TRM_OK;
}

/* Checks the options that need neither data nor ranks. A model for evaluation only needs no rate
 * and no description. */
static trm_status check_options(const trm_model_options *o, trm_error *err) {
    if (o->network == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "a model needs a network (found NULL); set network");
    }
    if (o->data == NULL) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "a model needs a dataset, for the shapes of its inputs (found NULL); set data");
    }
    if ((unsigned)o->exec.precision > TRM_PRECISION_ORIGIN || o->exec.accumulate < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "precision %d (0 to %d expected), accumulate %d (0 or more expected)",
                         (int)o->exec.precision, TRM_PRECISION_ORIGIN, (int)o->exec.accumulate);
    }
    const trm_exec_options *e = &o->exec;
    if (e->loss.id != 0 || e->outputs_count != 0 || e->parameters_of != NULL ||
        e->updated_elsewhere || e->whole_gradients || e->blocks != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a model's exec options: the model sets loss, outputs, parameters_of, "
                         "updated_elsewhere, whole_gradients and blocks itself; leave them zero");
    }
    TRMI_TRY(check_metrics(o, err));
    if (o->evaluation_only) {
        return TRM_OK;
    }
    TRMI_TRY(check_description(o->description, err));
    return check_rate(&o->learning_rate, err);
}

/* Translates the context (trm_context, options by name) into `o->parallel` and `o->accumulate`,
 * if the options have a context. Options of parallel that the context also sets must be zero.
 * Lists are borrowed from the context until the executor copies them.
 *   errors  INVALID; those of trm_context_resolve */
static trm_status take_context(const trm_model_options *given, trm_model_options *o,
                               trm_error *err) {
    if (given->context == NULL) {
        return TRM_OK;
    }
    const trm_parallel_options *p = &given->exec.parallel;
    if (p->sum || p->wire != 0 || p->bucket != 0 || p->shard_optimizer || p->cooperative ||
        p->sync_batch_norm != 0 || p->broadcast != TRM_DEFAULT || p->layerwise_count != 0 ||
        p->block != 0 || given->exec.accumulate > 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a model's context says how ranks work together: of parallel only comm, "
                         "mesh and plan may be "
                         "given beside it, and accumulate is its grad_accumulation_step");
    }
    /* the context is needed only here; the options keep what it resolves to */
    o->context = NULL;
    trm_comm *comm = o->exec.parallel.comm;
    if (comm != NULL && given->exec.parallel.comm == NULL &&
        !trm_context_is_set(given->context, "parallel_mode")) {
        trmi_log(
            TRM_LOG_WARN, "train",
            "the context's parallel_mode is not set, which means stand_alone: the model trains "
            "by itself, although this process has joined %d ranks",
            trm_comm_size(comm));
    }
    TRMI_TRY(
        trm_context_resolve(given->context, comm, &o->exec.parallel, &o->exec.accumulate, err));
    /* What the caller may give beside a context. */
    trm_parallel_options *to = &o->exec.parallel;
    to->batch = p->batch == TRM_BATCH_OF_JOB ? p->batch : to->batch;
    to->pipeline.schedule = p->pipeline.schedule;
    to->pipeline.chunks = p->pipeline.chunks;
    to->pipeline.begins = p->pipeline.begins;
    to->split.mesh = p->split.mesh;
    to->split.trials = p->split.trials;
    to->split.trial_seconds = p->split.trial_seconds;
    to->split.measure_seconds = p->split.measure_seconds;
    to->split.plan = p->split.plan != NULL ? p->split.plan : to->split.plan;
    return TRM_OK;
}

/* Copies the options into the model, chooses the gradient sink, resolves ranks and context, and
 * copies the strings into the model's arena. */
static trm_status copy_options(const trm_model_options *given, trm_model *model, trm_error *err) {
    trm_model_options *o = &model->options;
    *o = *given;
    o->data = NULL;
    /* Sink and rank changes follow from the options, and the ranks from both. */
    model->sink = trmi_gradient_sink_of(o);
    model->changes = trmi_rank_changes_of(o);
    TRMI_TRY(trmi_model_find_ranks(model, err));
    TRMI_TRY(take_context(given, o, err));
    trmi_batches_settle(&o->exec.parallel);
    /* texts of the caller may be freed after creation */
    const char **strings[] = {&o->exec.backend,
                              &o->exec.tuning_file,
                              &o->exec.choices_file,
                              &o->description,
                              &o->exec.parallel.pipeline.begins,
                              &o->exec.parallel.split.mesh,
                              &o->exec.parallel.split.plan,
                              &o->exec.parallel.split.search,
                              &o->exec.parallel.split.save_plan,
                              &o->exec.parallel.split.save_groups,
                              &o->exec.parallel.split.input_cuts};
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
        if (*strings[i] != NULL &&
            (*strings[i] = trmi_arena_strdup(&model->arena, *strings[i])) == NULL) {
            return TRMI_NO_MEMORY(err, "for a model's options");
        }
    }
    return model->changes->settle(model, err);
}

/* Warns of a momentum that the rule does not use: the program has probably left `kind` at its
 * default, and would train without momentum. */
static void warn_of_momentum(const trm_model *model) {
    const trm_optimizer_options *o = &model->options.exec.optimizer;
    bool uses = o->kind == TRM_MOMENTUM || o->kind == TRM_NESTEROV || o->kind == TRM_LARS;
    if (o->momentum != 0 && !uses && !model->options.evaluation_only &&
        trmi_model_rank(model) == 0) {
        trmi_log(TRM_LOG_WARN, "train",
                 "optimizer: momentum %g has no effect with the rule %s; set kind to TRM_MOMENTUM, "
                 "TRM_NESTEROV or TRM_LARS, or momentum to 0",
                 o->momentum, trmi_optimizer_of(o->kind)->name);
    }
}

/* Makes a model. `alone`: as for trmi_rank_changes.open. On failure everything made so far is
 * destroyed and *out is not written. */
static trm_status make_model(const trm_model_options *options, int32_t alone, trm_model **out,
                             trm_error *err) {
    trm_model *model;
    TRMI_TRY(TRMI_NEW(err, model, 1, "for a model"));
    trm_status status;
    TRMI_TRY_GOTO(status, copy_options(options, model, err), failed);
    if (model->sink->check != NULL) {
        TRMI_TRY_GOTO(status, model->sink->check(&model->options, err), failed);
    }
    /* Take the data of this rank, then the program. */
    bool training = !options->evaluation_only;
    TRMI_TRY_GOTO(status, trmi_model_share_data(model, options->data, training, err), failed);
    TRMI_TRY_GOTO(
        status, trmi_compile(model, options->data, training, trmi_model_owner(model), err), failed);
    TRMI_TRY_GOTO(status, model->changes->open(model, alone, err), failed);
    trmi_model_log_ranks(model);
    warn_of_momentum(model);
    *out = model;
    return TRM_OK;
failed:
    trm_model_destroy(model);
    return status;
}

/* Contract in trireme/train.h. */
trm_status trm_model_create(const trm_model_options *options, trm_model **out, trm_error *err) {
    TRMI_NEED(err, options, out);
    trm_error own;
    err = err != NULL ? err : &own;
    TRMI_TRY(check_options(options, err));
    trm_status status = make_model(options, 0, out, err);
    if (status == TRM_OK) {
        return TRM_OK;
    }
    /* Ranks of an elastic job make their models together. If one has died meanwhile, this process
     * makes its model alone and meets the others when it trains; else the error stands. */
    int32_t ranks;
    TRMI_TRY(trmi_rank_changes_of(options)->go_alone(options, status, &ranks, err));
    return make_model(options, ranks, out, err);
}

/* Contract in trireme/train.h. Also frees a model that make_model could not finish. */
void trm_model_destroy(trm_model *model) {
    if (model == NULL) {
        return;
    }
    if (model->sink != NULL && model->sink->destroy != NULL) {
        model->sink->destroy(model);
    }
    trmi_compiled_free(
        &model
             ->evaluate); /* the evaluation program first: it may use the training program's weights */
    trmi_compiled_free(&model->train);
    if (model->changes != NULL) {
        model->changes->close(model);
    }
    trm_auc_destroy(model->auc);
    trmi_text_free(&model->job);
    trmi_text_free(&model->resumed_job);
    trmi_arena_free(&model->arena);
    trmi_free(model);
}

trm_exec *trm_model_exec(trm_model *model) {
    TRMI_NEED_OR(NULL, NULL, model);
    return trmi_model_owner(model)->exec;
}

const trm_graph *trm_model_graph(const trm_model *model, trm_node *logits) {
    TRMI_NEED_OR(NULL, NULL, model);
    const trmi_compiled *owner = trmi_model_owner((trm_model *)model);
    if (logits != NULL) {
        *logits = owner->logits;
    }
    return owner->graph;
}

uint64_t trm_model_global_step(const trm_model *model) {
    TRMI_NEED_OR(0, NULL, model);
    return trm_exec_step(trmi_model_owner((trm_model *)model)->exec);
}

void trm_model_request_stop(trm_model *model) {
    TRMI_NEED_OR(, NULL, model);
    atomic_store(&model->stop, 1);
}

/* Contract in trireme/train.h. Without an elastic job to leave, leaving is stopping. */
void trm_model_request_leave(trm_model *model) {
    TRMI_NEED_OR(, NULL, model);
    if (!model->changes->request_leave(model)) {
        trm_model_request_stop(model);
    }
}

/* Contract in trireme/train.h. Notes are saved with checkpoints, so that callbacks resume. */
trm_status trm_model_set_note(trm_model *model, const char *name, double value, trm_error *err) {
    TRMI_NEED(err, model, name);
    if (strlen(name) >= TRMI_NOTE_NAME_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "note '%s': a name has at most %d characters", name,
                         TRMI_NOTE_NAME_MAX - 1);
    }
    int32_t i = 0;
    while (i < model->notes_count && strcmp(model->notes[i].name, name) != 0) {
        i++;
    }
    if (i == TRMI_NOTES_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "note '%s': a model has at most %d notes", name,
                         TRMI_NOTES_MAX);
    }
    snprintf(model->notes[i].name, TRMI_NOTE_NAME_MAX, "%s", name);
    model->notes[i].value = value;
    model->notes_count = i == model->notes_count ? i + 1 : model->notes_count;
    return TRM_OK;
}

bool trm_model_get_note(const trm_model *model, const char *name, double *value) {
    TRMI_NEED_OR(false, NULL, model, name, value);
    for (int32_t i = 0; i < model->notes_count; i++) {
        if (strcmp(model->notes[i].name, name) == 0) {
            *value = model->notes[i].value;
            return true;
        }
    }
    return false;
}
