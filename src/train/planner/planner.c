/* SPDX-License-Identifier: Apache-2.0 */
/* The planner: from options to the best plan (trireme/plan.h).
 *
 *       settle          options, meshes, links, global batch
 *       settle_whole    forward graph and options, for compiling and running plans
 *       plan            rank 0: costs -> search -> further candidates -> trial runs -> stages;  other ranks: measure
 *                       on request
 *       finish          rank 0: flips, compiled size, way out of a memory limit
 *
 * With a communicator the ranks measure together: rank 0 sends requests (exec/autoparallel), the
 * others serve them until rank 0 ends the session, whatever the outcome. */
#include "train/planner/planner.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"
#include "exec/memory_limit.h"
#include "train/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- search ---------------------------------------------------------------------------------- */

/* Contract in planner.h. A faster device of the links file speeds operators up. */
void trmi_planner_settle_factor(trm_planner *p) {
    p->costs.factor = trmi_planner_crowding(p) / (p->links.speed > 0 ? p->links.speed : 1);
}

/* Compiles the best plan for its exact memory. Not for more than TRMI_COMPILED_RANKS ranks, where
 * that takes long; an error only leaves compiled_bytes at 0. */
static void compile_best(trm_planner *p) {
    trm_error no;
    if (p->ranks > TRMI_COMPILED_RANKS || trmi_auto_compile_best(&p->drive, &no) != TRM_OK) {
        p->drive.compiled_bytes = 0;
    }
}

/* Callback of the drive: creates the search space on a mesh. */
static trm_status make_space(void *context, const trmi_mesh *mesh, trmi_space **out,
                             trm_error *err) {
    trm_planner *p = context;
    return trmi_planner_space(p, p->graph, mesh, out, err);
}

/* Callback of the drive: compiles a candidate for its exact memory. */
static trm_status compile_candidate(void *context, const trmi_space *space,
                                    const trmi_choice *choice, double *bytes, trm_error *err) {
    return trmi_planner_compiled(context, space, choice, bytes, err);
}

/* ---- options --------------------------------------------------------------------------------- */

/* Determines the meshes to search: the mesh of the options, that of the given plan, or every
 * factorisation of the ranks.
 *   errors  INVALID: the mesh has another number of ranks */
static trm_status settle_meshes(trm_planner *p, trm_error *err) {
    trmi_mesh only;
    const char *text = p->model.exec.parallel.split.mesh;
    bool one = text != NULL || p->given != NULL;
    if (text != NULL) {
        TRMI_TRY(trmi_mesh_parse(text, &only, err));
        TRMI_TRY(p->given != NULL ? trmi_partition_plan_on(p->given, &only, err) : TRM_OK);
    } else if (one) {
        only = p->given->mesh;
    }
    /* the mesh of a stage says nothing about plans without stages */
    bool staged = p->options.stages != 0 && p->options.ranks > 0;
    TRMI_TRY(trmi_auto_meshes(&p->drive, one && !staged ? &only : NULL, p->options.ranks,
                              p->options.hosts > 0 ? p->options.hosts : 1, err));
    p->ranks = trmi_mesh_ranks(&p->drive.meshes[0].mesh);
    if (p->options.ranks > 0 && p->ranks != p->options.ranks) {
        char mesh[48];
        bool from_file = text == NULL && p->given->file != NULL;
        return TRMI_FAIL(err, TRM_INVALID,
                         "%.100s%smesh %s has %d ranks, -n or ranks is %d; give one of the two, or "
                         "equal numbers",
                         from_file ? p->given->file : "", from_file ? ": " : "",
                         trmi_mesh_text(&p->drive.meshes[0].mesh, mesh, sizeof mesh), (int)p->ranks,
                         (int)p->options.ranks);
    }
    return TRM_OK;
}

/* Returns whether a number of stages is given: then a plan without stages is only compared with. */
static bool has_stages(const trm_planner *p) {
    return p->options.stages != 0 && p->options.stages != TRM_ALL;
}

/* Passes options, costs and callbacks to the drive, which searches. */
static void settle_drive(trm_planner *p) {
    const trm_planner_options *o = &p->options;
    trmi_plan_search *d = &p->drive;
    d->given = p->given;
    d->probe = &p->probe;
    d->costs = &p->costs;
    d->memory_bytes = p->model.exec.memory_bytes;
    d->limit_seconds = o->measure_seconds;
    d->trials = p->model.exec.parallel.split.trials;
    d->trial_seconds = p->model.exec.parallel.split.trial_seconds;
    d->frontier = o->frontier != TRM_OFF;
    d->compared_only = has_stages(p);
    d->make_space = make_space;
    d->compile = compile_candidate;
    d->context = p;
    d->others = p->others;
}

/* Sets *threads to the threads of one rank and *together to the threads of all ranks that share
 * this machine's cores. */
static void settle_threads(trm_planner *p, int *threads, int *together) {
    int cpus = p->probe.cores;
    *threads = p->model.exec.threads;
    if (p->options.links == NULL && !p->options.own_devices) {
        p->links.cores = cpus;
    }
    if (*threads == 0) {
        *threads = p->links.cores > 0 ? (int)fmax(1, cpus / p->ranks) : cpus;
    }
    *together =
        p->links.cores > 0 ? (int)fmin((double)p->ranks * *threads, p->links.cores) : *threads;
}

/* Opens the costs of operators and messages: measured by the communicator's ranks, by this
 * process, or not at all where the links file has rates or `measure` is off. Without a links
 * file, the links between ranks are measured too. */
static trm_status settle_costs(trm_planner *p, trm_error *err) {
    const trm_planner_options *o = &p->options;
    const trm_exec_options *e = &p->model.exec;
    trm_comm *comm = e->parallel.comm;
    int threads, together;
    settle_threads(p, &threads, &together);
    p->probe = (trmi_op_benchmark){.comm = comm,
                                   .graph = p->graph,
                                   .part = trmi_planner_part,
                                   .context = p,
                                   .backend = e->backend,
                                   .tuning_file = e->tuning_file,
                                   .threads = threads,
                                   .cores = p->probe.cores,
                                   .strict = e->parallel.block != 0,
                                   .optimizer = e->optimizer,
                                   .load = 1,
                                   .whole = p->whole,
                                   .whole_options = &p->whole_options,
                                   .limit = e->memory_bytes,
                                   .stop = o->stop};
    /* Rates of a links file replace measurements of operators: they may be of another machine. */
    const trmi_costs_options options = {
        .probe = o->measure == TRM_OFF || p->links.flops > 0 ? NULL : &p->probe,
        .refresh = o->refresh,
        .backend = e->backend,
        .tuning_file = e->tuning_file,
        .threads = threads,
        .together = together,
        .ranks = comm != NULL ? trm_comm_size(comm) : 1};
    TRMI_TRY(trmi_op_benchmark_lead(&p->probe, err));
    TRMI_TRY(trmi_costs_open(&p->costs, &options, err));
    p->costs.limit_seconds = o->measure_seconds > 0 ? o->measure_seconds : p->costs.limit_seconds;
    if (p->costs.probe == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_op_benchmark_load(&p->probe, err));
    if (o->links == NULL && !o->guess_links && comm != NULL && trm_comm_size(comm) > 1) {
        /* messages longer than any plan sends are not measured: that would take memory and time */
        p->probe.reach = trmi_op_benchmark_longest(p->graph);
        TRMI_TRY(trmi_costs_links(&p->costs, &p->links_text, err));
        TRMI_TRY(trmi_links_parse(p->links_text, &p->links, err));
    }
    return TRM_OK;
}

/* Takes a given plan with stages out of the search without stages: it is compared with plans of any
 * number of stages. */
static void take_stages(trm_planner *p) {
    if (p->given->staged.stages > 0) {
        p->pipe.file = p->given;
        p->given = NULL;
        p->options.stages = p->options.stages != 0 ? p->options.stages : TRM_ALL;
        p->options.ranks =
            p->options.ranks > 0 ? p->options.ranks : trmi_partition_plan_ranks(p->pipe.file);
    }
}

/* Evaluates the options that all ranks know: search mode, given plan, meshes, links, optimiser
 * slots, global batch. */
static trm_status take_options(trm_planner *p, trm_error *err) {
    const trm_planner_options *o = &p->options;
    const trm_split_options *split = &p->model.exec.parallel.split;
    const trm_comm *comm = p->model.exec.parallel.comm;
    TRMI_TRY(trmi_search_mode_parse(split->search, &p->drive.mode, err));
    if (split->plan != NULL) {
        TRMI_TRY(trmi_partition_plan_parse(split->plan, strlen(split->plan), "the given plan",
                                           &p->given, err));
        take_stages(p);
    }
    TRMI_TRY(settle_meshes(p, err));
    if (comm != NULL && trm_comm_size(comm) != p->ranks) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a plan for %d ranks, but the communicator has %d; plan for as many ranks",
                         (int)p->ranks, (int)trm_comm_size(comm));
    }
    trmi_links_local(&p->links, p->ranks);
    if (o->links != NULL) {
        TRMI_TRY(trmi_links_parse(o->links, &p->links, err));
    }
    p->slots = trmi_optimizer_slots(&p->model.exec.optimizer);
    /* The batch of all ranks, from the shape of the first field. */
    trm_batch_field first;
    TRMI_TRY(trm_dataset_check(p->model.data, err));
    if (!trm_dataset_field(p->model.data, 0, &first) || first.tensor.shape.rank < 1) {
        return TRMI_FAIL(err, TRM_INVALID, "the dataset has no fields");
    }
    p->batch = first.tensor.shape.dim[0] *
               (p->model.exec.parallel.batch == TRM_BATCH_OF_JOB ? 1 : p->ranks);
    return TRM_OK;
}

/* ---- creation and destruction ---------------------------------------------------------------- */

/* Fills planner->others with further candidates of the best mesh, spaced in predicted time. */
static trm_status list_others(trm_planner *p, trm_error *err) {
    const trmi_auto_mesh *m = trmi_planner_best(p);
    int32_t wanted = p->options.extra_candidates < TRMI_CANDIDATES ? p->options.extra_candidates
                                                                   : TRMI_CANDIDATES;
    return wanted > 0 ? trmi_search_others(m->space, &m->found, wanted, &p->arena, p->others,
                                           &p->drive.others_count, err)
                      : TRM_OK;
}

/* Finds further candidates to try. Operators and messages that only they use are measured too;
 * new measurements may change the search's result, so it is repeated, at most ROUNDS times. */
static trm_status find_others(trm_planner *p, trm_error *err) {
    enum { ROUNDS = 3 };
    int32_t news = 0;
    for (int round = 0; round < ROUNDS && p->options.extra_candidates > 0; round++) {
        TRMI_TRY(list_others(p, err));
        if (p->costs.probe != NULL) {
            const trmi_found *found = &trmi_planner_best(p)->found;
            TRMI_TRY(trmi_auto_measure(&p->drive, p->others, p->drive.others_count, &news, err));
            TRMI_TRY(
                trmi_auto_measure(&p->drive, found->baselines, found->baselines_count, &news, err));
        }
        if (news == 0) {
            return TRM_OK;
        }
        news = 0;
        TRMI_TRY(trmi_auto_search(&p->drive, err));
    }
    return list_others(p, err); /* list them once more with the final costs */
}

/* Does the part of planning in which other ranks take part by measuring: costs, search, trial
 * runs. */
static trm_status plan_together(trm_planner *p, trm_error *err) {
    TRMI_TRY(settle_costs(p, err));
    trmi_planner_settle_factor(p);
    settle_drive(p);
    TRMI_TRY(trmi_auto_search(&p->drive, err));
    TRMI_TRY(find_others(p, err));
    /* plans without stages are candidates of the runs unless a number of stages is given */
    bool staged = has_stages(p);
    TRMI_TRY(staged ? TRM_OK : trmi_auto_try(&p->drive, err));
    TRMI_TRY(trmi_planner_best(p)->taken != NULL ? list_others(p, err) : TRM_OK);
    TRMI_TRY(trmi_planner_search_stages(p, err));
    if (staged && p->costs.probe != NULL) {
        /* the plans to compare with, by the nearest operators of the stages */
        TRMI_TRY(trmi_auto_search(&p->drive, err));
        TRMI_TRY(list_others(p, err));
    }
    trmi_auto_mesh *best = &p->drive.meshes[p->drive.best];
    return trmi_search_runners(best->space, &best->found, &p->arena, err);
}

/* Does the part of planning that rank 0 does alone. */
static trm_status finish_alone(trm_planner *p, trm_error *err) {
    if (p->options.frontier != TRM_OFF && p->drive.mode == TRMI_SEARCH_OPTIMAL) {
        TRMI_TRY(trmi_planner_flips(p, err));
    }
    compile_best(p);
    return trmi_planner_best(p)->found.infeasible ? trmi_planner_find_way_out(p, err) : TRM_OK;
}

/* Sets the options with which plans are compiled and run, and builds the forward graph for it. */
static trm_status settle_whole(trm_planner *p, trm_error *err) {
    const trm_model_options *m = &p->model;
    int threads, together;
    settle_threads(p, &threads, &together);
    p->whole_options =
        (trm_exec_options){.optimizer = m->exec.optimizer,
                           .backend = m->exec.backend,
                           .precision = m->exec.precision,
                           .threads = threads,
                           .seed = 1,
                           .fusion = m->exec.fusion,
                           .tuning_file = m->exec.tuning_file,
                           .accumulate = m->exec.accumulate,
                           .loss_scale = m->exec.loss_scale,
                           .parallel = {.shard_optimizer = true,
                                        .wire = m->exec.parallel.wire,
                                        .sync_batch_norm = m->exec.parallel.sync_batch_norm,
                                        .block = m->exec.parallel.block,
                                        .cooperative = trmi_planner_cooperative(p)}};
    TRMI_TRY(trmi_planner_blocks(p, p->batch, &p->whole_options.blocks, err));
    return trmi_planner_forward(p, p->batch, 0, &p->whole, &p->whole_options.loss, err);
}

trm_status trm_mesh_ranks(const char *mesh, int32_t *ranks, trm_error *err) {
    TRMI_NEED(err, mesh, ranks);
    trmi_mesh parsed;
    TRMI_TRY(trmi_mesh_parse(mesh, &parsed, err));
    *ranks = trmi_mesh_ranks(&parsed);
    return TRM_OK;
}

/* Contract in trireme/plan.h. All ranks build the graphs, so that errors in the options are
 * the same on all; then rank 0 plans and the others serve measurements. */
trm_status trm_planner_create(const trm_model_options *model, const trm_planner_options *options,
                              trm_planner **out, trm_error *err) {
    TRMI_NEED(err, model, options, out);
    double begin = trmi_os_now();
    trm_planner *p;
    TRMI_TRY(TRMI_NEW(err, p, 1, "to plan"));
    /* the part that is the same on all ranks: options, graphs, the given plan */
    p->model = *model;
    p->options = *options;
    trm_comm *comm = model->exec.parallel.comm;
    bool leads = comm == NULL || trm_comm_rank(comm) == 0;
    trm_status status = trmi_op_benchmark_cores(comm, &p->probe.cores, err);
    status = status == TRM_OK ? take_options(p, err) : status;
    status = status == TRM_OK ? trmi_planner_graph(p, p->batch, 0, &p->graph, err) : status;
    status = status == TRM_OK && p->given != NULL
                 ? trmi_partition_plan_check(p->given, p->graph, p->ranks, err)
                 : status;
    status = status == TRM_OK && p->pipe.file != NULL ? trmi_planner_check_given(p, err) : status;
    p->classes = status == TRM_OK ? trmi_planner_class_count(p->graph) : 0;
    status = status == TRM_OK ? settle_whole(p, err) : status;
    if (status != TRM_OK) { /* the same on all ranks */
        trm_planner_destroy(p);
        return status;
    }
    /* other ranks serve measurements until rank 0 ends the session; with `remeasures` they keep the
     * planner for later ones */
    if (!leads) {
        int together;
        p->probe = (trmi_op_benchmark){.comm = comm,
                                       .graph = p->graph,
                                       .part = trmi_planner_part,
                                       .context = p,
                                       .backend = model->exec.backend,
                                       .tuning_file = model->exec.tuning_file,
                                       .cores = p->probe.cores,
                                       .strict = model->exec.parallel.block != 0,
                                       .optimizer = model->exec.optimizer,
                                       .whole = p->whole,
                                       .whole_options = &p->whole_options,
                                       .limit = model->exec.memory_bytes};
        settle_threads(p, &p->probe.threads, &together);
        status = trmi_op_benchmark_serve(&p->probe, err);
        bool stays = status == TRM_OK && options->remeasures;
        trmi_op_benchmark_close(&p->probe);
        if (!stays) {
            trm_planner_destroy(p);
        }
        *out = stays ? p : NULL;
        return status;
    }
    /* rank 0: plans, and ends the session even after an error; until then the others wait */
    status = plan_together(p, err);
    status = status == TRM_OK ? finish_alone(p, err) : status;
    if (comm != NULL) {
        trm_error later;
        trm_status ended = trmi_op_benchmark_end(&p->probe, status == TRM_OK ? err : &later);
        status = status == TRM_OK ? ended : status;
    }
    trmi_op_benchmark_close(&p->probe);
    if (status != TRM_OK) {
        trm_planner_destroy(p);
        return status;
    }
    p->total_seconds = trmi_os_now() - begin;
    *out = p;
    return TRM_OK;
}

/* Contract in trireme/plan.h. Spaces and candidates point into graphs and costs, so they go
 * first. */
void trm_planner_destroy(trm_planner *p) {
    if (p == NULL) {
        return;
    }
    trmi_planner_forget_simulation(p);
    trmi_planner_free_stages(p);
    trmi_auto_free(&p->drive);
    trmi_partition_plan_destroy(p->given);
    trm_graph_destroy(p->graph);
    trm_graph_destroy(p->whole);
    trmi_costs_close(&p->costs);
    trmi_op_benchmark_close(&p->probe);
    trm_free(p->links_text);
    trmi_free(p->measurements);
    trmi_arena_free(&p->arena);
    trmi_free(p);
}

/* Contract in trireme/plan.h. The bound holds for all meshes that were searched, so it is the
 * least of their bounds. */
void trm_planner_get_info(const trm_planner *p, trm_planner_info *out) {
    TRMI_NEED_OR(, NULL, p, out);
    const trmi_auto_mesh *plain = trmi_planner_best(p), *m = p->pipe.chosen ? &p->pipe.mesh : plain;
    memset(out, 0, sizeof *out);
    trmi_mesh_text(&m->mesh, out->mesh, sizeof out->mesh);
    double bound = trmi_auto_bound(&p->drive);
    for (int32_t i = 0; i < p->drive.meshes_count; i++) {
        out->solve_seconds += p->drive.meshes[i].found.solve_seconds;
    }
    if (p->pipe.searched) {
        bound = p->pipe.lower_bound;
        out->solve_seconds += p->pipe.found.seconds;
    }
    if (p->pipe.chosen) {
        const trmi_pipe_shape *shape = &p->pipe.found.rows[0].plan.shape;
        out->stages = shape->stages;
        out->chunks = shape->chunks;
        out->micro_batches = shape->micros;
    }
    out->ranks = p->ranks;
    out->infeasible = m->found.infeasible;
    out->step_seconds = m->found.objective;
    out->samples_per_second = (double)p->batch / m->found.objective;
    out->memory_bytes = m->found.best.measure.bytes;
    out->compiled_bytes = p->pipe.chosen ? p->pipe.compiled_bytes : p->drive.compiled_bytes;
    out->lower_bound = bound;
    out->gap = (out->step_seconds - bound) / out->step_seconds;
    out->search_seconds = p->drive.search_seconds;
    out->total_seconds = p->total_seconds;
    out->data_parallel_seconds =
        plain->found.baselines_count > 0 ? plain->found.baselines[0].measure.step : 0;
    /* Plans that ran in turns are sorted by prediction: the last one is the farthest. */
    out->tried = p->drive.trial.turns > 0 ? p->drive.trial.count : 0;
    out->tried_within =
        out->tried > 0
            ? p->drive.trial.list[out->tried - 1].predicted / p->drive.trial.list[0].predicted - 1
            : 0;
    out->meshes = p->drive.meshes_count;
    out->operators = m->space->nodes_count;
    out->measured = (int32_t)p->costs.count;
    out->measurements = p->measurements != NULL ? p->measurements->count : 1;
}
