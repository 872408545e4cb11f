/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates a model: feeds batches to the evaluation program and adds up figures of merit over
 * batches and ranks.
 *
 *       evaluate_batches    prepare_evaluation (compile, AUC) -> take_weights -> one_batch ...
 *                           -> add_ranks -> compute_figures
 *
 * Each rank evaluates its part of the data with all of the model; counts and sums are reduced at
 * the end, so that every rank returns the same figures. Padding of the last batch does not count
 * (batch->samples, label -1). */
#include "train/model.h"

#include "trireme/train.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "data/text/token_source.h"
#include "exec/exec.h"

#include <math.h>
#include <string.h>

/* The user's function that gets the logits of each batch (trm_model_predict); `fn` is NULL
 * without one. */
typedef struct watcher {
    trm_prediction_fn fn;
    void *context;
    bool no_figures; /* the loss and its fields are not read */
} watcher;

/* Sums over the batches of this rank. */
typedef struct sums {
    double loss;
    double own[TRM_MAX_METRICS][TRM_MAX_METRIC_SUMS]; /* sums of the user's metrics */
    int64_t samples, tokens, hits;                    /* hits: tokens that were predicted right */
    trm_top_k top;
} sums;

/* Returns whether the model is a classifier: logits [N, K] and integer labels. Its figures are
 * top-1 and top-5. */
static bool is_classification(const trmi_compiled *c) {
    trm_shape shape = trm_node_shape(c->graph, c->logits);
    return c->label >= 0 && c->target[c->label].dtype == TRM_INT32 && shape.rank == 2;
}
/* Returns whether the model predicts clicks: one logit a sample and float labels. Its figures
 * are AUC and log loss. */
static bool is_binary(const trmi_compiled *c) {
    trm_shape shape = trm_node_shape(c->graph, c->logits);
    return c->label >= 0 && c->target[c->label].dtype == TRM_FLOAT32 &&
           trm_shape_count(&shape) == c->batch;
}

/* Returns the index of a field of int32 that the network reads; -1 without one. */
static int32_t find_ids(const trmi_compiled *c, const char *name) {
    for (int32_t i = 0; i < c->fields; i++) {
        if (strcmp(c->names[i], name) == 0 && c->target[i].data != NULL) {
            return c->target[i].dtype == TRM_INT32 ? i : -1;
        }
    }
    return -1;
}
/* Returns whether the model predicts the next tokens. Its figures are perplexity and bits per
 * byte. */
static bool is_language(const trmi_compiled *c) {
    return find_ids(c, "tokens") >= 0 && find_ids(c, "targets") >= 0;
}

/* Adds the targets of a batch that count, and those that the program predicted. Returns the former.
 */
static trm_status add_targets(const trmi_compiled *c, const trm_batch *batch, sums *s,
                              int64_t *counted, trm_error *err) {
    enum { IGNORED = -100 };
    const trm_tensor *targets;
    TRMI_TRY(trmi_find_field(c, batch, find_ids(c, "targets"), &targets, err));
    const int32_t *ids = targets->data;
    trm_tensor predicted = {.data = NULL};
    if (c->predicted.id != 0) {
        TRMI_TRY(trm_exec_output(c->exec, 1, &predicted, err));
    }
    *counted = 0;
    for (int64_t i = 0; i < trm_shape_count(&targets->shape); i++) {
        bool counts = ids[i] != IGNORED;
        *counted += counts;
        s->hits +=
            counts && predicted.data != NULL && ((const int32_t *)predicted.data)[i] == ids[i];
    }
    s->tokens += *counted;
    return TRM_OK;
}

/* Prepares an evaluation of `data`: compiles the evaluation program at the first call, again for
 * another batch size, and resets the AUC bins.
 *   errors  INVALID: another batch size in a model made with evaluation_only */
static trm_status prepare_evaluation(trm_model *model, trm_dataset *data, trm_error *err) {
    trm_batch_field first;
    TRMI_TRY(trmi_model_share_data(model, data, false, err));
    TRMI_TRY(trm_dataset_check(data, err));
    int64_t batch = trm_dataset_field(data, 0, &first) ? first.tensor.shape.dim[0] : 0;
    /* A program has one batch size: another one needs another program. */
    if (model->evaluate.exec != NULL && model->evaluate.batch != batch) {
        if (model->options.evaluation_only) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "the model was compiled for batches of %lld, not %lld",
                             (long long)model->evaluate.batch, (long long)batch);
        }
        trmi_compiled_free(&model->evaluate);
    }
    if (model->evaluate.exec == NULL) {
        TRMI_TRY(trmi_compile(model, data, false, &model->evaluate, err));
    }
    if (!is_binary(&model->evaluate)) {
        return TRM_OK;
    }
    if (model->auc == NULL) {
        TRMI_TRY(trm_auc_create(&model->auc, err));
    }
    trm_auc_reset(model->auc);
    return TRM_OK;
}

/* Copies the weights into an evaluation program that does not share them. A split model is
 * evaluated unsplit on every rank, so the cut parameters are gathered first (collective). */
static trm_status take_weights(trm_model *model, trm_error *err) {
    trm_exec *from = model->train.exec, *to = model->evaluate.exec;
    if (trmi_model_shares_weights(model) || from == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(trm_exec_gather(from, err));
    for (int32_t i = 0; i < trm_exec_variable_count(to); i++) {
        trm_variable v = trm_exec_variable(to, i);
        int32_t source = trm_exec_find(from, v.name);
        trm_tensor t = {.dtype = v.dtype, .shape = v.shape};
        void *values = source >= 0 ? trmi_alloc((size_t)trm_tensor_bytes(&t)) : NULL;
        if (values == NULL) {
            return TRMI_NO_MEMORY(err, "to evaluate with %s", v.name);
        }
        trm_exec_read(from, source, values);
        trm_exec_write(to, i, values);
        trmi_free(values);
    }
    return TRM_OK;
}

/* Returns the number of the user's metrics. */
static int32_t own_count(const trm_model *model) {
    int32_t count = 0;
    while (count < TRM_MAX_METRICS && model->options.metrics[count].add != NULL) {
        count++;
    }
    return count;
}

/* Passes one batch to the user's metrics, which add to their sums. An error gets the metric's
 * name in front. */
static trm_status add_own(const trm_model *model, const trm_tensor *logits, const trm_batch *batch,
                          sums *s, trm_error *err) {
    for (int32_t i = 0; i < own_count(model); i++) {
        const trm_metric *m = &model->options.metrics[i];
        trm_error theirs = {.rank = -1};
        trm_status status = m->add(m->context, logits, batch->samples, batch, s->own[i], &theirs);
        if (status != TRM_OK) {
            return TRMI_FAIL(err, status, "metric '%s': %s", m->name,
                             theirs.message[0] != '\0' ? theirs.message : trm_status_text(status));
        }
    }
    return TRM_OK;
}

/* Adds loss, counts, AUC bins and the user's metrics of one batch to `s`. */
static trm_status add_figures(trm_model *model, const trm_batch *batch, const trm_tensor *logits,
                              sums *s, trm_error *err) {
    const trmi_compiled *c = &model->evaluate;
    /* The loss of the program is a mean: it counts by samples or, in language models, by
     * targets. */
    int64_t weight = batch->samples;
    if (is_language(c)) {
        TRMI_TRY(add_targets(c, batch, s, &weight, err));
    }
    /* a batch without anything that counts has no mean loss */
    s->loss += weight > 0 ? (double)trm_exec_loss(c->exec) * (double)weight : 0;
    s->samples += batch->samples;
    TRMI_TRY(add_own(model, logits, batch, s, err));
    if (!is_classification(c) && !is_binary(c)) {
        return TRM_OK;
    }
    /* Clicks have probabilities (AUC), classes a ranking (top 1 and 5). */
    const trm_tensor *labels;
    TRMI_TRY(trmi_find_field(c, batch, c->label, &labels, err));
    if (is_binary(c)) {
        trm_auc_add(model->auc, logits->data, labels->data, batch->samples);
    } else {
        trm_top_k_add(&s->top, logits->data, labels->data, batch->samples, logits->shape.dim[1]);
    }
    return TRM_OK;
}

/* Runs one batch forward, gives its logits to the user's function and adds its figures to `s`. */
static trm_status one_batch(trm_model *model, const trm_batch *batch, const watcher *watch, sums *s,
                            trm_error *err) {
    const trmi_compiled *c = &model->evaluate;
    trm_tensor logits;
    TRMI_TRY(trmi_feed(c, batch, !watch->no_figures, err));
    TRMI_TRY(trm_exec_forward(c->exec, err));
    TRMI_TRY(trm_exec_output(c->exec, 0, &logits, err));
    if (watch->fn != NULL) {
        TRMI_TRY(watch->fn(watch->context, &logits, batch->samples, batch, err));
    }
    return watch->no_figures ? TRM_OK : add_figures(model, batch, &logits, s, err);
}

/* Replaces the sums by those over all ranks, on every rank. Collective. */
static trm_status add_ranks(trm_model *model, sums *s, trm_error *err) {
    enum { OWN = 4, COUNTS = OWN + sizeof s->top.hits / sizeof s->top.hits[0] };
    int64_t counts[COUNTS] = {s->samples, s->top.samples, s->tokens, s->hits};
    memcpy(counts + OWN, s->top.hits, sizeof s->top.hits);
    TRMI_TRY(trmi_model_add(model, &s->loss, 1, err));
    if (own_count(model) > 0) {
        TRMI_TRY(trmi_model_add(model, s->own[0], own_count(model) * TRM_MAX_METRIC_SUMS, err));
    }
    TRMI_TRY(trmi_model_add_counts(model, counts, COUNTS, err));
    s->samples = counts[0];
    s->top.samples = counts[1];
    s->tokens = counts[2];
    s->hits = counts[3];
    memcpy(s->top.hits, counts + OWN, sizeof s->top.hits);
    return is_binary(&model->evaluate) ? trmi_auc_add_ranks(model->auc, model, err) : TRM_OK;
}

/* Computes the figures of the evaluation from the sums. */
static void compute_figures(trm_model *model, const trm_dataset *data, const sums *s,
                            trm_evaluation *out) {
    const trmi_compiled *c = &model->evaluate;
    memset(out, 0, sizeof *out);
    out->samples = s->samples;
    out->loss = s->samples > 0 ? s->loss / (double)s->samples : 0;
    out->has_auc = is_binary(c);
    out->has_top = !out->has_auc && is_classification(c);
    if (out->has_top) {
        out->top1 = trm_top_k_value(&s->top, 1);
        out->top5 = trm_top_k_value(&s->top, 5);
    }
    if (out->has_auc) {
        trm_auc_values values;
        trm_auc_get(model->auc, &values);
        out->auc = values.auc;
        out->logloss = values.logloss;
        out->calibration = values.calibration;
        out->loss = out->logloss; /* the mean loss of the program includes padding */
    }
    out->has_tokens = is_language(c);
    if (out->has_tokens) {
        double bytes = trmi_dataset_token_bytes(data);
        out->tokens = s->tokens;
        out->loss = s->tokens > 0 ? s->loss / (double)s->tokens : 0;
        out->perplexity = exp(out->loss);
        out->has_accuracy = c->predicted.id != 0;
        out->accuracy = s->tokens > 0 ? (double)s->hits / (double)s->tokens : 0;
        out->bits_per_byte = bytes > 0 ? out->loss / log(2) / bytes : 0;
    }
    /* The user's metrics: their own value of the sums, else the mean. */
    out->metric_count = own_count(model);
    for (int32_t i = 0; i < out->metric_count; i++) {
        const trm_metric *m = &model->options.metrics[i];
        const double *own = s->own[i];
        double mean = m->sum_count < 2 ? own[0] : own[1] != 0 ? own[0] / own[1] : 0;
        out->metrics[i] =
            (trm_named_scalar){m->name, m->value != NULL ? m->value(m->context, own) : mean};
    }
}

/* Evaluates at most `steps` batches of `data`. Running statistics are made equal on all ranks
 * first. A stop request ends an evaluation only of a single rank: with more, the flag travels
 * with training steps, and a rank that stopped by itself would leave the others waiting in
 * add_ranks.
 *   errors  CANCELLED; those of the parts */
static trm_status evaluate_batches(trm_model *model, trm_dataset *data, int64_t steps,
                                   const watcher *watch, trm_evaluation *out, trm_error *err) {
    TRMI_TRY(prepare_evaluation(model, data, err));
    trmi_match_fields(&model->evaluate, data);
    TRMI_TRY(trmi_exec_broadcast_states(trmi_model_owner(model)->exec, err));
    TRMI_TRY(take_weights(model, err));
    bool alone = trmi_model_comm(model) == NULL;
    double begin = trmi_os_now();
    sums s = {0};
    /* Every evaluation reads the same samples in the same order. */
    TRMI_TRY(trm_dataset_seek(data, 0, 0, err));
    int64_t batches = trm_dataset_epoch_batches(data);
    batches = steps < batches ? steps : batches;
    for (int64_t i = 0; i < batches; i++) {
        if (alone && atomic_load(&model->stop)) {
            return TRMI_FAIL(err, TRM_CANCELLED,
                             "stopped on request in batch %lld of an evaluation", (long long)i + 1);
        }
        const trm_batch *batch;
        TRMI_TRY(trmi_next_batch(data, &batch, err));
        TRMI_TRY(one_batch(model, batch, watch, &s, err));
    }
    /* Add the sums of all ranks; the figures are computed from them, not averaged. */
    TRMI_TRY(add_ranks(model, &s, err));
    if (out != NULL) {
        compute_figures(model, data, &s, out);
        out->seconds = trmi_os_now() - begin;
    }
    return TRM_OK;
}

/* As evaluate_batches. A stop request that came while no training runs was for this evaluation, and
 * is over. */
static trm_status run_evaluation(trm_model *model, trm_dataset *data, int64_t steps,
                                 const watcher *watch, trm_evaluation *out, trm_error *err) {
    trm_status status = evaluate_batches(model, data, steps, watch, out, err);
    if (model->data == NULL && trmi_model_comm(model) == NULL) {
        atomic_store(&model->stop, 0);
    }
    return status;
}

trm_status trm_model_evaluate(trm_model *model, trm_dataset *data, trm_evaluation *out,
                              trm_error *err) {
    TRMI_NEED(err, model, data, out);
    return run_evaluation(model, data, INT64_MAX, &(watcher){0}, out, err);
}

trm_status trm_model_evaluate_steps(trm_model *model, trm_dataset *data, int64_t steps,
                                    trm_evaluation *out, trm_error *err) {
    TRMI_NEED(err, model, data, out);
    if (steps < 1) {
        return TRMI_FAIL(err, TRM_INVALID, "evaluation: %lld batches, at least 1 expected",
                         (long long)steps);
    }
    return run_evaluation(model, data, steps, &(watcher){0}, out, err);
}

trm_status trm_model_predict(trm_model *model, trm_dataset *data, trm_prediction_fn see,
                             void *context, trm_evaluation *out, trm_error *err) {
    TRMI_NEED(err, model, data, (const void *)(uintptr_t)see);
    return run_evaluation(model, data, INT64_MAX, &(watcher){see, context, out == NULL}, out, err);
}
