/* SPDX-License-Identifier: Apache-2.0 */
/* Drives the search for a plan. Rank 0 of auto_parallel (plan_search.c) and `trireme plan` call it.
 *
 *      meshes         trmi_auto_meshes   all factorisations of the ranks, or the given one
 *      rounds         trmi_auto_search   search each mesh, measure the operators of the plans,
 *                                         search again with the measured costs, ROUNDS at most
 *      memory limit   mesh_search.c      compile the best plan; lower the limit until it fits
 *      benchmark      trmi_auto_try      run the plans that are predicted to be nearly as fast
 *
 * Memory that outlives a search of all meshes is from d->arena, other memory from d->results.
 * docs/internals/planner.md describes search and costs. */
#include "exec/autoparallel/auto_parallel.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rounds of measuring at most. After each, another plan may be the best, with operators that were
 * not measured yet; in practice the plan stops changing before. */
enum { ROUNDS = 4 };
/* Seconds for measurements when one process measures for ranks that do not run: the operators that
 * take most of a step are measured by then, costs of the others are scaled from them. */
static const double measuring_alone_seconds = 8;

/* ---- meshes ---------------------------------------------------------------------------------- */

/* Contract in auto_parallel.h. Meshes of more than three axes are left out unless one of them is
 * the only choice: each axis multiplies the strategies of every operator. */
trm_status trmi_auto_meshes(trmi_plan_search *d, const trmi_mesh *only, int32_t ranks,
                            int32_t hosts, trm_error *err) {
    trmi_mesh list[TRMI_MESH_LIST];
    int32_t count = 1;
    /* Search a given mesh, or all meshes of hosts and ranks. */
    if (only != NULL) {
        list[0] = *only;
    } else if (ranks < 1 || ranks % hosts != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%d ranks on %d hosts; as many ranks on each host, at least 1, expected: "
                         "give ranks, or a mesh",
                         (int)ranks, (int)hosts);
    } else {
        count = trmi_mesh_list(hosts, ranks / hosts, list);
    }
    TRMI_TRY(TRMI_NEW_IN(err, &d->arena, d->meshes, (size_t)count + 1, "to search a plan"));
    for (int32_t i = 0; i < count; i++) {
        if (list[i].axes <= 3 || count == 1) {
            d->meshes[d->meshes_count++].mesh = list[i];
        }
    }
    return TRM_OK;
}

void trmi_auto_free(trmi_plan_search *d) {
    trmi_ties_free(&d->trial);
    trmi_auto_free_meshes(d);
}

/* ---- search ---------------------------------------------------------------------------------- */

/* Searches the curve of memory against time of the best mesh. A faster plan among its points is
 * taken if its program keeps the limit, too. */
static trm_status trace_curve(trmi_plan_search *d, trm_error *err) {
    trmi_auto_mesh *m = &d->meshes[d->best];
    const trmi_found before = m->found;
    const double compiled = d->compiled_bytes;
    TRMI_TRY(trmi_auto_search_mesh(d, m, true, err));
    if (d->memory_bytes <= 0) {
        return TRM_OK;
    }
    trmi_found *f = &m->found;
    if (!f->infeasible && !before.infeasible &&
        !trmi_choice_equal(&f->best.choice, &before.best.choice, m->space)) {
        TRMI_TRY(trmi_auto_compile_best(d, err));
        if (d->compiled_bytes <= (double)d->memory_bytes) {
            return TRM_OK;
        }
    }
    f->best = before.best;
    f->objective = before.objective;
    const bool unknown = d->took_less && before.bound != TRMI_BOUND_FREE;
    f->lower_bound = unknown ? 0 : before.lower_bound;
    f->bound = unknown ? TRMI_BOUND_WHOLE_LIMIT : before.bound;
    f->weights = before.weights;
    f->solution = before.solution;
    f->additive = before.additive;
    f->additive_bound = before.additive_bound;
    f->infeasible = before.infeasible;
    d->compiled_bytes = compiled;
    return TRM_OK;
}

trm_status trmi_auto_measure(trmi_plan_search *d, const trmi_candidate *plans, int32_t count,
                             int32_t *news, trm_error *err) {
    for (int32_t i = 0; i < count; i++) {
        TRMI_TRY(
            trmi_costs_measure(d->costs, trmi_auto_best(d)->space, &plans[i].choice, news, err));
    }
    return TRM_OK;
}

/* Sets, once, the memory that a step touches and the time limit of measurements, both from the
 * predicted data-parallel step. */
static void settle_measuring(trmi_plan_search *d) {
    const trmi_found *first = &d->meshes[0].found;
    if (d->probe->footprint == 0 && first->baselines_count > 0) {
        d->probe->footprint = (int64_t)first->baselines[0].measure.bytes;
        double seconds = trmi_costs_limit(d->limit_seconds, first->baselines[0].measure.step);
        d->costs->limit_seconds =
            d->probe->comm == NULL && d->limit_seconds <= 0 ? measuring_alone_seconds : seconds;
    }
}

/* Contract in auto_parallel.h. A round searches all meshes with the costs known so far, then
 * measures operators of the plans that it found. The search ends when a round has measured nothing
 * new: then measured costs, not guessed ones, have decided. ROUNDS bounds it. */
trm_status trmi_auto_search(trmi_plan_search *d, trm_error *err) {
    bool measure = d->costs->probe != NULL;
    d->beyond = 0;
    for (d->rounds = 1;; d->rounds++) {
        int32_t news = 0;
        TRMI_TRY(trmi_auto_search_meshes(d, err));
        for (int32_t i = 0; measure && i < d->meshes_count; i++) {
            const trmi_auto_mesh *m = &d->meshes[i];
            settle_measuring(d);
            if (d->compared_only) {
                break;
            }
            /* operators of the best plan, and of the first baseline, with which it is compared */
            TRMI_TRY(trmi_costs_measure(d->costs, m->space, &m->found.best.choice, &news, err));
            if (m->found.baselines_count > 0) {
                TRMI_TRY(trmi_costs_measure(d->costs, m->space, &m->found.baselines[0].choice,
                                            &news, err));
            }
        }
        if (news > 0 && d->rounds == ROUNDS && d->memory_bytes > 0) {
            TRMI_TRY(trmi_auto_search_meshes(d, err)); /* bounds by the costs that decide */
        }
        if (news == 0 || d->rounds == ROUNDS) {
            break;
        }
    }
    /* The memory of a program is known only after compilation: compare it with the limit, and
     * search again if it is over. */
    TRMI_TRY(trmi_auto_respect_limit(d, err));
    return d->frontier ? trace_curve(d, err) : TRM_OK;
}

/* ---- the plans beside the best --------------------------------------------------------------- */

/* Compares plans by predicted seconds of a step. */
static int by_step(const void *a, const void *b) {
    double x = ((const trmi_ranked *)a)->candidate->measure.step,
           y = ((const trmi_ranked *)b)->candidate->measure.step;
    return (x > y) - (x < y);
}

/* Returns whether a plan's predicted time differs by 3 % from all that are listed. */
static bool differs_from_listed(const trmi_ranked *list, int32_t count, const trmi_ranked *from) {
    for (int32_t i = 0; i < count; i++) {
        if (fabs(list[i].candidate->measure.step / from->candidate->measure.step - 1) < 0.03) {
            return false;
        }
    }
    return true;
}

/* Contract in auto_parallel.h. Plans can come from several sources (the best of a mesh,
 * baselines, the frontier, runners-up), so equal choices are dropped before the list is sorted.
 * Entry 0 stays the best plan. */
int32_t trmi_auto_list(const trmi_plan_search *d, trmi_ranked list[TRMI_RANKED]) {
    /* Collect the best plan, the baselines of its mesh, the best plans of other meshes, plans of
     * less memory, and those that the caller has added. */
    const trmi_auto_mesh *m = trmi_auto_best(d);
    int32_t count = 0, kept = 1;
    list[count++] = (trmi_ranked){&m->found.best, d->best};
    for (int32_t i = 0; i < m->found.baselines_count; i++) {
        list[count++] = (trmi_ranked){&m->found.baselines[i], d->best};
    }
    for (int32_t i = 0; i < d->meshes_count && count < TRMI_CANDIDATES; i++) {
        if (i != d->best) {
            list[count++] = (trmi_ranked){&d->meshes[i].found.best, i};
        }
    }
    for (int32_t i = 0; i < m->found.frontier_count && count < 2 * TRMI_CANDIDATES; i++) {
        const trmi_ranked point = {&m->found.frontier[i], d->best};
        /* plans within 3 % of a listed one cannot be distinguished by running them */
        if (differs_from_listed(list, count, &point)) {
            list[count++] = point;
        }
    }
    for (int32_t i = 0; i < d->others_count; i++) {
        list[count++] = (trmi_ranked){&d->others[i], d->best};
    }
    /* Drop equal plans; then sort all but the best by predicted time. */
    for (int32_t i = 1; i < count; i++) {
        bool known = false;
        for (int32_t k = 0; k < kept && !known; k++) {
            known = list[k].mesh == list[i].mesh &&
                    trmi_choice_equal(&list[k].candidate->choice, &list[i].candidate->choice,
                                      d->meshes[list[i].mesh].space);
        }
        if (!known) {
            list[kept++] = list[i];
        }
    }
    qsort(list + 1, (size_t)kept - 1, sizeof *list, by_step);
    return kept;
}

/* ---- in turns -------------------------------------------------------------------------------- */

/* Adds a candidate to the benchmark, with the name that reports give it. */
static trm_status add_to_benchmark(trmi_plan_search *d, trmi_ranked *r, trm_error *err) {
    const trmi_candidate *c = r->candidate;
    const trmi_auto_mesh *m = &d->meshes[r->mesh];
    trmi_partition_plan *plan;
    TRMI_TRY(trmi_space_plan(m->space, &c->choice, &plan, err));
    trmi_tied_plan about = {
        .what = r,
        .group = r->mesh,
        .by_hand = c >= m->found.baselines && c < m->found.baselines + m->found.baselines_count,
        .simple = strcmp(c->name, trmi_baseline_name(TRMI_BASELINE_SAMPLES)) == 0,
        .predicted = c->measure.step,
        .bytes = c->measure.bytes};
    char mesh[48];
    if (c == &m->found.best) {
        snprintf(about.name, sizeof about.name, "best on mesh %.24s",
                 trmi_mesh_text(&m->mesh, mesh, sizeof mesh));
    } else {
        snprintf(about.name, sizeof about.name, "%s",
                 strcmp(c->name, "frontier") == 0 ? "one of less memory" : c->name);
    }
    trm_status status = trmi_ties_add(&d->trial, plan, &about, err);
    trmi_partition_plan_destroy(plan);
    return status;
}

/* Compiles each candidate to get its exact memory use, and drops those above the limit. */
static trm_status drop_plans_over_limit(trmi_plan_search *d, trm_error *err) {
    for (int32_t i = d->trial.count - 1; i >= 0; i--) {
        trmi_tied_plan *t = &d->trial.list[i];
        const trmi_ranked *r = t->what;
        double bytes = 0;
        TRMI_TRY(trmi_auto_compile(d, d->meshes[r->mesh].space, r->candidate, &bytes, err));
        t->bytes = bytes > 0 ? bytes : t->bytes;
        if (d->memory_bytes > 0 && t->bytes > (double)d->memory_bytes) {
            trmi_ties_drop(&d->trial, i);
        }
    }
    return TRM_OK;
}

/* Contract in auto_parallel.h. Runs the plans that the prediction cannot separate from the best
 * and that fit the memory limit. Nothing is run where ranks cannot measure together, where the
 * search is not the optimal one, and where no plan fits. If another plan than the predicted one
 * was faster, its mesh is searched again with this choice as given, so that m->found, from which
 * reports are made, describes the plan that was taken. */
trm_status trmi_auto_try(trmi_plan_search *d, trm_error *err) {
    const trmi_found *best = &trmi_auto_best(d)->found;
    double seconds = trmi_ties_seconds(d->trials, d->trial_seconds, best->objective);
    if (d->costs->probe == NULL || d->probe->comm == NULL || d->mode != TRMI_SEARCH_OPTIMAL ||
        best->infeasible || seconds <= 0) {
        return TRM_OK;
    }
    /* Candidates within TRMI_TIES_BAND of the best that fit the memory limit. */
    trmi_ranked list[TRMI_RANKED];
    int32_t count = trmi_auto_list(d, list);
    for (int32_t i = 0; i < count; i++) {
        const trmi_candidate *c = list[i].candidate;
        if (c->fits && c->measure.step <= best->objective * (1 + TRMI_TIES_BAND)) {
            TRMI_TRY(add_to_benchmark(d, &list[i], err));
        }
    }
    trmi_ties_narrow(&d->trial, seconds);
    TRMI_TRY(d->trial.count > 1 ? drop_plans_over_limit(d, err) : TRM_OK);
    TRMI_TRY(trmi_ties_run(&d->trial, d->probe, d->costs, seconds, (double)d->memory_bytes, err));
    if (d->trial.turns == 0) {
        return TRM_OK;
    }
    const trmi_ranked *chosen = d->trial.list[d->trial.chosen].what;
    /* later searches free what this one has found: keep a copy of the choice */
    trmi_choice *taken;
    const trmi_space *space = d->meshes[chosen->mesh].space;
    TRMI_TRY(TRMI_NEW_IN(err, &d->arena, taken, 1, "for a plan"));
    if (!trmi_choice_open(taken, space, &d->arena)) {
        return TRMI_NO_MEMORY(err, "for a plan");
    }
    trmi_choice_copy(taken, &chosen->candidate->choice, space);
    d->best = chosen->mesh;
    d->meshes[d->best].taken = taken;
    return trmi_auto_search_mesh(d, &d->meshes[d->best], d->frontier, err);
}
