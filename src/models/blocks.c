/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the blocks of all transformers (blocks.h). */
#include "models/blocks.h"

#include "models/lora.h"

/* Returns the extent of the last dimension. */
static int64_t width_of(const trm_graph *graph, trm_node x) {
    trm_shape shape = trm_node_shape(graph, x);
    return shape.rank > 0 ? shape.dim[shape.rank - 1] : 0;
}

trm_node trmi_block_linear(trm_graph *graph, const char *name, trm_node x, int64_t outputs,
                           const trm_lora_options *lora) {
    trm_graph_push_scope(graph, "%s", name);
    trm_node weight = trm_parameter(graph, "weight", trm_shape_of(outputs, width_of(graph, x)),
                                    trm_init_normal(TRMI_BLOCK_DEVIATION));
    trm_node bias = trm_parameter(graph, "bias", trm_shape_of(outputs), TRM_INIT_ZERO);
    trm_node y = trmi_lora_add(graph, x, trm_linear(graph, x, weight, bias), lora);
    trm_graph_pop_scope(graph);
    return y;
}

trm_node trmi_block_norm(trm_graph *graph, const char *name, trm_node x, double epsilon) {
    trm_shape width = trm_shape_of(width_of(graph, x));
    trm_graph_push_scope(graph, "%s", name);
    trm_node gamma = trm_parameter(graph, "weight", width, TRM_INIT_ONE);
    trm_node beta = trm_parameter(graph, "bias", width, TRM_INIT_ZERO);
    trm_graph_pop_scope(graph);
    return trm_layer_norm(graph, x, gamma, beta, epsilon);
}

trm_node trmi_block_dropout(trm_graph *graph, trm_node x, double rate) {
    return rate > 0 ? trm_dropout(graph, x, rate) : x;
}

/* Contract in blocks.h. Names follow BERT's checkpoints: attention.SELF.query, ... */
trm_node trmi_block_attention(trm_graph *graph, const char *self, trm_node queries, trm_node keys,
                              trm_node mask, const trmi_block_options *options) {
    static const char *const names[] = {"query", "key", "value"};
    int64_t width = width_of(graph, queries), heads = options->heads;
    trm_node parts[3];
    trm_graph_push_scope(graph, "attention");
    trm_graph_push_scope(graph, "%s", self);
    for (int i = 0; i < 3; i++) {
        trm_node y =
            trmi_block_linear(graph, names[i], i == 0 ? queries : keys, width, options->lora);
        trm_shape shape = trm_node_shape(graph, y);
        parts[i] =
            trm_reshape(graph, y, trm_shape_of(shape.dim[0], shape.dim[1], heads, width / heads));
    }
    trm_graph_pop_scope(graph);
    trm_node y = trm_attention(graph, parts[0], parts[1], parts[2], mask, NULL);
    y = trm_reshape(graph, y, trm_node_shape(graph, queries));
    y = trmi_block_linear(graph, "output.dense", y, width, options->lora);
    trm_graph_pop_scope(graph);
    return y;
}

trm_node trmi_block_layers(trm_graph *graph, trm_node x, const trmi_block_options *options) {
    trm_node y = trmi_block_linear(graph, "intermediate.dense", x, options->hidden, options->lora);
    return trmi_block_linear(graph, "output.dense", trm_gelu(graph, y, TRM_GELU_ERF),
                             width_of(graph, x), options->lora);
}
