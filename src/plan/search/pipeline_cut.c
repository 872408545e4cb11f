/* SPDX-License-Identifier: Apache-2.0 */
/* Contracts in pipeline_cut.h.
 *
 *      V[r][a] = min over b of max(M t(a, b),  t(a, b) + messages(b) + V[r + 1][b])
 *
 * t(a, b): least seconds of one micro-batch in the run from cut a to cut b; stage 0 has its
 * gradients and its update, too. Cuts whose other stages have longer updates than the whole are
 * left out by bisection.
 *
 * All bounds and ceilings in `cutting` are those of ranks with cores of their own. Ranks that share
 * cores are at most `crowding` times as fast: trmi_cut_find divides the bound, and price_cut and
 * trmi_cut_find multiply the ceiling. */
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
    /* While runs are placed one after the other, of those that are: seconds of one micro-batch, of
     * a step, [runs], and of one micro-batch before a run, with messages and the update of the
     * first run, [runs + 1] */
    double *micro, *step, *path;
    int32_t placed;      /* runs placed so far, in all cuts */
    double open;         /* least bound of cuts that were not tried */
    trmi_pipe_cut *list; /* [visit->most] cuts below the ceiling, the least bound first */
    int32_t listed;
    trmi_pipeline pipeline; /* the schedule that is played, and its edges */
    trmi_pipeline_edge *edges;
    double *played; /* seconds of forward and of backward, [2][runs] */
    trm_error *err;
    trm_status status; /* first error; later ones are ignored */
} cutting;

/* Contract in pipeline_cut.h. How many micro-batches a stage keeps follows from the schedule: all
 * of them (GPipe), or as many as there are stages from this one on (1F1B). */
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
    double copied = shape->stages > 1 ? trmi_runs_copied(c->runs, a, b, shape->chunks == 1) : 0;
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

/* Returns the least seconds of the messages between a virtual stage and the next one, which begins
 * with a cut, forward and back. */
static double messages_at(const cutting *c, int32_t v, int32_t cut) {
    const trmi_pipe_costs *costs = c->costs;
    double bytes = c->runs->crossing[cut];
    int32_t stages = c->shape->stages, from = v % stages, to = (v + 1) % stages;
    return costs->message(costs->context, stages, from, to, bytes) +
           (c->runs->returns[cut] ? costs->message(costs->context, stages, to, from, bytes) : 0);
}

/* Returns whether the run from a to b alone takes longer than the best known step; so does each
 * longer run from a. */
static bool is_too_long(const cutting *c, int32_t a, int32_t b) {
    double own = c->shape->micros * (c->before[b] - c->before[a]);
    return c->before[a] + own > c->ceiling * (1 + 1e-9);
}

/* Returns whether stages 0 to r, which end at cut b, leave so much that the mean of the other
 * stages takes longer than the best known step. */
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
        /* own: the stage computes all micro-batches; whole: one of them also passes the others. */
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
        double crowding = fmax(1, c->costs->crowding), ceiling = c->ceiling / crowding;
        c->status = c->visit->price(c->visit->context, cut, &ceiling, c->err);
        c->ceiling = ceiling * crowding;
    }
}

/* ---- all cuts below the ceiling -------------------------------------------------------------- */

/* Places run v from cut a to cut b. quick: by the seconds of its atoms. */
static void place_run(cutting *c, int32_t v, int32_t a, int32_t b, bool quick) {
    int32_t stage = v % c->shape->stages;
    double atoms = c->before[b] - c->before[a], first = atoms;
    c->micro[v] = quick ? atoms : least_of(c, stage, a, b, TRMI_LEAST_MICRO);
    c->step[v] = quick ? c->shape->micros * atoms : least_of(c, stage, a, b, TRMI_LEAST_STEP);
    if (!quick) {
        first = v == 0 ? least_of(c, stage, a, b, TRMI_LEAST_LAST) : c->micro[v];
    }
    c->path[v + 1] = c->path[v] + first + (b < c->n - 1 ? messages_at(c, v, b) : 0);
}

/* Returns the bound of all cuts in which the first `count` runs are those placed, the last of which
 * ends with cut b. A rank has the work of its chunks from run v on after one micro-batch's way to
 * v and before its way back; and all its work with its update. What is not placed yet is divided
 * among the ranks. */
static double bound_placed(const cutting *c, int32_t count, int32_t b) {
    int32_t stages = c->shape->stages;
    double work[TRMI_STAGES_MAX] = {0}, steps[TRMI_STAGES_MAX] = {0}, most = 0;
    double sum = c->shape->micros * (c->before[c->n - 1] - c->before[b]);
    for (int32_t v = count - 1; v >= 0; v--) {
        int32_t r = v % stages;
        work[r] += c->shape->micros * c->micro[v];
        steps[r] += c->step[v];
        most = fmax(most, fmax(c->path[v] + work[r], steps[r]));
    }
    for (int32_t r = 0; r < stages; r++) {
        sum += c->path[r < count ? r : count] + work[r];
    }
    return fmax(most, sum / stages);
}

/* Sets the least seconds of each forward and each backward of a cut's runs, and what follows them
 * on each rank, [stages]. */
static void find_seconds(cutting *c, const trmi_pipe_cut *cut, double *forward, double *backward,
                         double *after) {
    trmi_runs *runs = c->runs;
    int32_t stages = c->shape->stages;
    for (int32_t v = 0; v < stages * c->shape->chunks && c->status == TRM_OK; v++) {
        const trmi_least_run *run;
        int32_t a = cut->at[v], b = cut->at[v + 1];
        const trmi_run_ask ask = {a, b, TRMI_LEAST_MICRO, trmi_cut_memory(runs, c->shape, v)};
        c->status = trmi_runs_least(runs, &ask, &run, c->err);
        if (c->status == TRM_OK) {
            double given = stages > 1 ? runs->given[a] + runs->given[b] : 0;
            forward[v] = run->forward + given;
            backward[v] = run->backward - given;
            backward[v] += stages > 1 ? trmi_runs_copied(runs, a, b, false) : 0;
            after[v % stages] += run->after;
        }
    }
}

/* Lists the edges of a cut, with the least seconds of their messages: a chain, and gradients of
 * parameters that several runs read, which both ranks copy. *behind: seconds in which each rank
 * sends the values of such parameters, [stages]. Returns the number of edges. */
static int32_t list_edges(cutting *c, const trmi_pipe_cut *cut, double *backward, double *behind) {
    const trmi_runs *runs = c->runs;
    const trmi_pipe_costs *costs = c->costs;
    int32_t stages = c->shape->stages, kept = 0;
    int32_t chain = trmi_pipeline_chain(&c->pipeline, c->edges);
    for (int32_t e = 0; e < chain; e++) {
        trmi_pipeline_edge *edge = &c->edges[e];
        int32_t at = cut->at[edge->from > edge->to ? edge->from : edge->to];
        if (!edge->from_backward || runs->returns[at]) {
            edge->seconds = costs->message(costs->context, stages, edge->from % stages,
                                           edge->to % stages, runs->crossing[at]);
            c->edges[kept++] = *edge;
        }
    }
    for (int32_t i = 0; i < runs->shared_count; i++) {
        const trmi_shared_reader *of = &runs->shared[i];
        trmi_pipeline_edge edge = {.from_backward = true, .to_backward = true};
        for (int32_t v = 1; v < stages * c->shape->chunks; v++) {
            edge.from += runs->cuts[cut->at[v]] <= of->node;
            edge.to += runs->cuts[cut->at[v]] <= of->first;
        }
        int32_t from = edge.from % stages, to = edge.to % stages;
        if (from != to) {
            edge.seconds = costs->message(costs->context, stages, from, to, of->bytes);
            behind[to] += costs->message(costs->context, stages, to, from, of->bytes);
        }
        if (edge.from != edge.to) {
            double work = of->seconds - (from == to ? runs->handover : 0);
            backward[edge.from] += work;
            backward[edge.to] += work;
            c->edges[kept++] = edge;
        }
    }
    return kept;
}

/* Plays the schedule with the least seconds of each forward and each backward of a cut's runs, on a
 * mesh of one rank: no plan of the cut has a shorter step, without its meetings. */
static double play_least(cutting *c, const trmi_pipe_cut *cut) {
    int32_t stages = c->shape->stages, count = stages * c->shape->chunks;
    double after[TRMI_STAGES_MAX] = {0}, behind[TRMI_STAGES_MAX] = {0},
           *backward = c->played + count;
    trmi_pipeline_play play = {.forward = c->played,
                               .backward = backward,
                               .after = after,
                               .behind = behind,
                               .meets = c->costs->meeting != NULL};
    find_seconds(c, cut, c->played, backward, after);
    if (c->status == TRM_OK) {
        int32_t edges = list_edges(c, cut, backward, behind);
        c->status = trmi_pipeline_run(&c->pipeline, c->edges, edges, &play, c->err);
    }
    return c->status == TRM_OK ? play.seconds : 0;
}

/* Returns the bound that a cut must be below to be priced. */
static double limit_of(const cutting *c) {
    double most = c->ceiling * (1 - 1e-9);
    return c->listed == c->visit->most ? fmin(most, c->list[c->listed - 1].bound) : most;
}

/* Adds a cut to the list of those with the least bounds. */
static void list_cut(cutting *c, const trmi_pipe_cut *cut) {
    int32_t at = c->listed < c->visit->most ? c->listed++ : c->listed - 1;
    for (; at > 0 && c->list[at - 1].bound > cut->bound; at--) {
        c->list[at] = c->list[at - 1];
    }
    c->list[at] = *cut;
}

/* Tries all cuts at which run v may end, and all runs after it; lists the cuts whose bound is
 * below the ceiling, as many as are priced. Cuts beyond a limit are not tried: their bound counts
 * for all of them. */
static void try_cuts(cutting *c, trmi_pipe_cut *cut, int32_t v) {
    enum { MOST_PLACED = 20000 };
    int32_t stages = c->shape->stages, runs = stages * c->shape->chunks, a = cut->at[v];
    bool last = v == runs - 1;
    for (int32_t b = last ? c->n - 1 : a + 1; b <= c->n - runs + v && c->status == TRM_OK; b++) {
        double most = limit_of(c);
        place_run(c, v, a, b, true);
        if (bound_placed(c, v + 1, b) >= most) {
            continue;
        }
        place_run(c, v, a, b, false);
        cut->at[v + 1] = b;
        cut->bound = bound_placed(c, v + 1, b);
        if (c->shape->chunks == 1 && !last) {
            cut->bound = fmax(cut->bound, c->path[v + 1] + c->value[(v + 1) * c->n + b]);
        }
        if (last && cut->bound < most && trmi_mesh_ranks(&c->runs->space->mesh) == 1) {
            cut->bound = fmax(cut->bound, play_least(c, cut));
        }
        if (cut->bound >= most) {
            continue;
        }
        if (last) {
            list_cut(c, cut);
        } else if (c->placed++ < MOST_PLACED) {
            try_cuts(c, cut, v + 1);
        } else {
            c->open = fmin(c->open, cut->bound);
        }
    }
}

/* Prices the cuts whose bound is below the ceiling, the least first, and returns the bound of all:
 * that of the first one, or the ceiling that it is above. */
static double price_cuts_below(cutting *c) {
    trmi_pipe_cut cut = {.at = {0}};
    c->open = INFINITY;
    c->path[0] = 0;
    try_cuts(c, &cut, 0);
    for (int32_t i = 0; i < c->listed && c->list[i].bound < c->ceiling * (1 - 1e-9); i++) {
        price_cut(c, &c->list[i]);
    }
    double least = c->listed > 0 ? fmin(c->open, c->list[0].bound) : c->open;
    return fmin(least, c->ceiling);
}

/* Cuts stages of one chunk. The dynamic programming ignores the updates of stages 1 and later, so
 * its bound may be too low: bisection finds the least cap on a stage's seconds with its update that
 * some cut keeps. With `visit` all cuts below the ceiling are then priced. */
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
        out->bound = fmax(out->bound, price_cuts_below(c));
    }
}

/* Returns the least seconds of the messages of one micro-batch across any cut, between any two
 * ranks that follow each other. */
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

/* Contract in pipeline_cut.h. Rank r has the work of its chunks from i on after a micro-batch's
 * way through the virtual stages before v = i stages + r, and before its way back:
 *
 *      step >= sum of x[u] + messages, u < v,  +  micros * sum of x[j stages + r], j >= i      for each v
 *
 * with x[u] the seconds of one micro-batch in virtual stage u. So any mean of these is a bound,
 * too. With the weights w[v] below all x have the same factor, and only their sum counts, for any
 * cut:
 *
 *      (micros - 1) w[v] = micros - 1 + sum of w[u], u < v           in the first chunk
 *                          sum of w[u], v - stages < u < v           in others */
double trmi_cut_bound(const trmi_pipe_shape *shape, double micro, double message, double crowding) {
    int32_t stages = shape->stages, runs = stages * shape->chunks;
    if (crowding > 1) {
        return fmax(trmi_cut_bound(shape, micro, message, 1) / crowding,
                    shape->micros * micro / stages);
    }
    double w[TRMI_VIRTUAL_STAGES_MAX], sum = 0, path = 0, others = shape->micros - 1;
    if (others == 0) { /* one run after the other */
        return micro + (runs - 1) * message;
    }
    for (int32_t v = 0; v < runs; v++) {
        double before = v < stages ? others : 0;
        for (int32_t u = v < stages ? 0 : v - stages + 1; u < v; u++) {
            before += w[u];
        }
        w[v] = before / others;
        sum += w[v];
        path += w[v] * v; /* messages before v */
    }
    return micro * (1 + others * w[0] / sum) + path / sum * message;
}

/* Cuts into chunks: runs as equal as they can be, by their quick seconds. */
static void cut_chunks(cutting *c, trmi_pipe_cut *out) {
    int32_t stages = c->shape->stages, runs = stages * c->shape->chunks, left = runs, a = 0;
    double all = c->before[c->n - 1];
    /* all runs need not fit the memory of one rank */
    out->bound = trmi_cut_bound(
        c->shape, c->runs->limit > 0 ? all : least_of(c, 0, 0, c->n - 1, TRMI_LEAST_MICRO),
        least_messages(c), 1);
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
        out->bound = fmax(out->bound, price_cuts_below(c));
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

/* Opens what the search of all cuts needs.   errors  INVALID (a schedule that cannot be), NOMEM */
static trm_status open_places(cutting *c, trmi_arena *scratch) {
    const trmi_pipe_shape *shape = c->shape;
    size_t runs = (size_t)(shape->stages * shape->chunks);
    TRMI_TRY(trmi_pipeline_create(shape->order, shape->stages, shape->chunks, shape->micros,
                                  &c->pipeline, c->err));
    c->micro = trmi_arena_alloc(scratch, runs * sizeof *c->micro);
    c->step = trmi_arena_alloc(scratch, runs * sizeof *c->step);
    c->path = trmi_arena_alloc(scratch, (runs + 1) * sizeof *c->path);
    size_t edges = 2 * runs + (size_t)c->runs->shared_count;
    c->edges = trmi_arena_alloc(scratch, edges * sizeof *c->edges);
    c->played = trmi_arena_alloc(scratch, 2 * runs * sizeof *c->played);
    c->list = trmi_arena_alloc(scratch, (size_t)c->visit->most * sizeof *c->list);
    bool made = c->list != NULL && c->micro != NULL && c->step != NULL && c->path != NULL &&
                c->edges != NULL && c->played != NULL;
    return made ? TRM_OK : TRMI_NO_MEMORY(c->err, "to cut stages");
}

/* Returns the least seconds of one micro-batch in which both sides of a cut copy and hand over what
 * crosses it. */
static double least_copied(const cutting *c) {
    double least = INFINITY;
    for (int32_t i = 1; i + 1 < c->n; i++) {
        least = fmin(least, 2 * c->runs->copied[i]);
    }
    return least < INFINITY ? least : 0;
}

/* Returns the mean of all ranks' work in a step: where ranks share cores no step is shorter. Under
 * a limit of memory the parts of the least work need not fit, so that only atoms count. */
static double mean_work(cutting *c) {
    double work = c->quick || c->runs->limit > 0 ? c->shape->micros * c->before[c->n - 1]
                                                 : least_of(c, 0, 0, c->n - 1, TRMI_LEAST_STEP);
    int32_t crossed = c->shape->stages > 1 ? c->shape->stages * c->shape->chunks - 1 : 0;
    return (work + c->shape->micros * crossed * least_copied(c)) / c->shape->stages;
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
                 .ceiling = ceiling * fmax(1, costs->crowding),
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
        return TRMI_NO_MEMORY(err, "to cut stages");
    }
    for (size_t i = 0; i < cells; i++) {
        c.known[i] = NAN;
    }
    c.status = visit != NULL ? open_places(&c, &scratch) : TRM_OK;
    c.status = c.status == TRM_OK ? sum_atoms(&c) : c.status;
    if (c.status == TRM_OK && shape->chunks == 1) {
        cut_plain(&c, out);
    } else if (c.status == TRM_OK) {
        cut_chunks(&c, out);
    }
    if (costs->crowding > 1 && c.status == TRM_OK) {
        out->bound = fmax(out->bound / costs->crowding, mean_work(&c));
    }
    out->bound = fmin(out->bound, ceiling);
    trmi_pipeline_free(&c.pipeline);
    trmi_arena_free(&scratch);
    return c.status;
}
