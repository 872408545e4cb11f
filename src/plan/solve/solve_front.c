/* SPDX-License-Identifier: Apache-2.0 */
/* Computes a Pareto front of time and memory (plan/solve/solve_front.h): first the two end points,
 * then either the corners of the convex hull and the points above each of its edges, or, under a
 * memory limit, only the hull edge that crosses the limit.
 *
 * Every point comes from trmi_solve() on a weighted graph or from trmi_front_lists(); both certify
 * what they return. The number of solves and points is limited by counts, so that equal arguments
 * give equal results. */
#include "plan/solve/solve_front.h"

#include "base/error.h"
#include "base/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double TOLERANCE = 2e-6; /* relative; cost tables are float32 */

/* State of one call. */
typedef struct front {
    const trmi_front_graph *g; /* the caller's */
    trmi_front_options o;      /* with defaults */
    trmi_arena *arena;         /* holds choices and points */
    trmi_front *f;             /* the result under construction */
    trmi_front_point *points;  /* points found so far */
    int64_t count, capacity;
    trm_error *err;
} front;

static trm_status fail_no_memory(trm_error *err) { return TRMI_NO_MEMORY(err, "to search a plan"); }

/* ---- one cost ---- */

/* Finds the choice with the least a x time + b x memory. out *least: a lower bound of that cost
 * over all choices (equal to it unless branch and bound hit its limit).
 *   errors  INVALID (no choice is legal), NOMEM */
static trm_status solve_weighted(front *f, double a, double b, trmi_front_point *out,
                                 double *least) {
    const trmi_front_graph *g = f->g;
    trmi_arena scratch = {0};
    trmi_cost_graph graph;
    trmi_solution solution;
    *out = (trmi_front_point){
        .choice = trmi_arena_alloc(f->arena, ((size_t)g->nodes_count + 1) * sizeof *out->choice),
        .option = trmi_arena_alloc(f->arena, (size_t)g->nodes_count + 1)};
    trm_status status =
        out->choice != NULL && out->option != NULL ? TRM_OK : fail_no_memory(f->err);
    /* the exact solver, on the weighted sums */
    status = status == TRM_OK ? trmi_front_scalar(g, a, b, &scratch, &graph, f->err) : status;
    status = status == TRM_OK ? trmi_solve(&graph, NULL, out->choice, &solution, f->err) : status;
    if (status == TRM_OK && !(solution.objective < INFINITY)) {
        status = TRMI_FAIL(f->err, TRM_INVALID, "no choice is legal");
    }
    for (int32_t n = 0; status == TRM_OK && n < g->nodes_count; n++) {
        out->option[n] = (uint8_t)trmi_front_best(g, n, out->choice[n], a, b);
    }
    /* the same choice, priced in both units */
    if (status == TRM_OK) {
        trmi_tradeoff cost = trmi_front_cost(g, out->choice, out->option);
        out->time = cost.time;
        out->memory = cost.memory;
        *least = solution.lower_bound;
        f->f->solves++;
    }
    trmi_arena_free(&scratch);
    return status;
}

/* Appends a point. */
static trm_status add_point(front *f, const trmi_front_point *point) {
    if (!trmi_grow((void **)&f->points, &f->capacity, f->count + 1, sizeof *f->points)) {
        return fail_no_memory(f->err);
    }
    f->points[f->count++] = *point;
    return TRM_OK;
}

/* ---- ends: the fastest, the smallest ---- */

/* Finds the fastest choice, of those the smallest, and the smallest choice, of those the fastest.
 * Ties are broken by a second solve with a small weight, at the resolution of float32. */
static trm_status find_ends(front *f, trmi_front_point *fast, trmi_front_point *small) {
    double least;
    trmi_front_point other;
    TRMI_TRY(solve_weighted(f, 1, 0, fast, &least));
    TRMI_TRY(solve_weighted(f, 0, 1, small, &least));
    double time = fmax(fast->time, small->time), memory = fmax(fast->memory, small->memory);
    double ratio = time > 0 && memory > 0 ? time / memory : 1;
    TRMI_TRY(solve_weighted(f, 1, TOLERANCE * ratio, &other, &least));
    if (other.time <= fast->time * (1 + TOLERANCE) && other.memory < fast->memory) {
        *fast = other;
    }
    TRMI_TRY(solve_weighted(f, TOLERANCE / ratio, 1, &other, &least));
    if (other.memory <= small->memory * (1 + TOLERANCE) && other.time < small->time) {
        *small = other;
    }
    return TRM_OK;
}

/* Returns the slope of the line between two points: the seconds that one byte less costs. */
static double find_slope(const trmi_front_point *fast, const trmi_front_point *small) {
    return (small->time - fast->time) / (fast->memory - small->memory);
}

/* Returns whether the points differ in both costs by more than rounding. */
static bool are_apart(const trmi_front_point *fast, const trmi_front_point *small) {
    return fast->memory - small->memory > TOLERANCE * fast->memory &&
           small->time - fast->time > TOLERANCE * small->time;
}

/* ---- the curve ---- */

/* Appends the choices between two corners of the hull, in the triangle above their line. limit:
 * memory limit, 0 = none. out *done: false if the lists exceeded their limit. */
static trm_status search_above_edge(front *f, const trmi_front_point *fast,
                                    const trmi_front_point *small, double limit, bool *done) {
    double lambda = find_slope(fast, small);
    trmi_lists_options o = {.lambda = lambda,
                            .limit = limit,
                            .list_limit = f->o.list_limit,
                            .work_limit = f->o.work_limit - f->f->work};
    o.bound = small->time + lambda * (limit > 0 ? limit : fast->memory);
    trmi_front_point *list;
    int32_t count;
    double slack;
    TRMI_TRY(
        trmi_front_lists(f->g, &o, f->arena, &list, &count, &slack, &f->f->work, done, f->err));
    for (int32_t i = 0; *done && i < count; i++) {
        TRMI_TRY(add_point(f, &list[i]));
    }
    f->f->slack = fmax(f->f->slack, *done ? slack : 0);
    return TRM_OK;
}

/* An edge of the hull. */
typedef struct hull_edge {
    trmi_front_point fast, small;
} hull_edge;

/* Computes the whole curve: splits hull edges at their corners, widest edge first, while solves are
 * left; then adds the points above each edge. */
static trm_status compute_curve(front *f, const trmi_front_point *fast,
                                const trmi_front_point *small) {
    hull_edge *list = trmi_arena_alloc(f->arena, ((size_t)f->o.hull_limit + 2) * sizeof *list);
    bool *has_no_corner = trmi_arena_alloc(f->arena, (size_t)f->o.hull_limit + 2);
    int32_t count = 0;
    if (list == NULL || has_no_corner == NULL) {
        return fail_no_memory(f->err);
    }
    if (are_apart(fast, small)) {
        list[count++] = (hull_edge){*fast, *small};
    }
    /* Find the hull: solve at the slope of the widest edge; a point below its line is a new
     * corner. */
    while (f->f->solves < f->o.hull_limit) {
        int32_t widest = -1;
        for (int32_t i = 0; i < count; i++) {
            double own = list[i].fast.memory - list[i].small.memory;
            bool wider = widest < 0 || own > list[widest].fast.memory - list[widest].small.memory;
            widest = !has_no_corner[i] && wider ? i : widest;
        }
        if (widest < 0) {
            break;
        }
        hull_edge *at = &list[widest];
        trmi_front_point middle;
        double lambda = find_slope(&at->fast, &at->small),
               line = at->fast.time + lambda * at->fast.memory, least;
        TRMI_TRY(solve_weighted(f, 1, lambda, &middle, &least));
        has_no_corner[widest] = middle.time + lambda * middle.memory >= line * (1 - TOLERANCE) ||
                                !are_apart(&at->fast, &middle) || !are_apart(&middle, &at->small);
        if (!has_no_corner[widest]) {
            TRMI_TRY(add_point(f, &middle));
            list[count++] = (hull_edge){middle, at->small};
            at->small = middle;
        }
    }
    /* points above each hull edge */
    for (int32_t i = 0; i < count; i++) {
        bool done;
        TRMI_TRY(search_above_edge(f, &list[i].fast, &list[i].small, 0, &done));
        f->f->open += !done;
        f->f->open_gap = fmax(f->f->open_gap, done ? 0 : list[i].small.time - list[i].fast.time);
    }
    return TRM_OK;
}

/* ---- within a limit ---- */

/* Finds the fastest choice within the limit. Bisects the hull to the edge that crosses the limit,
 * whose slope gives the best Lagrangian bound, then searches the triangle above it. */
static trm_status search_within_limit(front *f, trmi_front_point *fast, trmi_front_point *small) {
    double limit = f->o.limit, bound = fast->time;
    while (f->f->solves < f->o.hull_limit && are_apart(fast, small)) {
        trmi_front_point middle;
        double lambda = find_slope(fast, small), line = fast->time + lambda * fast->memory, least;
        TRMI_TRY(solve_weighted(f, 1, lambda, &middle, &least));
        /* By weak duality no plan within the limit is faster than min(time + lambda memory) -
         * lambda limit. */
        if (least - lambda * limit > bound) {
            bound = least - lambda * limit;
            f->f->price = lambda;
        }
        /* the edge has no corner below it */
        if (middle.time + lambda * middle.memory >= line * (1 - TOLERANCE)) {
            break;
        }
        *(middle.memory <= limit ? small : fast) = middle;
    }
    bool done = !are_apart(fast, small);
    if (!done) {
        TRMI_TRY(search_above_edge(f, fast, small, limit, &done));
    }
    TRMI_TRY(add_point(f, small));
    /* keep the fastest point only, and report how far the bound is below it */
    trmi_front_point *best = &f->points[0];
    for (int64_t i = 1; i < f->count; i++) {
        best = f->points[i].time < best->time ? &f->points[i] : best;
    }
    f->points[0] = *best;
    f->count = 1;
    f->f->open = !done;
    f->f->lower_bound =
        fmin(f->points[0].time, done ? fmax(bound, f->points[0].time - f->f->slack) : bound);
    f->f->open_gap = f->points[0].time - f->f->lower_bound;
    return TRM_OK;
}

/* ---- all ---- */

/* Compares points from the largest memory to the smallest, then by time. */
static int compare_memory(const void *a, const void *b) {
    const trmi_front_point *x = a, *y = b;
    int memory = (x->memory < y->memory) - (x->memory > y->memory);
    return memory != 0 ? memory : (x->time < y->time) - (x->time > y->time);
}

/* Sorts the points by memory and removes those that are not faster than a smaller one. */
static void remove_dominated(front *f) {
    if (f->count > 1) {
        qsort(f->points, (size_t)f->count, sizeof *f->points, compare_memory);
    }
    int64_t kept = f->count;
    for (int64_t i = f->count - 1; i >= 0; i--) {
        const trmi_front_point *p = &f->points[i],
                               *smaller = kept < f->count ? &f->points[kept] : NULL;
        if (smaller == NULL || p->time < smaller->time * (1 - TOLERANCE)) {
            f->points[--kept] = *p;
        }
    }
    memmove(f->points, f->points + kept, (size_t)(f->count - kept) * sizeof *f->points);
    f->count -= kept;
}

/* Computes the front into f->f: ends, then curve, limit, or a single point where one suffices. */
static trm_status compute_front(front *f) {
    trmi_front_point fast, small;
    TRMI_TRY(find_ends(f, &fast, &small));
    f->f->least_memory = small.memory;
    f->f->feasible = f->o.limit <= 0 || small.memory <= f->o.limit;
    f->f->binds = f->o.limit > 0 && fast.memory > f->o.limit;
    f->f->lower_bound = fast.time;
    /* Without a limit find the whole curve; with one that does not bind, the fastest; with one that
     * binds, search; with one that nothing meets, the smallest. */
    if (f->o.limit <= 0) {
        TRMI_TRY(add_point(f, &fast));
        TRMI_TRY(add_point(f, &small));
        TRMI_TRY(compute_curve(f, &fast, &small));
        remove_dominated(f);
    } else if (fast.memory <= f->o.limit) {
        TRMI_TRY(add_point(f, &fast));
    } else if (f->f->feasible) {
        TRMI_TRY(search_within_limit(f, &fast, &small));
    } else {
        TRMI_TRY(add_point(f, &small));
    }
    f->f->points = trmi_arena_alloc(f->arena, ((size_t)f->count + 1) * sizeof *f->f->points);
    if (f->f->points == NULL) {
        return fail_no_memory(f->err);
    }
    memcpy(f->f->points, f->points, (size_t)f->count * sizeof *f->points);
    f->f->count = (int32_t)f->count;
    return TRM_OK;
}

/* Contract in solve_front.h. Limits that are 0 have the defaults set here. */
trm_status trmi_front_solve(const trmi_front_graph *graph, const trmi_front_options *options,
                            trmi_arena *arena, trmi_front *out, trm_error *err) {
    double begin = trmi_os_now();
    trmi_front found = {.count = 0};
    front f = {.g = graph, .arena = arena, .f = &found, .err = err};
    f.o = options != NULL ? *options : (trmi_front_options){.limit = 0};
    f.o.hull_limit = f.o.hull_limit > 0 ? f.o.hull_limit : 16;
    f.o.list_limit = f.o.list_limit > 0 ? f.o.list_limit : 256;
    f.o.work_limit = f.o.work_limit > 0 ? f.o.work_limit : 4 << 20;
    trm_status status = compute_front(&f);
    free(f.points);
    found.seconds = trmi_os_now() - begin;
    if (status == TRM_OK) {
        *out = found;
    }
    return status;
}
