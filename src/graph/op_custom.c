/* SPDX-License-Identifier: Apache-2.0 */
/* Custom operators: shape rule, kernel and gradient are functions of the user (trm_custom_op, whose
 * record must live as long as the graph).
 *
 *     trm_custom     checks the record, adds the operator
 *       infer        the user's: shapes and types of the outputs; called while the graph is built
 *       gradient     the user's: adds operators that compute dx; none: UNSUPPORTED when it is needed
 *       flops        the user's, may be absent: then only bytes count in plans
 *       run          the user's kernel; called by exec, not here
 *
 * Errors of these functions are reported with their messages. What infer sets is checked like the
 * result of a built-in rule, because kernels and memory plans rely on it. */
#include "graph/graph_ir.h"
#include "graph/arguments.h"

#include "base/error.h"

/* Describes the inputs as tensors without data. */
static void describe_inputs(const trm_graph *graph, const trmi_op *op, trm_tensor *inputs) {
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_value *value = trmi_input_of(graph, op, i);
        inputs[i] = value == NULL ? (trm_tensor){0}
                                  : (trm_tensor){.dtype = value->dtype, .shape = value->shape};
    }
}

/* Contract in graph_ir.h. A user's function that fails without a message still gives a message that
 * names operator and function. */
trm_status trmi_custom_failed(const trm_custom_op *custom, const char *function, trm_status status,
                              const trm_error *why, trm_error *err) {
    if (why->status == TRM_OK) {
        return TRMI_FAIL(err, status > 0 ? TRM_INVALID : status,
                         "custom operator '%s': %s failed and left no message: %s",
                         custom->name != NULL ? custom->name : "?", function,
                         trm_status_text(status));
    }
    if (err != NULL) {
        *err = *why;
    }
    return (trm_status)why->status;
}

/* Calls the user's shape function with the shapes and types of the inputs. */
static trm_status infer_custom(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trm_custom_op *custom = op->attrs.custom.op;
    trm_tensor *inputs =
        trmi_arena_alloc(&graph->arena, (size_t)(op->inputs_count + 1) * sizeof *inputs);
    trm_tensor outputs[TRMI_OP_OUTPUTS_MAX] = {{0}};
    if (inputs == NULL) {
        return TRMI_NO_MEMORY(err, "for %s", op->name);
    }
    describe_inputs(graph, op, inputs);
    trm_error why = {0};
    trm_status status = custom->infer(custom, inputs, op->inputs_count, outputs, &why);
    if (status != TRM_OK) {
        return trmi_custom_failed(custom, "infer", status, &why, err);
    }
    for (int32_t i = 0; i < op->outputs_count; i++) {
        if (trm_shape_count(&outputs[i].shape) < 0 || trm_dtype_bytes(outputs[i].dtype) == 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: infer set no usable shape or dtype for output %d", op->name, i);
        }
        trmi_set_output(graph, op, i, outputs[i].dtype, outputs[i].shape);
    }
    return TRM_OK;
}

/* Calls the user's gradient function, which adds operators to the graph. error (in the graph)
 * UNSUPPORTED: the operator has none */
static void grad_custom(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    const trm_custom_op *custom = op->attrs.custom.op;
    if (custom->gradient == NULL) {
        trm_error err;
        TRMI_FAIL(&err, TRM_UNSUPPORTED, "%s: the custom operator '%s' has no gradient", op->name,
                  custom->name);
        trmi_graph_fail(graph, &err);
        return;
    }
    trm_node *inputs =
        trmi_arena_alloc(&graph->arena, (size_t)(op->inputs_count + 1) * sizeof *inputs);
    trm_node outputs[TRMI_OP_OUTPUTS_MAX] = {{0}};
    if (inputs == NULL) {
        trm_error err;
        TRMI_NO_MEMORY(&err, "for %s", op->name);
        trmi_graph_fail(graph, &err);
        return;
    }
    for (int32_t i = 0; i < op->inputs_count; i++) {
        inputs[i] = (trm_node){op->inputs[i]};
    }
    for (int32_t i = 0; i < op->outputs_count; i++) {
        outputs[i] = (trm_node){op->outputs[i]};
    }
    custom->gradient(custom, graph, inputs, op->inputs_count, outputs, dy, dx);
}

/* Operations by the user's function, if there is one for up to 16 inputs; all tensors once. */
static trmi_cost cost_custom(const trm_graph *graph, const trmi_op *op) {
    const trm_custom_op *custom = op->attrs.custom.op;
    trmi_cost cost = {0};
    trm_tensor inputs[16];
    if (custom->flops != NULL && op->inputs_count <= 16) {
        describe_inputs(graph, op, inputs);
        cost.flops = custom->flops(custom, inputs, op->inputs_count);
    }
    for (int32_t i = 0; i < op->inputs_count + op->outputs_count; i++) {
        const trmi_value *v = i < op->inputs_count
                                  ? trmi_input_of(graph, op, i)
                                  : trmi_output_of(graph, op, i - op->inputs_count);
        cost.bytes +=
            v == NULL ? 0 : (double)trm_shape_count(&v->shape) * (double)trm_dtype_bytes(v->dtype);
    }
    return cost;
}

const trmi_op_def trmi_op_custom = {"custom", infer_custom, grad_custom, cost_custom};

/* Contract in trireme/graph.h. The outputs are "no node" until the operator is complete. */
void trm_custom(trm_graph *graph, const trm_custom_op *op, const trm_node *inputs, int32_t count,
                trm_node *outputs) {
    TRMI_NEED_IN(graph, , op, outputs);
    if (count > 0) {
        TRMI_NEED_IN(graph, , inputs);
    }
    for (int32_t i = 0; i < op->outputs && i < TRMI_OP_OUTPUTS_MAX; i++) {
        outputs[i] = TRM_NO_NODE;
    }
    if (op->outputs < 1 || op->outputs > TRMI_OP_OUTPUTS_MAX || op->infer == NULL ||
        op->run == NULL) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID, "custom operator '%s': 1 to 4 outputs, infer and run expected",
                  op->name == NULL ? "?" : op->name);
        trmi_graph_fail(graph, &err);
        return;
    }
    trmi_attrs attrs = {.custom = {.op = op}};
    int32_t index = trmi_graph_add(graph, TRMI_OP_CUSTOM, NULL, inputs, count, op->outputs, &attrs);
    for (int32_t i = 0; i < op->outputs && index != 0; i++) {
        outputs[i] = (trm_node){graph->ops[index].outputs[i]};
    }
}
