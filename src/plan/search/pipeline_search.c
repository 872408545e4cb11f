/* SPDX-License-Identifier: Apache-2.0 */
/* Searches shapes, meshes, cuts into stages and strategies (contracts in pipeline_search.h).
 *
 *      rows      stages x mesh x micro-batches x recompute x schedule x chunks
 *      quick     bound of a row from the least seconds of single cuts' runs: cheap
 *      exact     the rows whose quick bound is below the best plan: dynamic programming over
 *                (stage, cut) with exact seconds of runs; runs that are too long or leave too much
 *                for the other stages are left out
 *      plan      the cut and the strategies that have the bound, played
 *
 * Invariant: a row is left out only if its lower bound is not below the best plan that is known. */
#include "plan/search/pipeline_search.h"

#include "plan/search/pipeline_cut.h"

#include "base/error.h"
#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits of the work of a search. Where ranks share cores, all cuts have nearly the same bound, the
 * mean of the work, which leaves none of them out; so of many cuts only few are priced. */
enum {
    MOST_MICROS = 16, /* micro-batches of a step, times the stages */
    MOST_CHUNKS = 4,  /* of a rank in an interleaved schedule */
    MOST_CUTS = 100,  /* of a row that are priced as whole plans */
    CROWDED_CUTS = 4, /* the same where ranks share cores, of more than MANY_CUTS */
    MANY_CUTS = 16
};

/* The state of one search. */
typedef struct searching {
    const trmi_pipe_options *o;
    trmi_pipe_found *found;
    trmi_runs **runs; /* [spaces] */
    trmi_arena *arena;
    double best; /* step of the fastest plan so far that fits */
    trm_error *err;
} searching;

static trm_status no_memory(searching *s) { return TRMI_NO_MEMORY(s->err, "to search stages"); }

/* ---- rows ------------------------------------------------------------------------------------ */

/* Adds a shape on a mesh; before there is memory for rows, only counts it. */
static void add_row(searching *s, const trmi_pipe_shape *shape, const trmi_mesh *mesh) {
    if (s->found->rows != NULL) {
        s->found->rows[s->found->count] = (trmi_pipe_row){.shape = *shape, .mesh = *mesh};
    }
    s->found->count++;
}

/* Adds the schedules of a number of stages and micro-batches: of interleaved ones those with 2 and
 * 4 chunks of a rank, unless one number is given. */
static void add_orders(searching *s, trmi_pipe_shape shape, const trmi_mesh *mesh) {
    const trmi_pipe_options *o = s->o;
    for (int32_t order = 0; order <= TRMI_ORDER_INTERLEAVED; order++) {
        bool interleaved = order == TRMI_ORDER_INTERLEAVED;
        shape.order = (trmi_pipeline_order)order;
        if ((o->one_order && shape.order != o->order) || (shape.stages == 1 && order > 0)) {
            continue;
        }
        const int32_t first = !interleaved ? 1 : o->chunks > 0 ? o->chunks : 2;
        const int32_t last = interleaved && o->chunks <= 0 ? MOST_CHUNKS : first;
        for (shape.chunks = first; shape.chunks <= last; shape.chunks *= 2) {
            if (shape.chunks * shape.stages <= TRMI_VIRTUAL_STAGES_MAX) {
                add_row(s, &shape, mesh);
            }
        }
    }
}

/* Returns whether `count` micro-batches divide what each reader has, and are whole blocks. */
static bool divides_batch(int64_t batch, int64_t count, int64_t readers, int64_t block) {
    return batch % (count * readers) == 0 && batch % (count * block) == 0;
}

/* Adds the rows of a mesh: micro-batches that divide the batch (what each rank of a stage reads of
 * it, if the ranks read samples of their own), a power of 2 unless one number is given, and
 * recompute. */
static void add_micros(searching *s, int32_t stages, const trmi_mesh *mesh) {
    const trmi_pipe_options *o = s->o;
    int64_t readers = o->own_samples ? trmi_mesh_ranks(mesh) : 1,
            block = o->block > 0 ? o->block : 1;
    for (int32_t micros = 1; micros <= MOST_MICROS * stages || o->micros > 0; micros *= 2) {
        int32_t count = o->micros > 0 ? o->micros : micros;
        for (int again = 0; again < 2 && divides_batch(o->batch, count, readers, block); again++) {
            bool wanted = o->recomputes == o->keeps || (again ? o->recomputes : o->keeps);
            if (wanted && (stages > 1 || count > 1)) {
                add_orders(s,
                           (trmi_pipe_shape){.stages = stages, .micros = count, .recompute = again},
                           mesh);
            }
        }
        if (o->micros > 0) {
            break;
        }
    }
}

/* Adds the rows of the search: all numbers of stages that divide the ranks, each with all
 * meshes of the remaining ranks (three axes at most, unless a mesh is given) and all numbers of
 * micro-batches. */
static void add_rows(searching *s) {
    const trmi_pipe_options *o = s->o;
    s->found->count = 0;
    for (int32_t stages = 1; stages <= o->ranks && stages <= TRMI_STAGES_MAX; stages++) {
        trmi_mesh list[TRMI_MESH_LIST];
        if (o->ranks % stages != 0 || (o->stages > 0 && stages != o->stages)) {
            continue;
        }
        /* List the meshes of one stage's ranks. */
        int32_t inner = o->ranks / stages, count = 1;
        if (o->mesh != NULL) {
            list[0] = *o->mesh;
        } else {
            count = trmi_mesh_list(1, inner, list);
        }
        for (int32_t i = 0; i < count; i++) {
            if (trmi_mesh_ranks(&list[i]) == inner && (list[i].axes <= 3 || o->mesh != NULL)) {
                add_micros(s, stages, &list[i]);
            }
        }
    }
}

/* Lists the rows of the search. None is left out: its plans would be missing in the bound. */
static trm_status list_rows(searching *s) {
    const trmi_pipe_options *o = s->o;
    s->found->rows = NULL;
    add_rows(s);
    if (s->found->count == 0) {
        return TRMI_FAIL(
            s->err, TRM_INVALID,
            "no plan with stages: %d ranks, %d stages, %lld samples, %d micro-batches; "
            "stages divide the ranks, micro-batches the samples%s%s",
            o->ranks, o->stages, (long long)o->batch, o->micros,
            o->own_samples ? " that each rank of a stage reads" : "",
            o->block > 1 ? ", in whole blocks of strict determinism" : "");
    }
    s->found->rows = trmi_arena_alloc(s->arena, (size_t)s->found->count * sizeof *s->found->rows);
    if (s->found->rows == NULL) {
        return no_memory(s);
    }
    add_rows(s);
    return TRM_OK;
}

/* ---- spaces ---------------------------------------------------------------------------------- */

/* Contract in pipeline_search.h. Names must come in the order of the graph, because stages are
 * runs of neighbours. */
trm_status trmi_pipe_begins(const trmi_space *space, const char *names, int32_t *out,
                            int32_t *count, trm_error *err) {
    char name[512];
    *count = 0;
    for (const char *at = names; *at != '\0';) {
        size_t length = strcspn(at, ",");
        int32_t n = 0;
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        /* Find the operator of this name. */
        while (n < space->nodes_count && strcmp(trmi_space_op(space, n)->name, name) != 0) {
            n++;
        }
        if (n == space->nodes_count || (*count > 0 && n <= out[*count - 1]) || n == 0 ||
            *count == TRMI_VIRTUAL_STAGES_MAX) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "stages begin with '%.100s': %s; trireme train --explain lists the "
                             "operators",
                             name,
                             n == space->nodes_count ? "no forward operator has this name"
                                                     : "operators are in their order, without the "
                                                       "first one");
        }
        out[(*count)++] = n;
        at += length + (at[length] == ',');
    }
    return TRM_OK;
}

/* Returns the number of a row's space; -1: it is not made. */
static int32_t find_space(const searching *s, const trmi_pipe_row *row) {
    const trmi_pipe_found *f = s->found;
    for (int32_t i = 0; i < f->spaces_count; i++) {
        if (s->runs[i]->micros == row->shape.micros &&
            s->runs[i]->recompute == row->shape.recompute &&
            memcmp(&f->spaces[i]->mesh, &row->mesh, sizeof row->mesh) == 0) {
            return i;
        }
    }
    return -1;
}

/* Finds or makes the space of a row, without edges, and its runs, without cuts. */
static trm_status open_space(searching *s, const trmi_pipe_row *row, trmi_runs **out) {
    trmi_pipe_found *f = s->found;
    int32_t known = find_space(s, row);
    if (known >= 0) {
        *out = s->runs[known];
        return TRM_OK;
    }
    trmi_space **space = &f->spaces[f->spaces_count];
    TRMI_TRY(s->o->make_space(s->o->context, &row->mesh, row->shape.micros, row->shape.recompute,
                              space, s->err));
    trmi_runs *runs = s->runs[f->spaces_count++] = trmi_arena_alloc(s->arena, sizeof *runs);
    if (runs == NULL) {
        return no_memory(s);
    }
    *runs = (trmi_runs){.space = *space,
                        .micros = row->shape.micros,
                        .recompute = row->shape.recompute,
                        .handover = s->o->costs.handover,
                        .operator_bound = trmi_space_operator_bound(*space)};
    *out = runs;
    return TRM_OK;
}

/* Gives the space of a row its edges, and its runs their cuts. */
static trm_status connect_space(searching *s, const trmi_pipe_row *row, trmi_runs *runs) {
    int32_t begins[TRMI_VIRTUAL_STAGES_MAX], count = 0;
    trmi_space *space = s->found->spaces[find_space(s, row)];
    if (runs->cuts != NULL) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_space_connect(space, s->err));
    if (s->o->begins != NULL) {
        TRMI_TRY(trmi_pipe_begins(space, s->o->begins, begins, &count, s->err));
    }
    TRMI_TRY(trmi_runs_open(runs, s->o->begins != NULL ? begins : NULL, count, s->arena, s->err));
    runs->limit = s->o->costs.memory_bytes;
    return TRM_OK;
}

/* ---- one row --------------------------------------------------------------------------------- */

/* One row while it is searched. */
typedef struct row_search {
    searching *s;
    trmi_runs *runs;
    trmi_pipe_row *row;
    double overhead; /* seconds of its steps beside work: trmi_pipe_overhead */
} row_search;

/* Where the strategies of a plan come from: the least seconds of each run in a step; those of one
 * micro-batch, gradients and update for stage 0; the least of all runs as one, which prices what
 * crosses from one to the next. */
enum { OF_RUNS, OF_FIRST, OF_WHOLE, VARIANTS };

/* Fills in the plan of a cut. */
static trm_status make_plan(const row_search *r, const trmi_pipe_cut *cut, int variant,
                            trmi_pipe_plan *out, trmi_arena *arena) {
    searching *s = r->s;
    const trmi_space *space = r->runs->space;
    const trmi_pipe_shape *shape = &r->row->shape;
    int32_t count = shape->stages * shape->chunks;
    *out = (trmi_pipe_plan){.shape = *shape, .space = space};
    out->begins = trmi_arena_alloc(arena, (size_t)count * sizeof *out->begins);
    if (out->begins == NULL || !trmi_choice_open(&out->choice, space, arena)) {
        return no_memory(s);
    }
    for (int32_t v = 0; v < count; v++) {
        int32_t begin = r->runs->cuts[cut->at[v]], end = r->runs->cuts[cut->at[v + 1]];
        const trmi_least_run *least;
        out->begins[v] = begin;
        bool whole = variant == OF_WHOLE;
        /* Take the cuts of this run: its own best ones, or those of the whole graph. */
        const trmi_run_ask ask = {
            .a = whole ? 0 : cut->at[v],
            .b = whole ? r->runs->cuts_count - 1 : cut->at[v + 1],
            .least = variant == OF_FIRST && v == 0 ? TRMI_LEAST_LAST : TRMI_LEAST_STEP,
            .memory = whole ? (trmi_run_memory){0} : trmi_cut_memory(r->runs, shape, v)};
        TRMI_TRY(trmi_runs_least(r->runs, &ask, &least, s->err));
        size_t nodes = (size_t)(end - begin);
        int32_t from = whole ? begin : 0;
        memcpy(out->choice.strategy + begin, least->choice.strategy + from,
               nodes * sizeof *out->choice.strategy);
        memcpy(out->choice.stores + begin, least->choice.stores + from, nodes);
        memcpy(out->choice.again + begin, least->choice.again + from, nodes);
    }
    return trmi_pipe_measure(&s->o->costs, out, arena, s->err);
}

/* Returns whether a plan is better than the row's. */
static bool is_better(const trmi_pipe_row *row, const trmi_pipe_plan *plan) {
    const trmi_pipe_plan *own = &row->plan;
    return own->space == NULL || (plan->fits && !own->fits) ||
           (plan->fits == own->fits &&
            (plan->fits ? plan->step < own->step : plan->bytes < own->bytes));
}

/* Prices one variant of a cut's plan, and keeps it if it is better. *out: its staging, [stages],
 * and whether it fits. */
static trm_status price_variant(const row_search *r, const trmi_pipe_cut *cut, int variant,
                                double *staging, bool *fits) {
    trmi_arena scratch = {0};
    trmi_pipe_plan plan;
    trm_status status = make_plan(r, cut, variant, &plan, &scratch);
    bool better = status == TRM_OK && is_better(r->row, &plan);
    *fits = status == TRM_OK && plan.fits;
    for (int32_t i = 0; status == TRM_OK && i < plan.shape.stages; i++) {
        staging[i] = plan.ranks[i].staging_bytes;
    }
    trmi_arena_free(&scratch);
    TRMI_TRY(status);
    return better ? make_plan(r, cut, variant, &r->row->plan, r->s->arena) : TRM_OK;
}

/* Implements trmi_cut_visit.price: keeps the better plan. What runs do not count, messages and
 * inputs, is reserved where the plan does not fit without that: half of it, then all. */
static trm_status price_cut(void *context, const trmi_pipe_cut *cut, double *ceiling,
                            trm_error *err) {
    const row_search *r = context;
    searching *s = r->s;
    double staging[TRMI_STAGES_MAX], ignored[TRMI_STAGES_MAX];
    bool fits, others;
    (void)err;
    TRMI_TRY(price_variant(r, cut, OF_RUNS, staging, &fits));
    for (int half = 1; half <= 2 && !fits; half++) {
        for (int32_t i = 0; i < r->row->shape.stages; i++) {
            r->runs->reserved[i] = staging[i] * half / 2;
        }
        trm_status status = price_variant(r, cut, OF_RUNS, ignored, &fits);
        memset(r->runs->reserved, 0, sizeof r->runs->reserved);
        TRMI_TRY(status);
    }
    TRMI_TRY(price_variant(r, cut, OF_FIRST, ignored, &others));
    TRMI_TRY(price_variant(r, cut, OF_WHOLE, ignored, &others));
    s->best = r->row->plan.fits ? fmin(s->best, r->row->plan.step) : s->best;
    *ceiling = fmin(*ceiling, fmin(s->best, s->o->known) - r->overhead);
    return TRM_OK;
}

/* Returns whether a row's bound is not below the best plan that is known, by the margin at
 * least. */
static bool is_hopeless(const searching *s, const trmi_pipe_row *row) {
    return row->bound >= fmin(s->best, s->o->known) * (1 - s->o->margin) * (1 + 1e-9);
}

/* Searches one row. Its operators by themselves give a first lower bound, by which most rows are
 * skipped, and the quick cut a second one and a first plan; its price, or the best of other rows,
 * is the ceiling above which the full search looks no further. */
static trm_status search_row(searching *s, trmi_pipe_row *row, bool quick) {
    trmi_pipe_cut cut;
    double ceiling = INFINITY;
    row_search r = {
        .s = s, .row = row, .overhead = trmi_pipe_overhead(&s->o->costs, row->shape.stages)};
    int32_t count = row->shape.stages * row->shape.chunks;
    TRMI_TRY(open_space(s, row, &r.runs));
    row->bound = fmax(row->bound,
                      trmi_cut_bound(&row->shape, r.runs->operator_bound, 0, s->o->costs.crowding) +
                          r.overhead);
    if (quick && is_hopeless(s, row)) {
        return TRM_OK;
    }
    TRMI_TRY(connect_space(s, row, r.runs));
    s->found->most_stages = r.runs->cuts_count - 1 > s->found->most_stages ? r.runs->cuts_count - 1
                                                                           : s->found->most_stages;
    if (r.runs->cuts_count - 1 < count ||
        (s->o->begins != NULL && r.runs->cuts_count - 1 != count)) {
        row->bound = INFINITY; /* fewer runs than stages */
        return TRM_OK;
    }
    int64_t before = r.runs->solves;
    TRMI_TRY(trmi_cut_find(r.runs, &s->o->costs, &row->shape, true, INFINITY, NULL, &cut, s->err));
    row->bound = fmax(row->bound, cut.bound + r.overhead);
    if (!quick) { /* the plan of the quick cut is the first ceiling */
        TRMI_TRY(price_cut(&r, &cut, &ceiling, s->err));
        bool crowded = s->o->costs.crowding > 1 && r.runs->cuts_count > MANY_CUTS;
        const trmi_cut_visit visit = {price_cut, &r, crowded ? CROWDED_CUTS : MOST_CUTS};
        ceiling = fmin(s->best, s->o->known) - r.overhead;
        TRMI_TRY(
            trmi_cut_find(r.runs, &s->o->costs, &row->shape, false, ceiling, &visit, &cut, s->err));
        row->bound = fmax(row->bound, cut.bound + r.overhead);
        row->few_cuts = crowded && cut.bound < ceiling;
    }
    if (row->plan.space != NULL && row->plan.fits) {
        row->bound = fmin(row->bound, row->plan.step);
    }
    s->found->solves += r.runs->solves - before;
    return TRM_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Compares rows by bound. */
static int by_bound(const void *a, const void *b) {
    const trmi_pipe_row *x = a, *y = b;
    return (x->bound > y->bound) - (x->bound < y->bound);
}

/* Compares rows for reports: plans that fit by their step, before rows without a plan by their
 * bound. */
static int by_step(const void *a, const void *b) {
    const trmi_pipe_row *x = a, *y = b;
    bool has = x->plan.space != NULL && x->plan.fits, other = y->plan.space != NULL && y->plan.fits;
    if (has != other) {
        return has ? -1 : 1;
    }
    double p = has ? x->plan.step : x->bound, q = has ? y->plan.step : y->bound;
    return (p > q) - (p < q);
}

/* Frees the space that the rows [first, end) share if all of them are hopeless: many meshes are
 * priced, few are searched. It is made again if it is needed after all. */
static void close_hopeless(searching *s, int32_t first, int32_t end) {
    trmi_pipe_found *f = s->found;
    int32_t at = find_space(s, &f->rows[first]), last = f->spaces_count - 1;
    for (int32_t i = first; i < end; i++) {
        if (!is_hopeless(s, &f->rows[i]) || f->rows[i].plan.space != NULL) {
            return;
        }
    }
    if (at >= 0) {
        trmi_runs_close(s->runs[at]);
        trmi_space_destroy(f->spaces[at]);
        s->runs[at] = s->runs[last];
        f->spaces[at] = f->spaces[last];
        f->spaces[last] = NULL;
        s->runs[last] = NULL;
        f->spaces_count--;
    }
}

/* Returns whether two rows have the same space of one micro-batch, which is then built once. */
static bool share_space(const trmi_pipe_row *a, const trmi_pipe_row *b) {
    return a->shape.micros == b->shape.micros && a->shape.recompute == b->shape.recompute &&
           memcmp(&a->mesh, &b->mesh, sizeof a->mesh) == 0;
}

/* Searches all rows twice: quickly, for bounds that sort them and rule many out; then exactly, best
 * bound first, as long as a row's bound is below the best plan. Leaves the rows sorted by step. */
static trm_status search_rows(searching *s) {
    trmi_pipe_found *f = s->found;
    f->spaces = trmi_alloc((size_t)f->count * sizeof(trmi_space *));
    s->runs = trmi_arena_alloc(s->arena, (size_t)f->count * sizeof(trmi_runs *));
    if (f->spaces == NULL || s->runs == NULL) {
        return no_memory(s);
    }
    /* A quick search frees spaces of rows that cannot win as soon as no row needs them. */
    for (int32_t i = 0, first = 0; i < f->count; i++) {
        TRMI_TRY(search_row(s, &f->rows[i], true));
        if (i + 1 == f->count || !share_space(&f->rows[i], &f->rows[i + 1])) {
            close_hopeless(s, first, i + 1);
            first = i + 1;
        }
    }
    /* search the rows exactly, from the least bound on, until no row can be faster */
    qsort(f->rows, (size_t)f->count, sizeof *f->rows, by_bound);
    for (int32_t i = 0; i < f->count; i++) {
        if (f->rows[i].bound < INFINITY && (!is_hopeless(s, &f->rows[i]) || i == 0)) {
            TRMI_TRY(search_row(s, &f->rows[i], false));
        }
    }
    /* no plan of any row is faster than the least bound */
    f->lower_bound = INFINITY;
    for (int32_t i = 0; i < f->count; i++) {
        f->lower_bound = fmin(f->lower_bound, f->rows[i].bound);
    }
    qsort(f->rows, (size_t)f->count, sizeof *f->rows, by_step);
    return TRM_OK;
}

/* Contract in pipeline_search.h. `known`: seconds of a plan that is known already; rows whose bound
 * is above it are not searched. */
trm_status trmi_pipe_search(const trmi_pipe_options *options, trmi_arena *arena,
                            trmi_pipe_found *out, trm_error *err) {
    trm_error own;
    double begin = trmi_os_now();
    *out = (trmi_pipe_found){.lower_bound = INFINITY};
    searching s = {.o = options,
                   .found = out,
                   .arena = arena,
                   .best = INFINITY,
                   .err = err != NULL ? err : &own};
    trmi_pipe_options settled = *options;
    settled.known = options->known > 0 ? options->known : INFINITY;
    s.o = &settled;
    trm_status status = list_rows(&s);
    status = status == TRM_OK ? search_rows(&s) : status;
    for (int32_t i = 0; i < out->spaces_count && s.runs[i] != NULL; i++) {
        trmi_runs_close(s.runs[i]);
    }
    out->seconds = trmi_os_now() - begin;
    if (status != TRM_OK) {
        trmi_pipe_found_free(out);
    }
    return status;
}

void trmi_pipe_found_free(trmi_pipe_found *found) {
    for (int32_t i = 0; i < found->spaces_count; i++) {
        trmi_space_destroy(found->spaces[i]);
    }
    trmi_free(found->spaces);
    *found = (trmi_pipe_found){.lower_bound = INFINITY};
}
