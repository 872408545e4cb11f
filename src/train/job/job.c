/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a training job as a flat JSON object and compares two descriptions key by key (job.h).
 * The description is made of hashes and settings only, so that it is small, and comparing it does
 * not need the old data or network.
 *
 *   fixed keys   data, network, precision, backend, optimizer: other values would give other bits
 *                or weights of other shapes; a difference is INVALID unless changes are accepted
 *   other keys   learning rate, schedule, clipping, how ranks share a step: one line of the log
 *
 * Keys and the words of their values are parts of files and must not change; a key that only one
 * description has is not compared, so that older checkpoints fit. */
#include "train/job/job.h"

#include "train/gradient_sink.h"
#include "train/job/job_operators.h"
#include "train/model.h"

#include "base/error.h"
#include "base/format/report.h"
#include "base/log.h"
#include "base/optimizer_rule.h"
#include "data/pipeline/dataset.h"
#include "graph/graph_ir.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Keys that must be equal in a resumed run: other values would give other bits, or weights of
 * other shapes. */
static const char *const fixed[] = {"data", "network", "precision", "backend", "optimizer"};
enum { FIXED = sizeof fixed / sizeof fixed[0] };

/* ---- description ----------------------------------------------------------------------------- */

/* Returns a hash of the network: kinds of the operators in their order, names and shapes of the
 * parameters, tables of the sink. Batch sizes are left out, also those of the rows that servers
 * give for a batch, because a job may be resumed with the batch divided over another number of
 * ranks. Where parameters are frozen, also which, and constant factors: those of adapters. */
static uint64_t digest_network(const trm_model *model) {
    const trm_graph *graph = model->train.graph;
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    const char *name;
    int64_t size[2];
    for (int32_t i = 0; model->sink->table != NULL && model->sink->table(model, i, &name, size);
         i++) {
        XXH3_64bits_update(&state, name, strlen(name));
        XXH3_64bits_update(&state, size, sizeof size);
    }
    /* Kinds of operators, names and shapes of parameters. Rows that servers give (remote) have the
     * size of a batch and are left out. */
    bool adapts = false;
    for (int64_t i = 0; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        const int32_t kind = (int32_t)op->kind;
        XXH3_64bits_update(&state, &kind, sizeof kind);
        if (op->kind == TRMI_OP_SCALE && adapts) {
            XXH3_64bits_update(&state, &op->attrs.scale.factor, sizeof op->attrs.scale.factor);
        }
        if (op->kind == TRMI_OP_PARAMETER && op->outputs_count > 0) {
            if (!op->attrs.leaf.trainable) {
                adapts = true;
                XXH3_64bits_update(&state, &adapts, sizeof adapts);
            }
            const trm_shape *shape = &trmi_value_of(graph, op->outputs[0])->shape;
            const int32_t dims = op->attrs.leaf.remote ? 0 : shape->rank;
            XXH3_64bits_update(&state, op->name, strlen(op->name));
            XXH3_64bits_update(&state, shape->dim, (size_t)dims * sizeof *shape->dim);
        }
    }
    return XXH3_64bits_digest(&state);
}

/* Names in the description; they are part of files and must not change. */
static const char *precision_name(trm_precision precision) {
    static const char *const names[] = {"fp32", "mixed", "origin"};
    return (unsigned)precision < 3 ? names[precision] : "unknown";
}

static const char *decay_name(trm_decay decay) {
    static const char *const names[] = {"constant", "step", "cosine", "polynomial", "wsd"};
    return (unsigned)decay < 5 ? names[decay] : "unknown";
}

/* Returns the label smoothing of the first loss in the graph; 0 if there is none. */
static double label_smoothing(const trm_graph *graph) {
    for (int64_t i = 0; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        if (op->kind == TRMI_OP_SOFTMAX_XENT || op->kind == TRMI_OP_LINEAR_XENT) {
            return op->attrs.xent.label_smoothing;
        }
    }
    return 0;
}

/* Returns `fallback` for 0. */
static double or_else(double value, double fallback) { return value == 0 ? fallback : value; }

/* Puts what changes the gradients of equal batches: loss, scaling, clipping, how ranks share. */
static void put_gradients(trmi_report *r, const trm_model *model) {
    const trm_model_options *o = &model->options;
    const trm_parallel_options *ranks = &o->exec.parallel;
    const trm_optimizer_options *rule = &o->exec.optimizer;
    const bool adam = rule->kind == TRM_ADAM;
    char samples[64], norm[96];
    trmi_report_put(r, trmi_real("label_smoothing", label_smoothing(model->train.graph)),
                    trmi_real("clip_norm", rule->clip_norm),
                    trmi_real("beta1", or_else(rule->beta1, adam ? 0.9 : 0)),
                    trmi_real("beta2", or_else(rule->beta2, adam ? 0.999 : 0)),
                    trmi_real("epsilon", rule->epsilon), trmi_real("decay_all", rule->decay_all),
                    trmi_real("decay_biases", rule->decay_biases),
                    trmi_real("trust_coefficient", or_else(rule->trust_coefficient, 0.001)),
                    trmi_real("initial_accumulator", rule->initial_accumulator),
                    trmi_real("l1", rule->l1), trmi_real("l2", rule->l2),
                    trmi_string("loss_scale", !o->exec.loss_scale.on       ? "off"
                                              : o->exec.loss_scale.dynamic ? "dynamic"
                                                                           : "fixed"),
                    trmi_real("strict_block", ranks->block),
                    trmi_string("elastic_batch", model->first_ranks > 0 ? "rank" : "global"));
    if (trmi_model_size(model) > 1) {
        trmi_report_put(
            r, trmi_string("reduce", ranks->sum ? "sum" : "mean"),
            trmi_string("wire", trm_dtype_name(ranks->wire == 0 ? TRM_FLOAT32 : ranks->wire)));
    }
    if (o->exec.loss_scale.on) {
        trmi_report_put(r,
                        trmi_real("loss_scale_first", or_else(o->exec.loss_scale.initial, 65536)));
    }
    if (trmi_model_norm_samples(model, samples, sizeof samples)) {
        snprintf(norm, sizeof norm, "over %s samples", samples);
        trmi_report_put(r, trmi_string("batch_norm", norm));
    }
}

/* Puts the fixed keys. `digest`: of the data, if there are some. */
static void put_fixed(trmi_report *r, const trm_model *model, const trm_dataset *data,
                      uint64_t digest) {
    const trm_exec_options *o = &model->options.exec;
    char text[96];
    snprintf(text, sizeof text, "%016" PRIx64, digest_network(model));
    trmi_report_put(r, trmi_string("network", text),
                    trmi_string("precision", precision_name(o->precision)),
                    trmi_string("backend", o->backend == NULL ? "onednn" : o->backend));
    snprintf(text, sizeof text, "%s%s", trmi_optimizer_of(o->optimizer.kind)->name,
             o->optimizer.decoupled ? " decoupled" : "");
    trmi_report_put(r, trmi_string("optimizer", text));
    if (data != NULL) {
        snprintf(text, sizeof text, "%lld samples, digest %016" PRIx64,
                 (long long)trm_dataset_sample_count(data), digest);
        trmi_report_put(r, trmi_string("data", text));
    }
}

/* Contract in job.h. Fixed keys first, then settings that may change. */
trm_status trmi_job_describe(const trm_model *model, const trm_dataset *data, trmi_text *text,
                             trm_error *err) {
    const trm_learning_rate *rate = &model->options.learning_rate;
    const trm_optimizer_options *rule = &model->options.exec.optimizer;
    uint64_t digest = 0;
    trmi_report r;
    TRMI_TRY(data != NULL ? trmi_dataset_fingerprint(data, &digest, err) : TRM_OK);
    trmi_report_begin_json(&r, text);
    put_fixed(&r, model, data, digest);
    trmi_report_put(
        &r, trmi_string("schedule", decay_name(rate->decay)),
        trmi_real("learning_rate", rate->base), trmi_real("end_learning_rate", rate->end),
        trmi_real("warmup_steps", (double)rate->warmup_steps),
        trmi_real("warmup_start", rate->warmup_start),
        trmi_real("schedule_steps", (double)rate->total_steps),
        trmi_real("decay_steps", (double)rate->every_steps),
        trmi_real("gamma", or_else(rate->gamma, 0.1)), trmi_real("power", or_else(rate->power, 1)),
        trmi_real("momentum", rule->momentum), trmi_real("weight_decay", rule->weight_decay));
    put_gradients(&r, model);
    trmi_job_put_operators(&r, model->train.graph);
    if (model->servers[0] != '\0') {
        trmi_report_put(&r, trmi_string("servers", model->servers));
    }
    trmi_report_put(&r, trmi_real("epochs", (double)model->wanted_epochs),
                    trmi_real("steps", (double)model->wanted_steps));
    (void)trmi_report_end(&r);
    return TRMI_CHECK_MEMORY(err, text, "for the description of a job");
}

/* ---- comparison ------------------------------------------------------------------------------ */

static bool is_fixed(const char *key) {
    for (int i = 0; i < FIXED; i++) {
        if (strcmp(fixed[i], key) == 0) {
            return true;
        }
    }
    return false;
}

/* Formats a value of the description for comparing and for messages. */
static void put_value(const json_t *value, char *text, size_t size) {
    if (json_is_string(value)) {
        snprintf(text, size, "%.60s", json_string_value(value));
    } else {
        snprintf(text, size, "%.9g", json_number_value(value));
    }
}

/* Handles a key whose values differ: INVALID for a fixed key unless the changes are accepted,
 * else the key is appended to `changes`, the text for the log. */
static trm_status handle_difference(const trm_model *model, const char *key, const char *was,
                                    const char *is, const char *where, trmi_text *changes,
                                    trm_error *err) {
    if (is_fixed(key) && !model->options.accept_changes) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: of another job, %s differs (found %s, expected %s): give the job's own, "
            "or accept_changes (--accept-changes)",
            where, key, was, is);
    }
    trmi_text_printf(changes, "%s%s %s -> %s", changes->length > 0 ? ", " : "", key, was, is);
    return TRM_OK;
}

/* Replaces the number of an optimiser ("kind 3 decoupled"), which checkpoints of version 0.2.0
 * have, by the name that trmi_job_describe writes. */
static void name_optimizer(char *text, size_t size) {
    static const trm_optimizer_kind kinds[] = {TRM_SGD,  TRM_MOMENTUM, TRM_NESTEROV, TRM_ADAM,
                                               TRM_LARS, TRM_ADAGRAD,  TRM_FTRL};
    unsigned number;
    char rest[16] = "";
    if (sscanf(text, "kind %u%15[ a-z]", &number, rest) >= 1 &&
        number < sizeof kinds / sizeof kinds[0]) {
        snprintf(text, size, "%s%s", trmi_optimizer_of(kinds[number])->name, rest);
    }
}

/* Compares the description `mine` with `theirs`, the checkpoint's; appends the differences that
 * are allowed to `changes`. */
static trm_status compare_descriptions(const trm_model *model, const json_t *mine,
                                       const json_t *theirs, const char *where, trmi_text *changes,
                                       trm_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)mine, key, value) {
        const json_t *other = json_object_get(theirs, key);
        char was[80], is[80];
        if (other == NULL) {
            continue;
        }
        put_value(other, was, sizeof was);
        put_value(value, is, sizeof is);
        name_optimizer(was, sizeof was);
        if (strcmp(was, is) != 0) {
            TRMI_TRY(handle_difference(model, key, was, is, where, changes, err));
        }
    }
    return TRM_OK;
}

/* Contract in job.h. A checkpoint without a description fits every job. Rank 0 logs accepted
 * changes, once the data is known. */
trm_status trmi_job_compare(const trm_model *model, const trm_dataset *data, const char *saved,
                            const char *where, trm_error *err) {
    trmi_text text = {0}, changes = {0};
    json_error_t why;
    json_t *mine = NULL, *theirs = saved == NULL ? NULL : json_loads(saved, 0, &why);
    trm_status status = TRM_OK;
    if (json_object_size(theirs) == 0) {
        goto done;
    }
    TRMI_TRY_GOTO(status, trmi_job_describe(model, data, &text, err), done);
    mine = json_loads(text.data, 0, &why);
    status = mine == NULL ? TRMI_NO_MEMORY(err, "to compare jobs")
                          : compare_descriptions(model, mine, theirs, where, &changes, err);
    if (status == TRM_OK && data != NULL && changes.length > 0 && trmi_model_rank(model) == 0) {
        trmi_log(TRM_LOG_WARN, "train", "resumed with changes: %s", changes.data);
    }
done:
    json_decref(mine);
    json_decref(theirs);
    trmi_text_free(&text);
    trmi_text_free(&changes);
    return status;
}

/* Keys whose values differ between a process alone and ranks, or between calls of the training. */
static bool follows_ranks(const char *key) {
    static const char *const keys[] = {"strict_block", "reduce", "wire",
                                       "batch_norm",   "epochs", "steps"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

/* Contract in job.h. */
trm_status trmi_job_compare_ranks(const char *mine, const char *theirs, trm_error *err) {
    json_error_t why;
    json_t *own = json_loads(mine, 0, &why), *other = json_loads(theirs, 0, &why);
    trm_status status =
        own != NULL && other != NULL ? TRM_OK : TRMI_NO_MEMORY(err, "to compare jobs");
    const char *key;
    json_t *value;
    json_object_foreach(own, key, value) {
        const json_t *at = json_object_get(other, key);
        char is[80], expected[80];
        if (status != TRM_OK || at == NULL || follows_ranks(key)) {
            continue;
        }
        put_value(value, is, sizeof is);
        put_value(at, expected, sizeof expected);
        if (strcmp(is, expected) != 0) {
            status = TRMI_FAIL(err, TRM_INVALID, "%s differs (found %s, the job has %s)", key, is,
                               expected);
        }
    }
    json_decref(own);
    json_decref(other);
    return status;
}
