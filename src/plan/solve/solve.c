/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of solve.h in their order: reduce, solve the core that is left, undo. */
#include "plan/solve/solve.h"

#include "plan/solve/solve_reduce.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <math.h>
#include <string.h>

static trm_status check(const trmi_cost_graph *g, const int32_t *start, trm_error *err) {
    for (int32_t i = 0; i < g->nodes_count; i++) {
        if (g->states[i] < 1) {
            return TRMI_FAIL(err, TRM_INVALID, "node %d has no states", i);
        }
        if (start != NULL && (start[i] < 0 || start[i] >= g->states[i])) {
            return TRMI_FAIL(err, TRM_INVALID, "node %d begins in state %d of %d", i, start[i],
                             g->states[i]);
        }
    }
    for (int32_t i = 0; i < g->edges_count; i++) {
        const trmi_cost_edge *e = &g->edges[i];
        if (e->a < 0 || e->b < 0 || e->a >= g->nodes_count || e->b >= g->nodes_count ||
            e->a == e->b) {
            return TRMI_FAIL(err, TRM_INVALID, "edge %d joins nodes %d and %d of %d", i, e->a, e->b,
                             g->nodes_count);
        }
    }
    return TRM_OK;
}

/* What could not be reduced. The steps of `work` are traced behind the core's choices. */
static trm_status solve_core(trmi_solve_work *work, const trmi_cost_graph *g,
                             const trmi_solve_options *o, int32_t *choice, trmi_solution *out,
                             trm_error *err) {
    int64_t limit = o->table_limit > 0 ? o->table_limit : 32 << 20;
    trm_status status = trmi_core_eliminate(work, limit, choice, &out->width, err);
    if (status == TRM_OK) {
        trmi_work_trace(work, choice);
        out->objective = out->lower_bound = trmi_solve_cost(g, choice);
        return TRM_OK;
    }
    if (status != TRM_UNSUPPORTED) {
        return status;
    }
    int32_t *best;
    TRMI_TRY(TRMI_NEW(err, best, (size_t)g->nodes_count + 1, "to search a plan"));
    double cost = INFINITY;
    if (o->start != NULL) {
        memcpy(best, o->start, (size_t)g->nodes_count * sizeof *best);
        cost = trmi_solve_cost(g, best);
    }
    status = trmi_core_branch(work, g, o, best, &cost, &out->lower_bound, &out->branches, err);
    if (status == TRM_OK) {
        memcpy(choice, best, (size_t)g->nodes_count * sizeof *best);
        out->objective = cost;
        out->lower_bound = out->lower_bound < cost ? out->lower_bound : cost;
    }
    trmi_free(best);
    return status;
}

trm_status trmi_solve(const trmi_cost_graph *g, const trmi_solve_options *options, int32_t *choice,
                      trmi_solution *out, trm_error *err) {
    static const trmi_solve_options plain;
    const trmi_solve_options *o = options != NULL ? options : &plain;
    double begin = trmi_os_now();
    TRMI_TRY(check(g, o->start, err));
    trmi_tables tables;
    trmi_solve_work work;
    trmi_solution found = {.width = 0};
    trmi_tables_open(&tables);
    trm_status status = trmi_work_open(&work, &tables, g, err);
    if (status == TRM_OK) {
        work.last_first = o->last_first;
        status = trmi_work_reduce(&work, 2, err);
    }
    for (int32_t i = 0; status == TRM_OK && i < work.steps_count; i++) {
        found.width =
            work.steps[i].near_count > found.width ? work.steps[i].near_count : found.width;
    }
    if (status == TRM_OK && work.live_count == 0) {
        trmi_work_trace(&work, choice);
        found.objective = trmi_solve_cost(g, choice);
        double constant = trmi_work_constant(&work);
        found.lower_bound = constant < found.objective ? constant : found.objective;
    } else if (status == TRM_OK) {
        status = solve_core(&work, g, o, choice, &found, err);
    }
    found.products = tables.products;
    found.shared = tables.shared;
    found.seconds = trmi_os_now() - begin;
    trmi_work_close(&work);
    trmi_tables_close(&tables);
    if (status == TRM_OK) {
        *out = found;
    }
    return status;
}
