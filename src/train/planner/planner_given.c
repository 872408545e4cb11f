/* SPDX-License-Identifier: Apache-2.0 */
/* A user's plan with stages, from a plan file, in the costs of the search.
 *
 *      file --check--> graph of its micro-batch --> space on the mesh of a stage
 *      lines op, store --> choice;  lines begin --> nodes;  both played: pipe.given */
#include "train/planner/planner.h"

#include "base/error.h"

#include <string.h>

/* Fails with NOMEM; all memory here is for the price of the given plan. */
static trm_status no_memory(trm_error *err) { return TRMI_NO_MEMORY(err, "to price a plan"); }

/* Contract in planner.h. The file says how many micro-batches it has, so its graph is built first,
 * and the operators of the file are compared with those of that graph. */
trm_status trmi_planner_check_given(trm_planner *p, trm_error *err) {
    const trmi_partition_plan *file = p->pipe.file;
    const char *name = file->file != NULL ? file->file : "the given plan";
    int32_t micros = file->staged.micros;
    if (trmi_partition_plan_ranks(file) != p->ranks || p->batch % micros != 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%.150s: %d ranks and a batch that %d micro-batches divide expected, found "
            "%d ranks and %lld samples",
            name, trmi_partition_plan_ranks(file), micros, p->ranks, (long long)p->batch);
    }
    const trm_graph *graph = trmi_planner_part(p, micros, err);
    return graph != NULL ? trmi_partition_plan_check(file, graph, trmi_mesh_ranks(&file->mesh), err)
                         : TRM_NOMEM;
}

/* Makes the space and the choice of the file. */
static trm_status choose_given(trm_planner *p, trmi_choice *choice, trm_error *err) {
    trmi_planner_pipe *pipe = &p->pipe;
    const trmi_plan_stages *staged = &pipe->file->staged;
    trmi_space_destroy(pipe->given_space);
    pipe->given_space = NULL;
    TRMI_TRY(trmi_planner_micro_space(p, &pipe->file->mesh, staged->micros, staged->recompute,
                                      &pipe->given_space, err));
    TRMI_TRY(trmi_space_connect(pipe->given_space, err));
    return trmi_choice_open(choice, pipe->given_space, &p->arena)
               ? trmi_space_choice(pipe->given_space, pipe->file, choice, err)
               : no_memory(err);
}

/* Contract in planner.h. The benchmark must know the micro-batches, because operators of equal name
 * have other shapes in the graph of a micro-batch; 0 stands for the whole batch again. */
trm_status trmi_planner_measure_given(trm_planner *p, trm_error *err) {
    trmi_choice choice;
    int32_t news = 0;
    if (p->pipe.file == NULL || p->costs.probe == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(choose_given(p, &choice, err));
    p->probe.micros = p->pipe.file->staged.micros;
    trm_status status = trmi_costs_measure(&p->costs, p->pipe.given_space, &choice, &news, err);
    p->probe.micros = 0;
    return status;
}

/* Contract in planner.h. The plan is played with the same costs and the same schedule simulator as
 * the plans of the search, so the two times can be compared. */
trm_status trmi_planner_price_given(trm_planner *p, const trmi_pipe_costs *costs, trm_error *err) {
    trmi_planner_pipe *pipe = &p->pipe;
    int32_t count;
    if (pipe->file == NULL) {
        return TRM_OK;
    }
    const trmi_plan_stages *staged = &pipe->file->staged;
    trmi_pipe_plan plan = {.shape = {.stages = staged->stages,
                                     .chunks = staged->chunks,
                                     .micros = staged->micros,
                                     .order = staged->order,
                                     .recompute = staged->recompute}};
    plan.begins = trmi_arena_alloc(&p->arena, (TRMI_VIRTUAL_STAGES_MAX + 1) * sizeof *plan.begins);
    if (plan.begins == NULL) {
        return no_memory(err);
    }
    TRMI_TRY(choose_given(p, &plan.choice, err));
    plan.space = pipe->given_space;
    TRMI_TRY(trmi_pipe_begins(plan.space, staged->begins, plan.begins + 1, &count, err));
    TRMI_TRY(trmi_pipe_measure(costs, &plan, &p->arena, err));
    pipe->given = plan;
    return TRM_OK;
}
