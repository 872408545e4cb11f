/* SPDX-License-Identifier: Apache-2.0 */
/* Exports a model's weights as safetensors, npz or ONNX (trireme/io.h).
 *
 *     safetensors, npz   all variables, gathered from the ranks (gather.h), then written
 *     ONNX               the evaluation graph: leaves become inputs and initializers, and onnx_map.c
 *                        translates each operator that the logits depend on
 *
 * Memory of an export lies in one arena that is freed at its end, on all paths. */
#include "trireme/io.h"

#include "train/export/gather.h"
#include "train/model.h"
#include "train/export/onnx_map.h"

#include "base/arguments.h"
#include "base/error.h"

#include <string.h>

trm_status trm_export_safetensors(trm_model *model, const char *path, trm_error *err) {
    TRMI_NEED(err, model, path);
    trmi_arena arena = {0};
    trm_named_tensor *tensors;
    int64_t count;
    const trm_text_pair metadata[] = {{"format", "pt"}, {"producer", "trireme"}};
    trm_status status = trmi_gather(trm_model_exec(model), false, &arena, &tensors, &count, err);
    if (status == TRM_OK) {
        status = trm_safetensors_write(path, tensors, count, metadata, 2, err);
    }
    trmi_arena_free(&arena);
    return status;
}

trm_status trm_export_npz(trm_model *model, const char *path, trm_error *err) {
    TRMI_NEED(err, model, path);
    trmi_arena arena = {0};
    trm_named_tensor *tensors;
    int64_t count;
    trm_status status = trmi_gather(trm_model_exec(model), false, &arena, &tensors, &count, err);
    if (status == TRM_OK) {
        status = trm_npz_write(path, tensors, count, err);
    }
    trmi_arena_free(&arena);
    return status;
}

/* ---- ONNX ------------------------------------------------------------------------------------ */

/* Names all values that the logits depend on, going backward from the logits; values without a
 * name (loss, labels) are not exported. A value is named after the operator that makes it. */
static trm_status name_values(trmi_onnx *x, trm_node logits, trm_error *err) {
    const trm_graph *g = x->graph;
    TRMI_TRY(TRMI_NEW_IN(err, &x->arena, x->names, g->values_count, "for an ONNX model"));
    /* operators are in topological order; backward, consumers come before producers */
    x->names[logits.id] = "logits";
    for (int64_t i = g->ops_count - 1; i > 0; i--) {
        const trmi_op *op = &g->ops[i];
        bool wanted = false;
        for (int32_t j = 0; j < op->outputs_count; j++) {
            wanted |= x->names[op->outputs[j]] != NULL;
        }
        for (int32_t j = 0; wanted && j < op->inputs_count; j++) {
            int32_t id = op->inputs[j];
            if (id == 0 || x->names[id] != NULL) {
                continue;
            }
            const trmi_value *v = &g->values[id];
            const char *name = g->ops[v->op].name;
            x->names[id] =
                v->output == 0 ? name : trmi_arena_printf(&x->arena, "%s/%d", name, v->output);
            if (x->names[id] == NULL) {
                return TRMI_NO_MEMORY(err, "for an ONNX model");
            }
        }
    }
    return TRM_OK;
}

/* Describes a value for ONNX; the first dimension is the symbol N, the batch. */
static trmi_onnx_value describe_value(const trmi_onnx *x, int32_t id) {
    const trmi_value *v = &x->graph->values[id];
    trmi_onnx_value out = {.name = x->names[id], .dtype = v->dtype, .rank = v->shape.rank};
    for (int32_t i = 0; i < v->shape.rank; i++) {
        out.dims[i].size = v->shape.dim[i];
    }
    if (out.rank > 0) {
        out.dims[0].symbol = "N";
    }
    return out;
}

/* Adds a parameter or state as an initializer, with a copy of its values in plain layout. */
static trm_status add_variable(trmi_onnx *x, trm_exec *exec, const trmi_op *op, trm_error *err) {
    int32_t index = trm_exec_find(exec, op->name);
    if (index < 0) {
        return TRMI_FAIL(err, TRM_INTERNAL, "'%s' is in the graph but not in the program",
                         op->name);
    }
    trm_variable v = trm_exec_variable(exec, index);
    trm_tensor t = {.dtype = v.dtype, .shape = v.shape};
    t.data = trmi_arena_alloc(&x->arena, (size_t)trm_tensor_bytes(&t));
    if (t.data == NULL) {
        return TRMI_NO_MEMORY(err, "for a copy of '%s'", op->name);
    }
    trm_exec_read(exec, index, t.data);
    trmi_onnx_add_initializer(x->model, x->names[op->outputs[0]], &t);
    return TRM_OK;
}

/* Adds one operator of the graph: leaves become inputs and initializers, the rest goes through
 * onnx_map.c. */
static trm_status add_leaf_or_op(trmi_onnx *x, trm_exec *exec, const trmi_op *op, trm_error *err) {
    int32_t output = op->outputs[0];
    switch (op->kind) {
    case TRMI_OP_INPUT: {
        trmi_onnx_value value = describe_value(x, output);
        x->batch = x->graph->values[output].shape.dim[0];
        trmi_onnx_add_input(x->model, &value);
        return TRM_OK;
    }
    case TRMI_OP_PARAMETER:
    case TRMI_OP_STATE: return add_variable(x, exec, op, err);
    case TRMI_OP_CONSTANT: {
        trm_tensor t = {.data = (void *)op->attrs.constant.data,
                        .dtype = x->graph->values[output].dtype,
                        .shape = x->graph->values[output].shape};
        trmi_onnx_add_initializer(x->model, x->names[output], &t);
        return TRM_OK;
    }
    default: return trmi_onnx_add_op(x, op, err);
    }
}

/* Fills the ONNX model from the graph: names, operators, output, metadata. */
static trm_status build_onnx(trmi_onnx *x, trm_exec *exec, trm_node logits, trm_error *err) {
    TRMI_TRY(name_values(x, logits, err));
    for (int64_t i = 1; i < x->graph->ops_count; i++) {
        const trmi_op *op = &x->graph->ops[i];
        if (op->outputs_count > 0 && x->names[op->outputs[0]] != NULL) {
            TRMI_TRY(add_leaf_or_op(x, exec, op, err));
        }
    }
    trmi_onnx_value value = describe_value(x, logits.id);
    trmi_onnx_add_output(x->model, &value);
    trmi_onnx_add_metadata(x->model, "producer", "trireme");
    return TRM_OK;
}

/* Contract in trireme/io.h. An evaluation graph is needed: a training graph computes batch
 * statistics. */
trm_status trm_export_onnx(trm_model *model, const char *path, trm_error *err) {
    TRMI_NEED(err, model, path);
    if (!model->options.evaluation_only) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "ONNX is written from a model made with evaluation_only: make one, and "
                         "trm_model_load the weights");
    }
    trmi_onnx x = {.graph = model->evaluate.graph};
    trm_status status = trmi_onnx_create("trireme", &x.model, err);
    if (status == TRM_OK) {
        status = build_onnx(&x, model->evaluate.exec, model->evaluate.logits, err);
    }
    if (status == TRM_OK) {
        status = trmi_onnx_write(x.model, path, NULL, err);
    }
    trmi_onnx_destroy(x.model);
    trmi_arena_free(&x.arena);
    return status;
}
