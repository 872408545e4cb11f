/* auto_parallel without a plan: rank 0 searches every mesh of so many ranks, all ranks measure what it asks for (what the
 * plans found use, and messages; kept in the cache directory, as trireme plan does), and its plan goes to all. Without the
 * fast back-end or a place to keep measurements: operators by the machine's rates, links by two sums. */
#include "exec/exec.h"
#include "exec/limit.h"
#include "exec/search_costs.h"
#include "exec/shard.h"
#include "exec/trial.h"
#include "plan/search.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <math.h>
#include <string.h>

enum { SMALL = 1024, LARGE = 1 << 18, TURNS = 5, ROUNDS = 4, LIMIT_ROUNDS = 12 };

typedef struct searching {
    trm_exec *exec;
    const trm_graph *training;
    trmi_search_mode mode;
    trmi_probe probe;
    trmi_costs costs;
    trmi_links links;
    trmi_mesh list[TRMI_MESH_LIST];
    int32_t count;
    double best;
    trmi_shard_plan *plan;
    const trm_graph *graph; /* as it was given, and how it is compiled: what a plan takes */
    const trmi_plan_options *options;
    double beyond, bytes; /* what programs take beyond what the search counts; what `plan` takes by that count */
    bool infeasible;      /* nothing fits: `plan` is the one of least memory */
} searching;

/* Ranks of several hosts have no memory in common. */
static bool has_hosts(const searching *s) {
    const trm_comm *comm = s->exec->parallel->comm;
    return trm_comm_local_size(comm) != trm_comm_size(comm);
}

static bool makes_jointly(const searching *s) { return trmi_joint_ranks(s->exec, s->exec->parallel->shard->options) > 1; }

/* ---- without measuring ----------------------------------------------------------------------------------- */

static trm_status time_sum(trmi_parallel *p, float *data, int64_t count, double *best, trm_error *err) {
    *best = 1e9;
    for (int i = 0; i < TURNS; i++) {
        TRMI_TRY(trm_comm_barrier(p->comm, err));
        double begin = trmi_os_now();
        TRMI_TRY(trm_comm_allreduce(p->comm, data, count, TRM_FLOAT32, TRM_REDUCE_SUM, err));
        double seconds = trmi_os_now() - begin;
        *best = i > 0 && seconds < *best ? seconds : *best;
    }
    return TRM_OK;
}

/* Start-up and seconds a byte of these ranks, as a ring's all-reduce shows them. Collective. */
static trm_status guess(const searching *s, trmi_prices *prices, trm_error *err) {
    trmi_parallel *p = s->exec->parallel;
    const trmi_target *target = &s->exec->backend->target;
    float *data = trm_comm_alloc_shared(p->comm, LARGE * sizeof *data, err);
    if (data == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to measure links");
    }
    double small = 0, large = 0, n = p->size;
    trm_status status = time_sum(p, data, SMALL, &small, err);
    status = status == TRM_OK ? time_sum(p, data, LARGE, &large, err) : status;
    trm_comm_free_shared(p->comm, data);
    TRMI_TRY(status);
    double alpha = small / (2 * (n - 1)), beta = (large - small) / ((LARGE - SMALL) * 4.0 * 2 * (n - 1) / n);
    for (int i = 0; i < TRMI_MESH_AXES; i++) {
        prices->alpha[i] = alpha > 1e-7 ? alpha : 1e-7;
        prices->beta[i] = beta > 1e-12 ? beta : 1e-12;
    }
    double crowd = fmax(1, (double)s->exec->env.threads * trm_comm_local_size(p->comm) / s->probe.cores);
    prices->flop = target->flops_per_second > 0 ? crowd / target->flops_per_second : 0;
    prices->byte = target->bytes_per_second > 0 ? crowd / target->bytes_per_second : 0;
    prices->copy = prices->byte;
    return TRM_OK;
}

/* ---- one mesh ------------------------------------------------------------------------------------------------ */

static bool better_than(const searching *s, const trmi_found *f) {
    bool same = s->plan == NULL || s->best == INFINITY || f->infeasible == s->infeasible;
    return s->best == INFINITY || (!same ? s->infeasible : f->infeasible ? f->best.measure.bytes < s->bytes : f->objective < s->best);
}

/* The best plan of one mesh takes the present one's place if it is better; *news: operators measured for it. */
static trm_status search_mesh(searching *s, const trmi_mesh *mesh, const trmi_search_costs *costs, bool measure, int32_t *news,
                              trm_error *err) {
    const trmi_shard_plan *given = s->exec->parallel->shard->plan;
    trmi_space *space;
    trmi_arena arena = {0};
    trmi_found *found = trmi_alloc(sizeof *found);
    if (found == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to search a plan");
    }
    s->links.mesh = mesh;
    trm_status status = trmi_space_create(s->training, mesh, costs, given->choices_count > 0 ? given : NULL, &space, err);
    if (status != TRM_OK) {
        trmi_free(found);
        return status;
    }
    double limit = (double)s->exec->memory_bytes, rest = limit - s->beyond;
    status = trmi_search(space, &(trmi_search_options){.mode = s->mode, .memory_bytes = limit <= 0 ? 0 : rest > 1 ? rest : 1}, &arena,
                         found, err);
    if (status == TRM_OK && measure) {
        if (s->probe.footprint == 0 && found->baselines_count > 0) {
            s->costs.limit_seconds = trmi_costs_limit(&s->costs, 0, found->baselines[0].measure.step);
        }
        s->probe.footprint = s->probe.footprint > 0 || found->baselines_count == 0 ? s->probe.footprint
                                                                                   : (int64_t)found->baselines[0].measure.bytes;
        status = trmi_costs_measure(&s->costs, space, &found->best.choice, news, err);
        status = status == TRM_OK && found->baselines_count > 0
                     ? trmi_costs_measure(&s->costs, space, &found->baselines[0].choice, news, err) : status;
    }
    if (status == TRM_OK && better_than(s, found)) {
        trmi_shard_plan *better;
        status = trmi_space_plan(space, &found->best.choice, &better, err);
        if (status == TRM_OK) {
            trmi_shard_plan_destroy(s->plan);
            s->plan = better;
            s->best = found->objective;
            s->bytes = found->best.measure.bytes;
            s->infeasible = found->infeasible;
        }
    }
    trmi_space_destroy(space);
    trmi_arena_free(&arena);
    trmi_free(found);
    return status;
}

static void list_meshes(searching *s) {
    const trmi_parallel *p = s->exec->parallel;
    const trmi_shard_plan *given = p->shard->plan;
    int32_t local = trm_comm_local_size(p->comm), hosts = p->size % local == 0 ? p->size / local : 1, all;
    if (p->options.mesh != NULL || given->choices_count > 0) {
        s->list[s->count++] = given->mesh;
        return;
    }
    trmi_mesh list[TRMI_MESH_LIST];
    all = trmi_mesh_list(hosts, p->size / hosts, list);
    for (int32_t i = 0; i < all; i++) {
        if (list[i].axes <= 3 || all == 1) {
            s->list[s->count++] = list[i];
        }
    }
}

/* ---- rank 0 ---------------------------------------------------------------------------------------------------- */

/* All meshes again, each time within what is left of the limit, until the compiled plan keeps it. */
static trm_status respect_limit(searching *s, const trmi_search_costs *costs, trm_error *err) {
    double limit = (double)s->exec->memory_bytes;
    for (int i = 0; i < LIMIT_ROUNDS && limit > 0; i++) {
        int64_t bytes;
        int32_t news = 0;
        TRMI_TRY(trmi_limit_compiled(s->exec, s->graph, s->options, s->plan, &bytes, err));
        double beyond = (double)bytes - s->bytes + 1e-3 * i * limit;
        if ((double)bytes <= limit) {
            return TRM_OK;
        }
        if (s->infeasible || beyond <= s->beyond) {
            s->bytes = (double)bytes;
            break;
        }
        s->beyond = beyond;
        s->best = INFINITY;
        for (int32_t m = 0; m < s->count; m++) {
            TRMI_TRY(search_mesh(s, &s->list[m], costs, false, &news, err));
        }
    }
    return limit <= 0 ? TRM_OK
                      : TRMI_FAIL(err, TRM_NOMEM, "no plan fits %.3g GB a rank; the one of least memory takes %.3g GB (trireme plan -n %d "
                                  "--memory shows it)", limit / 1e9, s->bytes / 1e9, s->exec->parallel->size);
}

/* ---- what predictions cannot tell apart ---------------------------------------------------------------------- */

/* Plans of one mesh that are predicted to be nearly as fast as the best of all. */
static trm_status list_near(searching *s, const trmi_mesh *mesh, const trmi_search_costs *costs, trmi_trial *trial, trm_error *err) {
    const trmi_shard_plan *given = s->exec->parallel->shard->plan;
    double limit = (double)s->exec->memory_bytes, rest = limit - s->beyond;
    trmi_space *space = NULL;
    trmi_arena arena = {0};
    trmi_found *found = trmi_alloc(sizeof *found);
    if (found == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to search a plan");
    }
    s->links.mesh = mesh;
    const trmi_search_options options = {.memory_bytes = limit <= 0 ? 0 : rest > 1 ? rest : 1, .frontier = true};
    trm_status status = trmi_space_create(s->training, mesh, costs, given->choices_count > 0 ? given : NULL, &space, err);
    status = status == TRM_OK ? trmi_search(space, &options, &arena, found, err) : status;
    for (int32_t i = -1; status == TRM_OK && i < found->baselines_count + found->frontier_count; i++) {
        const trmi_candidate *c = i < 0                         ? &found->best
                                  : i < found->baselines_count ? &found->baselines[i]
                                                               : &found->frontier[i - found->baselines_count];
        trmi_shard_plan *plan;
        if (!c->fits || c->measure.step > s->best * (1 + TRMI_TRIAL_BAND)) {
            continue;
        }
        const trmi_trial_plan about = {.group = (int32_t)(mesh - s->list), .simple = strcmp(c->name, trmi_baseline_name(TRMI_BASELINE_SAMPLES)) == 0,
                                       .predicted = c->measure.step, .bytes = c->measure.bytes};
        status = trmi_space_plan(space, &c->choice, &plan, err);
        status = status == TRM_OK ? trmi_trial_add(trial, plan, &about, err) : status;
        trmi_shard_plan_destroy(status == TRM_OK ? plan : NULL);
    }
    trmi_space_destroy(space);
    trmi_arena_free(&arena);
    trmi_free(found);
    return status;
}

/* What a program takes beyond what the search counts is known when it is compiled. */
static trm_status weigh(searching *s, trmi_trial *trial, trm_error *err) {
    for (int32_t i = trial->count - 1; i >= 0; i--) {
        trmi_shard_plan *plan;
        int64_t bytes;
        const char *text = trial->list[i].text;
        TRMI_TRY(trmi_shard_plan_parse(text, strlen(text), "a plan to try", &plan, err));
        trm_status status = trmi_limit_compiled(s->exec, s->graph, s->options, plan, &bytes, err);
        trmi_shard_plan_destroy(plan);
        TRMI_TRY(status);
        trial->list[i].bytes = (double)bytes;
        if (s->exec->memory_bytes > 0 && bytes > s->exec->memory_bytes) {
            trmi_trial_drop(trial, i);
        }
    }
    return TRM_OK;
}

static trm_status take_chosen(searching *s, const trmi_trial *trial, trm_error *err) {
    const trmi_trial_plan *best = &trial->list[trial->chosen];
    trmi_shard_plan *plan;
    TRMI_TRY(trmi_shard_plan_parse(best->text, strlen(best->text), "the chosen plan", &plan, err));
    trmi_log(TRM_LOG_INFO, "plan", "%d plans were run%s: taken is %s, %.4g ms a step (%.4g predicted)", (int)trial->count,
             trial->kept ? " earlier" : "", best->simple ? "data parallel" : trial->chosen == 0 ? "the one predicted to be the fastest"
                                                                                                : "one that was predicted to be slower",
             best->measured * 1e3, best->predicted * 1e3);
    trmi_shard_plan_destroy(s->plan);
    s->plan = plan;
    return TRM_OK;
}

static trm_status try_near(searching *s, const trmi_search_costs *costs, trm_error *err) {
    double seconds = trmi_trial_seconds(s->exec->parallel->options.trial_seconds, s->best);
    if (s->mode != TRMI_SEARCH_OPTIMAL || seconds <= 0 || s->plan == NULL) {
        return TRM_OK;
    }
    trmi_trial *trial = trmi_alloc(sizeof *trial);
    trm_status status = trial != NULL ? TRM_OK : TRMI_FAIL(err, TRM_NOMEM, "no memory to try plans");
    for (int32_t i = 0; status == TRM_OK && i < s->count; i++) {
        status = list_near(s, &s->list[i], costs, trial, err);
    }
    if (status == TRM_OK) {
        trmi_trial_narrow(trial, seconds);
        status = trial->count > 1 ? weigh(s, trial, err) : TRM_OK;
    }
    status = status == TRM_OK ? trmi_trial_run(trial, &s->probe, &s->costs, seconds, (double)s->exec->memory_bytes, err) : status;
    status = status == TRM_OK && trial->turns > 0 ? take_chosen(s, trial, err) : status;
    if (trial != NULL) {
        trmi_trial_free(trial);
    }
    trmi_free(trial);
    return status;
}

static trm_status search_guessed(searching *s, const trmi_prices *prices, trm_error *err) {
    const trmi_search_costs costs = {.prices = prices, .overlap = 0.5, .fuse = true, .slices = s->exec->parallel->shard->slices, .gathers = has_hosts(s), .joint = makes_jointly(s), .wire = trmi_wire_part(s->exec->parallel->options.wire), .slots = trmi_optimizer_slots(&s->exec->optimizer), .gradients = s->exec->accumulate > 1 ? 2 : 1};
    int32_t news = 0;
    for (int32_t i = 0; i < s->count; i++) {
        TRMI_TRY(search_mesh(s, &s->list[i], &costs, false, &news, err));
    }
    return respect_limit(s, &costs, err);
}

static trm_status settle_costs(searching *s, trm_error *err) {
    const trm_exec *exec = s->exec;
    int32_t ranks = trm_comm_local_size(s->probe.comm);
    const trmi_costs_options options = {.probe = &s->probe, .backend = s->probe.backend, .tuning_file = s->probe.tuning_file,
                                        .threads = exec->env.threads, .ranks = trm_comm_size(s->probe.comm),
                                        .together = (int)fmin((double)ranks * exec->env.threads, s->probe.cores)};
    char *text = NULL;
    TRMI_TRY(trmi_costs_open(&s->costs, &options, err));
    TRMI_TRY(trmi_probe_load(&s->probe, err));
    TRMI_TRY(trmi_costs_links(&s->costs, &text, err));
    trm_status status = trmi_links_parse(text, &s->links, err);
    trm_string_free(text);
    s->costs.factor = fmax(1, (double)ranks * exec->env.threads / s->probe.cores);
    return status;
}

static trm_status search_measured(searching *s, trm_error *err) {
    TRMI_TRY(settle_costs(s, err));
    const trmi_prices prices = {.seconds = trmi_links_seconds, .context = &s->links, .flop = s->costs.flop, .byte = s->costs.byte};
    const trmi_search_costs costs = {.seconds = trmi_costs_seconds, .context = &s->costs, .prices = &prices,
                                     .slots = trmi_optimizer_slots(&s->exec->optimizer), .gradients = s->exec->accumulate > 1 ? 2 : 1,
                                     .overlap = s->links.overlap, .slowdown = s->links.slowdown,
                                     .fuse = true, .shard_stores = true, .slices = s->exec->parallel->shard->slices, .gathers = has_hosts(s), .joint = makes_jointly(s), .overhead = s->links.overhead,
                                     .wire = trmi_wire_part(s->exec->parallel->options.wire),
                                     .update = s->links.update.count > 0 ? &s->links.update : NULL,
                                     .update_flop = s->costs.flop * s->costs.factor};
    for (int round = 0; round < ROUNDS; round++) {
        int32_t news = 0;
        s->best = INFINITY;
        for (int32_t i = 0; i < s->count; i++) {
            TRMI_TRY(search_mesh(s, &s->list[i], &costs, round < ROUNDS - 1, &news, err));
        }
        if (news == 0) {
            break;
        }
    }
    TRMI_TRY(respect_limit(s, &costs, err));
    return try_near(s, &costs, err);
}

/* Rank 0's plan; the others measure. */
static trm_status find_plan(searching *s, trm_error *err) {
    bool leads = s->exec->parallel->rank == 0, measured = s->probe.tuning_file == NULL || s->probe.tuning_file[0] != '\0';
    trmi_prices prices = {.seconds = NULL};
    measured = measured && strcmp(s->exec->backend->target.name, "ref") != 0;
    if (!measured) {
        TRMI_TRY(guess(s, &prices, err));
        return leads ? search_guessed(s, &prices, err) : TRM_OK;
    }
    if (!leads) {
        return trmi_probe_serve(&s->probe, err);
    }
    trm_error later;
    trm_status status = search_measured(s, err), ended = trmi_probe_end(&s->probe, status == TRM_OK ? err : &later);
    return status == TRM_OK ? ended : status;
}

/* ---- to all ------------------------------------------------------------------------------------------------------ */

/* Rank 0's plan, or its reason, on every rank. */
static trm_status share(searching *s, trm_status status, const trm_error *why, trm_error *err) {
    trmi_parallel *p = s->exec->parallel;
    char *text = s->plan != NULL && status == TRM_OK ? trmi_shard_plan_text(s->plan) : NULL;
    int64_t head[2] = {status, text != NULL ? (int64_t)strlen(text) : 0};
    trm_status sent = trm_comm_broadcast(p->comm, head, 2, TRM_INT64, 0, err);
    if (sent != TRM_OK || head[0] != TRM_OK || head[1] == 0) {
        trm_string_free(text);
        TRMI_TRY(sent);
        return TRMI_FAIL(err, head[0] != TRM_OK ? (trm_status)head[0] : TRM_NOMEM, "rank 0 found no plan%s%s",
                         status != TRM_OK ? ": " : "", status != TRM_OK ? why->message : "");
    }
    char *copy = trmi_alloc((size_t)head[1] + 1);
    if (copy == NULL) {
        trm_string_free(text);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a plan");
    }
    if (text != NULL) {
        memcpy(copy, text, (size_t)head[1]);
    }
    trm_string_free(text);
    status = trm_comm_broadcast(p->comm, copy, head[1], TRM_UINT8, 0, err);
    trmi_shard_plan *shared = NULL;
    status = status == TRM_OK ? trmi_shard_plan_parse(copy, (size_t)head[1], "the plan of rank 0", &shared, err) : status;
    trmi_free(copy);
    if (status == TRM_OK) {
        trmi_shard_plan_destroy(p->shard->plan);
        p->shard->plan = shared;
    }
    return status;
}

trm_status trmi_shard_search(trm_exec *exec, const trm_graph *graph, const trmi_plan_options *options, const trm_graph *training,
                             trm_error *err) {
    trmi_parallel *p = exec->parallel;
    searching *s = trmi_alloc(sizeof *s);
    trm_error own;
    if (s == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to search a plan");
    }
    s->exec = exec;
    s->training = training;
    s->graph = graph;
    s->options = options;
    s->best = INFINITY;
    s->probe = (trmi_probe){.comm = p->comm, .graph = training, .backend = exec->backend->target.name,
                            .tuning_file = p->shard->tuning_file, .threads = exec->env.threads, .optimizer = exec->optimizer,
                            .whole = graph, .whole_options = p->shard->options, .limit = exec->memory_bytes, .load = 1};
    list_meshes(s);
    trm_status status = trmi_search_mode_parse(p->options.search, &s->mode, err);
    status = status == TRM_OK ? trmi_probe_cores(p->comm, &s->probe.cores, err) : status;
    if (status == TRM_OK) {
        status = find_plan(s, &own);
        bool lost = status != TRM_OK && (p->rank != 0 || trm_comm_health(p->comm, err) != TRM_OK);
        if (lost && err != NULL) {
            *err = own;
        }
        status = lost ? status : share(s, status, &own, err);
    }
    trmi_shard_plan_destroy(s->plan);
    trmi_costs_close(&s->costs);
    trmi_probe_close(&s->probe);
    trmi_free(s);
    return status;
}
