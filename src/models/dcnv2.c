/* SPDX-License-Identifier: Apache-2.0 */
/* DCN V2 (Wang et al., 2021, arXiv:2008.13535): cross layers and a tower of ReLU layers, parallel
 * or stacked. */
#include "models/recommender.h"

#include "graph/arguments.h"

#include <stdio.h>

/* Adds a cross layer: x0 * (W x + b) + x, W full or of low rank U V^T. */
static trm_node add_cross(trm_graph *g, int32_t layer, trm_node x0, trm_node x,
                          const trm_recommender_options *o) {
    int64_t n = trm_node_shape(g, x).dim[1];
    trm_init init = o->layer_init == TRM_INIT_ZERO ? TRM_INIT_GLOROT_UNIFORM : o->layer_init;
    trm_graph_push_scope(g, "cross");
    trm_graph_push_scope(g, "%d", (int)layer);
    trm_node inner = x, weight;
    if (o->cross_rank > 0) {
        trm_node v = trm_parameter(g, "v", trm_shape_of(o->cross_rank, n), init);
        inner = trm_linear(g, x, v, TRM_NO_NODE);
        weight = trm_parameter(g, "u", trm_shape_of(n, o->cross_rank), init);
    } else {
        weight = trm_parameter(g, "weight", trm_shape_of(n, n), init);
    }
    trm_node bias = trm_parameter(g, "bias", trm_shape_of(n), TRM_INIT_ZERO);
    trm_node y = trm_add(g, trm_mul(g, x0, trm_linear(g, inner, weight, bias)), x);
    trm_graph_pop_scope(g);
    trm_graph_pop_scope(g);
    return y;
}

/* Contract in trireme/nn.h. Deep & Cross Network v2 (Wang et al. 2021): cross layers and a deep
 * tower, one after the other (stacked) or side by side (parallel). */
trm_node trm_dcnv2(trm_graph *g, const trm_click_inputs *inputs,
                   const trm_recommender_options *options) {
    TRMI_NEED_IN(g, TRM_NO_NODE, inputs, options);
    static const int64_t usual[] = {400, 400, 400};
    trmi_click_shape shape;
    if (!trmi_click_shape_of(g, "dcnv2", inputs, options, &shape)) {
        return TRM_NO_NODE;
    }
    trm_node rows = trmi_click_embedding(g, inputs, options, &shape);
    trm_node x0 = trmi_click_flat(g, rows, inputs, &shape), x = x0;
    int32_t layers = options->cross_layers == 0 ? 3 : options->cross_layers;
    for (int32_t i = 0; i < layers; i++) {
        x = add_cross(g, i, x0, x, options);
    }
    trm_node deep = trmi_click_tower(g, "deep", options->stacked ? x : x0,
                                     (trmi_widths){options->hidden, options->hidden_count},
                                     (trmi_widths){usual, 3}, options);
    trm_node last = options->stacked || options->hidden_count < 0
                        ? deep
                        : trm_concat(g, (trm_node[]){x, deep}, 2, 1);
    last = options->hidden_count < 0 ? x : last;
    return trmi_click_logits(g, trmi_click_layer(g, "out", last, 1, options), &shape);
}
