/* SPDX-License-Identifier: Apache-2.0 */
/* Contracts in pipeline_cut.h.
 *
 *      V[r][a] = min over b of max(M t(a, b),  t(a, b) + messages(b) + V[r + 1][b])
 *
 * t(a, b): least seconds of one micro-batch in the run from cut a to cut b; stage 0 has its gradients
 * and its update, too. Cuts whose other stages have longer updates than the whole are left out by
 * bisection. */
#include "plan/search/pipeline_cut.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

/* State of one search for the cuts of a pipeline. The arrays live until trmi_cut_find returns. */
typedef struct cutting {
    trmi_runs *runs; /* gives the least seconds of a run, and keeps them */
    const trmi_pipe_costs *costs;
    const trmi_pipe_shape *shape;
    bool quick;     /* runs cost the sum of their atoms; none is searched */
    double ceiling; /* seconds of the best known step: only cuts below it matter */
    double cap;     /* most seconds of a stage with its update */
    int32_t n;      /* cuts, the first and the last one included */
    double *before; /* [n] least seconds of one micro-batch before a cut */
    /* [stages][n][n][TRMI_LEASTS] seconds of a run from cut a to cut b on a stage; NAN: not asked
     * for. Without a memory limit all stages are alike: [1][n][n][TRMI_LEASTS] */
    double *known;
    double *value;               /* [stages + 1][n]: V of the comment above */
    int32_t *next;               /* [stages][n]: the cut at which the best run of the stage ends */
    const trmi_cut_visit *visit; /* prices whole plans; NULL: only the bound is wanted */
    int32_t visits;              /* plans priced so far */
    trm_error *err;
    trm_status status; /* first error; later ones are ignored */
} cutting;

trmi_run_memory trmi_cut_memory(const trmi_runs *runs, const trmi_pipe_shape *shape, int32_t v) {
    int32_t stage = v % shape->stages, after = shape->stages - stage;
    double limit = runs->limit - runs->reserved[stage];
    return (trmi_run_memory){.flight = shape->order == TRMI_ORDER_GPIPE || shape->micros < after
                                           ? shape->micros
                                       : shape->chunks > 1 ? 1
                                                           : after,
                             .limit = runs->limit <= 0 ? 0
                                      : limit > 1      ? limit
                                                       : 1};
}

/* Returns the least seconds of a run; what it copies for other stages is included. */
static double least_of(cutting *c, int32_t stage, int32_t a, int32_t b, trmi_least least) {
    const trmi_pipe_shape *shape = c->shape;
    double times = least == TRMI_LEAST_STEP ? shape->micros : 1;
    double copied = shape->stages > 1 && shape->chunks == 1 ? trmi_runs_copied(c->runs, a, b) : 0;
    if (c->quick) {
        return times * (c->before[b] - c->before[a] + copied);
    }
    int32_t layer = c->runs->limit > 0 ? stage : 0;
    double *at = &c->known[(((int64_t)layer * c->n + a) * c->n + b) * TRMI_LEASTS + (int)least];
    if (isnan(*at)) {
        const trmi_least_run *run;
        const trmi_run_ask ask = {a, b, least, trmi_cut_memory(c->runs, shape, stage)};
        trm_status status =
            c->status != TRM_OK ? c->status : trmi_runs_least(c->runs, &ask, &run, c->err);
        c->status = status;
        *at = status == TRM_OK ? run->seconds + times * copied : INFINITY;
    }
    return *at;
}

/* Returns the least seconds of the messages across a cut, forward and back. */
static double messages_at(const cutting *c, int32_t stage, int32_t cut) {
    double bytes = c->runs->crossing[cut];
    return c->costs->message(c->costs->context, c->shape->stages, stage, stage + 1, bytes) +
           (c->runs->returns[cut]
                ? c->costs->message(c->costs->context, c->shape->stages, stage + 1, stage, bytes)
                : 0);
}

/* Returns whether the run from a to b alone takes longer than the best known step; so does each
 * longer run from a. */
static bool is_too_long(const cutting *c, int32_t a, int32_t b) {
    double own = c->shape->micros * (c->before[b] - c->before[a]);
    return c->before[a] + own > c->ceiling * (1 + 1e-9);
}

/* Returns whether stages 0 to r, which end at cut b, leave so much that the mean of the other stages
 * takes longer than the best known step. */
static bool leaves_too_much(const cutting *c, int32_t r, int32_t b) {
    int32_t others = c->shape->stages - 1 - r;
    double rest = c->before[c->n - 1] - c->before[b];
    return others > 0 && c->before[b] + c->shape->micros * rest / others > c->ceiling * (1 + 1e-9);
}

/* Computes V[r][a]: tries each cut b at which stage r may end, and keeps the best. */
static void find_best_run(cutting *c, int32_t r, int32_t a) {
    int32_t stages = c->shape->stages;
    bool last = r == stages - 1;
    double *value = &c->value[r * c->n + a];
    *value = INFINITY;
    for (int32_t b = last ? c->n - 1 : a + 1; b <= c->n - stages + r; b++) {
        double behind = last ? 0 : c->value[(r + 1) * c->n + b];
        if (is_too_long(c, a, b)) {
            break;
        }
        if (leaves_too_much(c, r, b) || !(behind < INFINITY)) {
            continue;
        }
        /* own: the stage computes all micro-batches; whole: one of them also passes the others */
        double micro = least_of(c, r, a, b, TRMI_LEAST_MICRO);
        double own = r == 0 ? least_of(c, r, a, b, TRMI_LEAST_STEP) : c->shape->micros * micro;
        if (r > 0 && c->cap < INFINITY && least_of(c, r, a, b, TRMI_LEAST_STEP) > c->cap) {
            continue;
        }
        double path = last ? 0 : r == 0 ? least_of(c, r, a, b, TRMI_LEAST_LAST) : micro;
        double whole = last ? own : fmax(own, path + messages_at(c, r, b) + behind);
        if (whole < *value) {
            *value = whole;
            c->next[r * c->n + a] = b;
        }
    }
}

/* Runs the dynamic programming; returns the bound. *longest: seconds of the longest stage with its
 * update in the cut found. */
static double run_dynamic(cutting *c, trmi_pipe_cut *out, double *longest) {
    int32_t stages = c->shape->stages;
    for (int32_t r = stages - 1; r >= 0; r--) {
        for (int32_t a = r; a <= (r == 0 ? 0 : c->n - 1 - (stages - r)); a++) {
            find_best_run(c, r, a);
        }
        for (int32_t a = 0; a < r; a++) {
            c->value[r * c->n + a] = INFINITY;
        }
        for (int32_t a = c->n - (stages - r); a < c->n; a++) {
            c->value[r * c->n + a] = INFINITY;
        }
    }
    *longest = 0;
    out->at[stages] = 0;
    for (int32_t r = 0, a = 0; c->value[0] < INFINITY && r < stages; r++) {
        out->at[r] = a;
        int32_t b = c->next[r * c->n + a];
        *longest = fmax(*longest, least_of(c, r, a, b, TRMI_LEAST_STEP));
        a = out->at[r + 1] = b;
    }
    return c->value[0];
}

/* Prices the plan of a cut. */
static void price_cut(cutting *c, const trmi_pipe_cut *cut) {
    if (c->status == TRM_OK && cut->at[c->shape->stages * c->shape->chunks] > 0) {
        c->status = c->visit->price(c->visit->context, cut, &c->ceiling, c->err);
        c->visits++;
    }
}

/* Prices all cuts whose bound is below the ceiling. Stages before r are in *cut: `before` is the time
 * from the first of them to the first micro-batch of r, and the gradients and the update of stage 0. */
static void price_cuts_below(cutting *c, trmi_pipe_cut *cut, int32_t r, double before) {
    int32_t stages = c->shape->stages, a = cut->at[r];
    bool last = r == stages - 1;
    for (int32_t b = last ? c->n - 1 : a + 1;
         b <= c->n - stages + r && c->visits < c->visit->most && c->status == TRM_OK; b++) {
        double behind = last ? 0 : c->value[(r + 1) * c->n + b], most = c->ceiling * (1 - 1e-9);
        if (is_too_long(c, a, b)) {
            break;
        }
        if (leaves_too_much(c, r, b) || !(behind < INFINITY)) {
            continue;
        }
        double micro = least_of(c, r, a, b, TRMI_LEAST_MICRO),
               whole = least_of(c, r, a, b, TRMI_LEAST_STEP);
        double own = r == 0 ? whole : fmax(whole, before + c->shape->micros * micro);
        double path = last ? 0
                           : before + (r == 0 ? least_of(c, r, a, b, TRMI_LEAST_LAST) : micro) +
                                 messages_at(c, r, b);
        if (own >= most || path + behind >= most) {
            continue;
        }
        cut->at[r + 1] = b;
        if (last) {
            price_cut(c, cut);
        } else {
            price_cuts_below(c, cut, r + 1, path);
        }
    }
}

/* Cuts stages of one chunk. The dynamic programming ignores the updates of stages 1 and later, so its
 * bound may be too low: bisection finds the least cap on a stage's seconds with its update that some
 * cut keeps. With `visit` all cuts below the ceiling are then priced. */
static void cut_plain(cutting *c, trmi_pipe_cut *out) {
    enum { HALVES = 24 };
    double longest;
    c->cap = INFINITY;
    out->bound = run_dynamic(c, out, &longest);
    double low = out->bound, high = longest;
    for (int i = 0; !c->quick && high > low * (1 + 1e-9) && i < HALVES; i++) {
        trmi_pipe_cut other;
        /* Is there a cut of which no stage takes longer than the cap? The first try is the lower
         * bound itself, which is often kept. */
        c->cap = i == 0 ? low : (low + high) / 2;
        double bound = run_dynamic(c, &other, &longest), whole = fmax(bound, longest);
        if (whole <= c->cap * (1 + 1e-9) || (whole < high && bound < INFINITY)) {
            *out = other;
            high = fmin(high, whole);
        }
        if (bound == INFINITY || whole > c->cap * (1 + 1e-9)) {
            low = c->cap;
        }
    }
    out->bound = fmax(out->bound, low);
    if (c->visit != NULL) {
        trmi_pipe_cut cut = {.at = {0}};
        price_cut(c, out);
        c->cap = INFINITY;
        (void)run_dynamic(c, &cut, &longest); /* values without the cap */
        cut.at[0] = 0;
        price_cuts_below(c, &cut, 0, 0);
    }
}

/* Returns the least seconds of the messages of one micro-batch across any cut, between any two ranks that
 * follow each other. */
static double least_messages(const cutting *c) {
    int32_t stages = c->shape->stages;
    double bytes = INFINITY, least = INFINITY;
    bool returns = true;
    for (int32_t i = 1; i + 1 < c->n; i++) {
        bytes = fmin(bytes, c->runs->crossing[i]);
        returns = returns && c->runs->returns[i];
    }
    for (int32_t r = 0; r < stages && bytes < INFINITY; r++) {
        int32_t next = (r + 1) % stages;
        const trmi_pipe_costs *costs = c->costs;
        double seconds = costs->message(costs->context, stages, r, next, bytes);
        seconds += returns ? costs->message(costs->context, stages, next, r, bytes) : 0;
        least = fmin(least, seconds);
    }
    return least < INFINITY ? least : 0;
}

/* Returns the bound of an interleaved schedule in which one micro-batch takes `micro` seconds in all runs.
 * Rank r has the work of its chunks from i on behind a micro-batch's way through the virtual stages before
 * v = i stages + r, and before its way back:
 *
 *      step >= sum of x[u] + messages, u < v,  +  micros * sum of x[j stages + r], j >= i      for each v
 *
 * with x[u] the seconds of one micro-batch in virtual stage u. So any mean of these is a bound, too. With
 * the weights w[v] below all x have the same factor, and only their sum counts, for any cut:
 *
 *      (micros - 1) w[v] = micros - 1 + sum of w[u], u < v           in the first chunk
 *                          sum of w[u], v - stages < u < v           in others */
static double bound_chunks(const cutting *c, double micro) {
    int32_t stages = c->shape->stages, runs = stages * c->shape->chunks;
    double w[TRMI_VIRTUAL_STAGES_MAX], sum = 0, way = 0, others = c->shape->micros - 1;
    if (others == 0) { /* one run after the other */
        return micro + (runs - 1) * least_messages(c);
    }
    for (int32_t v = 0; v < runs; v++) {
        double before = v < stages ? others : 0;
        for (int32_t u = v < stages ? 0 : v - stages + 1; u < v; u++) {
            before += w[u];
        }
        w[v] = before / others;
        sum += w[v];
        way += w[v] * v; /* messages before v */
    }
    return micro * (1 + others * w[0] / sum) + way / sum * least_messages(c);
}

/* Cuts into chunks: runs as equal as they can be, by their quick seconds. */
static void cut_chunks(cutting *c, trmi_pipe_cut *out) {
    int32_t stages = c->shape->stages, runs = stages * c->shape->chunks, left = runs, a = 0;
    double all = c->before[c->n - 1];
    /* all runs need not fit the memory of one rank */
    out->bound =
        bound_chunks(c, c->runs->limit > 0 ? all : least_of(c, 0, 0, c->n - 1, TRMI_LEAST_MICRO));
    for (int32_t i = 0; i + 1 < c->n; i++) { /* one rank has all of the longest atom */
        out->bound = fmax(out->bound, c->shape->micros * (c->before[i + 1] - c->before[i]));
    }
    for (int32_t v = 0; v < runs; v++, left--) {
        double wanted = c->before[a] + (all - c->before[a]) / left;
        int32_t b = a + 1;
        while (b < c->n - left && fabs(c->before[b + 1] - wanted) < fabs(c->before[b] - wanted)) {
            b++;
        }
        out->at[v] = a;
        a = out->at[v + 1] = left == 1 ? c->n - 1 : b;
    }
    if (c->visit != NULL) {
        price_cut(c, out);
    }
}

/* Sums the least seconds of the runs from one cut to the next. */
static trm_status sum_atoms(cutting *c) {
    for (int32_t i = 0; i + 1 < c->n; i++) {
        const trmi_least_run *run;
        const trmi_run_ask ask = {.a = i, .b = i + 1, .least = TRMI_LEAST_MICRO};
        TRMI_TRY(trmi_runs_least(c->runs, &ask, &run, c->err));
        c->before[i + 1] = c->before[i] + run->seconds;
    }
    return TRM_OK;
}

/* Contract in pipeline_cut.h. Dynamic programming over the cuts between stages, from the last
 * stage to the first: value[r][a] is V[r][a] of the drawing above. `quick` uses bounds of runs
 * that need no search inside; otherwise `known` keeps the searched times of runs (NAN: not asked
 * for yet). */
trm_status trmi_cut_find(trmi_runs *runs, const trmi_pipe_costs *costs,
                         const trmi_pipe_shape *shape, bool quick, double ceiling,
                         const trmi_cut_visit *visit, trmi_pipe_cut *out, trm_error *err) {
    trmi_arena scratch = {0};
    cutting c = {.runs = runs,
                 .costs = costs,
                 .shape = shape,
                 .quick = quick,
                 .ceiling = ceiling,
                 .visit = visit,
                 .n = runs->cuts_count,
                 .err = err};
    size_t n = (size_t)c.n, stages = (size_t)shape->stages,
           cells = quick ? 1 : (runs->limit > 0 ? stages : 1) * n * n * TRMI_LEASTS;
    c.before = trmi_arena_alloc(&scratch, n * sizeof *c.before);
    c.known = trmi_arena_alloc(&scratch, cells * sizeof *c.known);
    c.value = trmi_arena_alloc(&scratch, (stages + 1) * n * sizeof *c.value);
    c.next = trmi_arena_alloc(&scratch, stages * n * sizeof *c.next);
    if (c.before == NULL || c.known == NULL || c.value == NULL || c.next == NULL) {
        trmi_arena_free(&scratch);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to cut stages");
    }
    for (size_t i = 0; i < cells; i++) {
        c.known[i] = NAN;
    }
    c.status = sum_atoms(&c);
    if (c.status == TRM_OK && shape->chunks == 1) {
        cut_plain(&c, out);
    } else if (c.status == TRM_OK) {
        cut_chunks(&c, out);
    }
    out->bound = fmin(out->bound, ceiling);
    trmi_arena_free(&scratch);
    return c.status;
}
