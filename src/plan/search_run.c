/* The search: bounds by a sweep of mu, memory by a sweep of lambda, then what is simulated fastest.
 *
 *      (1 - o mu) B + (1 - o + o mu) G   for mu in 0 .. 1       o: part of the traffic that can overlap
 *          least over all plans: bounds the step from below; its plan: a candidate
 *      ... + lambda M                    where a limit binds: bound - lambda limit still holds */
#include "plan/search.h"

#include "base/error.h"
#include "base/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MU_STEPS = 9, BISECTIONS = 18, FRONTIER_STEPS = 10 };

typedef struct run {
    const trmi_space *s;
    const trmi_search_options *o;
    trmi_arena *arena;
    trmi_found *f;
    trmi_candidate pool[TRMI_CANDIDATES];
    int32_t pool_count;
    trm_error *err;
} run;

static trm_status no_memory(run *r) { return TRMI_FAIL(r->err, TRM_NOMEM, "no memory to search a plan"); }

/* ---- candidates --------------------------------------------------------------------------------------- */

static trm_status weigh(run *r, trmi_candidate *c) {
    TRMI_TRY(trmi_space_measure(r->s, &c->choice, &c->measure, r->err));
    if (r->o->bytes != NULL) {
        TRMI_TRY(r->o->bytes(r->o->context, r->s, &c->choice, &c->measure.bytes, r->err));
    }
    c->fits = r->o->memory_bytes <= 0 || c->measure.bytes <= r->o->memory_bytes;
    return TRM_OK;
}

/* A copy in the pool, unless it is there; the place, or -1 when the pool is full. */
static trm_status add(run *r, const char *name, const trmi_choice *choice, int32_t *place) {
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
    trmi_candidate *c = &r->pool[r->pool_count];
    *c = (trmi_candidate){.name = name};
    if (!trmi_choice_open(&c->choice, r->s, r->arena)) {
        return no_memory(r);
    }
    trmi_choice_copy(&c->choice, choice, r->s);
    TRMI_TRY(weigh(r, c));
    *place = r->pool_count++;
    return TRM_OK;
}

static trm_status solve(run *r, double mu, double lambda, double *bound, int32_t *place) {
    double o = r->s->costs.overlap, b = 1 - o * mu, g = 1 - o + o * mu;
    b = b < 1e-3 ? 1e-3 : b;
    trmi_weights w = {.gradient = g / b, .memory = lambda / b};
    trmi_choice choice;
    trmi_solution solution;
    if (!trmi_choice_open(&choice, r->s, r->arena)) {
        return no_memory(r);
    }
    TRMI_TRY(trmi_space_solve(r->s, &w, &choice, &solution, NULL, r->arena, r->err));
    r->f->solve_seconds += solution.seconds;
    r->f->solves++;
    *bound = b * (solution.lower_bound + r->s->costs.overhead) - lambda * r->o->memory_bytes;
    TRMI_TRY(add(r, "search", &choice, place));
    bool holds = lambda == 0 || r->o->memory_bytes > 0; /* without a limit a price of memory bounds nothing */
    if (holds && *bound > r->f->lower_bound) {
        r->f->lower_bound = *bound;
        r->f->weights = w;
        r->f->solution = solution;
        r->f->additive = solution.objective;
        r->f->additive_bound = solution.lower_bound;
    }
    return TRM_OK;
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

/* Which lambda makes the plan fit: doubling, then halving the interval. All plans on the way are candidates. */
static trm_status fit_memory(run *r, double mu, double scale, bool *fits) {
    double low = 0, high = scale, bound;
    int32_t place = -1;
    *fits = false;
    for (int i = 0; i < 12 && !*fits; i++) {
        TRMI_TRY(solve(r, mu, high, &bound, &place));
        *fits = place >= 0 && r->pool[place].fits;
        low = *fits ? low : high;
        high = *fits ? high : high * 8;
    }
    for (int i = 0; i < BISECTIONS && *fits && high - low > 1e-4 * high; i++) {
        double middle = low > 0 ? sqrt(low * high) : high / 8;
        TRMI_TRY(solve(r, mu, middle, &bound, &place));
        if (place >= 0 && r->pool[place].fits) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return TRM_OK;
}

/* Price a byte at which memory and time weigh alike: where sweeps begin. */
static double lambda_scale(const run *r) {
    const trmi_measure *m = &r->pool[0].measure;
    return m->bytes > 0 ? 1e-2 * m->step / m->bytes : 1e-12;
}

static int by_memory(const void *a, const void *b) {
    const trmi_candidate *x = a, *y = b;
    int bytes = (x->measure.bytes < y->measure.bytes) - (x->measure.bytes > y->measure.bytes);
    return bytes != 0 ? bytes : (x->measure.step > y->measure.step) - (x->measure.step < y->measure.step);
}

/* Candidates that no other beats in both, largest memory first. */
static void frontier(run *r) {
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

static trm_status memory(run *r, double mu) {
    double bound, scale = lambda_scale(r);
    int32_t place;
    bool any = false, fits = true;
    for (int32_t i = 0; i < r->pool_count; i++) {
        any = any || r->pool[i].fits;
    }
    const trmi_candidate *fastest = &r->pool[0];
    for (int32_t i = 1; i < r->pool_count; i++) {
        fastest = r->pool[i].measure.step < fastest->measure.step ? &r->pool[i] : fastest;
    }
    if (r->o->memory_bytes > 0 && (!any || !fastest->fits)) {
        TRMI_TRY(fit_memory(r, mu, scale, &fits));
    }
    for (int i = 0; r->o->frontier && i < FRONTIER_STEPS; i++) {
        TRMI_TRY(solve(r, mu, scale * pow(4, i - 3), &bound, &place));
    }
    if (!fits || r->o->frontier) {
        double lambda = scale * 1e9; /* memory before anything else */
        TRMI_TRY(solve(r, mu, lambda, &bound, &place));
        if (place >= 0) {
            r->f->least_memory = r->pool[place];
        }
    }
    return TRM_OK;
}

/* ---- all ------------------------------------------------------------------------------------------------------ */

static trm_status baselines(run *r) {
    trmi_choice choice;
    if (!trmi_choice_open(&choice, r->s, r->arena)) {
        return no_memory(r);
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
        TRMI_TRY(add(r, name, &choice, &place));
        if (place >= 0 && r->pool[place].measure.step < INFINITY) {
            trmi_candidate *b = &r->f->baselines[r->f->baselines_count++];
            *b = r->pool[place];
            b->name = name;
        }
    }
    return TRM_OK;
}

static trm_status propose(run *r) {
    double bound;
    int32_t place;
    if (r->o->mode == TRMI_SEARCH_OPTIMAL) {
        bool sweep = r->s->costs.overlap > 0;
        for (int i = 0; i < (sweep ? MU_STEPS : 1); i++) {
            TRMI_TRY(solve(r, sweep ? (double)i / (MU_STEPS - 1) : 0, 0, &bound, &place));
        }
        return memory(r, r->s->costs.overlap > 0 ? 0.5 : 0);
    }
    trmi_choice choice;
    if (!trmi_choice_open(&choice, r->s, r->arena)) {
        return no_memory(r);
    }
    double begin = trmi_os_now();
    bool recursive = r->o->mode == TRMI_SEARCH_RECURSIVE;
    TRMI_TRY(recursive ? trmi_space_recursive(r->s, &choice, r->err) : trmi_space_propagate(r->s, &choice, r->err));
    r->f->solve_seconds = trmi_os_now() - begin;
    return add(r, recursive ? "recursive" : "propagation", &choice, &place);
}

/* The fastest that fits; the other two searches keep what they found, unless data parallel is faster. */
static void choose(run *r) {
    trmi_found *f = r->f;
    const trmi_candidate *best = NULL, *least = NULL;
    for (int32_t i = 0; i < r->pool_count; i++) {
        const trmi_candidate *c = &r->pool[i];
        bool hand = strcmp(c->name, trmi_baseline_name(TRMI_BASELINE_SAMPLES)) != 0;
        bool counts = r->o->mode == TRMI_SEARCH_OPTIMAL || i == 0 || !hand;
        if (!counts || !(c->measure.step < INFINITY)) {
            continue;
        }
        least = least == NULL || c->measure.bytes < least->measure.bytes ? c : least;
        if (c->fits && (best == NULL || c->measure.step < best->measure.step)) {
            best = c;
        }
    }
    f->infeasible = best == NULL;
    if (f->infeasible && f->least_memory.choice.strategy == NULL) {
        f->least_memory = *least;
    }
    f->best = best != NULL ? *best : f->least_memory;
    f->objective = f->best.measure.step;
    f->lower_bound = fmin(f->lower_bound, f->objective);
}

static trm_status runners_up(run *r) {
    trmi_found *f = r->f;
    trmi_choice again;
    trmi_solution solution;
    float **marginals;
    f->runners = trmi_arena_alloc(r->arena, ((size_t)r->s->nodes_count + 1) * sizeof *f->runners);
    if (f->runners == NULL || !trmi_choice_open(&again, r->s, r->arena)) {
        return no_memory(r);
    }
    TRMI_TRY(trmi_space_solve(r->s, &f->weights, &again, &solution, &marginals, r->arena, r->err));
    for (int32_t n = 0; n < r->s->nodes_count; n++) {
        const trmi_space_class *c = trmi_space_class_of(r->s, n);
        trmi_runner_up *u = &f->runners[n];
        *u = (trmi_runner_up){.strategy = -1, .price = INFINITY};
        for (int32_t i = 0; i < c->count; i++) {
            double price = (double)marginals[n][i] - solution.objective;
            if (i != f->best.choice.strategy[n] && price < u->price) {
                *u = (trmi_runner_up){.strategy = i, .price = price};
            }
        }
    }
    return TRM_OK;
}

trm_status trmi_search(const trmi_space *space, const trmi_search_options *options, trmi_arena *arena, trmi_found *out,
                       trm_error *err) {
    static const trmi_search_options plain;
    trm_error own;
    run *r = trmi_alloc(sizeof *r);
    if (r == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to search a plan");
    }
    memset(out, 0, sizeof *out);
    *r = (run){.s = space, .o = options != NULL ? options : &plain, .arena = arena, .f = out, .err = err != NULL ? err : &own};
    out->weights.gradient = 1;
    trm_status status = propose(r);
    status = status == TRM_OK ? baselines(r) : status;
    if (status == TRM_OK) {
        choose(r);
        frontier(r);
        status = runners_up(r);
    }
    trmi_free(r);
    return status;
}
