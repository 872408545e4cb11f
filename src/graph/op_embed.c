/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding: rows of a table by id. The gradient is sparse: its operator names ids and rows, and
 * the executor applies them to the table directly. Only an accumulated or shared gradient becomes
 * dense. */
#include "graph/graph_ir.h"

#include "base/error.h"

/* Infers table [V, D], ids [...] (int32 or int64) -> [..., D]. */
static trm_status infer_embedding(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *table = trmi_input_of(graph, op, 0), *ids = trmi_input_of(graph, op, 1);
    if (table == NULL || ids == NULL || table->shape.rank != 2 ||
        (ids->dtype != TRM_INT32 && ids->dtype != TRM_INT64) || ids->shape.rank >= TRM_MAX_RANK) {
        char left[128] = "nothing", right[128] = "nothing";
        if (table != NULL && ids != NULL) {
            trmi_value_text(graph, op->inputs[0], left, sizeof left);
            trmi_value_text(graph, op->inputs[1], right, sizeof right);
        }
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: a table [V, D] and int ids expected, found %s and %s", op->name, left,
                         right);
    }
    trm_shape shape = ids->shape;
    shape.dim[shape.rank++] = table->shape.dim[1];
    trmi_set_output(graph, op, 0, table->dtype, shape);
    return TRM_OK;
}

/* The gradient has the shape of the table, [rows, width]; it is made only where it must be
 * dense. */
static trm_status infer_grad(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    const trmi_value *rows = trmi_input_of(graph, op, 0);
    int64_t width = rows->shape.dim[rows->shape.rank - 1];
    trmi_set_output(graph, op, 0, rows->dtype, trm_shape_of(op->attrs.embed.rows, width));
    return TRM_OK;
}

/* d table[id] = sum of dy over the places with this id. Ids have no gradient. */
static void grad_embedding(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trmi_attrs attrs = {.embed = {.rows = trmi_input_of(graph, op, 0)->shape.dim[0]}};
    trm_node inputs[] = {dy[0], {op->inputs[1]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_EMBEDDING_GRAD, NULL, inputs, 2, &attrs);
}

/* Counts the traffic of the rows that are looked up, not of the table. */
static trmi_cost cost_rows(const trm_graph *graph, const trmi_op *op) {
    const trmi_value *rows =
        op->kind == TRMI_OP_EMBEDDING ? trmi_output_of(graph, op, 0) : trmi_input_of(graph, op, 0);
    double bytes = (double)trm_shape_count(&rows->shape) * (double)trm_dtype_bytes(rows->dtype);
    return (trmi_cost){.bytes = 2 * bytes};
}

const trmi_op_def trmi_op_embedding = {"embedding", infer_embedding, grad_embedding, cost_rows};
const trmi_op_def trmi_op_embedding_grad = {"embedding_grad", infer_grad, NULL, cost_rows};

trm_node trm_embedding(trm_graph *graph, trm_node table, trm_node ids) {
    return trmi_graph_add1(graph, TRMI_OP_EMBEDDING, NULL, (trm_node[]){table, ids}, 2, NULL);
}
