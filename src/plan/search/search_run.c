/* SPDX-License-Identifier: Apache-2.0 */
/* Searches the best plan of one space: lower bounds by a sweep of mu, memory by exact lists, then
 * the plan whose simulated step is the fastest.
 *
 *      (1 - o mu) B + (1 - o + o mu) G   for mu in 0 .. 1       B, G: blocking time, and time of gradients; o: part of the traffic that can overlap
 *          its least over all plans bounds the step from below; the plan that has it is a candidate
 *          the same over the plans that leave all parameters whole, whose updates are in slices
 *          (a second "side"); the smaller of the two bounds holds for all plans
 *      the same within a memory limit, and the whole curve of time against memory:
 *      plan/solve/solve_front.h
 *
 * Candidates are collected in a pool; the winner is the candidate with the fastest simulated step
 * that fits the limit. */
#include "plan/search/search.h"

#include "base/error.h"
#include "base/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Values of mu; most candidates from the curve of one side. */
enum { MU_STEPS = 9, FRONTIER_POINTS = 18 };

/* One side: all plans, or the plans updated in slices. No plan of the side has a faster step than
 * `bound`. */
typedef struct side {
    double bound; /* seconds of a step: the largest bound of all solves so far */
    /* of that solve: objective of its best plan; lower bound of the objective; weights; solution */
    double additive, additive_bound;
    trmi_objective weights;
    trmi_solution solution;
    trmi_bound limit; /* how the memory limit entered the bound */
} side;

/* State of one search. */
typedef struct run {
    const trmi_space *s;
    const trmi_search_options *o;
    trmi_arena *arena;
    trmi_found *f;
    trmi_candidate pool[TRMI_CANDIDATES];
    int32_t pool_count;
    side sides[2]; /* all plans; plans updated in slices */
    int sides_count;
    int32_t taken; /* place in the pool of options.take; -1: none */
    trm_error *err;
} run;

/* Fails with NOMEM. */
static trm_status fail_no_memory(run *r) { return TRMI_NO_MEMORY(r->err, "to search a plan"); }

/* ---- candidates ---- */

/* Simulates a candidate and compares its memory with the limit. */
static trm_status simulate_candidate(run *r, trmi_candidate *c) {
    TRMI_TRY(trmi_space_measure(r->s, &c->choice, &c->measure, r->err));
    c->fits = r->o->memory_bytes <= 0 || c->measure.bytes <= r->o->memory_bytes * (1 + 1e-9);
    return TRM_OK;
}

/* Adds a choice to the pool, unless it is there already. *place: its place; -1 if the pool is full.
 */
static trm_status add_candidate(run *r, const char *name, const trmi_choice *choice,
                                int32_t *place) {
    for (int32_t i = 0; i < r->pool_count; i++) {
        if (trmi_choice_equal(&r->pool[i].choice, choice, r->s)) {
            *place = i;
            return TRM_OK;
        }
    }
    if (r->pool_count == TRMI_CANDIDATES) {
        *place = -1;
        return TRM_OK;
    }
    /* simulated once, when it comes to the pool */
    trmi_candidate *c = &r->pool[r->pool_count];
    *c = (trmi_candidate){.name = name};
    if (!trmi_choice_open(&c->choice, r->s, r->arena)) {
        return fail_no_memory(r);
    }
    trmi_choice_copy(&c->choice, choice, r->s);
    TRMI_TRY(simulate_candidate(r, c));
    *place = r->pool_count++;
    return TRM_OK;
}

/* Computes (1 - o mu) B + (1 - o + o mu) G as factor x (B + gradient x G). o mu is less than 1: B
 * keeps some weight, so that of plans with the same G the one with the least B is found. */
static void compute_weights(const run *r, double mu, double *factor, double *gradient) {
    double o = r->s->costs.overlap, part = fmin(o * mu, 1 - 1e-3);
    *factor = 1 - part;
    *gradient = (1 - o + part) / *factor;
}

/* Returns the seconds that every plan of a side takes beside B and G. */
static double fixed_seconds(const run *r, int of) {
    return r->s->costs.overhead +
           (of == 1 ? r->s->sliced.offset + trmi_space_meetings(r->s) : r->s->update.offset);
}

/* Returns whether every operator has a strategy that leaves its parameters whole. */
static bool has_slices(const trmi_space *s) {
    bool can = s->costs.slices;
    for (int64_t k = 0; can && k < s->classes_count; k++) {
        can = false;
        for (int32_t i = 0; i < s->classes[k].count; i++) {
            can = can || s->classes[k].slices[i].blocking < INFINITY;
        }
    }
    return can;
}

/* Solves a side for one mu: adds the plan to the pool and raises the bound of the side. */
static trm_status solve_side(run *r, double mu, int of) {
    double factor;
    int32_t place;
    side *d = &r->sides[of];
    trmi_objective w = {.memory = 0, .sliced = of == 1};
    trmi_choice choice;
    compute_weights(r, mu, &factor, &w.gradient);
    trmi_solution solution;
    if (!trmi_choice_open(&choice, r->s, r->arena)) {
        return fail_no_memory(r);
    }
    TRMI_TRY(trmi_space_solve(r->s, &w, &choice, &solution, NULL, r->arena, r->err));
    r->f->solve_seconds += solution.seconds;
    r->f->solves++;
    double bound = factor * (solution.lower_bound + fixed_seconds(r, of));
    TRMI_TRY(add_candidate(r, "search", &choice, &place));
    if (bound > d->bound) {
        *d = (side){bound, solution.objective, solution.lower_bound, w, solution, d->limit};
    }
    return TRM_OK;
}

/* Adds the best plan that cannot be updated in slices. The best plan of all may leave all
 * parameters whole, which makes it one in slices, whose ranks meet; where a step is as short as
 * that, a plan that cuts some parameter is faster. */
static trm_status add_unsliced(run *r) {
    const side *d = &r->sides[0];
    trmi_choice choice;
    trmi_solution solution;
    float **marginals, least = INFINITY;
    int32_t node = -1, strategy = -1, place;
    /* A side whose lower bound is not below the best plan of the pool has no faster plan. */
    double best = INFINITY;
    for (int32_t i = 0; i < r->pool_count; i++) {
        best = fmin(best, r->pool[i].measure.step);
    }
    if (r->sides_count < 2 || d->bound >= best * (1 - 1e-6)) {
        return TRM_OK;
    }
    if (!trmi_choice_open(&choice, r->s, r->arena)) {
        return fail_no_memory(r);
    }
    /* Of all strategies that cannot be updated in slices, find the one whose best whole plan costs
     * least. */
    TRMI_TRY(trmi_space_solve(r->s, &d->weights, &choice, &solution, &marginals, r->arena, r->err));
    for (int32_t n = 0; n < r->s->nodes_count; n++) {
        const trmi_space_class *c = trmi_space_class_of(r->s, n);
        for (int32_t i = 0; i < c->count; i++) {
            if (!(c->slices[i].blocking < INFINITY) && marginals[n][i] < least) {
                least = marginals[n][i];
                node = n;
                strategy = i;
            }
        }
    }
    r->f->solves++;
    /* There is no such strategy, or the optimum of this side has one and solve_side has added
     * it. */
    if (node < 0 || !trmi_choice_sliced(r->s, &choice)) {
        return TRM_OK;
    }
    r->f->solves++;
    TRMI_TRY(trmi_space_solve_with(r->s, &d->weights, node, strategy, &choice, &solution, r->err));
    return add_candidate(r, "search", &choice, &place);
}

/* Sets the bound of the search to the smaller bound of the sides. */
static void set_bound(run *r) {
    const side *d = &r->sides[r->sides_count == 2 && r->sides[1].bound < r->sides[0].bound];
    r->f->lower_bound = d->bound;
    r->f->weights = d->weights;
    r->f->solution = d->solution;
    r->f->additive = d->additive;
    r->f->additive_bound = d->additive_bound;
    r->f->bound = d->limit;
}

/* ---- memory ---- */

/* Finds the fastest plan of a side within the memory limit, for one mu, and raises the bound of the
 * side. If no plan fits, the plan of least memory is kept and the bound is INFINITY. */
static trm_status solve_within_limit(run *r, double mu, int of) {
    double factor, gradient;
    trmi_front front;
    trmi_choice *points;
    int32_t place;
    side *d = &r->sides[of];
    compute_weights(r, mu, &factor, &gradient);
    const trmi_objective w = {.gradient = gradient, .sliced = of == 1};
    TRMI_TRY(trmi_space_front(r->s, &w, r->o->memory_bytes, r->arena, &front, &points, r->err));
    r->f->solves += front.solves;
    r->f->solve_seconds += front.seconds;
    TRMI_TRY(add_candidate(r, front.feasible ? "search" : "least memory", &points[0], &place));
    if (!front.feasible) {
        bool less = place >= 0 && (r->f->least_memory.choice.strategy == NULL ||
                                   r->pool[place].measure.bytes < r->f->least_memory.measure.bytes);
        r->f->least_memory = less ? r->pool[place] : r->f->least_memory;
        d->bound = INFINITY;
        return TRM_OK;
    }
    /* The bound holds for every mu; the largest is kept, with the weights that gave it. */
    double bound = factor * (front.lower_bound + fixed_seconds(r, of));
    if (bound > d->bound) {
        d->bound = bound;
        d->weights =
            (trmi_objective){.gradient = gradient, .memory = front.price, .sliced = of == 1};
        d->limit = !front.binds      ? TRMI_BOUND_FREE
                   : front.open == 0 ? TRMI_BOUND_EXACT
                                     : TRMI_BOUND_LAGRANGE;
    }
    return TRM_OK;
}

/* Compare candidates from the largest memory to the smallest, and points by time. */
static int by_memory(const void *a, const void *b) {
    const trmi_candidate *x = a, *y = b;
    int bytes = (x->measure.bytes < y->measure.bytes) - (x->measure.bytes > y->measure.bytes);
    return bytes != 0 ? bytes
                      : (x->measure.step > y->measure.step) - (x->measure.step < y->measure.step);
}

/* Lists the candidates that no other candidate beats in both step and memory, largest memory first.
 */
static void list_frontier(run *r) {
    trmi_found *f = r->f;
    f->frontier_count = 0;
    for (int32_t i = 0; i < r->pool_count; i++) {
        bool beaten = false;
        for (int32_t k = 0; k < r->pool_count && !beaten; k++) {
            const trmi_measure *a = &r->pool[k].measure, *b = &r->pool[i].measure;
            bool no_worse = a->bytes <= b->bytes && a->step <= b->step;
            beaten = k != i && no_worse && (a->bytes < b->bytes || a->step < b->step || k < i);
        }
        if (!beaten) {
            f->frontier[f->frontier_count++] = r->pool[i];
        }
    }
    qsort(f->frontier, (size_t)f->frontier_count, sizeof f->frontier[0], by_memory);
}

/* Computes the whole curve of a side; adds those of its points to the pool that differ in memory by
 * a constant factor. */
static trm_status trace_side(run *r, double mu, int of, trmi_front *front) {
    double factor, gradient;
    trmi_choice *points;
    compute_weights(r, mu, &factor, &gradient);
    const trmi_objective w = {.gradient = gradient, .sliced = of == 1};
    TRMI_TRY(trmi_space_front(r->s, &w, 0, r->arena, front, &points, r->err));
    /* A point is added when memory has fallen by the factor `apart` since the last one; so is the
     * last point, the plan of least memory. */
    double most = front->points[0].memory,
           apart = pow(most / fmax(1, front->least_memory), 1.0 / FRONTIER_POINTS), next = INFINITY;
    for (int32_t i = 0; i < front->count; i++) {
        int32_t place;
        if (front->points[i].memory <= next || i == front->count - 1) {
            TRMI_TRY(add_candidate(r, "frontier", &points[i], &place));
            next = front->points[i].memory / apart;
            if (i == front->count - 1 && place >= 0 &&
                (r->f->least_memory.choice.strategy == NULL ||
                 r->pool[place].measure.bytes < r->f->least_memory.measure.bytes)) {
                r->f->least_memory = r->pool[place];
            }
        }
    }
    return TRM_OK;
}

static int by_time(const void *a, const void *b) {
    const trmi_front_point *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

/* Merges the curves of both sides into *front: points that no other beats, least time first. */
static void merge_curves(const run *r, trmi_front *front, trmi_front *other) {
    double meetings = trmi_space_meetings(r->s), least = INFINITY;
    trmi_front_point *all =
        trmi_arena_alloc(r->arena, (size_t)(front->count + other->count + 1) * sizeof *all);
    int32_t count = 0, kept = 0;
    if (all == NULL) {
        return; /* no memory: keep the first curve */
    }
    for (int32_t i = 0; i < front->count; i++) {
        all[count++] = front->points[i];
    }
    for (int32_t i = 0; i < other->count; i++) {
        all[count] = other->points[i];
        all[count++].time += meetings;
    }
    /* In order of time, a point is kept if it takes less memory than every faster one. */
    qsort(all, (size_t)count, sizeof *all, by_time);
    for (int32_t i = 0; i < count; i++) {
        if (all[i].memory < least) {
            least = all[i].memory;
            all[kept++] = all[i];
        }
    }
    front->points = all;
    front->count = kept;
    front->least_memory = least;
    front->slack = fmax(front->slack, other->slack);
    front->open += other->open;
    front->open_gap = fmax(front->open_gap, other->open_gap);
}

/* Computes the curve of all plans. */
static trm_status trace_frontier(run *r, double mu) {
    trmi_front sliced;
    TRMI_TRY(trace_side(r, mu, 0, &r->f->front));
    if (r->sides_count == 2) {
        TRMI_TRY(trace_side(r, mu, 1, &sliced));
        merge_curves(r, &r->f->front, &sliced);
    }
    return TRM_OK;
}

/* Applies the memory limit, and computes the curve if options->frontier is set. */
static trm_status apply_memory_limit(run *r, bool sweep) {
    bool binds = false;
    for (int32_t i = 0; i < r->pool_count; i++) {
        binds = binds || !r->pool[i].fits;
    }
    /* One mu suffices where nothing overlaps; otherwise try both ends and the middle. */
    for (int of = 0; r->o->memory_bytes > 0 && binds && of < r->sides_count; of++) {
        for (int i = 0; i < (sweep ? 3 : 1) && r->sides[of].bound < INFINITY; i++) {
            TRMI_TRY(solve_within_limit(r, sweep ? i / 2.0 : 0, of));
        }
    }
    return r->o->frontier ? trace_frontier(r, sweep ? 0.5 : 0) : TRM_OK;
}

/* ---- all ---- */

/* Adds the baselines and the user's plan to the pool and lists them. */
static trm_status add_baselines(run *r) {
    trmi_choice choice;
    if (!trmi_choice_open(&choice, r->s, r->arena)) {
        return fail_no_memory(r);
    }
    for (int i = 0; i <= TRMI_BASELINES; i++) {
        bool own = i == TRMI_BASELINES;
        int32_t place;
        if (own && r->o->own != NULL) {
            trmi_choice_copy(&choice, r->o->own, r->s);
        }
        if (own ? r->o->own == NULL : !trmi_space_baseline(r->s, (trmi_baseline)i, &choice)) {
            continue;
        }
        const char *name = own ? "the given plan" : trmi_baseline_name((trmi_baseline)i);
        TRMI_TRY(add_candidate(r, name, &choice, &place));
        if (place >= 0 && r->pool[place].measure.step < INFINITY) {
            trmi_candidate *b = &r->f->baselines[r->f->baselines_count++];
            *b = r->pool[place];
            b->name = name;
        }
    }
    return TRM_OK;
}

/* Runs the search algorithm of the mode; adds its plans to the pool. */
static trm_status run_algorithm(run *r) {
    int32_t place;
    /* The exact search runs for several mu if messages may be hidden, on each side. */
    if (r->o->mode == TRMI_SEARCH_OPTIMAL) {
        bool sweep = r->s->costs.overlap > 0;
        for (int i = 0; i < r->sides_count * (sweep ? MU_STEPS : 1); i++) {
            int of = i % r->sides_count, step = i / r->sides_count;
            TRMI_TRY(solve_side(r, sweep ? (double)step / (MU_STEPS - 1) : 0, of));
        }
        TRMI_TRY(add_unsliced(r));
        TRMI_TRY(apply_memory_limit(r, sweep));
        set_bound(r);
        return TRM_OK;
    }
    /* the two heuristics make one plan each */
    trmi_choice choice;
    if (!trmi_choice_open(&choice, r->s, r->arena)) {
        return fail_no_memory(r);
    }
    double begin = trmi_os_now();
    bool recursive = r->o->mode == TRMI_SEARCH_RECURSIVE;
    TRMI_TRY(recursive ? trmi_space_recursive(r->s, &choice, r->err)
                       : trmi_space_propagate(r->s, &choice, r->err));
    r->f->solve_seconds = trmi_os_now() - begin;
    return add_candidate(r, recursive ? "recursive" : "propagation", &choice, &place);
}

/* Chooses the winner: the fastest candidate that fits. The modes recursive and propagation keep
 * their own plan (place 0), unless data parallel is faster. */
static void choose_winner(run *r) {
    trmi_found *f = r->f;
    const trmi_candidate *best = NULL, *least = NULL;
    for (int32_t i = 0; i < r->pool_count; i++) {
        const trmi_candidate *c = &r->pool[i];
        bool hand = strcmp(c->name, trmi_baseline_name(TRMI_BASELINE_SAMPLES)) != 0;
        bool counts = r->o->mode == TRMI_SEARCH_OPTIMAL || i == 0 || !hand;
        if (!counts || !(c->measure.step < INFINITY)) {
            continue;
        }
        /* Take the fastest that fits, and the one of least memory. */
        least = least == NULL || c->measure.bytes < least->measure.bytes ? c : least;
        if (c->fits && (best == NULL || c->measure.step < best->measure.step)) {
            best = c;
        }
    }
    /* a plan that was run and won is taken, whatever its prediction */
    best = r->taken >= 0 ? &r->pool[r->taken] : best;
    f->infeasible = best == NULL;
    if (f->infeasible && f->least_memory.choice.strategy == NULL) {
        f->least_memory = *least;
    }
    f->best = best != NULL ? *best : f->least_memory;
    f->objective = f->best.measure.step;
    f->lower_bound = fmin(f->lower_bound, f->objective);
    f->best.name = r->taken >= 0 && f->baselines_count > 0 &&
                           trmi_choice_equal(&f->best.choice, &f->baselines[0].choice, r->s)
                       ? f->baselines[0].name
                       : f->best.name;
}

/* Computes the next best strategy of each operator from the marginals of both sides. */
static trm_status find_runners_up(run *r) {
    trmi_found *f = r->f;
    trmi_choice again;
    trmi_solution solution;
    float **marginals[2];
    double least = INFINITY, extra[2] = {0, r->sides_count == 2 ? trmi_space_meetings(r->s) : 0};
    f->runners = trmi_arena_alloc(r->arena, ((size_t)r->s->nodes_count + 1) * sizeof *f->runners);
    if (f->runners == NULL || !trmi_choice_open(&again, r->s, r->arena)) {
        return fail_no_memory(r);
    }
    /* Find the least cost of a plan for each strategy of each operator. */
    for (int of = 0; of < r->sides_count; of++) {
        const trmi_objective w = {
            .gradient = f->weights.gradient, .memory = f->weights.memory, .sliced = of == 1};
        TRMI_TRY(trmi_space_solve(r->s, &w, &again, &solution, &marginals[of], r->arena, r->err));
        least = fmin(least, solution.objective + extra[of]);
    }
    /* the cheapest strategy that the best plan does not have */
    for (int32_t n = 0; n < r->s->nodes_count; n++) {
        const trmi_space_class *c = trmi_space_class_of(r->s, n);
        trmi_runner_up *u = &f->runners[n];
        *u = (trmi_runner_up){.strategy = -1, .price = INFINITY};
        for (int32_t i = 0; i < c->count; i++) {
            double price = INFINITY;
            for (int of = 0; of < r->sides_count; of++) {
                price = fmin(price, (double)marginals[of][n][i] + extra[of] - least);
            }
            if (i != f->best.choice.strategy[n] && price < u->price) {
                *u = (trmi_runner_up){.strategy = i, .price = price};
            }
        }
    }
    return TRM_OK;
}

/* Contract in search.h. MindSpore's names of the same searches are accepted. */
trm_status trmi_search_mode_parse(const char *name, trmi_search_mode *mode, trm_error *err) {
    static const char *const names[] = {"optimal",
                                        "recursive",
                                        "propagation",
                                        "dynamic_programming",
                                        "recursive_programming",
                                        "sharding_propagation"};
    enum { NAMES = sizeof names / sizeof *names };
    int i = 0;
    while (name != NULL && i < NAMES && strcmp(names[i], name) != 0) {
        i++;
    }
    if (i == NAMES) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "search '%.40s': optimal, recursive or propagation expected", name);
    }
    *mode = (trmi_search_mode)(i % 3);
    return TRM_OK;
}

/* Contract in search.h. Collects candidates in a pool: a given winner, the plans that the algorithm
 * finds, and baselines. choose_winner then takes one of them that fits the memory. */
trm_status trmi_search(const trmi_space *space, const trmi_search_options *options,
                       trmi_arena *arena, trmi_found *out, trm_error *err) {
    static const trmi_search_options plain;
    trm_error own;
    run *r;
    TRMI_TRY(TRMI_NEW(err, r, 1, "to search a plan"));
    memset(out, 0, sizeof *out);
    *r = (run){.s = space,
               .o = options != NULL ? options : &plain,
               .arena = arena,
               .f = out,
               .err = err != NULL ? err : &own};
    out->weights.gradient = 1;
    r->sides_count = has_slices(space) ? 2 : 1;
    r->taken = -1;
    /* pool: the given winner, the plans of the search, the baselines */
    trm_status status =
        r->o->take != NULL ? add_candidate(r, "run", r->o->take, &r->taken) : TRM_OK;
    status = status == TRM_OK ? run_algorithm(r) : status;
    status = status == TRM_OK ? add_baselines(r) : status;
    if (status == TRM_OK) {
        choose_winner(r);
        list_frontier(r);
    }
    trmi_free(r);
    return status;
}

trm_status trmi_search_runners(const trmi_space *space, trmi_found *found, trmi_arena *arena,
                               trm_error *err) {
    trm_error own;
    run *r;
    TRMI_TRY(TRMI_NEW(err, r, 1, "to search a plan"));
    *r = (run){.s = space,
               .arena = arena,
               .f = found,
               .sides_count = has_slices(space) ? 2 : 1,
               .err = err != NULL ? err : &own};
    trm_status status = find_runners_up(r);
    trmi_free(r);
    return status;
}
