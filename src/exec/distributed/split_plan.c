/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the plan of a split executor: the one in its options, one that is searched (by
 * exec->search), or every operator by samples. Then decides whether ranks have slices of the
 * optimiser, which needs a plan that leaves every parameter whole.
 *
 *   prepare    mesh, and what a plan of the options says     before the graph is differentiated
 *   complete   the plan, searched or completed               on the training graph
 *   settle     slices of the optimiser or not                on the compiled program
 *   mix        a digest of what all ranks must have in common, compared before the first step
 *
 * Invariant: every rank decides alike, as it has the same options and graph, and a plan that rank 0
 * has searched is sent to all. */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"

#include "base/error.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* Contract in split.h. The mesh comes from the plan, from the options, or is one axis of all ranks;
 * the ranks of the mesh must be those of the job. What a plan decides (slices of the optimiser,
 * whose statistics batch norm has) is reset here, and set once the plan is complete. */
trm_status trmi_split_prepare(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    const trm_parallel_options *o = &p->options;
    trmi_mesh mesh;
    char text[32];
    trmi_split_run *run = trmi_arena_alloc(&exec->memory, sizeof *run);
    if (run == NULL) {
        return TRMI_NO_MEMORY(err, "to split a graph");
    }
    if (o->layerwise_count > 0 || o->sync_batch_norm > 1) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "a split graph (found %d layerwise parameters, sync_batch_norm %d; none, and 0 or %d "
            "expected): the plan places each parameter; use data parallel, or leave them out",
            o->layerwise_count, o->sync_batch_norm, TRM_NORM_LOCAL);
    }
    /* Options that only the finished plan can settle are reset. */
    p->options.shard_optimizer = false; /* until the plan is known */
    run->world = p->comm;
    p->options.sum = true;
    p->options.sync_batch_norm =
        TRM_NORM_LOCAL; /* the exchanges of batch norm are operators of the graph */
    if (o->split.plan != NULL) {
        TRMI_TRY(trmi_partition_plan_parse(o->split.plan, strlen(o->split.plan), "plan", &run->plan,
                                           err));
        p->split = run;
    }
    /* Without a mesh there is one axis of all ranks. A given mesh must fit a given plan. */
    snprintf(text, sizeof text, "%d", p->size);
    TRMI_TRY(trmi_mesh_parse(o->split.mesh != NULL ? o->split.mesh : text, &mesh, err));
    if (run->plan == NULL) {
        TRMI_TRY(trmi_partition_plan_create(&mesh, &run->plan, err));
        p->split = run;
    } else if (o->split.mesh != NULL) {
        TRMI_TRY(trmi_partition_plan_on(run->plan, &mesh, err));
    }
    /* The mesh is known now: its ranks must be those of the job. */
    if (trmi_mesh_ranks(&run->plan->mesh) != p->size) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "mesh %s has %d ranks, this job has %d; give a mesh of as many ranks",
                         trmi_mesh_text(&run->plan->mesh, text, sizeof text),
                         trmi_mesh_ranks(&run->plan->mesh), p->size);
    }
    return TRM_OK;
}

/* Cuts operators that read the batch, unless they are pinned, by samples on every axis. */
static trm_status cut_readers_by_samples(trmi_partition_plan *plan, const trm_graph *graph,
                                         trm_error *err) {
    char all[TRMI_MESH_AXES + 1] = "";
    memset(all, 'n', (size_t)plan->mesh.axes);
    for (int64_t i = 1; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        bool reads = false;
        for (int32_t j = 0; j < op->inputs_count; j++) {
            const trmi_value *v = trmi_input_of(graph, op, j);
            reads = reads ||
                    (v != NULL && graph->ops[v->op].kind == TRMI_OP_INPUT && v->shape.rank >= 2);
        }
        trmi_strategy strategy;
        if (reads && op->phase == TRMI_FORWARD &&
            trmi_partition_plan_find(plan, op->name) == NULL &&
            trmi_partition_strategy(graph, op, &plan->mesh, all, &strategy)) {
            TRMI_TRY(trmi_partition_plan_set(plan, op->name, all, false, NULL, err));
        }
    }
    return TRM_OK;
}

/* Contract in split.h. The plan comes from a search, from the given text (operators that read
 * the batch and are not named in it are cut by samples), or, without any choice, is "all
 * operators by samples". The digest ties a saved plan to this graph. */
trm_status trmi_split_complete(trm_exec *exec, const trm_graph *graph,
                               const trmi_plan_options *options, trm_error *err) {
    trmi_split_run *run = trmi_parallel_of(exec)->split;
    bool pinned = run->plan->choices_count > 0;
    trmi_arena arena = {0};
    trmi_roots roots;
    trm_graph *training;
    trm_status status = trmi_training_graph(graph, options, &training, &roots, &arena, err);
    if (status == TRM_OK) {
        /* AUTO_PARALLEL searches; without any choice operators are cut by samples; else the given
         * plan is checked against the graph. */
        if (trmi_parallel_of(exec)->options.split.kind == TRM_SPLIT_SEARCHED) {
            status = exec->search(exec, graph, options, training, err);
        } else if (!pinned && run->plan->stores_count == 0) {
            trmi_partition_plan *samples;
            status = trmi_partition_plan_samples(training, &run->plan->mesh, &samples, err);
            if (status == TRM_OK) {
                trmi_partition_plan_destroy(run->plan);
                run->plan = samples;
            }
        } else {
            status =
                trmi_partition_plan_check(run->plan, training, trmi_parallel_of(exec)->size, err);
            status = status == TRM_OK ? cut_readers_by_samples(run->plan, training, err) : status;
        }
        run->plan->digest = status == TRM_OK ? trmi_partition_digest(training) : 0;
        trm_graph_destroy(training);
    }
    trmi_arena_free(&arena);
    const char *file = trmi_parallel_of(exec)->options.split.save_plan;
    if (status == TRM_OK && file != NULL && trmi_parallel_of(exec)->rank == 0) {
        status = trmi_partition_plan_save(run->plan, file, err);
    }
    return status;
}

/* Contract in split.h. An operator without a rule for cutting is computed whole by each rank,
 * which is correct but slow; the price lets a user decide whether that matters. */
void trmi_split_warn(const trm_exec *exec, const trmi_partition_report *report) {
    const trmi_target *target = &exec->backend->target;
    /* a target without measured speed counts as 100 GFLOP/s and 20 GB/s */
    double flops = target->flops_per_second > 0 ? target->flops_per_second : 1e11;
    double bytes = target->bytes_per_second > 0 ? target->bytes_per_second : 2e10;
    int32_t ranks = trmi_parallel_of(exec)->size, passes = exec->program->training ? 3 : 1;
    for (int64_t i = 0; i < report->work_count; i++) {
        const trmi_partition_work *w = &report->work[i];
        /* the part of the operator's time that a division among the ranks would save */
        double compute = w->cost.flops / flops, traffic = w->cost.bytes / bytes;
        double seconds = (compute > traffic ? compute : traffic) * passes * (1 - 1.0 / ranks);
        if (w->phase == TRMI_FORWARD && w->warning != NULL && w->cost.bytes > 0) {
            trmi_log(TRM_LOG_WARN, "plan",
                     "%s runs whole on each of %d ranks: %s; about %.3g ms of a step that they "
                     "could share, "
                     "and its input gathered",
                     w->op, ranks, w->warning, seconds * 1e3);
        }
    }
}

/* Contract in split.h. Mixes in what ranks of a split program must have in common; places and sizes
 * of their parts may differ. */
uint64_t trmi_split_mix(const trm_exec *exec, uint64_t hash) {
    const trm_program *p = exec->program;
    /* Write the plan. */
    char *text = trmi_partition_plan_text(trmi_parallel_of(exec)->split->plan);
    hash = text != NULL ? trmi_hash(hash, text, strlen(text)) : hash;
    /* each rank makes its parts from it */
    hash = trmi_hash(hash, &exec->env.seed, sizeof exec->env.seed);
    trm_free(text);
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *s = &p->steps[i];
        bool talks = s->kind == TRMI_STEP_OP &&
                     (s->op_kind == TRMI_OP_EXCHANGE || s->op_kind == TRMI_OP_ALL_REDUCE);
        if (talks) { /* both ends must lay their parts out alike */
            int32_t form[3] = {(int32_t)s->op_kind, (int32_t)p->buffers[s->inputs[0]].layout,
                               (int32_t)p->buffers[s->outputs[0]].layout};
            hash = trmi_hash(hash, form, sizeof form);
            hash = trmi_hash(hash, s->name, strlen(s->name));
        }
    }
    /* over which axes each gradient is summed */
    for (int32_t i = 0; i < p->params_count; i++) {
        hash = trmi_hash(hash, &p->params[i].grad_axes, sizeof p->params[i].grad_axes);
    }
    return hash;
}
