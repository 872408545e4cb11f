/* The planner behind `plan -n`: meshes, costs, search, the plans beside the best, from options to a report. */
#include "train/planner.h"

#include "base/error.h"
#include "base/os.h"
#include "exec/limit.h"
#include "train/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4, LIMIT_ROUNDS = 12, COMPILED_RANKS = 64 };

/* ---- search ---------------------------------------------------------------------------------------------- */

/* Ranks that share cores slow each other down; another machine has its own speed. */
static void settle_factor(trm_planner *p) {
    trmi_links *l = &p->links;
    double load = l->cores > 0 ? (double)p->ranks * p->costs.threads / l->cores : 1;
    p->costs.factor = fmax(1, load) / (l->speed > 0 ? l->speed : 1);
}

static trm_status search_mesh(trm_planner *p, trmi_planned_mesh *m, bool frontier, trm_error *err) {
    trmi_space_destroy(m->space);
    m->space = NULL;
    TRMI_TRY(trmi_planner_space(p, p->graph, &m->mesh, &m->space, err));
    trmi_choice own, *given = NULL;
    if (p->given != NULL && trmi_choice_open(&own, m->space, &p->arena)) {
        TRMI_TRY(trmi_space_choice(m->space, p->given, &own, err));
        given = &own;
    }
    const trmi_search_options options = {.mode = p->mode, .memory_bytes = trmi_planner_limit(p), .frontier = frontier, .own = given, .take = m->taken};
    return trmi_search(m->space, &options, &p->arena, &m->found, err);
}

static void choose_mesh(trm_planner *p) {
    for (int32_t i = 0; i < p->meshes_count; i++) {
        const trmi_found *a = &p->meshes[i].found, *b = &p->meshes[p->best].found;
        bool fits = b->infeasible && !a->infeasible;
        bool better = a->infeasible == b->infeasible &&
                      (a->infeasible ? a->best.measure.bytes < b->best.measure.bytes : a->objective < b->objective * (1 - 1e-9));
        p->best = fits || better ? i : p->best;
    }
}

static trm_status search_meshes(trm_planner *p, trm_error *err) {
    double begin = trmi_os_now();
    for (int32_t i = 0; i < p->meshes_count; i++) {
        TRMI_TRY(search_mesh(p, &p->meshes[i], false, err));
    }
    choose_mesh(p);
    p->search_seconds = trmi_os_now() - begin;
    return TRM_OK;
}

static void compile_best(trm_planner *p) {
    trm_error no;
    const trmi_planned_mesh *best = trmi_planner_best(p);
    bool compiled = p->ranks > 1 && p->ranks <= COMPILED_RANKS &&
                    trmi_planner_compiled(p, best->space, &best->found.best.choice, &p->compiled_bytes, &no) == TRM_OK;
    p->compiled_bytes = compiled ? p->compiled_bytes : 0;
}

/* The search counts what is kept; a program also has what lives for a moment. What it takes beyond is kept off the limit. */
static trm_status respect_limit(trm_planner *p, trm_error *err) {
    double limit = (double)p->options.memory_bytes;
    for (int i = 0; i < LIMIT_ROUNDS && limit > 0; i++) {
        compile_best(p);
        const trmi_found *f = &trmi_planner_best(p)->found;
        double beyond = p->compiled_bytes - f->best.measure.bytes;
        if (p->compiled_bytes <= limit || f->infeasible || beyond <= p->beyond) {
            break;
        }
        p->beyond = beyond + 1e-3 * i * limit; /* other plans take a little more than the last one */
        TRMI_TRY(search_meshes(p, err));
    }
    return TRM_OK;
}

/* Searches, measures what the found plans and data parallel use, searches again. */
static trm_status search(trm_planner *p, trm_error *err) {
    bool measure = p->costs.probe != NULL;
    for (p->rounds = 1;; p->rounds++) {
        int32_t news = 0;
        TRMI_TRY(search_meshes(p, err));
        const trmi_found *first = &p->meshes[0].found;
        if (measure && p->probe.footprint == 0 && first->baselines_count > 0) { /* set once: a rank's data-parallel step */
            p->probe.footprint = (int64_t)first->baselines[0].measure.bytes;
            p->costs.limit_seconds = trmi_costs_limit(&p->costs, p->options.measure_seconds, first->baselines[0].measure.step);
        }
        for (int32_t i = 0; measure && i < p->meshes_count; i++) {
            const trmi_planned_mesh *m = &p->meshes[i];
            TRMI_TRY(trmi_costs_measure(&p->costs, m->space, &m->found.best.choice, &news, err));
            TRMI_TRY(trmi_costs_measure(&p->costs, m->space, &m->found.baselines[0].choice, &news, err));
        }
        if (news == 0 || p->rounds == ROUNDS) {
            break;
        }
    }
    TRMI_TRY(respect_limit(p, err));
    return p->options.no_frontier ? TRM_OK : search_mesh(p, &p->meshes[p->best], true, err);
}

/* ---- options ------------------------------------------------------------------------------------------------ */

static trm_status settle_meshes(trm_planner *p, trm_error *err) {
    trmi_mesh list[TRMI_MESH_LIST];
    int32_t hosts = p->options.hosts > 0 ? p->options.hosts : 1, count = 1;
    const char *text = p->options.mesh;
    if (p->given != NULL && text == NULL) {
        list[0] = p->given->mesh;
    } else if (text != NULL) {
        TRMI_TRY(trmi_mesh_parse(text, &list[0], err));
        TRMI_TRY(p->given != NULL ? trmi_shard_plan_on(p->given, &list[0], err) : TRM_OK);
    } else if (p->options.ranks < 1 || p->options.ranks % hosts != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%d ranks do not divide among %d hosts", (int)p->options.ranks, (int)hosts);
    } else {
        count = trmi_mesh_list(hosts, p->options.ranks / hosts, list);
    }
    p->ranks = trmi_mesh_ranks(&list[0]);
    if (p->options.ranks > 0 && p->ranks != p->options.ranks) {
        return TRMI_FAIL(err, TRM_INVALID, "mesh %s has %d ranks, %d are asked for", text != NULL ? text : "of the plan",
                         (int)p->ranks, (int)p->options.ranks);
    }
    p->meshes = trmi_arena_alloc(&p->arena, ((size_t)count + 1) * sizeof *p->meshes);
    if (p->meshes == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to plan");
    }
    for (int32_t i = 0; i < count; i++) {
        if (list[i].axes <= 3 || count == 1) { /* four axes are for those who ask */
            p->meshes[p->meshes_count++].mesh = list[i];
        }
    }
    return TRM_OK;
}

static void settle_threads(trm_planner *p, int *threads, int *together) {
    int cpus = p->probe.cores;
    *threads = p->model.threads;
    if (p->options.links == NULL) {
        p->links.cores = cpus;
    }
    if (*threads == 0) {
        *threads = p->links.cores > 0 ? (int)fmax(1, cpus / p->ranks) : cpus;
    }
    *together = p->links.cores > 0 ? (int)fmin((double)p->ranks * *threads, p->links.cores) : *threads;
}

/* Who measures: the ranks of the communicator, or this process; nobody where rates are given. */
static trm_status settle_costs(trm_planner *p, trm_error *err) {
    const trm_planner_options *o = &p->options;
    int threads, together;
    settle_threads(p, &threads, &together);
    p->probe = (trmi_probe){.comm = o->comm, .graph = p->graph, .backend = p->model.backend, .tuning_file = p->model.tuning_file,
                            .threads = threads, .cores = p->probe.cores, .optimizer = p->model.optimizer, .load = 1,
                            .whole = p->whole, .whole_options = &p->whole_options, .limit = o->memory_bytes};
    const trmi_costs_options options = {.probe = o->no_measure || p->links.flops > 0 ? NULL : &p->probe, .refresh = o->refresh,
                                        .backend = p->model.backend, .tuning_file = p->model.tuning_file, .threads = threads,
                                        .together = together, .ranks = o->comm != NULL ? trm_comm_size(o->comm) : 1};
    TRMI_TRY(trmi_costs_open(&p->costs, &options, err));
    p->costs.limit_seconds = o->measure_seconds > 0 ? o->measure_seconds : p->costs.limit_seconds;
    if (p->costs.probe == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_probe_load(&p->probe, err));
    if (o->links == NULL && o->comm != NULL && trm_comm_size(o->comm) > 1) {
        TRMI_TRY(trmi_costs_links(&p->costs, &p->links_text, err));
        TRMI_TRY(trmi_links_parse(p->links_text, &p->links, err));
    }
    return TRM_OK;
}

static trm_status settle(trm_planner *p, trm_error *err) {
    const trm_planner_options *o = &p->options;
    TRMI_TRY(trmi_search_mode_parse(o->search, &p->mode, err));
    if (o->plan != NULL) {
        TRMI_TRY(trmi_shard_plan_parse(o->plan, strlen(o->plan), "the given plan", &p->given, err));
    }
    TRMI_TRY(settle_meshes(p, err));
    if (o->comm != NULL && trm_comm_size(o->comm) != p->ranks) {
        return TRMI_FAIL(err, TRM_INVALID, "%d ranks are planned for, %d would measure", (int)p->ranks, (int)trm_comm_size(o->comm));
    }
    trmi_links_local(&p->links, p->ranks);
    if (o->links != NULL) {
        TRMI_TRY(trmi_links_parse(o->links, &p->links, err));
    }
    p->slots = trmi_optimizer_slots(&p->model.optimizer);
    trm_batch_field first;
    TRMI_TRY(trm_dataset_check(p->model.data, err));
    if (!trm_dataset_field(p->model.data, 0, &first) || first.tensor.shape.rank < 1) {
        return TRMI_FAIL(err, TRM_INVALID, "the dataset has no fields");
    }
    p->batch = first.tensor.shape.dim[0] * (p->options.full_batch ? 1 : p->ranks);
    return TRM_OK;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

static trm_status list_others(trm_planner *p, trm_error *err) {
    const trmi_planned_mesh *m = trmi_planner_best(p);
    int32_t wanted = p->options.others < TRMI_CANDIDATES ? p->options.others : TRMI_CANDIDATES;
    return wanted > 0 ? trmi_search_others(m->space, &m->found, wanted, &p->arena, p->others, &p->others_count, err) : TRM_OK;
}

/* Other plans to try; what they use is measured too, and they are judged by it. As they will run twice, with time between, all that
 * was measured is measured a second time: a machine that others disturb is not the same for long. */
static trm_status find_others(trm_planner *p, trm_error *err) {
    int32_t news = 0;
    for (int round = 0; round < 3 && p->options.others > 0; round++) {
        p->costs.look = round > 0 && p->costs.refresh;
        const trmi_planned_mesh *m = trmi_planner_best(p);
        TRMI_TRY(list_others(p, err));
        for (int32_t i = 0; p->costs.probe != NULL && i < p->others_count; i++) {
            TRMI_TRY(trmi_costs_measure(&p->costs, m->space, &p->others[i].choice, &news, err));
        }
        for (int32_t i = 0; p->costs.probe != NULL && i < m->found.baselines_count; i++) {
            TRMI_TRY(trmi_costs_measure(&p->costs, m->space, &m->found.baselines[i].choice, &news, err));
        }
        if (news == 0) {
            return TRM_OK;
        }
        news = 0;
        TRMI_TRY(search(p, err));
    }
    return list_others(p, err); /* by the costs that count in the end */
}

/* Everything that the ranks do together; the others are released whatever happens. */
static trm_status plan(trm_planner *p, trm_error *err) {
    TRMI_TRY(settle_costs(p, err));
    settle_factor(p);
    TRMI_TRY(search(p, err));
    TRMI_TRY(find_others(p, err));
    TRMI_TRY(trmi_planner_try(p, err));
    const trmi_planned_mesh *m = trmi_planner_best(p);
    if (m->taken == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(search_mesh(p, &p->meshes[p->best], !p->options.no_frontier, err)); /* runners-up and prices beside what is taken */
    return list_others(p, err);
}

static trm_status finish(trm_planner *p, trm_error *err) {
    if (!p->options.no_frontier && p->mode == TRMI_SEARCH_OPTIMAL) {
        TRMI_TRY(trmi_planner_flips(p, err));
    }
    compile_best(p);
    return trmi_planner_best(p)->found.infeasible ? trmi_planner_find_way_out(p, err) : TRM_OK;
}

/* What plans are compiled, and run, with. */
static trm_status settle_whole(trm_planner *p, trm_error *err) {
    const trm_model_options *m = &p->model;
    int threads, together;
    settle_threads(p, &threads, &together);
    p->whole_options = (trm_exec_options){
        .optimizer = m->optimizer, .backend = m->backend, .precision = m->precision, .threads = threads, .seed = 1, .no_fusion = m->no_fusion,
        .tuning_file = m->tuning_file, .accumulate = m->accumulate, .loss_scale = m->loss_scale,
        .parallel = {.shard_optimizer = true, .wire = m->parallel.wire, .sync_batch_norm = m->parallel.sync_batch_norm, .joint = trmi_planner_joint(p)}};
    return trmi_planner_forward(p, p->batch, 0, &p->whole, &p->whole_options.loss, err);
}

trm_status trm_planner_create(const trm_model_options *model, const trm_planner_options *options, trm_planner **out,
                              trm_error *err) {
    double begin = trmi_os_now();
    trm_planner *p = trmi_alloc(sizeof *p);
    if (p == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to plan");
    }
    p->model = *model;
    p->options = *options;
    bool leads = options->comm == NULL || trm_comm_rank(options->comm) == 0;
    trm_status status = trmi_probe_cores(options->comm, &p->probe.cores, err);
    status = status == TRM_OK ? settle(p, err) : status;
    status = status == TRM_OK ? trmi_planner_graph(p, p->batch, 0, &p->graph, err) : status;
    status = status == TRM_OK && p->given != NULL ? trmi_shard_plan_check(p->given, p->graph, p->ranks, err) : status;
    p->classes = status == TRM_OK ? trmi_planner_class_count(p->graph) : 0;
    status = status == TRM_OK ? settle_whole(p, err) : status;
    if (status != TRM_OK) { /* the same on all ranks */
        trm_planner_destroy(p);
        return status;
    }
    if (!leads) {
        int together;
        p->probe = (trmi_probe){.comm = options->comm, .graph = p->graph, .backend = model->backend,
                                .tuning_file = model->tuning_file, .cores = p->probe.cores, .optimizer = model->optimizer,
                                .whole = p->whole, .whole_options = &p->whole_options, .limit = options->memory_bytes};
        settle_threads(p, &p->probe.threads, &together);
        status = trmi_probe_serve(&p->probe, err);
        trm_planner_destroy(p);
        *out = NULL;
        return status;
    }
    status = plan(p, err);
    if (options->comm != NULL) {
        trm_error later;
        trm_status ended = trmi_probe_end(&p->probe, status == TRM_OK ? err : &later);
        status = status == TRM_OK ? ended : status;
    }
    status = status == TRM_OK ? finish(p, err) : status;
    if (status != TRM_OK) {
        trm_planner_destroy(p);
        return status;
    }
    p->total_seconds = trmi_os_now() - begin;
    *out = p;
    return TRM_OK;
}

void trm_planner_destroy(trm_planner *p) {
    if (p == NULL) {
        return;
    }
    for (int32_t i = 0; i < p->meshes_count; i++) {
        trmi_space_destroy(p->meshes[i].space);
    }
    trmi_shard_plan_destroy(p->given);
    trm_graph_destroy(p->graph);
    trm_graph_destroy(p->whole);
    trmi_trial_free(&p->trial);
    trmi_costs_close(&p->costs);
    trmi_probe_close(&p->probe);
    trm_string_free(p->links_text);
    trmi_arena_free(&p->arena);
    trmi_free(p);
}

void trm_planner_describe(const trm_planner *p, trm_planner_info *out) {
    const trmi_planned_mesh *m = trmi_planner_best(p);
    memset(out, 0, sizeof *out);
    trmi_mesh_text(&m->mesh, out->mesh, sizeof out->mesh);
    double bound = m->found.lower_bound;
    for (int32_t i = 0; i < p->meshes_count; i++) {
        bound = fmin(bound, p->meshes[i].found.lower_bound);
        out->solve_seconds += p->meshes[i].found.solve_seconds;
    }
    out->ranks = p->ranks;
    out->infeasible = m->found.infeasible;
    out->step_seconds = m->found.objective;
    out->samples_per_second = (double)p->batch / m->found.objective;
    out->memory_bytes = m->found.best.measure.bytes;
    out->compiled_bytes = p->compiled_bytes;
    out->lower_bound = bound;
    out->gap = (out->step_seconds - bound) / out->step_seconds;
    out->search_seconds = p->search_seconds;
    out->total_seconds = p->total_seconds;
    out->data_parallel_seconds = m->found.baselines_count > 0 ? m->found.baselines[0].measure.step : 0;
    out->tried = p->trial.turns > 0 ? p->trial.count : 0;
    out->tried_within = out->tried > 0 ? p->trial.list[out->tried - 1].predicted / p->trial.list[0].predicted - 1 : 0;
    out->meshes = p->meshes_count;
    out->operators = m->space->nodes_count;
    out->measured = (int32_t)p->costs.count;
}
