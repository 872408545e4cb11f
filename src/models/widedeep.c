/* SPDX-License-Identifier: Apache-2.0 */
/* Wide & Deep (Cheng et al., 2016, arXiv:1606.07792): a linear part and a tower, added up. */
#include "models/recommender.h"

#include "graph/arguments.h"

trm_node trm_widedeep(trm_graph *g, const trm_click_inputs *inputs,
                      const trm_recommender_options *options) {
    TRMI_NEED_IN(g, TRM_NO_NODE, inputs, options);
    static const int64_t usual[] = {256, 128};
    trmi_click_shape shape;
    if (!trmi_click_shape_of(g, "widedeep", inputs, options, &shape)) {
        return TRM_NO_NODE;
    }
    trm_node rows = trmi_click_embedding(g, inputs, options, &shape);
    trm_node deep = trmi_click_flat(g, rows, inputs, &shape);
    deep = trmi_click_tower(g, "deep", deep, (trmi_widths){options->hidden, options->hidden_count},
                            (trmi_widths){usual, 2}, options);
    deep = trmi_click_layer(g, "out", deep, 1, options);
    return trmi_click_logits(g, trm_add(g, deep, trmi_click_linear(g, inputs, options, &shape)),
                             &shape);
}
