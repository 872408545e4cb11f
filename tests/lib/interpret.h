/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/interpret.h: runs a graph as it was built, operator by operator with the reference
 * kernels: no passes, no plan, no reuse of memory. Tests compare all other executions with it.
 *
 *      trmi_interpreter *run;
 *      trmi_interpreter_create(graph, &options, &run, &err);
 *      fill trmi_interpreter_value(run, x)->data ...          inputs, parameters, states
 *      trmi_interpreter_run(run, &err);
 *      read trmi_interpreter_value(run, loss)->data
 */
#ifndef TRMI_TESTS_INTERPRET_H
#define TRMI_TESTS_INTERPRET_H

#include "graph/graph_ir.h"

typedef struct trmi_interpret_options {
    /* all floating values are float64 instead of the graph's types, for numeric gradients */
    bool in_double;
    uint64_t seed, step;
} trmi_interpret_options;

typedef struct trmi_interpreter trmi_interpreter;

/* Takes one tensor a value; constants are filled, other leaves are zero.
 *   owns    the graph stays the caller's and must outlive *out
 *   errors  INVALID (broken graph), NOMEM
 */
trm_status trmi_interpreter_create(const trm_graph *graph, const trmi_interpret_options *options,
                                   trmi_interpreter **out, trm_error *err);
void trmi_interpreter_destroy(trmi_interpreter *run);
/* All operators in order; states are updated in place. */
trm_status trmi_interpreter_run(trmi_interpreter *run, trm_error *err);
/* The tensor of a node, writable.   owns  the interpreter. */
trm_tensor *trmi_interpreter_value(trmi_interpreter *run, trm_node node);
/* Element access by conversion. */
double trmi_interpreter_get(trmi_interpreter *run, trm_node node, int64_t index);
void trmi_interpreter_set(trmi_interpreter *run, trm_node node, int64_t index, double value);

#endif
