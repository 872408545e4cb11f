/* SPDX-License-Identifier: Apache-2.0 */
/* DeepFM (Guo et al., 2017, arXiv:1703.04247): linear part, factorisation machine and tower, added
 * up. */
#include "models/recommender.h"

#include "graph/arguments.h"

/* Returns the sum over pairs of fields of <v_i, v_j>, as half of |sum v|^2 - sum |v|^2: [N, 1]. */
static trm_node add_pairs(trm_graph *g, trm_node rows) {
    const int32_t fields = 1, both[] = {1, 2}, width = 1;
    trm_node sum = trm_reduce_sum(g, rows, &fields, 1, false);
    trm_node square = trm_reduce_sum(g, trm_mul(g, sum, sum), &width, 1, true);
    trm_node own = trm_reduce_sum(g, trm_mul(g, rows, rows), both, 2, false);
    own = trm_reshape(g, own, trm_node_shape(g, square));
    return trm_scale(g, trm_sub(g, square, own), 0.5);
}

/* Contract in trireme/nn.h. Factorisation machine and tower read the same rows, so all fields must
 * have one width. */
trm_node trm_deepfm(trm_graph *g, const trm_click_inputs *inputs,
                    const trm_recommender_options *options) {
    TRMI_NEED_IN(g, TRM_NO_NODE, inputs, options);
    static const int64_t usual[] = {400, 400, 400};
    trmi_click_shape shape;
    if (!trmi_click_shape_of(g, "deepfm", inputs, options, &shape) ||
        !trmi_click_one_width(g, "deepfm", options)) {
        return TRM_NO_NODE;
    }
    trm_node rows = trmi_click_embedding(g, inputs, options, &shape);
    trm_node deep = trmi_click_flat(g, rows, inputs, &shape);
    deep = trmi_click_tower(g, "deep", deep, (trmi_widths){options->hidden, options->hidden_count},
                            (trmi_widths){usual, 3}, options);
    deep = trmi_click_layer(g, "out", deep, 1, options);
    trm_node shallow =
        trm_add(g, trmi_click_linear(g, inputs, options, &shape), add_pairs(g, rows));
    return trmi_click_logits(g, trm_add(g, deep, shallow), &shape);
}
