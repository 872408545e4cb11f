/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of programs: those of graph, and those that the partition adds after
 * differentiation, which have no gradients: communication (ALL_REDUCE, EXCHANGE, SEND, RECEIVE).
 *
 * A record that is attached to an operator says which part of it the rank has (part.h), because
 * graph knows no ranks. The shape rules here check that record against the input. */
#include "plan/partition/part.h"

#include "base/error.h"

const trmi_op_part trmi_whole_op = {.head = {.bytes = sizeof trmi_whole_op}};

/* Returns whether the weights of a product are those of another operator, too: their gradient is a
 * sum. */
static bool is_tied(const trm_graph *graph, const trmi_op *op) {
    const trmi_op *weights = trmi_parameter_of(graph, op->inputs[1]);
    int32_t readers = 0;
    for (int64_t i = 1; i < graph->ops_count && weights != NULL && readers < 2; i++) {
        const trmi_op *reader = &graph->ops[i];
        for (int32_t k = 0; k < reader->inputs_count; k++) {
            readers += reader->phase == TRMI_FORWARD && reader->kind != TRMI_OP_CAST &&
                       trmi_parameter_of(graph, reader->inputs[k]) == weights;
        }
    }
    return readers > 1;
}

/* Contract in part.h. The records are static: they hold the same for every operator of a kind. */
void trmi_part_mark(trm_graph *graph, bool own_norms, bool factors) {
    static const trmi_op_part norm = {.head = {.bytes = sizeof norm}, .own_norm = true},
                              product = {.head = {.bytes = sizeof product}, .may_factor = true};
    for (int64_t i = 1; i < graph->ops_count; i++) {
        switch (graph->ops[i].kind) {
        case TRMI_OP_BATCH_NORM:
        case TRMI_OP_NORM_ACT:
        case TRMI_OP_BATCH_NORM_GRAD:
        case TRMI_OP_NORM_ACT_GRAD:
            graph->ops[i].attrs.attached = own_norms ? &norm.head : NULL;
            break;
        case TRMI_OP_LINEAR:
        case TRMI_OP_MATMUL:
            graph->ops[i].attrs.attached =
                factors && !is_tied(graph, &graph->ops[i]) ? &product.head : NULL;
            break;
        default: break;
        }
    }
}

/* The output has the shape and type of x. */
static trm_status infer_all_reduce(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    if (x == NULL || trmi_exchange_of(&op->attrs) == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: an input and mesh axes expected", op->name);
    }
    trmi_set_output(graph, op, 0, x->dtype, x->shape);
    return TRM_OK;
}

/* Checks that the input is the part that this rank holds; the output is the part that it wants. */
static trm_status infer_exchange(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    const trmi_box_exchange *what = trmi_exchange_of(&op->attrs);
    bool fits = x != NULL && what != NULL && what->self >= 0 && what->self < what->members &&
                x->shape.rank == what->held.rank;
    trm_shape shape = {.rank = fits ? what->held.rank : 0};
    for (int32_t d = 0; fits && d < shape.rank; d++) {
        const trmi_box *wants = &trmi_exchange_wants(what)[what->self];
        fits = what->held.end[d] - what->held.begin[d] == x->shape.dim[d] &&
               wants->end[d] >= wants->begin[d];
        shape.dim[d] = wants->end[d] - wants->begin[d];
    }
    if (!fits) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the input is not the part that its boxes say",
                         op->name);
    }
    trmi_set_output(graph, op, 0, x->dtype, shape);
    return TRM_OK;
}

/* Checks that the input is the value that the message is for. The output is a number that no
 * operator reads. */
static trm_status infer_send(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    const trmi_transfer *what = trmi_transfer_of(&op->attrs);
    if (x == NULL || what == NULL || x->dtype != what->dtype ||
        !trm_shape_equal(&x->shape, &what->shape)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the input is not the value that it shall send",
                         op->name);
    }
    trmi_set_output(graph, op, 0, TRM_FLOAT32, (trm_shape){.rank = 0});
    return TRM_OK;
}

/* The output is what the record of the transfer says. */
static trm_status infer_receive(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_transfer *what = trmi_transfer_of(&op->attrs);
    if (what == NULL || op->inputs_count != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: a value without inputs expected", op->name);
    }
    trmi_set_output(graph, op, 0, what->dtype, what->shape);
    return TRM_OK;
}

const trmi_op_def trmi_op_all_reduce = {"all_reduce", infer_all_reduce, NULL, NULL};
const trmi_op_def trmi_op_exchange = {"exchange", infer_exchange, NULL, NULL};
const trmi_op_def trmi_op_send = {"send", infer_send, NULL, NULL};
const trmi_op_def trmi_op_receive = {"receive", infer_receive, NULL, NULL};

#define X(KIND, row) extern const trmi_op_def trmi_op_##row;
#include "graph/ops.def"
#undef X

const trmi_op_def *const trmi_program_ops[TRMI_OP_KINDS] = {
#define X(KIND, row) [TRMI_OP_##KIND] = &trmi_op_##row,
#define Y(KIND, row) X(KIND, row)
#include "graph/ops.def"
#undef Y
#undef X
};
