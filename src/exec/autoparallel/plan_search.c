/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the plan of auto_parallel when the caller gives none. Collective over the ranks of the job.
 *
 *      rank 0          searches all meshes (auto_parallel.c), requests measurements, runs plans
 *      other ranks     trmi_op_benchmark_serve: measure what rank 0 requests
 *      all             share: rank 0's plan, or its error, is broadcast
 *
 * Measured costs are kept in the cache directory, as by `trireme plan`. Without the fast back-end
 * or without a tuning file nothing is measured but two all-reduces: operators then cost what the
 * rates of the machine predict (`guess`). */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/memory_limit.h"
#include "exec/autoparallel/auto_parallel.h"
#include "exec/distributed/split.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The state of one search on one rank. */
typedef struct search_state {
    trm_exec *exec;
    const trm_graph *training;
    trmi_op_benchmark probe;
    trmi_costs costs;
    trmi_links links;
    trmi_prices prices; /* guessed */
    trmi_plan_search auto_search;
    trmi_partition_plan *plan;
    double begin;           /* of the search */
    const trm_graph *graph; /* as it was given, and how it is compiled: what a plan takes */
    const trmi_plan_options *options;
} search_state;

/* Returns whether the ranks are on several hosts, which have no memory in common. */
static bool has_hosts(const search_state *s) {
    const trm_comm *comm = trmi_parallel_of(s->exec)->comm;
    return trm_comm_local_size(comm) != trm_comm_size(comm);
}

/* Returns whether ranks of a host compute cooperative gradients. */
static bool computes_cooperatively(const search_state *s) {
    return trmi_cooperative_ranks(s->exec, trmi_parallel_of(s->exec)->split->options) > 1;
}

/* ---- without measuring ----------------------------------------------------------------------- */

/* Sets the guessed prices: latency and seconds a byte from two all-reduces; operators by the rates
 * of the back-end, divided by the number of threads that share a core. Collective. */
static trm_status estimate_prices(search_state *s, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(s->exec);
    trmi_prices *prices = &s->prices;
    const trmi_target *target = &s->exec->backend->target;
    double alpha, beta;
    TRMI_TRY(trmi_link_benchmark_estimate(p->comm, &alpha, &beta, err));
    for (int i = 0; i < TRMI_MESH_AXES; i++) {
        prices->alpha[i] = alpha;
        prices->beta[i] = beta;
    }
    double crowd =
        fmax(1, (double)s->exec->env.threads * trm_comm_local_size(p->comm) / s->probe.cores);
    prices->flop = target->flops_per_second > 0 ? crowd / target->flops_per_second : 0;
    prices->byte = target->bytes_per_second > 0 ? crowd / target->bytes_per_second : 0;
    prices->copy = prices->byte;
    return TRM_OK;
}

/* ---- what the search asks for ---------------------------------------------------------------- */

/* Returns the part of the search costs that depends on the executor and not on measurements. */
static trmi_search_costs costs_of(search_state *s) {
    const trmi_parallel *p = trmi_parallel_of(s->exec);
    return (trmi_search_costs){.prices = &s->prices,
                               .fuse = true,
                               .rules = {.cheap = s->options->target->recompute_cheap,
                                         .segments = s->options->recompute,
                                         .sums = true},
                               .blocks = s->options->blocks,
                               .done = &s->probe.done,
                               .slices = p->split->slices,
                               .gathers = has_hosts(s),
                               .cooperative = computes_cooperatively(s),
                               .wire = trmi_wire_part(p->options.wire),
                               .slots = trmi_optimizer_slots(&s->exec->optimizer),
                               .gradients = s->exec->accumulate > 1 ? 2 : 1};
}

/* Makes the search space of a mesh with guessed prices; half of communication is taken as
 * hidden. */
static trm_status guessed_space(void *context, const trmi_mesh *mesh, trmi_space **out,
                                trm_error *err) {
    search_state *s = context;
    trmi_search_costs costs = costs_of(s);
    costs.overlap = costs.ahead = 0.5;
    return trmi_space_create(s->training, mesh, &costs, s->auto_search.given, out, err);
}

/* Makes the search space of a mesh with measured operators, messages and updates. */
static trm_status measured_space(void *context, const trmi_mesh *mesh, trmi_space **out,
                                 trm_error *err) {
    search_state *s = context;
    trmi_search_costs costs = costs_of(s);
    trmi_links *links;
    TRMI_TRY(TRMI_NEW_IN(err, &s->auto_search.arena, links, 1, "to search a plan"));
    *links = s->links;
    links->mesh = mesh;
    /* Messages are priced by the measured links, other work by FLOPs and bytes at measured
     * rates. */
    const trmi_prices prices = {.seconds = trmi_links_seconds,
                                .context = links,
                                .flop = s->costs.flop,
                                .byte = s->costs.byte};
    /* An operator gets its measured time, or that of the nearest measured one, scaled by the
     * roofline. */
    costs.prices = &prices;
    costs.seconds = trmi_costs_seconds;
    costs.context = &s->costs;
    costs.overlap = s->links.overlap;
    costs.ahead = s->options->no_fusion ? 0 : costs.overlap;
    costs.slowdown = s->links.slowdown;
    costs.shard_stores = true;
    costs.overhead = s->links.overhead;
    costs.update = links->update.count > 0 ? &links->update : NULL;
    costs.sliced = links->sliced.count > 0 ? &links->sliced : NULL;
    costs.update_flop = s->costs.flop * s->costs.factor;
    return trmi_space_create(s->training, mesh, &costs, s->auto_search.given, out, err);
}

/* Compiles a plan and writes the bytes that a rank takes with it to *bytes. */
static trm_status compile_candidate(void *context, const trmi_space *space,
                                    const trmi_choice *choice, double *bytes, trm_error *err) {
    const search_state *s = context;
    return trmi_limit_choice(s->exec, s->graph, s->options, space, choice, bytes, err);
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

/* Logs the result of the benchmark of plans. */
static void log_ties(const trmi_near_ties *trial) {
    if (trial->turns > 0) {
        const trmi_tied_plan *best = &trial->list[trial->chosen];
        trmi_log(TRM_LOG_INFO, "plan",
                 "%d plans were run%s: taken is %s, %.4g ms a step (%.4g predicted)",
                 (int)trial->count, trial->kept ? " earlier" : "",
                 best->simple         ? "data parallel"
                 : trial->chosen == 0 ? "the one predicted to be the fastest"
                                      : "one that was predicted to be slower",
                 best->measured * 1e3, best->predicted * 1e3);
    }
}

/* Records the chosen plan for trm_exec_get_searched_plan and logs it. */
static void note_plan(search_state *s) {
    const trmi_plan_search *d = &s->auto_search;
    const trmi_auto_mesh *best = trmi_auto_best(d);
    trm_searched_plan *info = &trmi_parallel_of(s->exec)->split->info;
    char beside[96] = "", ran[64] = "";
    *info = (trm_searched_plan){.searched = true,
                                .step_seconds = best->found.best.measure.step,
                                .search_seconds = trmi_os_now() - s->begin};
    /* Data parallel is reported beside the chosen plan, if it was priced on this mesh. */
    for (int32_t i = 0; i < best->found.baselines_count; i++) {
        const trmi_candidate *c = &best->found.baselines[i];
        if (strcmp(c->name, trmi_baseline_name(TRMI_BASELINE_SAMPLES)) == 0) {
            info->data_parallel_step_seconds = c->measure.step;
        }
    }
    /* plans of nearly equal predictions have been run */
    if (d->trial.turns > 0) {
        info->measured_step_seconds = d->trial.list[d->trial.chosen].measured;
        snprintf(ran, sizeof ran, " (%.4g ms measured)", info->measured_step_seconds * 1e3);
    }
    if (info->data_parallel_step_seconds > 0) {
        snprintf(beside, sizeof beside, ", data parallel %.4g ms (%.2f times as long)",
                 info->data_parallel_step_seconds * 1e3,
                 info->data_parallel_step_seconds / info->step_seconds);
    }
    trmi_plan_words(best->space, &best->found.best.choice, info->text, sizeof info->text);
    trmi_log(TRM_LOG_INFO, "plan", "%s; predicted %.4g ms a step%s%s; searched for %.1f s",
             info->text, info->step_seconds * 1e3, ran, beside, info->search_seconds);
}

/* Runs the search on rank 0 and writes the plan to s->plan.
 *   errors  NOMEM: no plan fits the memory limit */
static trm_status run_search(search_state *s, trm_error *err) {
    trmi_plan_search *d = &s->auto_search;
    const trmi_parallel *p = trmi_parallel_of(s->exec);
    const trmi_partition_plan *given = p->split->plan;
    int32_t local = trm_comm_local_size(p->comm),
            hosts = p->size % local == 0 ? p->size / local : 1;
    bool one = p->options.split.mesh != NULL || given->choices_count > 0;
    d->given = given->choices_count > 0 ? given : NULL;
    d->probe = &s->probe;
    d->costs = &s->costs;
    d->memory_bytes = s->exec->memory_bytes;
    d->trials = p->options.split.trials;
    d->trial_seconds = p->options.split.trial_seconds;
    d->limit_seconds = p->options.split.measure_seconds;
    /* plans of less memory are tried, too */
    d->frontier = s->costs.probe != NULL && d->trials != TRM_OFF;
    d->compile = compile_candidate;
    d->context = s;
    /* With a given mesh, or a plan that fixes operators, only that mesh is searched. */
    TRMI_TRY(trmi_auto_meshes(d, one ? &given->mesh : NULL, p->size, hosts, err));
    TRMI_TRY(trmi_auto_search(d, err));
    if (d->memory_bytes > 0 &&
        (trmi_auto_best(d)->found.infeasible || d->compiled_bytes > (double)d->memory_bytes)) {
        char limit[TRMI_BYTES_TEXT], least[TRMI_BYTES_TEXT];
        return TRMI_FAIL(err, TRM_NOMEM,
                         "no plan fits %s a rank; the one of least memory takes %s (trireme plan "
                         "-n %d --memory shows it)",
                         trmi_bytes_text((double)d->memory_bytes, limit),
                         trmi_bytes_text(d->compiled_bytes, least), p->size);
    }
    /* Plans whose predicted times are too close to separate are run, and the fastest is taken. */
    TRMI_TRY(trmi_auto_try(d, err));
    log_ties(&d->trial);
    note_plan(s);
    const trmi_auto_mesh *best = trmi_auto_best(d);
    return trmi_space_plan(best->space, &best->found.best.choice, &s->plan, err);
}

/* Opens the measured costs and measures load and links; rank 0 only. */
static trm_status settle_costs(search_state *s, trm_error *err) {
    const trm_exec *exec = s->exec;
    const trm_split_options *split = &trmi_parallel_of(exec)->options.split;
    int32_t ranks = trm_comm_local_size(s->probe.comm);
    const trmi_costs_options options = {
        .probe = &s->probe,
        .backend = s->probe.backend,
        .tuning_file = s->probe.tuning_file,
        .threads = exec->env.threads,
        .ranks = trm_comm_size(s->probe.comm),
        .limit_seconds = split->measure_seconds,
        .replans = split->replans,
        .together = (int)fmin((double)ranks * exec->env.threads, s->probe.cores)};
    char *text = NULL;
    trmi_signs_note(s->probe.signs, "reading measured costs");
    TRMI_TRY(trmi_costs_open(&s->costs, &options, err));
    TRMI_TRY(trmi_op_benchmark_load(&s->probe, err));
    /* messages longer than any plan sends are not measured: that would take memory and time */
    s->probe.reach = trmi_op_benchmark_longest(s->probe.graph);
    TRMI_TRY(trmi_costs_links(&s->costs, &text, err));
    trm_status status = trmi_links_parse(text, &s->links, err);
    trm_free(text);
    if (split->replans) { /* else groups that were not measured have prices by levels */
        trmi_links_add_groups(&s->links, options.ranks);
    }
    s->costs.factor = fmax(1, (double)ranks * exec->env.threads / s->probe.cores);
    s->auto_search.make_space = measured_space;
    return status;
}

/* Finds the plan on rank 0, in s->plan; the other ranks serve its measurements, or only its signs
 * of life. Rank 0 ends their service also when it fails. */
static trm_status find_plan(search_state *s, trm_error *err) {
    bool leads = trmi_parallel_of(s->exec)->rank == 0,
         measured = s->probe.tuning_file == NULL || s->probe.tuning_file[0] != '\0';
    const char *backend = s->exec->backend->target.name;
    measured = measured && (backend == NULL || strcmp(backend, "ref") != 0);
    if (!measured) {
        TRMI_TRY(estimate_prices(s, err));
        s->auto_search.make_space = guessed_space;
    }
    if (!leads) {
        return trmi_op_benchmark_serve(&s->probe, err);
    }
    trm_error later;
    trm_status status = trmi_op_benchmark_lead(&s->probe, err);
    status = status == TRM_OK && measured ? settle_costs(s, err) : status;
    status = status == TRM_OK ? run_search(s, err) : status;
    trm_status ended = trmi_op_benchmark_end(&s->probe, status == TRM_OK ? err : &later);
    return status == TRM_OK ? ended : status;
}

/* ---- to all ---------------------------------------------------------------------------------- */

/* Broadcasts rank 0's plan as text, and replaces the plan of every rank by it. If rank 0 has
 * failed, every rank fails with the same status. */
static trm_status broadcast_plan(search_state *s, trm_status status, const trm_error *why,
                                 trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(s->exec);
    /* status and length first, so that the other ranks know what comes */
    char *text = s->plan != NULL && status == TRM_OK ? trmi_partition_plan_text(s->plan) : NULL;
    int64_t head[2] = {status, text != NULL ? (int64_t)strlen(text) : 0};
    trm_status sent = trm_comm_broadcast(p->comm, head, 2, TRM_INT64, 0, err);
    if (sent != TRM_OK || head[0] != TRM_OK || head[1] == 0) {
        trm_free(text);
        TRMI_TRY(sent);
        return TRMI_FAIL(err, head[0] != TRM_OK ? (trm_status)head[0] : TRM_NOMEM,
                         "rank 0 found no plan%s%s", status != TRM_OK ? ": " : "",
                         status != TRM_OK ? why->message : "");
    }
    /* Every rank, rank 0 too, parses the text, so that all run the same plan. */
    char *copy = trmi_alloc((size_t)head[1] + 1);
    if (copy == NULL) {
        trm_free(text);
        return TRMI_NO_MEMORY(err, "for a plan");
    }
    if (text != NULL) {
        memcpy(copy, text, (size_t)head[1]);
    }
    trm_free(text);
    status = trm_comm_broadcast(p->comm, copy, head[1], TRM_UINT8, 0, err);
    trmi_partition_plan *shared = NULL;
    status = status == TRM_OK ? trmi_partition_plan_parse(copy, (size_t)head[1],
                                                          "the plan of rank 0", &shared, err)
                              : status;
    trmi_free(copy);
    if (status == TRM_OK) {
        trmi_partition_plan_destroy(p->split->plan);
        p->split->plan = shared;
    }
    return status;
}

/* Contract in auto_parallel.h. Rank 0's error is broadcast like a plan, so that all ranks fail
 * with the same message. A rank that has failed alone leaves without the broadcast: its peers
 * end through the broken communicator. */
trm_status trmi_search_plan(trm_exec *exec, const trm_graph *graph,
                            const trmi_plan_options *options, const trm_graph *training,
                            trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    search_state *s;
    trm_error own;
    TRMI_TRY(TRMI_NEW(err, s, 1, "to search a plan"));
    s->exec = exec;
    s->training = training;
    s->graph = graph;
    s->options = options;
    s->begin = trmi_os_now();
    /* every rank takes part in the measurements; only rank 0 searches */
    s->probe = (trmi_op_benchmark){.comm = p->comm,
                                   .graph = training,
                                   .backend = exec->backend->target.name,
                                   .tuning_file = p->split->tuning_file,
                                   .threads = exec->env.threads,
                                   .strict = options->blocks > 0,
                                   .optimizer = exec->optimizer,
                                   .whole = graph,
                                   .whole_options = p->split->options,
                                   .limit = exec->memory_bytes,
                                   .load = 1};
    trm_status status = trmi_search_mode_parse(p->options.split.search, &s->auto_search.mode, err);
    status = status == TRM_OK ? trmi_op_benchmark_cores(p->comm, &s->probe.cores, err) : status;
    if (status == TRM_OK) {
        status = find_plan(s, &own);
        /* A failed rank other than 0, or a broken communicator: a broadcast would not return. */
        bool lost = status != TRM_OK && (p->rank != 0 || trm_comm_health(p->comm, err) != TRM_OK);
        if (lost && err != NULL) {
            *err = own;
        }
        status = lost ? status : broadcast_plan(s, status, &own, err);
    }
    trmi_partition_plan_destroy(s->plan);
    trmi_auto_free(&s->auto_search);
    trmi_costs_close(&s->costs);
    trmi_op_benchmark_close(&s->probe);
    trmi_free(s);
    return status;
}
