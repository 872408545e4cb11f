/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operators, and graphs that are built with it. A graph is handed its table, so that
 * the builder (graph.c) lies below the operators, which call it. */
#include "graph/graph_ir.h"

#include "base/arguments.h"

#define X(KIND, row) extern const trmi_op_def trmi_op_##row;
#include "graph/ops.def"
#undef X

const trmi_op_def *const trmi_op_table[TRMI_OP_KINDS] = {
#define X(KIND, row) [TRMI_OP_##KIND] = &trmi_op_##row,
#include "graph/ops.def"
#undef X
};

trm_status trm_graph_create(const trm_graph_options *options, trm_graph **out, trm_error *err) {
    TRMI_NEED(err, out);
    return trmi_graph_open(trmi_op_table, options != NULL && options->training, out, err);
}
