/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles a network into a program whose inputs are bound to the fields of a dataset (contracts in
 * model.h).
 *
 *       trmi_compile    fields of the dataset -> graph (network, loss) -> program (trm_exec) -> feeds
 *
 * It runs once for training when a model is made, a second time for evaluation at the first
 * trm_model_evaluate, and for training again whenever the ranks of an elastic job change. The
 * dataset is read here only for its shapes; names that the model keeps are in its arena. */
#include "train/gradient_sink.h"
#include "train/model.h"

#include "base/error.h"
#include "comm/rendezvous/stragglers.h"
#include "exec/distributed/batches.h"
#include "exec/exec.h"
#include "graph/detach.h"
#include "graph/graph_ir.h"

#include <string.h>

void trmi_compiled_free(trmi_compiled *compiled) {
    trmi_stragglers_destroy(compiled->stragglers);
    trm_exec_destroy(compiled->exec);
    trm_graph_destroy(compiled->graph);
    memset(compiled, 0, sizeof *compiled);
}

/* Sets *blocks to the number of fixed blocks of samples that the batch is computed in; 0: none.
 *   errors  INVALID: the block does not divide the batch, or a field has no row a sample */
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

/* Copies the descriptions of the dataset's fields into `inputs`.
 *   errors  INVALID: no fields; those of trm_dataset_check */
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

/* Adds the fields that the training program reads and this dataset lacks, with this dataset's
 * batch: data to predict may have no labels. */
static void add_missing_fields(const trmi_compiled *train, trm_inputs *inputs) {
    const int32_t own = inputs->count;
    for (int32_t i = 0; i < train->fields; i++) {
        int32_t at = 0;
        while (at < own && strcmp(inputs->fields[at].name, train->names[i]) != 0) {
            at++;
        }
        const trm_tensor *target = &train->target[i];
        if (at == own && target->data != NULL && target->shape.rank > 0 &&
            inputs->count < TRM_MAX_BATCH_FIELDS) {
            trm_batch_field *field = &inputs->fields[inputs->count++];
            *field = (trm_batch_field){.name = train->names[i],
                                       .tensor = {.dtype = target->dtype, .shape = target->shape}};
            field->tensor.shape.dim[0] = inputs->fields[0].tensor.shape.dim[0];
        }
    }
}

/* Builds network and loss into out->graph, through the functions of the options (default loss:
 * softmax cross-entropy). The loss of an evaluation may read fields that the dataset lacks.
 *   errors  INVALID: an error of the builders, or a loss that is not a scalar */
static trm_status build_graph(trm_model *model, trm_inputs *inputs, trmi_compiled *out,
                              trm_error *err) {
    const trm_model_options *o = &model->options;
    out->logits = o->network(out->graph, inputs, o->network_context);
    bool read[TRM_MAX_BATCH_FIELDS];
    for (int32_t i = 0; i < TRM_MAX_BATCH_FIELDS; i++) {
        read[i] = inputs->nodes[i].id != 0;
    }
    if (!trm_graph_is_training(out->graph)) {
        add_missing_fields(&model->train, inputs);
    }
    trm_loss loss = o->loss != NULL ? o->loss : trm_loss_softmax;
    out->loss = loss(out->graph, out->logits, inputs, o->loss_context);
    for (int32_t i = 0; i < TRM_MAX_BATCH_FIELDS; i++) {
        out->only_loss[i] = !read[i] && inputs->nodes[i].id != 0;
    }
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
 * limit and ranks; the evaluation program has the logits, and predicted ids if there are any, as
 * its outputs and, where possible, the training program's weights. */
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
            return TRMI_NO_MEMORY(err, "for a model");
        }
        out->inputs[i] = trmi_exec_input_index(out->exec, out->names[i]);
        if (inputs->nodes[i].id != 0) {
            TRMI_TRY(trm_exec_input(out->exec, out->names[i], &out->target[i], err));
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
    /* A step pulls and pushes the remaining parameters whole, and of the tables only the rows of a
     * batch. */
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
