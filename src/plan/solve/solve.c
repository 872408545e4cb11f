/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the three steps of plan/solve/solve.h in order: eliminate small nodes, solve the remaining
 * core, derive the states of the eliminated nodes.
 *
 * trmi_solve() is the only entry point; it owns all tables (trmi_tables) and the shrinking graph
 * (trmi_solve_work) of one solve and frees both on every path. */
#include "plan/solve/solve.h"

#include "plan/solve/solve_reduce.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <math.h>
#include <string.h>

/* Checks every index in the graph and the start, so that the later steps need no range checks. */
static trm_status check_graph(const trmi_cost_graph *g, const int32_t *start, trm_error *err) {
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

/* Solves what step 1 left: by step 2 if its tables stay within the limit, otherwise by step 3.
 * Writes the states of all nodes into `choice`, also those that step 1 eliminated, and fills in
 * objective, lower bound, width and branches of `out`. */
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
    /* step 3: branch and bound, from the cost of the given start */
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

/* Contract in solve.h. A certificate needs a lower bound as well as a choice: where no core is
 * left, the constant of the reduced graph is the optimum itself; else solve_core gives both. */
trm_status trmi_solve(const trmi_cost_graph *g, const trmi_solve_options *options, int32_t *choice,
                      trmi_solution *out, trm_error *err) {
    static const trmi_solve_options plain;
    const trmi_solve_options *o = options != NULL ? options : &plain;
    double begin = trmi_os_now();
    /* Step 1: eliminate nodes with at most two neighbours. */
    TRMI_TRY(check_graph(g, o->start, err));
    trmi_tables tables;
    trmi_solve_work work;
    trmi_solution found = {.width = 0};
    trmi_tables_open(&tables);
    trm_status status = trmi_work_open(&work, &tables, g, err);
    if (status == TRM_OK) {
        work.last_first = o->last_first;
        status = trmi_work_reduce(&work, 2, err);
    }
    /* Note the widest elimination, for the certificate. */
    for (int32_t i = 0; status == TRM_OK && i < work.steps_count; i++) {
        found.width =
            work.steps[i].near_count > found.width ? work.steps[i].near_count : found.width;
    }
    /* the graph is solved if no node is left; otherwise steps 2 and 3 solve the core */
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
