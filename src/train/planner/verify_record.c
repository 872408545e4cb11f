/* SPDX-License-Identifier: Apache-2.0 */
/* Records one training job for verify: losses of all steps, outputs of operators, gradients of the
 * first step, final variables. Each is copied as float32 in plain layout under its name, so that
 * recordings of one device and of a split have the same form.
 *
 *   training   gradients by on_gradients, losses by on_step_end, variables after the last step
 *   forward    the graph once more, with the outputs of its operators, on the first batch
 *
 * Only rank 0 keeps what is recorded. Reading a tensor that is cut is collective, so all ranks
 * read, and the others drop it. */
#include "train/planner/verify.h"

#include "base/error.h"
#include "base/rng.h"
#include "exec/exec.h"
#include "train/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void trmi_recording_free(trmi_recording *r) {
    free(r->items);
    trmi_arena_free(&r->arena);
    *r = (trmi_recording){.items = NULL};
}

/* Adds a tensor to the recording and returns its memory; NULL without memory. */
static float *add_tensor(trmi_recording *r, trm_verify_kind kind, const char *name, int64_t count) {
    float *values = trmi_arena_alloc(&r->arena, (size_t)count * sizeof *values);
    const char *copy = trmi_arena_strdup(&r->arena, name);
    if (values == NULL || copy == NULL ||
        !trmi_grow((void **)&r->items, &r->capacity, r->count + 1, sizeof *r->items)) {
        return NULL;
    }
    r->items[r->count++] =
        (trmi_recorded){.kind = kind, .name = copy, .count = count, .values = values};
    return values;
}

/* Returns the error for a tensor that cannot be kept. */
static trm_status no_room(const char *name, trm_error *err) {
    return TRMI_NO_MEMORY(err, "to keep %s for a comparison", name);
}

/* Drops what has been recorded, on a rank that keeps nothing. Reading a cut tensor is
 * collective, so such a rank must read it too. */
static void forget_tensors(trmi_recording *r) {
    if (r->dropped) {
        trmi_arena_free(&r->arena);
        r->arena = (trmi_arena){0};
        r->count = 0;
    }
}

/* ---- training -------------------------------------------------------------------------------- */

/* Records all gradients of the first step (hook on_gradients). */
static trm_status see_gradients(void *context, const trm_progress *p, trm_error *err) {
    trmi_recording *r = context;
    const trm_exec *exec = trm_model_exec(p->model);
    if (trm_exec_step(exec) != 0) { /* the first step only */
        return TRM_OK;
    }
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (v.kind != TRM_VARIABLE_PARAMETER) {
            continue;
        }
        float *values = add_tensor(r, TRM_VERIFY_GRADIENT, v.name, trm_shape_count(&v.shape));
        if (values == NULL) {
            return no_room(v.name, err);
        }
        TRMI_TRY(trm_exec_gradient(exec, i, values, err));
        forget_tensors(r);
    }
    return TRM_OK;
}

/* Records the loss of a step (hook on_step_end). */
static trm_status see_step(void *context, const trm_progress *p, trm_error *err) {
    trmi_recording *r = context;
    char name[32];
    snprintf(name, sizeof name, "step %llu", (unsigned long long)p->global_step);
    float *loss = add_tensor(r, TRM_VERIFY_LOSS, name, 1);
    if (loss == NULL) {
        return no_room("a loss", err);
    }
    *loss = p->loss;
    return TRM_OK;
}

/* Records all variables after the last step; slots are gathered first. */
static trm_status read_variables(trm_exec *exec, trmi_recording *r, trm_error *err) {
    TRMI_TRY(trm_exec_gather(exec, err));
    for (int32_t i = 0; !r->dropped && i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (v.dtype != TRM_FLOAT32) {
            continue;
        }
        float *values = add_tensor(r, TRM_VERIFY_VARIABLE, v.name, trm_shape_count(&v.shape));
        if (values == NULL) {
            return no_room(v.name, err);
        }
        trm_exec_read(exec, i, values);
    }
    return TRM_OK;
}

/* Changes each parameter by a random relative amount up to `by`, as one more rounding would. */
static trm_status nudge_parameters(trm_exec *exec, double by, trm_error *err) {
    for (int32_t i = 0; by > 0 && i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        int64_t count = trm_shape_count(&v.shape);
        float *values =
            v.kind == TRM_VARIABLE_PARAMETER ? trmi_alloc((size_t)count * sizeof *values) : NULL;
        if (v.kind != TRM_VARIABLE_PARAMETER) {
            continue;
        }
        if (values == NULL) {
            return no_room(v.name, err);
        }
        trm_exec_read(exec, i, values);
        for (int64_t k = 0; k < count; k++) {
            double unit =
                trmi_unit_float(trmi_random_u32((uint64_t)i + 1, TRMI_STREAM_TEST, (uint64_t)k));
            values[k] = (float)((double)values[k] * (1 + by * (2 * unit - 1)));
        }
        trm_exec_write(exec, i, values);
        trmi_free(values);
    }
    return TRM_OK;
}

/* ---- forward, operator by operator ----------------------------------------------------------- */

/* Returns whether the compiled program still has operator `op` of the user's graph. */
static bool in_program(const trm_exec *exec, const trmi_op *op) {
    const trm_graph *g = exec->program->graph;
    for (int64_t i = 1; i < g->ops_count; i++) {
        if (g->ops[i].kind == op->kind && g->ops[i].phase == TRMI_FORWARD &&
            strcmp(g->ops[i].name, op->name) == 0) {
            return true;
        }
    }
    return false;
}

/* Lists the outputs to record: operators of the user's graph that fusion has left as they are.
 * Asking for the output of a fused operator would change the program. */
static int32_t list_nodes(const trm_graph *g, const trm_exec *exec, trm_node *nodes) {
    int32_t count = 0;
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        bool leaf = op->inputs_count == 0;
        if (!leaf && op->outputs_count > 0 && g->values[op->outputs[0]].dtype == TRM_FLOAT32 &&
            in_program(exec, op)) {
            nodes[count++] = (trm_node){op->outputs[0]};
        }
    }
    return count;
}

/* Copies a batch into the program's inputs; the room after shorter fields is zeroed. */
static trm_status feed_batch(trm_exec *exec, const trm_batch *batch, trm_error *err) {
    for (int32_t i = 0; i < batch->field_count; i++) {
        trm_tensor target;
        trm_error none;
        if (trm_exec_input(exec, batch->fields[i].name, &target, &none) != TRM_OK) {
            continue; /* the network does not read it */
        }
        trm_tensor given = batch->fields[i].tensor;
        if (trm_tensor_bytes(&given) == trm_tensor_bytes(&target)) {
            TRMI_TRY(trm_exec_feed(exec, batch->fields[i].name, &given, err));
            continue;
        }
        memset(target.data, 0, (size_t)trm_tensor_bytes(&target));
        if (trm_tensor_bytes(&given) > trm_tensor_bytes(&target)) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "field '%s' has %lld bytes, the model's input has room for %lld",
                             batch->fields[i].name, (long long)trm_tensor_bytes(&given),
                             (long long)trm_tensor_bytes(&target));
        }
        memcpy(target.data, given.data, (size_t)trm_tensor_bytes(&given));
    }
    return TRM_OK;
}

/* Records the outputs of the listed operators. */
static trm_status read_outputs(trm_exec *exec, const trm_graph *g, const trm_node *nodes,
                               int32_t count, trmi_recording *r, trm_error *err) {
    for (int32_t i = 0; !r->dropped && i < count; i++) {
        trm_tensor t;
        const char *name = g->ops[g->values[nodes[i].id].op].name;
        TRMI_TRY(trm_exec_output(exec, i, &t, err));
        float *values = add_tensor(r, TRM_VERIFY_FORWARD, name, trm_shape_count(&t.shape));
        if (values == NULL) {
            return no_room(name, err);
        }
        memcpy(values, t.data, (size_t)trm_tensor_bytes(&t));
    }
    return TRM_OK;
}

/* Compiles the graph once more with the operators' outputs, runs the first batch and records
 * them. */
static trm_status record_forward(trm_model *model, const trm_model_options *o, double nudge,
                                 trmi_recording *r, trm_error *err) {
    const trm_graph *g = trm_model_graph(model, NULL);
    trm_exec *exec = NULL;
    const trm_batch *batch;
    trm_node *nodes = trmi_alloc((size_t)g->ops_count * sizeof *nodes);
    if (nodes == NULL) {
        return no_room("operators", err);
    }
    int32_t count = list_nodes(g, trm_model_exec(model), nodes);
    trm_exec_options options = o->exec;
    options.loss = model->train.loss;
    options.outputs = nodes;
    options.outputs_count = count;
    options.blocks = model->train.blocks;
    options.loss_scale = (trm_loss_scale_options){.on = false}; /* no step is taken */
    options.memory_bytes = 0;
    options.parallel = model->options.exec.parallel;
    trm_status status = trm_exec_create(g, &options, &exec, err);
    status = status == TRM_OK ? nudge_parameters(exec, nudge, err) : status;
    status = status == TRM_OK ? trm_dataset_seek(o->data, 0, 0, err) : status;
    status = status == TRM_OK ? trmi_next_batch(o->data, &batch, err) : status;
    status = status == TRM_OK ? feed_batch(exec, batch, err) : status;
    /* A training program converts outputs to plain layout after its last step, so backward runs
     * too. */
    status = status == TRM_OK ? trm_exec_forward_backward(exec, err) : status;
    status = status == TRM_OK ? read_outputs(exec, g, nodes, count, r, err) : status;
    trm_exec_destroy(exec);
    trmi_free(nodes);
    return status;
}

/* ---- recording ------------------------------------------------------------------------------- */

/* Contract in verify.h. Training and the forward pass both begin at the first batch. */
trm_status trmi_verify_record(const trm_model_options *o, int32_t steps, double nudge,
                              trmi_recording *out, trm_error *err) {
    trm_model *model = NULL;
    const trm_train_options train = {
        .data = o->data,
        .until_step = steps,
        .callbacks = {{.on_gradients = see_gradients, .on_step_end = see_step, .context = out}}};
    trm_status status = trm_dataset_seek(o->data, 0, 0, err);
    status = status == TRM_OK ? trm_model_create(o, &model, err) : status;
    status = status == TRM_OK ? nudge_parameters(trm_model_exec(model), nudge, err) : status;
    status = status == TRM_OK ? trm_model_train(model, &train, err) : status;
    status = status == TRM_OK ? read_variables(trm_model_exec(model), out, err) : status;
    status =
        status == TRM_OK && !out->no_outputs ? record_forward(model, o, nudge, out, err) : status;
    trm_model_destroy(model);
    forget_tensors(out);
    return status;
}
