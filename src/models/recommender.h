/* SPDX-License-Identifier: Apache-2.0 */
/* models/recommender.h: what the click models are made of.
 *
 *      keys --gather--> [N, F, width] --pool bags--> rows --+--> interactions --+--> logits [N]
 *      dense ----------------------------------------------+--> ReLU layers ----+
 */
#ifndef TRMI_MODELS_RECOMMENDER_H
#define TRMI_MODELS_RECOMMENDER_H

#include "trireme/models.h"

#include "graph/graph_ir.h"

enum { TRMI_CLICK_FIELDS_MAX = 512 }; /* where tables are named */

/* N and F; 0 breaks the graph, with a sentence. */
typedef struct trmi_click_shape {
    int64_t batch, fields, dense;
} trmi_click_shape;
bool trmi_click_shape_of(trm_graph *graph, const char *model, const trm_click_inputs *inputs,
                         const trm_recommender_options *options, trmi_click_shape *out);

/* Rows [N, F, width] of the parameter embedding.weight, or those of the tables that the options
 * name, side by side in their order (of different widths: [N, their sum]); bags pooled. */
trm_node trmi_click_embedding(trm_graph *graph, const trm_click_inputs *inputs,
                              const trm_recommender_options *options,
                              const trmi_click_shape *shape);
/* Breaks the graph where tables differ in width. */
bool trmi_click_one_width(trm_graph *graph, const char *model,
                          const trm_recommender_options *options);
int64_t trmi_click_width(const trm_recommender_options *options);
int64_t trmi_click_width_of(const trm_recommender_options *options, int32_t table);

/* [N, I] -> [N, out]: parameters "name.weight" and "name.bias". */
trm_node trmi_click_layer(trm_graph *graph, const char *name, trm_node x, int64_t out,
                          const trm_recommender_options *options);
/* Layers with ReLU, "name.0", "name.1", ...; the widths given, or `usual`. */
trm_node trmi_click_tower(trm_graph *graph, const char *name, trm_node x, const int64_t *widths,
                          int32_t count, const int64_t *usual, int32_t usual_count,
                          const trm_recommender_options *options);
/* Embeddings, flat, and dense inputs side by side: [N, F * width + D]. */
trm_node trmi_click_flat(trm_graph *graph, trm_node rows, const trm_click_inputs *inputs,
                         const trmi_click_shape *shape);
/* [N, 1]: the sum of a weight per key, plus the dense inputs' linear part. */
trm_node trmi_click_linear(trm_graph *graph, const trm_click_inputs *inputs,
                           const trm_recommender_options *options, const trmi_click_shape *shape);
trm_node trmi_click_logits(trm_graph *graph, trm_node x, const trmi_click_shape *shape);

#endif
