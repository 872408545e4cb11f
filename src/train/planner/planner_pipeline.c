/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with stages: the search over stages and all other axes (plan/search/pipeline_search.h) with
 * the costs of the planner, and its result as a plan.
 *
 *      global batch / micro-batches --> graph of one micro-batch --> space on the mesh of a stage
 *      links between ranks of neighbouring stages                 --> seconds of messages
 *      best plan of all shapes beside the plan without stages      --> the planner's plan */
#include "train/planner/planner.h"

#include "base/error.h"
#include "exec/backend.h"
#include "exec/exec_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages -------------------------------------------------------------------------------- */

/* Returns the seconds of a message between ranks of two stages: an exchange in pairs over the level
 * of the machine that contains both. */
static double message_seconds(void *context, int32_t stages, int32_t from, int32_t to,
                              double bytes) {
    trm_planner *p = context;
    trmi_planner_pipe *pipe = &p->pipe;
    int32_t inner = p->ranks / stages, far = abs(from - to);
    pipe->pairs = (trmi_mesh){.axes = 2, .size = {2, inner * far}};
    if (inner * far == 1) {
        pipe->pairs.axes = 1;
    }
    return trmi_links_seconds(pipe->links, TRMI_MOVE_EXCHANGE, 1, bytes);
}

/* Returns the seconds in which the stages agree once: ranks in the same place of their stages add
 * up a few numbers. */
static double meeting_seconds(void *context, int32_t stages) {
    trm_planner *p = context;
    trmi_planner_pipe *pipe = &p->pipe;
    int32_t inner = p->ranks / stages;
    pipe->pairs = (trmi_mesh){.axes = inner > 1 ? 2 : 1, .size = {stages, inner}};
    return stages > 1 ? trmi_links_seconds(pipe->links, TRMI_MOVE_ALL_REDUCE, 1, sizeof(double))
                      : 0;
}

/* ---- search ---------------------------------------------------------------------------------- */

/* Sets the schedule that the user has chosen; without one, all are searched. */
static trm_status settle_order(const trm_planner *p, trmi_pipe_options *o, trm_error *err) {
    const char *name = p->options.schedule;
    o->one_order = name != NULL;
    for (int i = 0; name != NULL && i <= TRMI_ORDER_INTERLEAVED; i++) {
        if (strcmp(name, trmi_pipeline_order_name((trmi_pipeline_order)i)) == 0) {
            o->order = (trmi_pipeline_order)i;
            return TRM_OK;
        }
    }
    return name == NULL ? TRM_OK
                        : TRMI_FAIL(err, TRM_INVALID,
                                    "schedule '%.40s': 1f1b, gpipe or interleaved expected", name);
}

/* Checks that the options of a pipeline can be together: what no plan has would only be missing
 * from the search. */
static trm_status check_shape(const trm_planner *p, const trmi_pipe_options *o, trm_error *err) {
    char mesh[48];
    int32_t names = 1, inner = o->mesh != NULL ? trmi_mesh_ranks(o->mesh) : 1;
    for (const char *c = o->begins; c != NULL && *c != '\0'; c++) {
        names += *c == ',';
    }
    if (o->one_order && o->order != TRMI_ORDER_INTERLEAVED && o->chunks > 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%d chunks with schedule %s: 1 found in such schedules, "
                         "interleaved expected",
                         o->chunks, p->options.schedule);
    }
    if (o->one_order && o->order == TRMI_ORDER_INTERLEAVED && (o->stages == 1 || o->chunks == 1)) {
        return TRMI_FAIL(err, TRM_INVALID, "schedule interleaved: %s found, 2 or more expected",
                         o->stages == 1 ? "1 stage" : "1 chunk");
    }
    if (o->mesh != NULL && o->stages > 0 && inner * o->stages != p->ranks) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "mesh %s of a stage has %d ranks, so that %d stages have %d: %d ranks "
                         "found (-n); with stages the mesh is that of one stage",
                         trmi_mesh_text(o->mesh, mesh, sizeof mesh), inner, o->stages,
                         inner * o->stages, p->ranks);
    }
    if (o->begins != NULL && o->stages > 0 && (names + 1) % o->stages != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "stages begin with %d operators ('%.80s'), which makes %d runs: a "
                         "multiple of the %d stages expected",
                         names, o->begins, names + 1, o->stages);
    }
    return TRM_OK;
}

/* Sets the options of the search of stages from those of planner and model. */
static trm_status settle_options(trm_planner *p, trmi_pipe_options *o, trm_error *err) {
    const trm_planner_options *from = &p->options;
    const trmi_auto_mesh *plain = trmi_auto_best(&p->drive);
    trmi_planner_pipe *pipe = &p->pipe;
    bool any = from->stages == TRM_ALL;
    *o = (trmi_pipe_options){
        .ranks = p->ranks,
        .batch = p->batch,
        .block = p->model.exec.parallel.block > 0 ? p->model.exec.parallel.block : 1,
        .own_samples = p->model.exec.parallel.batch != TRM_BATCH_OF_JOB,
        .stages = any ? 0 : from->stages,
        .micros = from->micro_batches,
        .chunks = from->chunks,
        .recomputes = p->model.exec.recompute,
        .keeps = !p->model.exec.recompute && p->model.exec.memory_bytes == 0,
        .begins = from->stage_begins,
        .costs = {.message = message_seconds,
                  .meeting = meeting_seconds,
                  .context = p,
                  .handover = trmi_links_handover(&p->links, p->ranks),
                  .overhead = p->links.overhead,
                  .crowding = trmi_planner_crowding(p),
                  .memory_bytes = (double)p->model.exec.memory_bytes},
        .make_space = trmi_planner_micro_space,
        .context = p,
        .known = any && !plain->found.infeasible ? plain->found.objective : 0,
        /* where ranks share cores all rows take nearly as long, the mean of the work
         * (trmi_pipe_gap_reason has this number, too) */
        .margin = trmi_planner_crowding(p) > 1 ? 1e-3 : 0};
    if (p->model.exec.parallel.split.mesh != NULL) {
        o->mesh = &pipe->inner;
        TRMI_TRY(trmi_mesh_parse(p->model.exec.parallel.split.mesh, &pipe->inner, err));
    }
    TRMI_TRY(settle_order(p, o, err));
    return check_shape(p, o, err);
}

/* Returns whether the best plan with stages keeps the limit, also when it is compiled. */
static bool fits_compiled(const trm_planner *p) {
    double limit = (double)p->model.exec.memory_bytes;
    return p->pipe.found.rows[0].plan.fits && (limit <= 0 || p->pipe.compiled_bytes <= limit);
}

/* Fills in the plan on its space, as reports of plans without stages have it. */
static trm_status describe_choice(trm_planner *p, const trmi_pipe_plan *plan, trm_error *err) {
    trmi_planner_pipe *pipe = &p->pipe;
    pipe->mesh =
        (trmi_auto_mesh){.mesh = plan->space->mesh, .space = (trmi_space *)(uintptr_t)plan->space};
    trmi_found *f = &pipe->mesh.found;
    TRMI_TRY(TRMI_NEW_IN(err, &p->arena, f->runners, (size_t)plan->space->nodes_count + 1,
                         "for the report"));
    for (int32_t n = 0; n < plan->space->nodes_count; n++) {
        f->runners[n] = (trmi_runner_up){-1, INFINITY};
    }
    TRMI_TRY(trmi_space_measure(plan->space, &plan->choice, &f->best.measure, err));
    f->best.name = "stages";
    f->best.choice = plan->choice;
    f->best.fits = fits_compiled(p);
    f->best.measure.step = f->objective = plan->step;
    f->best.measure.bytes = plan->bytes;
    f->lower_bound = pipe->lower_bound;
    f->solves = (int32_t)pipe->found.solves;
    f->infeasible = !f->best.fits;
    return TRM_OK;
}

/* Compiles each stage of the best plan; an error, or many ranks, only leave compiled_bytes at 0. */
static void compile_stages(trm_planner *p) {
    trmi_planner_pipe *pipe = &p->pipe;
    const trmi_pipe_plan *plan = &pipe->found.rows[0].plan;
    const trmi_micro_graph *graph;
    trm_error no;
    pipe->compiled_bytes = 0;
    if (plan->space == NULL || plan->shape.stages < 2 || p->ranks > TRMI_COMPILED_RANKS ||
        trmi_planner_micro(p, plan->shape.micros, &graph, &no) != TRM_OK) {
        return;
    }
    for (int32_t s = 0; s < plan->shape.stages; s++) {
        double bytes;
        if (trmi_planner_stage_compiled(p, graph, plan, s, &bytes, &no) != TRM_OK) {
            pipe->compiled_bytes = 0;
            return;
        }
        pipe->compiled_bytes = fmax(pipe->compiled_bytes, bytes);
    }
}

/* Measures the operators of the best plans of different shapes, each on the shapes of its
 * micro-batches; adds the number of new costs to *news. */
static trm_status measure_plans(trm_planner *p, int32_t *news, trm_error *err) {
    enum { MOST = 4 };
    const trmi_pipe_found *found = &p->pipe.found;
    trm_status status = TRM_OK;
    for (int32_t i = 0, count = 0; i < found->count && count < MOST && status == TRM_OK; i++) {
        const trmi_pipe_plan *plan = &found->rows[i].plan;
        bool near = plan->step <= found->rows[0].plan.step * (1 + TRMI_TIES_BAND);
        if (plan->space != NULL && (i == 0 || near)) {
            p->probe.micros = plan->shape.micros;
            status = trmi_costs_measure(&p->costs, plan->space, &plan->choice, news, err);
            p->probe.micros = 0;
            count++;
        }
    }
    return status;
}

/* Returns whether the fastest plan with stages is faster than the best one without by what
 * options.stages_gain asks, or the latter does not fit the memory. */
static bool is_faster_with_stages(const trm_planner *p) {
    const trmi_pipe_plan *best = &p->pipe.found.rows[0].plan;
    const trmi_found *plain = &trmi_auto_best(&p->drive)->found;
    return best->space != NULL && (p->options.stages != TRM_ALL || plain->infeasible ||
                                   best->step < plain->objective * (1 - p->options.stages_gain));
}

/* Searches, measures what the best plans need, and searches again. Stages have as much time to
 * measure as plans without them had; those that do not gain are not measured. */
static trm_status search_measured(trm_planner *p, const trmi_pipe_options *o, trm_error *err) {
    enum { ROUNDS = 4 };
    trmi_planner_pipe *pipe = &p->pipe;
    double limit = p->costs.limit_seconds;
    trm_status status = TRM_OK;
    p->costs.limit_seconds += p->costs.spent_seconds;
    for (int round = 0; round < ROUNDS && status == TRM_OK; round++) {
        int32_t news = 0;
        trmi_pipe_found_free(&pipe->found);
        status = trmi_pipe_search(o, &p->arena, &pipe->found, err);
        if (status != TRM_OK || p->costs.probe == NULL ||
            (p->options.stages_gain > 0 && !is_faster_with_stages(p))) {
            break;
        }
        status = measure_plans(p, &news, err);
        if (news == 0) {
            break;
        }
    }
    p->costs.limit_seconds = limit;
    return status;
}

/* Sets the bound after something was kept off the limit: a program takes at least what the search
 * counts, so that no plan whose program keeps the limit is below the bound of the whole limit. */
static trm_status find_whole_limit_bound(trm_planner *p, trmi_pipe_options *o, double limit,
                                         trm_error *err) {
    const double within = o->costs.memory_bytes, known = o->known;
    trmi_pipe_found whole;
    o->costs.memory_bytes = limit;
    const trmi_pipe_plan *plan = &p->pipe.found.rows[0].plan;
    if (plan->space != NULL && plan->fits) { /* no plan above this one has to be searched */
        o->known = known > 0 ? fmin(known, plan->step) : plan->step;
    }
    trm_status status = trmi_pipe_search(o, &p->arena, &whole, err);
    o->costs.memory_bytes = within;
    o->known = known;
    TRMI_TRY(status);
    p->pipe.whole_limit = whole.lower_bound < p->pipe.found.lower_bound;
    p->pipe.found.lower_bound = fmin(whole.lower_bound, p->pipe.found.lower_bound);
    trmi_pipe_found_free(&whole);
    return TRM_OK;
}

/* Searches until the compiled program of the best plan fits the limit: what it needs beyond what
 * the search counts is kept off the limit. */
static trm_status search_within(trm_planner *p, trmi_pipe_options *o, trm_error *err) {
    enum { ROUNDS = 5 };
    trmi_planner_pipe *pipe = &p->pipe;
    double limit = o->costs.memory_bytes;
    for (int round = 0; round < ROUNDS; round++) {
        TRMI_TRY(search_measured(p, o, err));
        compile_stages(p);
        const trmi_pipe_plan *plan = &pipe->found.rows[0].plan;
        double beyond = pipe->compiled_bytes - plan->bytes;
        if (limit <= 0 || plan->space == NULL || !plan->fits || pipe->compiled_bytes <= limit ||
            beyond <= limit - o->costs.memory_bytes || beyond >= limit) {
            break;
        }
        o->costs.memory_bytes = limit - beyond - 1e-3 * round * limit;
    }
    return o->costs.memory_bytes < limit ? find_whole_limit_bound(p, o, limit, err) : TRM_OK;
}

/* Contract in planner.h. Prices messages between stages by a mesh of pairs of ranks, searches all
 * shapes that the options allow, and chooses stages only if they are faster than the best plan
 * without and fit. */
trm_status trmi_planner_search_stages(trm_planner *p, trm_error *err) {
    trmi_planner_pipe *pipe = &p->pipe;
    trmi_pipe_options o;
    bool whole = p->options.stages_gain > 0 && p->whole->segments_count == 0; /* no blocks */
    if (p->options.stages == 0 || p->ranks < 2 || whole) {
        return TRM_OK;
    }
    TRMI_TRY(TRMI_NEW_IN(err, &p->arena, pipe->links, 1, "to search stages"));
    *pipe->links = p->links;
    pipe->links->mesh = &pipe->pairs;
    TRMI_TRY(settle_options(p, &o, err));
    TRMI_TRY(trmi_planner_measure_given(p, err));
    TRMI_TRY(search_within(p, &o, err));
    pipe->searched = true;
    TRMI_TRY(trmi_planner_price_given(p, &o.costs, err));
    if (o.begins != NULL) { /* the same shapes with any cut, to compare */
        o.begins = NULL;
        TRMI_TRY(trmi_pipe_search(&o, &p->arena, &pipe->freed, err));
    }
    const trmi_pipe_plan *best = &pipe->found.rows[0].plan;
    bool any = p->options.stages == TRM_ALL;
    /* With any number of stages the bound is over plans with and without. */
    pipe->lower_bound = pipe->found.lower_bound;
    if (any && !trmi_auto_best(&p->drive)->found.infeasible) {
        pipe->lower_bound = fmin(pipe->lower_bound, trmi_auto_bound(&p->drive));
    }
    if (best->space == NULL && !any) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "no plan of %d stages: the model has %d runs of operators between which one value "
            "crosses; at most as many stages are expected",
            p->options.stages, pipe->found.most_stages);
    }
    pipe->chosen = is_faster_with_stages(p) && (!any || fits_compiled(p));
    return pipe->chosen ? describe_choice(p, best, err) : TRM_OK;
}

/* ---- result ---------------------------------------------------------------------------------- */

/* Frees what the search over stages has made: results before the graphs to which they point. */
void trmi_planner_free_stages(trm_planner *p) {
    trmi_planner_pipe *pipe = &p->pipe;
    trmi_pipe_found_free(&pipe->found);
    trmi_pipe_found_free(&pipe->freed);
    trmi_space_destroy(pipe->given_space);
    trmi_partition_plan_destroy(pipe->file);
    for (int32_t i = 0; i < pipe->graphs_count; i++) {
        trm_graph_destroy(pipe->graphs[i].forward);
        trm_graph_destroy(pipe->graphs[i].training);
    }
}
