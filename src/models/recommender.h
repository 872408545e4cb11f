/* SPDX-License-Identifier: Apache-2.0 */
/* models/recommender.h: building blocks of the recommendation models (widedeep, deepfm, dcnv2,
 * dlrm).
 *
 *      keys --gather--> [N, F, width] --pool bags--> rows --+--> interactions --+--> logits [N]
 *      dense ----------------------------------------------+--> ReLU layers ----+
 *
 * N samples, F fields, D dense inputs. Errors are recorded in the graph; the functions then return
 * TRM_NO_NODE or false. */
#ifndef TRMI_MODELS_RECOMMENDER_H
#define TRMI_MODELS_RECOMMENDER_H

#include "trireme/nn.h"

#include "graph/graph_ir.h"

enum { TRMI_CLICK_FIELDS_MAX = 512 }; /* most fields if tables are named */

/* Samples, fields and dense inputs of a model, from the shapes of its inputs. */
typedef struct trmi_click_shape {
    int64_t batch, fields, dense;
} trmi_click_shape;
/* Checks the inputs and options of a model and computes its shape. False: the graph has an error.
 */
bool trmi_click_shape_of(trm_graph *graph, const char *model, const trm_click_inputs *inputs,
                         const trm_recommender_options *options, trmi_click_shape *out);

/* Adds the look-up of embedding rows: [N, F, width] from the parameter embedding.weight, or from
 * the tables in the options, side by side in their order (if widths differ: [N, sum of widths]).
 * Bags are pooled. */
trm_node trmi_click_embedding(trm_graph *graph, const trm_click_inputs *inputs,
                              const trm_recommender_options *options,
                              const trmi_click_shape *shape);
/* Checks that all tables have one width. False: the graph has an error. */
bool trmi_click_one_width(trm_graph *graph, const char *model,
                          const trm_recommender_options *options);
/* Returns the width of rows; 16 by default. */
int64_t trmi_click_width(const trm_recommender_options *options);
/* Returns the width of the rows of a table. */
int64_t trmi_click_width_of(const trm_recommender_options *options, int32_t table);

/* Adds a linear layer [N, I] -> [N, out] with parameters "name.weight" and "name.bias". */
trm_node trmi_click_layer(trm_graph *graph, const char *name, trm_node x, int64_t out,
                          const trm_recommender_options *options);
/* The widths of layers. */
typedef struct trmi_widths {
    const int64_t *widths; /* [count] */
    int32_t count;
} trmi_widths;
/* Adds layers with ReLU, "name.0", "name.1", ...: the given ones, or `usual` if their count is
 * 0. */
trm_node trmi_click_tower(trm_graph *graph, const char *name, trm_node x, trmi_widths given,
                          trmi_widths usual, const trm_recommender_options *options);
/* Returns the flat embeddings and the dense inputs side by side: [N, F * width + D]. */
trm_node trmi_click_flat(trm_graph *graph, trm_node rows, const trm_click_inputs *inputs,
                         const trmi_click_shape *shape);
/* Adds the linear part [N, 1]: the sum of a weight for each key, plus a linear function of the
 * dense inputs. */
trm_node trmi_click_linear(trm_graph *graph, const trm_click_inputs *inputs,
                           const trm_recommender_options *options, const trmi_click_shape *shape);
/* Returns x [N, 1] as logits [N]. */
trm_node trmi_click_logits(trm_graph *graph, trm_node x, const trmi_click_shape *shape);

#endif
