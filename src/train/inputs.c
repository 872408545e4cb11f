/* SPDX-License-Identifier: Apache-2.0 */
#include "train/model.h"

#include "base/error.h"
#include "graph/graph_ir.h"

#include <stdio.h>
#include <string.h>

trm_node trm_inputs_get(const trm_inputs *inputs, const char *name) {
    trm_inputs *self = (trm_inputs *)inputs; /* const to networks; the cache of nodes is ours */
    for (int32_t i = 0; i < self->count; i++) {
        trm_batch_field *field = &self->fields[i];
        if (strcmp(field->name, name) == 0) {
            if (self->nodes[i].id == 0) {
                char *scope = self->graph->scope, first = scope[0];
                scope[0] = '\0'; /* the input has the field's name, whatever scope is open */
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
