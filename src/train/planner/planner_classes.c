/* SPDX-License-Identifier: Apache-2.0 */
/* Rebuilds a network with another number of classes: the parameters of the last linear operator
 * get other shapes, and the operators after it that name the number (one-hot labels, broadcasts
 * of the expanded loss) follow. */
#include "train/planner/planner.h"

#include "plan/passes/pass.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

/* Returns the index of the last linear operator whose weights are a parameter; 0: there is none.
 * An output layer that is part of the loss has no classes but tokens, which other operators
 * have, too. */
static int64_t classifier_of(const trm_graph *g) {
    for (int64_t i = g->ops_count - 1; i > 0; i--) {
        const trmi_op *op = &g->ops[i];
        if (op->kind == TRMI_OP_LINEAR_XENT) {
            return 0;
        }
        bool linear = op->kind == TRMI_OP_LINEAR && !op->attrs.matmul.inputs_first;
        const trmi_value *w = linear ? trmi_input_of(g, op, 1) : NULL;
        if (w != NULL && g->ops[w->op].kind == TRMI_OP_PARAMETER) {
            return i;
        }
    }
    return 0;
}

int64_t trmi_planner_class_count(const trm_graph *g) {
    int64_t last = classifier_of(g);
    return last != 0 ? trmi_input_of(g, &g->ops[last], 1)->shape.dim[0] : 0;
}

/* Returns whether `op` is a parameter of the operator `last`, with the classes as its first
 * dimension. */
static bool is_last_parameter(const trm_graph *g, const trmi_op *last, const trmi_op *op) {
    for (int32_t i = 1; i < last->inputs_count; i++) {
        if (last->inputs[i] != 0 && last->inputs[i] == op->outputs[0]) {
            return g->values[op->outputs[0]].shape.dim[0] ==
                   trmi_input_of(g, last, 1)->shape.dim[0];
        }
    }
    return false;
}

/* Replaces `from` classes by `to` in the attributes of an operator after the classifier. */
static void replace_classes(trmi_attrs *attrs, trmi_op_kind kind, int64_t from, int64_t to) {
    trm_shape *shape = &attrs->shape.shape;
    if (kind == TRMI_OP_ONE_HOT && attrs->one_hot.classes == from) {
        attrs->one_hot.classes = to;
    } else if ((kind == TRMI_OP_BROADCAST || kind == TRMI_OP_RESHAPE) && shape->rank > 0 &&
               shape->dim[shape->rank - 1] == from) {
        shape->dim[shape->rank - 1] = to;
    }
}

/* Contract in planner.h. Copies the graph operator by operator; shapes after the classifier
 * follow from the shape rules. */
trm_status trmi_planner_rescale_classes(const trm_graph *graph, int64_t classes, trm_node *loss,
                                        trm_graph **out, trm_error *err) {
    int64_t last = classifier_of(graph), before = trmi_planner_class_count(graph);
    trmi_pass pass;
    TRMI_TRY(trmi_pass_begin(&pass, graph, err));
    for (int64_t i = 1; i < graph->ops_count; i++) {
        trmi_op op = graph->ops[i];
        bool behind = i > last;
        if (behind) {
            replace_classes(&op.attrs, op.kind, before, classes);
        }
        int32_t index = trmi_pass_copy(&pass, &op);
        /* leaves have no shape rule: copy the shape, with the new number of classes in the
         * classifier's parameters */
        if (index != 0 && op.inputs_count == 0) {
            trmi_value *v = &pass.to->values[pass.to->ops[index].outputs[0]];
            v->dtype = graph->values[op.outputs[0]].dtype;
            v->shape = graph->values[op.outputs[0]].shape;
            if (op.kind == TRMI_OP_PARAMETER &&
                is_last_parameter(graph, &graph->ops[last], &graph->ops[i])) {
                v->shape.dim[0] = classes;
            }
        }
    }
    loss->id = pass.map[loss->id];
    return trmi_pass_end(&pass, out, err);
}
