/* SPDX-License-Identifier: Apache-2.0 */
/* Creates a trm_model: from the user's options to a compiled program whose inputs are bound to
 * the fields of a dataset.
 *
 *       trm_model_create    copy_options (gradient sink, ranks, context, batch)  ->  trmi_compile
 *       trmi_compile        fields of the dataset -> graph (network, loss) -> program (trm_exec) -> feeds
 *
 * trmi_compile runs once for training at creation, and a second time for evaluation at the first
 * trm_model_evaluate. All strings that the model keeps are in its arena; the dataset of the
 * options is read here only for its shapes. */
#include "train/elastic.h"
#include "train/gradient_sink.h"
#include "train/model.h"

#include "trireme/train.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/log.h"
#include "exec/distributed/batches.h"
#include "exec/exec.h"
#include "graph/detach.h"
#include "graph/graph_ir.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

trmi_compiled *trmi_model_owner(trm_model *model) {
    return model->options.evaluation_only ? &model->evaluate : &model->train;
}

void trmi_compiled_free(trmi_compiled *compiled) {
    trm_exec_destroy(compiled->exec);
    trm_graph_destroy(compiled->graph);
    memset(compiled, 0, sizeof *compiled);
}

/* Sets *blocks to the number of fixed blocks of samples that the batch is computed in; 0: none.
 *   error  INVALID: the block does not divide the batch, or a field has no row a sample */
static trm_status count_blocks(const trm_model *model, const trm_inputs *inputs, int32_t *blocks,
                               trm_error *err) {
    int64_t batch = inputs->fields[0].tensor.shape.dim[0];
    TRMI_TRY(trmi_batches_blocks(&model->options.exec.parallel, batch, blocks, err));
    for (int32_t i = 0; *blocks > 0 && i < inputs->count; i++) {
        const trm_shape *shape = &inputs->fields[i].tensor.shape;
        if (shape->rank < 1 || shape->dim[0] != batch) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "field '%s' has not one row a sample; strict determinism cannot "
                             "deal it out",
                             inputs->fields[i].name);
        }
    }
    return TRM_OK;
}

/* Returns by how much the graph's batch is larger than the dataset's: a graph of all ranks' samples
 * of which each rank feeds its own. */
static int32_t graph_share(const trm_model *model) {
    const trmi_batch_form form = trmi_batch_form_of(&model->options.exec.parallel);
    return form.reads > 1 ? form.graph_ranks : 1;
}

/* Enlarges the first dimension of all fields to the graph's batch. */
static void enlarge_batch(trm_inputs *inputs, int32_t share) {
    for (int32_t i = 0; i < inputs->count; i++) {
        trm_shape *shape = &inputs->fields[i].tensor.shape;
        shape->dim[0] *= shape->rank > 0 ? share : 1;
    }
}

/* ---- compiling ---------------------------------------------------------------------------- */

/* Copies the descriptions of the dataset's fields into `inputs`.
 *   error  INVALID: no fields; those of trm_dataset_check */
static trm_status take_fields(trm_dataset *data, trm_inputs *inputs, trm_error *err) {
    TRMI_TRY(trm_dataset_check(data, err));
    while (inputs->count < TRM_MAX_BATCH_FIELDS &&
           trm_dataset_field(data, inputs->count, &inputs->fields[inputs->count])) {
        inputs->count++;
    }
    if (inputs->count == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "the dataset has no fields");
    }
    return TRM_OK;
}

/* Builds network and loss into out->graph, through the functions of the options (default loss:
 * softmax cross-entropy).
 *   error  INVALID: an error of the builders, or a loss that is not a scalar */
static trm_status build_graph(trm_model *model, trm_inputs *inputs, trmi_compiled *out,
                              trm_error *err) {
    const trm_model_options *o = &model->options;
    out->logits = o->network(out->graph, inputs, o->network_context);
    trm_loss loss = o->loss != NULL ? o->loss : trm_loss_softmax;
    out->loss = loss(out->graph, out->logits, inputs, o->loss_context);
    TRMI_TRY(trm_graph_check(out->graph, err));
    trm_shape shape = trm_node_shape(out->graph, out->loss);
    if (trm_shape_count(&shape) != 1 || out->loss.id == 0) {
        char text[96];
        return TRMI_FAIL(err, TRM_INVALID, "the loss must be a scalar, its shape is %s",
                         trm_shape_format(&shape, text, sizeof text));
    }
    return TRM_OK;
}

/* Returns the ids that the operator of the loss predicts in evaluation; TRM_NO_NODE without such an
 * operator. */
static trm_node find_predictions(const trm_graph *graph) {
    for (int64_t i = graph->ops_count - 1; i > 0; i--) {
        const trmi_op *op = &graph->ops[i];
        if (op->kind == TRMI_OP_LINEAR_XENT && op->attrs.xent.predicts) {
            return (trm_node){op->outputs[1]};
        }
    }
    return TRM_NO_NODE;
}

/* Compiles the graph into out->exec. The training program gets optimiser, accumulation, memory
 * limit and ranks; the evaluation program has the logits, and predicted ids if there are any, as its outputs and, where possible, the
 * training program's weights. */
static trm_status build_exec(trm_model *model, bool training, trmi_compiled *out, trm_error *err) {
    const trm_model_options *o = &model->options;
    trm_exec_options exec = o->exec;
    exec.loss = out->loss;
    out->predicted = training ? TRM_NO_NODE : find_predictions(out->graph);
    const trm_node outputs[] = {out->logits, out->predicted};
    if (training) {
        exec.accumulate = trmi_accumulate(model);
        exec.parallel.split.input_cuts = NULL; /* a dataset gives samples or whole batches */
        exec.blocks = out->blocks;
        exec.updated_elsewhere = model->sink->updates;
    } else {
        exec.optimizer = (trm_optimizer_options){0};
        exec.loss_scale = (trm_loss_scale_options){.on = false};
        exec.accumulate = 0;
        exec.memory_bytes = 0;
        exec.parallel = (trm_parallel_options){.comm = NULL};
        exec.outputs = outputs;
        exec.outputs_count = out->predicted.id != 0 ? 2 : 1;
        exec.parameters_of = trmi_model_shares_weights(model) ? model->train.exec : NULL;
    }
    return trm_exec_create(out->graph, &exec, &out->exec, err);
}

/* Looks up where the program takes each field that the network uses, and the index of the field
 * "label". Names are copied, because the dataset may be destroyed before the model. */
static trm_status bind_feeds(trm_model *model, const trm_inputs *inputs, trmi_compiled *out,
                             trm_error *err) {
    out->fields = inputs->count;
    out->label = -1;
    out->batch = inputs->fields[0].tensor.shape.dim[0];
    if (out == &model->train) {
        out->batch /= graph_share(model); /* back from the graph's batch to this rank's part */
    }
    for (int32_t i = 0; i < inputs->count; i++) {
        if (strcmp(inputs->fields[i].name, "label") == 0) {
            out->label = i;
        }
        out->names[i] = trmi_arena_strdup(&model->arena, inputs->fields[i].name);
        if (out->names[i] == NULL) {
            return TRMI_FAIL(err, TRM_NOMEM, "no memory for a model");
        }
        if (inputs->nodes[i].id != 0) {
            TRMI_TRY(trm_exec_input(out->exec, inputs->fields[i].name, &out->target[i], err));
        }
    }
    return TRM_OK;
}

/* Order of the stages: fields, batch size as the ranks need it, graph, sink (may take tables
 * out), program, feeds, sink (declares tables). Contract in model.h. */
trm_status trmi_compile(trm_model *model, trm_dataset *data, bool training, trmi_compiled *out,
                        trm_error *err) {
    memset(out, 0, sizeof *out);
    trm_inputs inputs = {0};
    trm_status status;
    TRMI_TRY_GOTO(status, take_fields(data, &inputs, err), failed);
    if (training) {
        enlarge_batch(&inputs, graph_share(model));
        TRMI_TRY_GOTO(status, count_blocks(model, &inputs, &out->blocks, err), failed);
    }
    const trm_graph_options options = {.training = training};
    TRMI_TRY_GOTO(status, trm_graph_create(&options, &out->graph, err), failed);
    inputs.graph = out->graph;
    TRMI_TRY_GOTO(status, build_graph(model, &inputs, out, err), failed);
    if (training) {
        TRMI_TRY_GOTO(status, trmi_batches_check(&model->options.exec.parallel, out->graph, err),
                      failed);
    }
    const trmi_gradient_sink *sink = model->sink;
    if (training && sink->prepare != NULL) {
        TRMI_TRY_GOTO(status, sink->prepare(model, out->graph, err), failed);
    }
    TRMI_TRY_GOTO(status, build_exec(model, training, out, err), failed);
    TRMI_TRY_GOTO(status, bind_feeds(model, &inputs, out, err), failed);
    if (training && sink->bind != NULL) {
        TRMI_TRY_GOTO(status, sink->bind(model, err), failed);
    }
    return TRM_OK;
failed:
    trmi_compiled_free(out);
    return status;
}

/* Builds the training graph of the options, finds the tables that would go to the servers, and
 * adds up the bytes of the remaining parameters and of the gathered ids. Contract in model.h. */
trm_status trmi_model_traffic(const trm_model_options *options, int64_t *bytes, trm_error *err) {
    trm_model model = {.options = *options};
    trmi_compiled compiled = {0};
    trm_inputs inputs = {0};
    trmi_detached *tables = NULL;
    int32_t count = 0;
    *bytes = 0;
    trm_status status;
    TRMI_TRY_GOTO(status, take_fields(options->data, &inputs, err), done);
    TRMI_TRY_GOTO(status,
                  trm_graph_create(&(trm_graph_options){.training = true}, &compiled.graph, err),
                  done);
    inputs.graph = compiled.graph;
    TRMI_TRY_GOTO(status, build_graph(&model, &inputs, &compiled, err), done);
    TRMI_TRY_GOTO(status, trmi_graph_find_tables(compiled.graph, &tables, &count, err), done);
    trmi_graph_detach_tables(compiled.graph, tables, count);
    for (int64_t i = 1; i < compiled.graph->ops_count; i++) {
        const trmi_op *op = &compiled.graph->ops[i];
        if (op->kind == TRMI_OP_PARAMETER) {
            *bytes += trm_shape_count(&compiled.graph->values[op->outputs[0]].shape) *
                      (int64_t)sizeof(float);
        }
    }
    for (int32_t i = 0; i < count; i++) {
        *bytes += tables[i].count * (int64_t)sizeof(uint64_t);
    }
done:
    trmi_free(tables);
    trmi_compiled_free(&compiled);
    return status;
}

/* ---- creation and destruction ---------------------------------------------------------------- */

/* Checks the learning-rate schedule.
 *   error  INVALID: base not above 0, negative steps, values that are not finite */
static trm_status check_rate(const trm_learning_rate *r, trm_error *err) {
    if (!(r->base > 0) || !isfinite(r->base)) {
        return TRMI_FAIL(err, TRM_INVALID, "learning rate %g: must be greater than 0", r->base);
    }
    bool finite =
        isfinite(r->end) && isfinite(r->gamma) && isfinite(r->power) && isfinite(r->warmup_start);
    if ((unsigned)r->decay > TRM_DECAY_WSD || !finite || r->every_steps < 0 ||
        r->warmup_steps < 0 || r->total_steps < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "learning rate: decay %d of %d kinds, boundaries each %lld steps, warm-up "
                         "of %lld, %lld in all: "
                         "nothing below 0 or infinite is possible",
                         (int)r->decay, TRM_DECAY_WSD + 1, (long long)r->every_steps,
                         (long long)r->warmup_steps, (long long)r->total_steps);
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

/* Checks the user's metrics: each has a name and 1 to TRM_MAX_METRIC_SUMS sums. */
static trm_status check_metrics(const trm_model_options *o, trm_error *err) {
    for (int32_t i = 0; i < TRM_MAX_METRICS && o->metrics[i].add != NULL; i++) {
        const trm_metric *m = &o->metrics[i];
        if (m->name == NULL || m->sum_count < 1 || m->sum_count > TRM_MAX_METRIC_SUMS) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "metric %d (%s): %d sums; a name and 1 to %d expected", (int)i,
                             m->name != NULL ? m->name : "without a name", (int)m->sum_count,
                             TRM_MAX_METRIC_SUMS);
        }
    }
    return TRM_OK;
}

/* Checks the options that need neither data nor ranks. A model for evaluation only needs no rate
 * and no description. */
static trm_status check_options(const trm_model_options *o, trm_error *err) {
    if (o->network == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "a model needs a network");
    }
    if (o->data == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "a model needs a dataset, for the shapes of its inputs");
    }
    if ((unsigned)o->exec.precision > TRM_PRECISION_ORIGIN || o->exec.accumulate < 0 ||
        o->exec.threads < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "precision %d, %d batches a step, %d threads: of precisions there are 0 "
                         "to %d, the others begin at 0",
                         (int)o->exec.precision, (int)o->exec.accumulate, o->exec.threads,
                         TRM_PRECISION_ORIGIN);
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
 *   error  INVALID; those of trm_context_resolve */
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
    trm_parallel_options *to = &o->exec.parallel;
    to->batch = p->batch == TRM_BATCH_OF_JOB ? p->batch : to->batch;
    to->pipeline.schedule = p->pipeline.schedule;
    to->pipeline.chunks = p->pipeline.chunks;
    to->pipeline.begins = p->pipeline.begins;
    to->split.mesh = p->split.mesh;
    to->split.trials = p->split.trials;
    to->split.trial_seconds = p->split.trial_seconds;
    to->split.plan = p->split.plan != NULL ? p->split.plan : to->split.plan;
    return TRM_OK;
}

/* Copies the options into the model, chooses the gradient sink, resolves ranks and context, and
 * copies the strings into the model's arena. */
static trm_status copy_options(const trm_model_options *given, trm_model *model, trm_error *err) {
    trm_model_options *o = &model->options;
    *o = *given;
    o->data = NULL;
    if (o->elastic != NULL) {
        o->exec.parallel.comm = trm_elastic_comm(o->elastic);
    }
    model->sink = trmi_gradient_sink_of(o);
    TRMI_TRY(trmi_model_find_ranks(model, err));
    TRMI_TRY(take_context(given, o, err));
    trmi_batches_settle(&o->exec.parallel);
    TRMI_TRY(trmi_elastic_attach(model, err));
    /* texts of the caller may be freed after creation */
    const char **strings[] = {&o->exec.backend,
                              &o->exec.tuning_file,
                              &o->exec.choices_file,
                              &o->description,
                              &o->exec.parallel.split.mesh,
                              &o->exec.parallel.split.plan,
                              &o->exec.parallel.split.search,
                              &o->exec.parallel.split.save_plan,
                              &o->exec.parallel.split.save_groups,
                              &o->exec.parallel.split.input_cuts};
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
        if (*strings[i] != NULL &&
            (*strings[i] = trmi_arena_strdup(&model->arena, *strings[i])) == NULL) {
            return TRMI_FAIL(err, TRM_NOMEM, "no memory for a model's options");
        }
    }
    return TRM_OK;
}

/* Makes a model. `alone`: as for trmi_elastic_open. On failure everything made so far is destroyed and *out
 * is not written. */
static trm_status make_model(const trm_model_options *options, int32_t alone, trm_model **out,
                             trm_error *err) {
    trm_model *model = trmi_alloc(sizeof *model);
    if (model == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a model");
    }
    trm_status status;
    TRMI_TRY_GOTO(status, copy_options(options, model, err), failed);
    if (model->sink->check != NULL) {
        TRMI_TRY_GOTO(status, model->sink->check(&model->options, err), failed);
    }
    /* data of this rank, then the program */
    bool training = !options->evaluation_only;
    TRMI_TRY_GOTO(status, trmi_model_share_data(model, options->data, training, err), failed);
    TRMI_TRY_GOTO(
        status, trmi_compile(model, options->data, training, trmi_model_owner(model), err), failed);
    TRMI_TRY_GOTO(status, trmi_elastic_open(model, alone, err), failed);
    trmi_model_log_ranks(model);
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
    int32_t ranks;
    TRMI_TRY(trmi_elastic_go_alone(options, status, &ranks, err));
    return make_model(options, ranks, out, err);
}

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
    trmi_elastic_close(model);
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

void trm_model_request_leave(trm_model *model) {
    TRMI_NEED_OR(, NULL, model);
    if (!trmi_elastic_request_leave(model)) {
        trm_model_request_stop(model);
    }
}

trm_status trm_model_set_note(trm_model *model, const char *name, double value, trm_error *err) {
    TRMI_NEED(err, model, name);
    if (strlen(name) >= TRMI_NOTE_NAME_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "note '%s': a name has at most %d letters", name,
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
