/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of one micro-batch, each built once, and their spaces on the mesh of a stage (contracts in
 * planner.h). */
#include "train/planner/planner.h"

#include "base/error.h"

/* Contract in planner.h. Graphs are kept, because spaces of several meshes refer to one graph. */
trm_status trmi_planner_micro(trm_planner *p, int32_t micros, const trmi_micro_graph **out,
                              trm_error *err) {
    trmi_planner_pipe *pipe = &p->pipe;
    for (int32_t i = 0; i < pipe->graphs_count; i++) {
        if (pipe->graphs[i].micros == micros) {
            *out = &pipe->graphs[i];
            return TRM_OK;
        }
    }
    if (pipe->graphs_count == TRMI_MICRO_GRAPHS) {
        return TRMI_FAIL(err, TRM_INTERNAL, "more than %d numbers of micro-batches",
                         TRMI_MICRO_GRAPHS);
    }
    trmi_micro_graph *made = &pipe->graphs[pipe->graphs_count];
    TRMI_TRY(trmi_planner_micro_graph(p, micros, made, err));
    pipe->graphs_count++;
    *out = made;
    return TRM_OK;
}

const trm_graph *trmi_planner_part(void *context, int32_t micros, trm_error *err) {
    const trmi_micro_graph *graph = NULL;
    return trmi_planner_micro(context, micros, &graph, err) == TRM_OK ? graph->training : NULL;
}

trm_status trmi_planner_micro_space(void *context, const trmi_mesh *mesh, int32_t micros,
                                    bool recompute, trmi_space **out, trm_error *err) {
    trm_planner *p = context;
    const trmi_micro_graph *graph = NULL;
    const trmi_planner_stage stage = {.staged = true, .micros = micros, .recompute = recompute};
    TRMI_TRY(trmi_planner_micro(p, micros, &graph, err));
    return trmi_planner_stage_space(p, graph->training, mesh, &stage, out, err);
}
