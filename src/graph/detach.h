/* SPDX-License-Identifier: Apache-2.0 */
/* graph/detach.h: takes embedding tables out of a graph, for tables on parameter servers.
 *
 *      table [V, D] --\                          replaced by a leaf that is filled before each
 *                      >-- embedding -- y   =>   training step with the rows of the ids:  "table#rows0" -- y
 *      ids [N, F] ----/                          (ids: an output of a graph of its own)
 *
 * The table itself is removed: no memory of its size is ever allocated. */
#ifndef TRMI_GRAPH_DETACH_H
#define TRMI_GRAPH_DETACH_H

#include "graph/graph_ir.h"

/* One look-up in a table. Names live as long as the graph. */
typedef struct trmi_detached {
    const char *table; /* the parameter's name */
    const char *leaf;  /* leaf that replaces the rows: a parameter (training) or an input */
    int64_t rows;      /* rows of the table in the graph */
    int32_t width;
    trm_init init;
    trm_node ids;  /* node of the ids, int32 or int64 */
    int64_t count; /* ids */
    trm_dtype id_dtype;
} trmi_detached;

/* Finds the look-ups in parameters that only look-ups read; changes nothing.   owns  caller frees
 * *out with trmi_free.   errors  NOMEM */
trm_status trmi_graph_find_tables(const trm_graph *graph, trmi_detached **out, int32_t *count,
                                  trm_error *err);
/* Replaces the look-ups of a list, found in this graph or in one that it is a clone of; sets
 * `leaf`. */
void trmi_graph_detach_tables(trm_graph *graph, trmi_detached *list, int32_t count);

/* Turns parameters and states into dummy constants, for a graph of which only operators without
 * parameters will be compiled. */
void trmi_graph_drop_parameters(trm_graph *graph);

#endif
