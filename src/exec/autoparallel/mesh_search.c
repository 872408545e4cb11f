/* SPDX-License-Identifier: Apache-2.0 */
/* Searches meshes with the costs that are known, and keeps a limit of memory. It needs only the two
 * callbacks of a search, so that jobs on many ranks (auto_parallel.c) and on one device
 * (exec/memory_limit.c) keep limits alike.
 *
 *      search --> plan --compile--> within the limit? --yes--> taken
 *        ^                               | no
 *        '-- keep off the limit what the program has beyond what the search counts;
 *            add to the limit what it has less
 *      none left: compile along the curve of memory against time of every mesh
 */
#include "exec/autoparallel/auto_parallel.h"

#include "base/error.h"
#include "base/os.h"

#include <math.h>

/* Searches with a corrected limit, at most; then plans along the curve are compiled one by one. */
enum { LIMIT_ROUNDS = 12 };

/* ---- search ---------------------------------------------------------------------------------- */

/* Sets the bound of a search within the limit less what is kept off it. Where programs have all
 * that the search counts, no plan whose program keeps the limit is below the bound of the whole
 * limit; it may be below that of the rest. Once a program has taken less, as one process does that
 * keeps activations in the bytes of gradients, no bound is known, but where the limit does not
 * bind: that bound is over all plans. */
static void settle_bound(const trmi_plan_search *d, trmi_auto_mesh *m) {
    trmi_found *f = &m->found;
    if (!f->infeasible && f->bound == TRMI_BOUND_FREE) {
        m->whole_limit_bound = f->lower_bound;
        m->whole_limit_by = f->bound;
    } else if (d->took_less) {
        m->whole_limit_bound = 0;
        m->whole_limit_by = TRMI_BOUND_LAGRANGE;
        f->lower_bound = 0;
        f->bound = TRMI_BOUND_WHOLE_LIMIT;
    } else if (d->beyond <= 0) {
        m->whole_limit_bound = f->infeasible ? INFINITY : f->lower_bound;
        m->whole_limit_by = f->infeasible ? TRMI_BOUND_LAGRANGE : f->bound;
    } else if (m->whole_limit_bound < f->lower_bound) {
        f->lower_bound = m->whole_limit_bound;
        f->bound = TRMI_BOUND_WHOLE_LIMIT;
    }
}

double trmi_auto_bound(const trmi_plan_search *d) {
    double bound = trmi_auto_best(d)->found.lower_bound;
    for (int32_t i = 0; i < d->meshes_count && !trmi_auto_best(d)->found.infeasible; i++) {
        const trmi_auto_mesh *m = &d->meshes[i];
        bound = fmin(bound, m->found.infeasible ? m->whole_limit_bound : m->found.lower_bound);
    }
    return bound;
}

/* Contract in auto_parallel.h. The space is made anew, because new measurements have changed its
 * costs. A user's plan takes part as a candidate, if it can be told in this space. */
trm_status trmi_auto_search_mesh(trmi_plan_search *d, trmi_auto_mesh *m, bool frontier,
                                 trm_error *err) {
    trmi_space_destroy(m->space);
    m->space = NULL;
    TRMI_TRY(d->make_space(d->context, &m->mesh, &m->space, err));
    trmi_choice own, *given = NULL;
    if (d->given != NULL && trmi_choice_open(&own, m->space, &d->results)) {
        TRMI_TRY(trmi_space_choice(m->space, d->given, &own, err));
        given = &own;
    }
    const trmi_search_options options = {.mode = d->mode,
                                         .memory_bytes = trmi_auto_limit(d),
                                         .frontier = frontier,
                                         .own = given,
                                         .take = m->taken};
    TRMI_TRY(trmi_search(m->space, &options, &d->results, &m->found, err));
    settle_bound(d, m);
    return TRM_OK;
}

/* Sets d->best: a mesh with a plan that fits, then the one with the fastest plan; if no plan fits,
 * the mesh with the smallest. */
static void choose_mesh(trmi_plan_search *d) {
    for (int32_t i = 0; i < d->meshes_count; i++) {
        const trmi_found *a = &d->meshes[i].found, *b = &d->meshes[d->best].found;
        bool fits = b->infeasible && !a->infeasible;
        bool better = a->infeasible == b->infeasible &&
                      (a->infeasible ? a->best.measure.bytes < b->best.measure.bytes
                                     : a->objective < b->objective * (1 - 1e-9));
        d->best = fits || better ? i : d->best;
    }
}

/* Contract in auto_parallel.h. Results of all meshes share one arena, which is freed as a whole; so
 * no mesh keeps a pointer to what it found before. */
trm_status trmi_auto_search_meshes(trmi_plan_search *d, trm_error *err) {
    double begin = trmi_os_now();
    for (int32_t i = 0; i < d->meshes_count; i++) {
        d->meshes[i].found = (trmi_found){0};
    }
    trmi_arena_free(&d->results);
    for (int32_t i = 0; i < d->meshes_count; i++) {
        if (d->probe != NULL) {
            trmi_progress_note(&d->probe->progress, i, d->meshes_count, -1,
                               "searching plans by mesh");
            trmi_signs_note(d->probe->signs, "searching plans by mesh");
        }
        TRMI_TRY(trmi_auto_search_mesh(d, &d->meshes[i], false, err));
    }
    choose_mesh(d);
    d->search_seconds = trmi_os_now() - begin;
    return TRM_OK;
}

void trmi_auto_free_meshes(trmi_plan_search *d) {
    for (int32_t i = 0; i < d->meshes_count; i++) {
        trmi_space_destroy(d->meshes[i].space);
    }
    trmi_arena_free(&d->results);
    trmi_arena_free(&d->arena);
}

/* Contract in auto_parallel.h. A program that takes less than the search has counted shows that the
 * count is no lower bound of memory: plans beyond the limit of what is counted may fit as well, so
 * the bounds of all meshes are settled again. */
trm_status trmi_auto_compile(trmi_plan_search *d, const trmi_space *space,
                             const trmi_candidate *plan, double *bytes, trm_error *err) {
    if (d->probe != NULL) {
        trmi_signs_note(d->probe->signs, "compiling a plan");
    }
    TRMI_TRY(d->compile(d->context, space, &plan->choice, bytes, err));
    if (d->memory_bytes > 0 && *bytes > 0 && *bytes < plan->measure.bytes * (1 - 1e-9)) {
        d->took_less = true;
        for (int32_t i = 0; i < d->meshes_count; i++) {
            settle_bound(d, &d->meshes[i]);
        }
    }
    return TRM_OK;
}

trm_status trmi_auto_compile_best(trmi_plan_search *d, trm_error *err) {
    const trmi_auto_mesh *best = trmi_auto_best(d);
    d->compiled_bytes = 0;
    return trmi_auto_compile(d, best->space, &best->found.best, &d->compiled_bytes, err);
}

/* ---- the limit of memory --------------------------------------------------------------------- */

/* Takes a plan whose program fits, although the search has found none within the limit less what is
 * kept off it. */
static void take_plan(trmi_auto_mesh *m) {
    trmi_found *f = &m->found;
    f->infeasible = false;
    f->best.fits = true;
    f->lower_bound = fmin(f->objective, m->whole_limit_bound); /* finite, or a program took less */
    f->bound = TRMI_BOUND_WHOLE_LIMIT;
}

/* The best point of the curves of all meshes: the fastest whose program fits, or the one with the
 * least program. */
typedef struct curve_point {
    trmi_auto_mesh *mesh;
    const trmi_candidate *plan;
    double bytes; /* of its program */
} curve_point;

/* Compiles the plans along the curve of one mesh, the fastest first, until the program of one keeps
 * the limit or none can be faster than *best. */
static trm_status try_points(trmi_plan_search *d, trmi_auto_mesh *m, curve_point *best,
                             trm_error *err) {
    const double limit = (double)d->memory_bytes;
    for (int32_t i = 0; i < m->found.frontier_count; i++) {
        const trmi_candidate *c = &m->found.frontier[i];
        double bytes = INFINITY;
        bool found = best->bytes <= limit;
        if (!(c->measure.step < INFINITY)) {
            continue; /* cannot run */
        }
        if (found && c->measure.step >= best->plan->measure.step) {
            break;
        }
        TRMI_TRY(trmi_auto_compile(d, m->space, c, &bytes, err));
        if (bytes <= limit || (!found && bytes < best->bytes)) {
            *best = (curve_point){m, c, bytes};
        }
        if (bytes <= limit) {
            break;
        }
    }
    return TRM_OK;
}

/* Takes the fastest plan of the curves of memory against time of all meshes whose program keeps the
 * limit. Without one nothing fits, and the plan with the least program remains. */
static trm_status try_curves(trmi_plan_search *d, trm_error *err) {
    curve_point best = {.bytes = INFINITY};
    d->beyond = 0;
    for (int32_t i = 0; i < d->meshes_count; i++) {
        TRMI_TRY(trmi_auto_search_mesh(d, &d->meshes[i], true, err));
        TRMI_TRY(try_points(d, &d->meshes[i], &best, err));
    }
    if (best.plan == NULL) {
        d->meshes[d->best].found.infeasible = true;
        return TRM_OK;
    }
    trmi_found *f = &best.mesh->found;
    d->compiled_bytes = best.bytes;
    d->best = (int32_t)(best.mesh - d->meshes);
    f->best = *best.plan;
    f->objective = f->best.measure.step;
    f->infeasible = best.bytes > (double)d->memory_bytes;
    f->best.fits = !f->infeasible;
    f->lower_bound = fmin(f->lower_bound, f->objective);
    if (!f->infeasible) {
        take_plan(best.mesh);
    }
    return TRM_OK;
}

/* Ends the search within a limit: with the plan of what is kept off, if its program fits, or with
 * none. */
static trm_status end_limit(trmi_plan_search *d, double off, trm_error *err) {
    if (d->beyond != off && off < INFINITY) {
        d->beyond = off;
        TRMI_TRY(trmi_auto_search_meshes(d, err));
        TRMI_TRY(trmi_auto_compile_best(d, err));
    }
    if (d->compiled_bytes > (double)d->memory_bytes) {
        return try_curves(d, err);
    }
    if (trmi_auto_best(d)->found.infeasible) {
        take_plan(&d->meshes[d->best]);
    }
    return TRM_OK;
}

/* Returns whether the limit leaves out plans of any mesh, as far as it is known before a program is
 * compiled. */
static bool limit_binds(const trmi_plan_search *d) {
    bool binds = false;
    for (int32_t i = 0; i < d->meshes_count; i++) {
        binds =
            binds || d->meshes[i].found.infeasible || d->meshes[i].found.bound != TRMI_BOUND_FREE;
    }
    return binds;
}

/* After a plan whose program fits and takes less than the search counts: lets the search count more
 * than the limit, by that and by a little more each time, until a program exceeds the limit; then
 * halves the interval. Takes the plan of the largest count whose program fits. */
static trm_status raise_limit(trmi_plan_search *d, trm_error *err) {
    const double limit = (double)d->memory_bytes;
    double little = -INFINITY, enough = d->beyond;
    double needs = d->compiled_bytes - trmi_auto_best(d)->found.best.measure.bytes;
    for (int i = 0; i < LIMIT_ROUNDS && enough - little > limit / 64; i++) {
        d->beyond = little > -INFINITY ? (little + enough) / 2 : fmin(needs, enough - limit / 32);
        TRMI_TRY(trmi_auto_search_meshes(d, err));
        TRMI_TRY(trmi_auto_compile_best(d, err));
        if (d->compiled_bytes <= limit) {
            enough = d->beyond;
            needs = d->compiled_bytes - trmi_auto_best(d)->found.best.measure.bytes;
        } else {
            little = d->beyond;
        }
    }
    return end_limit(d, enough, err);
}

/* Contract in auto_parallel.h (trmi_auto_respect_limit). The search counts what is kept; the
 * program also has workspaces and short-lived values, which differ from plan to plan. The next
 * search has a limit that is lower by what the last program needed beyond the count (d->beyond). If
 * a few such searches find no program that keeps the limit, the next ones halve the interval
 * between the largest d->beyond that was too small and the smallest that was enough. */
static trm_status respect_limit(trmi_plan_search *d, trm_error *err) {
    const double limit = (double)d->memory_bytes;
    double little = 0, enough = INFINITY; /* kept off */
    bool halves = false;
    for (int i = 0; limit > 0; i++) {
        const bool binds = limit_binds(d);
        TRMI_TRY(trmi_auto_compile_best(d, err));
        const trmi_found *f = &trmi_auto_best(d)->found;
        const double needs = d->compiled_bytes - f->best.measure.bytes;
        const bool fits = d->compiled_bytes <= limit;
        if (f->infeasible ? d->beyond <= 0 : fits && !halves) {
            /* without a plan even within the whole limit, the least program is named; else this
             * plan fits */
            return f->infeasible                                           ? try_curves(d, err)
                   : binds && needs < -limit / 64 && d->compiled_bytes > 0 ? raise_limit(d, err)
                                                                           : TRM_OK;
        }
        if (f->infeasible || fits) {
            enough = d->beyond;
        } else {
            little = d->beyond;
        }
        if (i >= LIMIT_ROUNDS || enough - little < limit / 64) {
            return end_limit(d, enough, err);
        }
        /* the excess of another plan may be a little larger: 0.1 % of the limit more a round */
        halves = enough < INFINITY || i >= LIMIT_ROUNDS / 3;
        d->beyond = !halves             ? fmax(needs, little) + 1e-3 * (i + 1) * limit
                    : enough < INFINITY ? (little + enough) / 2
                                        : limit - 1; /* the plan of least memory */
        TRMI_TRY(trmi_auto_search_meshes(d, err));
    }
    return TRM_OK;
}

trm_status trmi_auto_respect_limit(trmi_plan_search *d, trm_error *err) {
    d->took_less = false;
    return respect_limit(d, err);
}
