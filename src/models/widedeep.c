/* SPDX-License-Identifier: Apache-2.0 */
/* Wide & Deep (Cheng et al., 2016, arXiv:1606.07792): a linear part and a tower, added up. */
#include "models/recommender.h"

trm_node trm_widedeep(trm_graph *g, const trm_click_inputs *in, const trm_recommender_options *o) {
    static const int64_t usual[] = {256, 128};
    trmi_click_shape shape;
    if (!trmi_click_shape_of(g, "widedeep", in, o, &shape)) {
        return TRM_NO_NODE;
    }
    trm_node rows = trmi_click_embedding(g, in, o, &shape);
    trm_node deep = trmi_click_flat(g, rows, in, &shape);
    deep = trmi_click_tower(g, "deep", deep, o->hidden, o->hidden_count, usual, 2, o);
    deep = trmi_click_layer(g, "out", deep, 1, o);
    return trmi_click_logits(g, trm_add(g, deep, trmi_click_linear(g, in, o, &shape)), &shape);
}
