/* SPDX-License-Identifier: Apache-2.0 */
/* Where no plan keeps the memory limit: finds a smaller batch and a number of ranks with which
 * one does. Each test builds the graph and a search space, but only for its plan of least
 * memory. */
#include "train/planner/planner.h"

#include "base/error.h"

/* Batches that are tried, each half of the one before; numbers of ranks, each twice the one
 * before. */
enum { HALVINGS = 10, DOUBLINGS = 6 };

/* Sets *fits_it if some plan of this batch on this mesh keeps the limit, and *step to the time
 * of the plan of least memory. */
static trm_status find_fit(trm_planner *p, int64_t batch, const trmi_mesh *mesh, bool *fits_it,
                           double *step, trm_error *err) {
    trm_graph *graph = NULL;
    trmi_space *space = NULL;
    trmi_arena arena = {0};
    trmi_front front;
    trmi_choice *points;
    trmi_measure measure;
    *fits_it = false;
    trm_status status = trmi_planner_graph(p, batch, 0, &graph, err);
    status = status == TRM_OK ? trmi_planner_space(p, graph, mesh, &space, err) : status;
    const trmi_objective weights = {.gradient = status == TRM_OK ? 1 - space->costs.overlap : 0};
    status = status == TRM_OK ? trmi_space_front(space, &weights, trmi_auto_limit(&p->drive),
                                                 &arena, &front, &points, err)
                              : status;
    if (status == TRM_OK && front.feasible) {
        status = trmi_space_measure(space, &points[0], &measure, err);
        *fits_it = true;
        *step = measure.step;
    }
    trmi_space_destroy(space);
    trm_graph_destroy(graph);
    trmi_arena_free(&arena);
    return status;
}

/* Finds the largest batch that fits on these ranks: halves until one fits, then bisects three
 * times. */
static trm_status smaller_batch(trm_planner *p, const trmi_mesh *mesh, trm_error *err) {
    int64_t too_much = p->batch, good = 0;
    for (int i = 0; i < HALVINGS && good == 0 && too_much / 2 >= p->ranks; i++) {
        bool ok;
        TRMI_TRY(find_fit(p, too_much / 2, mesh, &ok, &p->way_out.batch_step, err));
        good = ok ? too_much / 2 : 0;
        too_much = ok ? too_much : too_much / 2;
    }
    for (int i = 0; i < 3 && good > 0; i++) {
        int64_t middle = (good + too_much) / 2 / p->ranks * p->ranks;
        bool ok;
        double step;
        if (middle <= good || middle >= too_much) {
            break;
        }
        TRMI_TRY(find_fit(p, middle, mesh, &ok, &step, err));
        p->way_out.batch_step = ok ? step : p->way_out.batch_step;
        *(ok ? &good : &too_much) = middle;
    }
    p->way_out.batch = good;
    return TRM_OK;
}

/* Doubles the outermost axis of the mesh until the same global batch fits. */
static trm_status more_ranks(trm_planner *p, const trmi_mesh *mesh, trm_error *err) {
    trmi_mesh grown = *mesh;
    if (mesh->axes == 0) {
        TRMI_TRY(trmi_mesh_parse("1", &grown, err));
    }
    for (int i = 0; i < DOUBLINGS && p->way_out.ranks == 0; i++) {
        bool ok;
        grown.size[0] *= 2;
        TRMI_TRY(find_fit(p, p->batch, &grown, &ok, &p->way_out.ranks_step, err));
        p->way_out.ranks = ok ? trmi_mesh_ranks(&grown) : 0;
    }
    return TRM_OK;
}

/* Contract in planner.h. */
trm_status trmi_planner_find_way_out(trm_planner *p, trm_error *err) {
    const trmi_auto_mesh *m = trmi_planner_best(p);
    TRMI_TRY(smaller_batch(p, &m->mesh, err));
    return more_ranks(p, &m->mesh, err);
}
