/* The planner behind `plan -n`: meshes, costs, search, the plans beside the best, from options to a report. */
#include "train/planner.h"

#include "base/error.h"
#include "base/os.h"
#include "exec/backend.h"
#include "exec/exec_memory.h"
#include "exec/limit.h"
#include "train/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4, LIMIT_ROUNDS = 12, COMPILED_RANKS = 64 };

/* ---- graph --------------------------------------------------------------------------------------------- */

static trm_status take_fields(const trm_planner *p, int64_t batch, trm_inputs *inputs, trm_error *err) {
    TRMI_TRY(trm_dataset_check(p->model.data, err));
    while (inputs->count < TRM_MAX_BATCH_FIELDS &&
           trm_dataset_field(p->model.data, inputs->count, &inputs->fields[inputs->count])) {
        trm_shape *shape = &inputs->fields[inputs->count].tensor.shape;
        if (shape->rank < 1) {
            return TRMI_FAIL(err, TRM_INVALID, "field '%s' has no dimension of samples", inputs->fields[inputs->count].name);
        }
        shape->dim[0] = batch;
        inputs->count++;
    }
    return inputs->count > 0 ? TRM_OK : TRMI_FAIL(err, TRM_INVALID, "the dataset has no fields");
}

/* Fused as the back-end will have it, and differentiated: what the executor will split. */
static trm_status differentiate(const trm_planner *p, const trm_graph *graph, trm_node loss, trm_graph **out, trm_error *err) {
    trmi_target target = {.name = "planner", .threads = p->costs.threads};
    bool fast = p->model.backend == NULL || strcmp(p->model.backend, "ref") != 0;
#ifdef TRIREME_ONEDNN
    target.fuse_norm_act = target.fuse_xent = fast;
#endif
    const trmi_plan_options options = {.target = &target, .loss = loss, .precision = (int32_t)p->model.precision,
                                       .no_fusion = p->model.no_fusion || !fast, .dense_gradients = true,
                                       .factored_gradients = p->model.accumulate <= 1, .local_norms = trmi_planner_local_norms(p)};
    trmi_arena arena = {0};
    trmi_roots roots;
    trm_status status = trmi_shard_graph(graph, &options, out, &roots, &arena, err);
    trmi_arena_free(&arena);
    return status;
}

/* One rank's program of a plan, by the back-end that would run it. */
static trm_status compile_part(const trm_planner *p, const trm_graph *graph, trm_node loss, const trmi_shard_plan *plan,
                               trm_program **out, trm_error *err) {
    trmi_backend *backend;
    bool fast = p->model.backend == NULL || strcmp(p->model.backend, "ref") != 0;
#ifdef TRIREME_ONEDNN
    TRMI_TRY(fast ? trmi_backend_onednn(p->costs.threads, NULL, &backend, err)
                  : trmi_backend_ref(p->costs.threads, &backend, err));
#else
    TRMI_TRY(trmi_backend_ref(p->costs.threads, &backend, err));
    (void)fast;
#endif
    const trmi_plan_options options = {.target = &backend->target, .loss = loss, .precision = (int32_t)p->model.precision,
                                       .no_fusion = p->model.no_fusion, .dense_gradients = true,
                                       .factored_gradients = p->model.accumulate <= 1, .shard = plan,
                                       .local_norms = trmi_planner_local_norms(p)};
    trm_status status = trmi_plan_create(graph, &options, out, err);
    backend->destroy(backend);
    return status;
}

/* `plan` NULL: the training graph; else rank 0's program. */
static trm_status make(const trm_planner *p, int64_t batch, int64_t classes, const trmi_shard_plan *plan, trm_graph **training,
                       trm_program **program, trm_error *err) {
    trm_inputs *inputs = trmi_alloc(sizeof *inputs);
    trm_graph *graph = NULL;
    if (inputs == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to plan");
    }
    trm_status status = trm_graph_create(&(trm_graph_options){.training = true}, &graph, err);
    if (status == TRM_OK) {
        inputs->graph = graph;
        status = take_fields(p, batch, inputs, err);
    }
    if (status == TRM_OK) {
        trm_node logits = p->model.network(graph, inputs, p->model.network_context);
        trm_loss loss = p->model.loss != NULL ? p->model.loss : trm_loss_softmax;
        trm_node value = loss(graph, logits, inputs, p->model.loss_context);
        status = trm_graph_check(graph, err);
        trm_graph *other = NULL;
        if (status == TRM_OK && classes > 0) {
            status = trmi_planner_rescale_classes(graph, classes, &value, &other, err);
        }
        if (other != NULL) {
            trm_graph_destroy(graph);
            graph = other;
        }
        status = status != TRM_OK ? status
                 : plan != NULL   ? compile_part(p, graph, value, plan, program, err)
                                  : differentiate(p, graph, value, training, err);
    }
    trm_graph_destroy(graph);
    trmi_free(inputs);
    return status;
}

trm_status trmi_planner_graph(const trm_planner *p, int64_t batch, int64_t classes, trm_graph **out, trm_error *err) {
    return make(p, batch, classes, NULL, out, NULL, err);
}

trm_status trmi_planner_compiled(const trm_planner *p, const trmi_space *space, const trmi_choice *choice, double *bytes,
                                 trm_error *err) {
    trm_program *program = NULL;
    trmi_shard_plan *plan;
    TRMI_TRY(trmi_space_plan(space, choice, &plan, err));
    trm_status status = make(p, p->batch, 0, plan, NULL, &program, err);
    if (status == TRM_OK) {
        *bytes = (double)trmi_program_resident(program, p->slots, p->ranks, false);
        *bytes += p->model.accumulate > 1 ? (double)trmi_program_arena_resident(program, TRMI_ARENA_GRAD, p->ranks > 1) : 0;
        if (trmi_choice_sliced(space, choice)) {
            size_t slot = (size_t)program->arena_bytes[TRMI_ARENA_PARAM]; /* a slice of it is touched */
            *bytes -= (double)(trmi_map_resident(slot) - trmi_map_resident(slot / (size_t)p->ranks)) * p->slots;
        }
        double wire = trmi_wire_part(p->model.parallel.wire); /* packed gradients have memory of their own */
        *bytes += wire < 1 ? wire * (double)program->arena_bytes[TRMI_ARENA_GRAD] : 0;
    }
    trmi_plan_destroy(program);
    trmi_shard_plan_destroy(plan);
    return status;
}

/* ---- spaces ---------------------------------------------------------------------------------------------- */

/* Ranks that share cores slow each other down; another machine has its own speed. */
static void settle_factor(trm_planner *p) {
    trmi_links *l = &p->links;
    double load = l->cores > 0 ? (double)p->ranks * p->costs.threads / l->cores : 1;
    p->costs.factor = fmax(1, load) / (l->speed > 0 ? l->speed : 1);
}

/* On one host, as a job of these ranks would have it (exec/shard.h). */
static bool has_slices(const trm_planner *p) {
    return p->options.links == NULL && p->options.hosts <= 1 && p->ranks > 1 && p->model.precision == TRM_PRECISION_FP32;
}

trm_status trmi_planner_space(trm_planner *p, const trm_graph *graph, const trmi_mesh *mesh, trmi_space **out,
                              trm_error *err) {
    trmi_mesh *own = trmi_arena_alloc(&p->arena, sizeof *own);
    trmi_links *links = trmi_arena_alloc(&p->arena, sizeof *links);
    if (own == NULL || links == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to plan");
    }
    *own = *mesh;
    *links = p->links;
    links->mesh = own;
    bool given = p->links.flops > 0;
    double flop = given ? 1 / p->links.flops : p->costs.flop, byte = p->links.bytes > 0 ? 1 / p->links.bytes : p->costs.byte;
    const trmi_prices prices = {.seconds = trmi_links_seconds, .context = links, .flop = flop, .byte = byte};
    const trmi_search_costs costs = {.seconds = given ? NULL : trmi_costs_seconds, .context = &p->costs, .prices = &prices,
                                     .slots = p->slots, .gradients = p->model.accumulate > 1 ? 2 : 1, .overlap = p->links.overlap, .slowdown = p->links.slowdown,
                                     .fuse = true, .shard_stores = true, .slices = has_slices(p), .overhead = p->links.overhead,
                                     .wire = trmi_wire_part(p->model.parallel.wire),
                                     .update = links->update.count > 0 ? &links->update : NULL,
                                     .update_byte = 5 * byte * (given ? 1 : p->costs.factor * p->costs.share)};
    return trmi_space_create(graph, mesh, &costs, p->given, out, err);
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
    const trmi_search_options options = {.mode = p->mode, .memory_bytes = trmi_planner_limit(p), .frontier = frontier, .own = given};
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

static trm_status settle_mode(trm_planner *p, trm_error *err) {
    static const char *const names[] = {"optimal", "recursive", "propagation", "dynamic_programming",
                                        "recursive_programming", "sharding_propagation"};
    const char *name = p->options.search != NULL ? p->options.search : "optimal";
    for (int i = 0; i < 6; i++) {
        if (strcmp(names[i], name) == 0) {
            p->mode = (trmi_search_mode)(i % 3);
            return TRM_OK;
        }
    }
    return TRMI_FAIL(err, TRM_INVALID, "search '%.40s': optimal, recursive or propagation expected", name);
}

static trm_status settle_meshes(trm_planner *p, trm_error *err) {
    trmi_mesh list[TRMI_MESH_LIST];
    int32_t hosts = p->options.hosts > 0 ? p->options.hosts : 1, count = 1;
    const char *text = p->options.mesh;
    if (p->given != NULL && text == NULL) {
        list[0] = p->given->mesh;
    } else if (text != NULL) {
        TRMI_TRY(trmi_mesh_parse(text, &list[0], err));
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
                            .threads = threads, .cores = p->probe.cores, .optimizer = p->model.optimizer, .load = 1};
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
    TRMI_TRY(settle_mode(p, err));
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

/* Other plans to try; what they use is measured too, and they are judged by it. As they will run twice, with time between, all that
 * was measured is measured a second time: a machine that others disturb is not the same for long. */
static trm_status find_others(trm_planner *p, trm_error *err) {
    int32_t wanted = p->options.others < TRMI_CANDIDATES ? p->options.others : TRMI_CANDIDATES, news = 0;
    for (int round = 0; round < 3 && wanted > 0; round++) {
        p->costs.look = round > 0 && p->costs.refresh;
        const trmi_planned_mesh *m = trmi_planner_best(p);
        TRMI_TRY(trmi_search_others(m->space, &m->found, wanted, &p->arena, p->others, &p->others_count, err));
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
    const trmi_planned_mesh *m = trmi_planner_best(p); /* by the costs that count in the end */
    return wanted > 0 ? trmi_search_others(m->space, &m->found, wanted, &p->arena, p->others, &p->others_count, err) : TRM_OK;
}

/* Everything that the ranks do together; the others are released whatever happens. */
static trm_status plan(trm_planner *p, trm_error *err) {
    TRMI_TRY(settle_costs(p, err));
    settle_factor(p);
    TRMI_TRY(search(p, err));
    return find_others(p, err);
}

static trm_status finish(trm_planner *p, trm_error *err) {
    if (!p->options.no_frontier && p->mode == TRMI_SEARCH_OPTIMAL) {
        TRMI_TRY(trmi_planner_flips(p, err));
    }
    compile_best(p);
    return trmi_planner_best(p)->found.infeasible ? trmi_planner_find_way_out(p, err) : TRM_OK;
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
    p->classes = status == TRM_OK ? trmi_planner_class_count(p->graph) : 0;
    if (status != TRM_OK) { /* the same on all ranks */
        trm_planner_destroy(p);
        return status;
    }
    if (!leads) {
        int together;
        p->probe = (trmi_probe){.comm = options->comm, .graph = p->graph, .backend = model->backend,
                                .tuning_file = model->tuning_file, .cores = p->probe.cores, .optimizer = model->optimizer};
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
    out->meshes = p->meshes_count;
    out->operators = m->space->nodes_count;
    out->measured = (int32_t)p->costs.count;
}

/* ---- plans as files --------------------------------------------------------------------------------------------- */

typedef struct ranked {
    const trmi_candidate *candidate;
    const trmi_space *space;
} ranked;

static int by_step(const void *a, const void *b) {
    double x = ((const ranked *)a)->candidate->measure.step, y = ((const ranked *)b)->candidate->measure.step;
    return (x > y) - (x < y);
}

static bool apart(const ranked *list, int32_t count, const ranked *from) {
    for (int32_t i = 0; i < count; i++) {
        if (fabs(list[i].candidate->measure.step / from->candidate->measure.step - 1) < 0.03) {
            return false;
        }
    }
    return true;
}

char *trm_planner_plan(const trm_planner *p, int32_t index, trm_planner_candidate *about) {
    const trmi_planned_mesh *m = trmi_planner_best(p);
    ranked list[3 * TRMI_CANDIDATES + 1];
    int32_t count = 0;
    list[count++] = (ranked){&m->found.best, m->space};
    for (int32_t i = 0; i < m->found.baselines_count; i++) {
        list[count++] = (ranked){&m->found.baselines[i], m->space};
    }
    for (int32_t i = 0; i < p->meshes_count && count < TRMI_CANDIDATES; i++) {
        if (i != p->best) {
            list[count++] = (ranked){&p->meshes[i].found.best, p->meshes[i].space};
        }
    }
    for (int32_t i = 0; i < m->found.frontier_count && count < 2 * TRMI_CANDIDATES; i++) {
        const ranked point = {&m->found.frontier[i], m->space};
        if (apart(list, count, &point)) { /* neighbours on the curve are alike: runs cannot tell them apart */
            list[count++] = point;
        }
    }
    for (int32_t i = 0; i < p->others_count; i++) {
        list[count++] = (ranked){&p->others[i], m->space};
    }
    int32_t kept = 1;
    for (int32_t i = 1; i < count; i++) { /* each plan once */
        bool known = false;
        for (int32_t k = 0; k < kept && !known; k++) {
            known = list[k].space == list[i].space &&
                    trmi_choice_equal(&list[k].candidate->choice, &list[i].candidate->choice, list[i].space);
        }
        if (!known) {
            list[kept++] = list[i];
        }
    }
    qsort(list + 1, (size_t)kept - 1, sizeof *list, by_step);
    trmi_shard_plan *plan;
    trm_error ignored;
    if (index < 0 || index >= kept ||
        trmi_space_plan(list[index].space, &list[index].candidate->choice, &plan, &ignored) != TRM_OK) {
        return NULL;
    }
    const trmi_candidate *c = list[index].candidate;
    if (about != NULL) {
        *about = (trm_planner_candidate){.name = index == 0 ? "the chosen plan" : c->name, .step_seconds = c->measure.step};
        if (trmi_planner_compiled(p, list[index].space, &c->choice, &about->bytes, &ignored) != TRM_OK) {
            about->bytes = 0;
        }
    }
    char *text = trmi_shard_plan_text(plan);
    trmi_shard_plan_destroy(plan);
    return text;
}

trm_status trm_planner_save(const trm_planner *p, const char *file, trm_error *err) {
    const trmi_planned_mesh *m = trmi_planner_best(p);
    trmi_shard_plan *plan;
    TRMI_TRY(trmi_space_plan(m->space, &m->found.best.choice, &plan, err));
    trm_status status = trmi_shard_plan_save(plan, file, err);
    trmi_shard_plan_destroy(plan);
    return status;
}
