/* SPDX-License-Identifier: Apache-2.0 */
/* The losses that come with the library: softmax cross-entropy as one operator or as the small
 * operators of the porting guide, and the logistic loss of click models. Each builds graph nodes
 * from the logits and the field "label", and returns a scalar. In evaluation a label of -1 marks
 * the padding of the last batch and does not count. */
#include "trireme/train.h"

#include "train/model.h"

#include "graph/arguments.h"

/* Builds softmax cross-entropy from elementary operators: max, exp, sum, division, log, one-hot,
 * mean. logits [N, K], labels [N] integers. The fusion pass recognises the pattern; the result
 * equals the single operator's up to rounding. */
trm_node trm_softmax_cross_entropy_expand(trm_graph *graph, trm_node logits, trm_node labels) {
    const int32_t last = -1;
    trm_shape shape = trm_node_shape(graph, logits);
    trm_node largest = trm_reduce_max(graph, logits, &last, 1, true);
    trm_node exp = trm_exp(graph, trm_sub(graph, logits, largest));
    trm_node softmax = trm_div(graph, exp, trm_reduce_sum(graph, exp, &last, 1, true));
    trm_node target = trm_one_hot(graph, labels, shape.rank == 2 ? shape.dim[1] : 0, 1.0, 0.0);
    trm_node log = trm_log(graph, softmax);
    trm_node rows = trm_reduce_sum(graph, trm_mul(graph, log, target), &last, 1, false);
    rows = trm_mul(graph, trm_scalar(graph, -1.0), rows);
    return trm_reduce_mean(graph, rows, &last, 1, false);
}

/* Builds the loss of evaluation: no label smoothing, and rows with label -1 (padding of the last
 * batch) do not count. */
static trm_node build_evaluation_loss(trm_graph *graph, trm_node logits, trm_node labels) {
    const trm_xent_options options = {.use_ignore_index = true, .ignore_index = -1};
    return trm_softmax_cross_entropy(graph, logits, labels, &options);
}

/* Contract in trireme/train.h. Label -1 is ignored in training too, unless the options name
 * another. */
trm_node trm_loss_softmax(trm_graph *graph, trm_node logits, const trm_inputs *inputs,
                          void *context) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, inputs);
    trm_node labels = trm_inputs_get(inputs, "label");
    if (!trm_graph_is_training(graph)) {
        return build_evaluation_loss(graph, logits, labels);
    }
    const trm_xent_options *given = context;
    trm_xent_options options = given != NULL ? *given : (trm_xent_options){0};
    if (!options.use_ignore_index) {
        options.use_ignore_index = true;
        options.ignore_index = -1;
    }
    return trm_softmax_cross_entropy(graph, logits, labels, &options);
}

trm_node trm_loss_softmax_expand(trm_graph *graph, trm_node logits, const trm_inputs *inputs,
                                 void *context) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, inputs);
    (void)context;
    trm_node labels = trm_inputs_get(inputs, "label");
    return trm_graph_is_training(graph) ? trm_softmax_cross_entropy_expand(graph, logits, labels)
                                        : build_evaluation_loss(graph, logits, labels);
}

/* Contract in trireme/train.h. Logits may have a last dimension of 1. */
trm_node trm_loss_logistic(trm_graph *graph, trm_node logits, const trm_inputs *inputs,
                           void *context) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, inputs);
    (void)context;
    trm_node labels = trm_inputs_get(inputs, "label");
    trm_shape shape = trm_node_shape(graph, logits);
    if (shape.rank == 2 && shape.dim[1] == 1) {
        logits = trm_reshape(graph, logits, trm_shape_of(shape.dim[0]));
    }
    return trm_bce_with_logits(graph, logits, labels);
}
