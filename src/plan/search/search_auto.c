/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the best plan of a training graph over all meshes: searches each mesh and keeps the fastest
 * plan that fits. */
#include "plan/search/search.h"

#include "base/error.h"

#include <math.h>

/* Searches one mesh. Replaces *best and *best_step if its best plan is faster; lowers *least_bytes
 * if no plan fits. */
static trm_status try_mesh(const trm_graph *graph, const trmi_mesh *mesh,
                           const trmi_auto_options *o, trmi_shard_plan **best, double *best_step,
                           double *least_bytes, trm_error *err) {
    trmi_space *space = NULL;
    trmi_arena arena = {0};
    trmi_shard_plan *plan = NULL;
    trmi_found *found;
    TRMI_TRY(TRMI_NEW(err, found, 1, "to search a plan"));
    trm_status status = trmi_space_create(graph, mesh, o->costs, o->pins, &space, err);
    const trmi_search_options options = {.mode = o->mode, .memory_bytes = o->memory_bytes};
    status = status == TRM_OK ? trmi_search(space, &options, &arena, found, err) : status;
    if (status == TRM_OK && found->infeasible) {
        *least_bytes = fmin(*least_bytes, found->best.measure.bytes);
    } else if (status == TRM_OK && found->objective < *best_step * (1 - 1e-9)) {
        status = trmi_space_plan(space, &found->best.choice, &plan, err);
        if (status == TRM_OK) {
            trmi_shard_plan_destroy(*best);
            *best = plan;
            *best_step = found->objective;
        }
    }
    trmi_space_destroy(space);
    trmi_arena_free(&arena);
    trmi_free(found);
    return status;
}

trm_status trmi_search_plan(const trm_graph *graph, const trmi_auto_options *o,
                            trmi_shard_plan **out, double *found_step, trm_error *err) {
    trmi_mesh list[TRMI_MESH_LIST];
    int32_t hosts = o->hosts > 0 ? o->hosts : 1, count = 1;
    trmi_shard_plan *best = NULL;
    double step = INFINITY, least = INFINITY;
    /* the given mesh, or every factorisation of the ranks */
    if (o->mesh != NULL) {
        list[0] = *o->mesh;
    } else if (o->ranks < 1 || o->ranks % hosts != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%d ranks do not divide among %d hosts", (int)o->ranks,
                         (int)hosts);
    } else {
        count = trmi_mesh_list(hosts, o->ranks / hosts, list);
    }
    trm_status status = TRM_OK;
    for (int32_t i = 0; status == TRM_OK && i < count; i++) {
        if (list[i].axes <= 3 || count == 1) {
            status = try_mesh(graph, &list[i], o, &best, &step, &least, err);
        }
    }
    if (status == TRM_OK && best == NULL) {
        char limit[TRMI_BYTES_TEXT], takes[TRMI_BYTES_TEXT];
        status = TRMI_FAIL(err, TRM_INVALID,
                           "no plan fits %s a rank; the one of least memory takes %s: more ranks, "
                           "a smaller batch or "
                           "a higher limit",
                           trmi_bytes_text(o->memory_bytes, limit), trmi_bytes_text(least, takes));
    }
    if (status != TRM_OK) {
        trmi_shard_plan_destroy(best);
        return status;
    }
    *out = best;
    if (found_step != NULL) {
        *found_step = step;
    }
    return TRM_OK;
}
