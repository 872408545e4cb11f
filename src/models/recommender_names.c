/* SPDX-License-Identifier: Apache-2.0 */
/* Registry of the recommendation models by name. trm_recommender_build calls the builder of one, so
 * programs can take a model's name from a command line or a file. A new model is a line of
 * `models`. */
#include "models/recommender.h"

#include "graph/arguments.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Builds the logits of one model; all recommendation models have this form. */
typedef trm_node (*builder)(trm_graph *graph, const trm_click_inputs *inputs,
                            const trm_recommender_options *options);
static const struct {
    const char *name;
    builder build;
} models[] = {
    {"widedeep", trm_widedeep}, {"deepfm", trm_deepfm}, {"dcnv2", trm_dcnv2}, {"dlrm", trm_dlrm}};
enum { MODELS = sizeof models / sizeof models[0] };

trm_node trm_recommender_build(trm_graph *g, const char *name, const trm_click_inputs *inputs,
                               const trm_recommender_options *options) {
    TRMI_NEED_IN(g, TRM_NO_NODE, name, inputs, options);
    for (int i = 0; i < MODELS; i++) {
        if (strcmp(name, models[i].name) == 0) {
            return models[i].build(g, inputs, options);
        }
    }
    trm_error err;
    char known[160] = "";
    for (int i = 0; i < MODELS; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", models[i].name);
    }
    (void)TRMI_FAIL(&err, TRM_INVALID, "no recommendation model '%.40s'; there are %s", name,
                    known);
    trmi_graph_fail(g, &err);
    return TRM_NO_NODE;
}
