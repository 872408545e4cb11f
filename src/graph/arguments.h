/* SPDX-License-Identifier: Apache-2.0 */
/* graph/arguments.h: base/arguments.h for functions that build a graph: the graph keeps the error.
 * Without a graph they return `value` (trm_graph_check(NULL) reports the error). */
#ifndef TRMI_GRAPH_ARGUMENTS_H
#define TRMI_GRAPH_ARGUMENTS_H

#include "base/arguments.h"
#include "graph/graph_ir.h"

#define TRMI_NEED_IN(graph, value, ...) TRMI_NEED_KEEP(trmi_graph_fail, graph, value, __VA_ARGS__)

#endif
