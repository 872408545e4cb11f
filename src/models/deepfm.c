/* SPDX-License-Identifier: Apache-2.0 */
/* DeepFM (Guo et al., 2017, arXiv:1703.04247): linear part, factorisation machine and tower, added
 * up. */
#include "models/recommender.h"

/* Returns the sum over pairs of fields of <v_i, v_j>, as half of |sum v|^2 - sum |v|^2: [N, 1]. */
static trm_node pairs(trm_graph *g, trm_node rows) {
    const int32_t fields = 1, both[] = {1, 2}, width = 1;
    trm_node sum = trm_reduce_sum(g, rows, &fields, 1, false);
    trm_node square = trm_reduce_sum(g, trm_mul(g, sum, sum), &width, 1, true);
    trm_node own = trm_reduce_sum(g, trm_mul(g, rows, rows), both, 2, false);
    own = trm_reshape(g, own, trm_node_shape(g, square));
    return trm_scale(g, trm_sub(g, square, own), 0.5);
}

trm_node trm_deepfm(trm_graph *g, const trm_click_inputs *in, const trm_recommender_options *o) {
    static const int64_t usual[] = {400, 400, 400};
    trmi_click_shape shape;
    if (!trmi_click_shape_of(g, "deepfm", in, o, &shape) || !trmi_click_one_width(g, "deepfm", o)) {
        return TRM_NO_NODE;
    }
    trm_node rows = trmi_click_embedding(g, in, o, &shape);
    trm_node deep = trmi_click_flat(g, rows, in, &shape);
    deep = trmi_click_tower(g, "deep", deep, o->hidden, o->hidden_count, usual, 3, o);
    deep = trmi_click_layer(g, "out", deep, 1, o);
    trm_node shallow = trm_add(g, trmi_click_linear(g, in, o, &shape), pairs(g, rows));
    return trmi_click_logits(g, trm_add(g, deep, shallow), &shape);
}
