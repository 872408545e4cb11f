/* SPDX-License-Identifier: Apache-2.0 */
/* DLRM (Naumov et al., 2019, arXiv:1906.00091) with interactions "dot": inner products of all pairs
 * of rows. */
#include "models/recommender.h"

#include "graph/arguments.h"

/* Returns the dense inputs as one more row of the interactions: [N, width]. */
static trm_node add_bottom(trm_graph *g, const trm_click_inputs *in, int64_t width,
                           const trm_recommender_options *o) {
    static const int64_t usual[] = {512, 256, 64};
    trm_node x = trmi_click_tower(g, "bottom", in->dense, (trmi_widths){o->bottom, o->bottom_count},
                                  (trmi_widths){usual, 3}, o);
    trm_graph_push_scope(g, "bottom");
    x = trm_relu(g, trmi_click_layer(g, "out", x, width, o));
    trm_graph_pop_scope(g);
    return x;
}

/* Contract in trireme/nn.h. Deep Learning Recommendation Model (Naumov et al. 2019): dense inputs
 * pass a bottom tower to the width of the rows, so that they take part in the pairs. */
trm_node trm_dlrm(trm_graph *g, const trm_click_inputs *inputs,
                  const trm_recommender_options *options) {
    TRMI_NEED_IN(g, TRM_NO_NODE, inputs, options);
    static const int64_t usual[] = {512, 256};
    int64_t width =
        options->tables_count > 0 ? trmi_click_width_of(options, 0) : trmi_click_width(options);
    trmi_click_shape shape;
    if (!trmi_click_shape_of(g, "dlrm", inputs, options, &shape) ||
        !trmi_click_one_width(g, "dlrm", options)) {
        return TRM_NO_NODE;
    }
    trm_node rows = trmi_click_embedding(g, inputs, options, &shape);
    trm_node x = TRM_NO_NODE;
    if (inputs->dense.id != 0) {
        x = add_bottom(g, inputs, width, options);
        trm_node row = trm_reshape(g, x, trm_shape_of(shape.batch, 1, width));
        rows = trm_concat(g, (trm_node[]){row, rows}, 2, 1);
    }
    trm_node dots = trm_pair_dots(g, rows);
    x = inputs->dense.id != 0 ? trm_concat(g, (trm_node[]){x, dots}, 2, 1) : dots;
    x = trmi_click_tower(g, "top", x, (trmi_widths){options->hidden, options->hidden_count},
                         (trmi_widths){usual, 2}, options);
    return trmi_click_logits(g, trmi_click_layer(g, "out", x, 1, options), &shape);
}
