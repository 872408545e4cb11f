/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of a graph by the names of the dataset's fields. */
#include "train/model.h"

#include "base/arguments.h"
#include "base/error.h"
#include "graph/graph_ir.h"

#include <stdio.h>
#include <string.h>

/* Returns the graph's input for field `name`, which the first call creates. The input is named
 * like the field even inside an open scope, so that feeding finds it by name. An unknown name
 * fails the graph (its sticky error lists the fields) and returns TRM_NO_NODE. */
trm_node trm_inputs_get(const trm_inputs *inputs, const char *name) {
    TRMI_NEED_OR(TRM_NO_NODE, NULL, inputs, name);
    trm_inputs *self =
        (trm_inputs *)inputs; /* const for networks; the list of created inputs may change */
    for (int32_t i = 0; i < self->count; i++) {
        trm_batch_field *field = &self->fields[i];
        if (strcmp(field->name, name) == 0) {
            if (self->nodes[i].id == 0) {
                char *scope = self->graph->scope, first = scope[0];
                scope[0] = '\0'; /* close the scope for the moment */
                self->nodes[i] =
                    trm_input(self->graph, name, field->tensor.dtype, field->tensor.shape);
                scope[0] = first;
            }
            return self->nodes[i];
        }
    }
    char names[160] = "none";
    size_t at = 0;
    for (int32_t i = 0; i < self->count && at < sizeof names; i++) {
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "",
                               self->fields[i].name);
    }
    trm_error err;
    (void)TRMI_FAIL(&err, TRM_INVALID,
                    "the network asks for '%s', but the dataset's fields are: %s", name, names);
    trmi_graph_fail(self->graph, &err);
    return TRM_NO_NODE;
}
