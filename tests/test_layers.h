/* SPDX-License-Identifier: Apache-2.0 */
/* tests/test_layers.h: layers of small networks whose runs tests compare. */
#ifndef TRIREME_TESTS_TEST_LAYERS_H
#define TRIREME_TESTS_TEST_LAYERS_H

#include "trireme/graph.h"

/* Adds a linear layer of `out` outputs in a scope of this name: NAME.weight, NAME.bias. */
static inline trm_node add_dense(trm_graph *g, const char *name, trm_node x, int64_t out) {
    trm_shape s = trm_node_shape(g, x);
    trm_graph_push_scope(g, "%s", name);
    x = trm_linear(
        g, x, trm_parameter(g, "weight", trm_shape_of(out, s.dim[s.rank - 1]), TRM_INIT_LINEAR),
        trm_parameter(g, "bias", trm_shape_of(out), TRM_INIT_LINEAR));
    trm_graph_pop_scope(g);
    return x;
}

/* Adds a 3x3 convolution with padding to `channels` channels, and with `norm` a batch norm. */
static inline trm_node norm_conv(trm_graph *g, trm_node x, int64_t channels, bool norm) {
    const int64_t in = trm_node_shape(g, x).dim[1];
    x = trm_conv2d(g, x,
                   trm_parameter(g, "conv.weight", trm_shape_of(channels, in, 3, 3),
                                 TRM_INIT_HE_NORMAL_FAN_OUT),
                   TRM_NO_NODE, &(trm_conv_options){.pad = {1, 1, 1, 1}});
    return !norm
               ? x
               : trm_batch_norm(g, x,
                                trm_parameter(g, "bn.weight", trm_shape_of(channels), TRM_INIT_ONE),
                                trm_parameter(g, "bn.bias", trm_shape_of(channels), TRM_INIT_ZERO),
                                trm_state(g, "bn.running_mean", TRM_FLOAT32, trm_shape_of(channels),
                                          TRM_INIT_ZERO),
                                trm_state(g, "bn.running_var", TRM_FLOAT32, trm_shape_of(channels),
                                          TRM_INIT_ONE),
                                NULL);
}

/* Adds three convolutions with ReLU, each from the second one on with a residual connection around
 * it: values that backward reads twice. */
static inline trm_node residual_convs(trm_graph *g, trm_node x, int64_t channels, bool norm) {
    trm_node skip = TRM_NO_NODE;
    for (int i = 0; i < 3; i++) {
        trm_graph_push_scope(g, "layer%d", i);
        x = norm_conv(g, x, channels, norm);
        x = trm_relu(g, i == 0 ? x : trm_add(g, x, skip));
        skip = x;
        trm_graph_pop_scope(g);
    }
    return x;
}

#endif
