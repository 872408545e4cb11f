/* SPDX-License-Identifier: Apache-2.0 */
/* graph/detach.h: takes embedding tables out of a graph, for parameters that live elsewhere.
 *
 *      table [V, D] --\                          in their place a leaf that is filled before each
 *                      >-- embedding -- y   =>   step with the rows of the ids:  "table#rows0" -- y
 *      ids [N, F] ----/                          (ids: an output of a graph of its own)
 *
 * The table itself is gone: nothing of its size is ever allocated. */
#ifndef TRMI_GRAPH_DETACH_H
#define TRMI_GRAPH_DETACH_H

#include "graph/graph_ir.h"

/* One gather from a table. Names live as long as the graph. */
typedef struct trmi_detached {
    const char *table; /* the parameter's name */
    const char *leaf;  /* the leaf that stands for the rows: parameter (training) or input */
    int64_t rows;      /* of the table, as described */
    int32_t width;
    trm_init init;
    trm_node ids;  /* of the graph: int32 or int64 */
    int64_t count; /* ids */
    trm_dtype id_dtype;
} trmi_detached;

/* Gathers from parameters that nothing but gathers use; changes nothing.
 *   owns  caller frees *out with trmi_free     error NOMEM */
trm_status trmi_graph_find_tables(const trm_graph *graph, trmi_detached **out, int32_t *count,
                                  trm_error *err);
/* Replaces them, as found in this graph or a clone of it; fills `leaf`. */
void trmi_graph_detach_tables(trm_graph *graph, trmi_detached *list, int32_t count);

/* Makes parameters and states of a graph worthless constants: for a graph of which only what does
 * not need them will be compiled. */
void trmi_graph_drop_parameters(trm_graph *graph);

#endif
