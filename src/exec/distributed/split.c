/* SPDX-License-Identifier: Apache-2.0 */
/* The way `split`: the graph is cut operator by operator over a mesh of ranks
 * (plan/partition/partition.h), so that each rank has a program of its own. This file has the
 * hooks (trmi_way_split); split_plan.c, split_groups.c and split_variables.c do the work.
 *
 * All ranks call the hooks in the same order (distribution.c). Those that speak to other ranks,
 * plan and connect, are collective. */
#include "exec/exec.h"
#include "exec/exec_memory.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"

#include "base/error.h"

/* Activates the way where options ask for a split graph, and reads its plan. */
static trm_status open_split(trm_exec *exec, const trm_exec_options *options, bool *active,
                             trm_error *err) {
    *active = trmi_parallel_of(exec) != NULL && options->parallel.split.kind != TRM_SPLIT_NONE;
    return *active ? trmi_split_prepare(exec, err) : TRM_OK;
}

/* Completes the plan with the other ranks; then one rank after the other measures its own
 * program. */
static trm_status plan_split(trm_exec *exec, const trm_graph *graph,
                             const trm_exec_options *options, trmi_plan_options *plan,
                             trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    trmi_split_run *run = p->split;
    run->tuning_file = options->tuning_file;
    run->options = options;
    run->slices = trmi_split_may_slice(exec, options);
    if (p->options.split.input_cuts != NULL) {
        TRMI_TRY(trmi_input_cuts_check(p->options.split.input_cuts, graph, p->size, err));
    }
    plan->local_norms = options->parallel.sync_batch_norm == TRM_NORM_LOCAL;
    TRMI_TRY(trmi_split_complete(exec, graph, plan, err));
    TRMI_TRY(trmi_parallel_await_turn(exec, err));
    run->plan->blocks = plan->blocks;
    plan->partition = run->plan;
    plan->rank = p->rank;
    plan->report = p->rank == 0 ? &run->report : NULL;
    return TRM_OK;
}

/* Reports what the plan could not split, and decides whether ranks update slices. */
static trm_status place_split(trm_exec *exec, const trm_exec_options *options,
                              const trmi_plan_options *plan, trm_error *err) {
    (void)options;
    (void)plan;
    (void)err;
    trmi_split_warn(exec, &trmi_parallel_of(exec)->split->report);
    trmi_partition_report_free(&trmi_parallel_of(exec)->split->report);
    trmi_split_settle_slices(exec);
    return TRM_OK;
}

/* Binds the kernels of steps that move values between ranks. */
static trm_status bind_moves(trm_exec *exec, trmi_kernel *kernel, trm_error *err) {
    (void)exec;
    return trmi_split_bind(kernel, err);
}

/* Makes the communicators of the mesh axes and the memory of inputs that callers feed whole. */
static trm_status connect_split(trm_exec *exec, const trm_exec_options *options, trm_error *err) {
    (void)options;
    TRMI_TRY(trmi_split_open(exec, err));
    TRMI_TRY(trmi_split_save_groups(exec, err));
    return trmi_split_make_inputs(exec, err);
}

/* Prepares the norms. Without slices each rank updates its own parts of the parameters: norms are
 * those of the whole. */
static trm_status begin_split(trm_exec *exec, trm_error *err) {
    (void)err;
    if (!trmi_parallel_of(exec)->options.shard_optimizer) {
        trmi_update_share(exec->update, NULL, exec->norms != NULL ? exec->norms : trmi_split_norms,
                          exec);
    }
    return TRM_OK;
}

/* Copies this rank's parts out of the inputs that were fed whole. */
static trm_status take_inputs(trm_exec *exec, bool training, trm_error *err) {
    (void)training;
    return trmi_split_take_inputs(exec, err);
}

/* ---- reports --------------------------------------------------------------------------------- */

/* Returns whether callers feed this rank's samples only, not the whole batch. */
static bool feeds_parts(const trmi_parallel *p) {
    return p->options.batch == TRM_BATCH_OF_RANK || p->options.split.input_cuts != NULL;
}

/* Adds the memory of inputs that callers feed whole. */
static void describe_split(const trm_exec *exec, trm_exec_info *info) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    info->other_bytes += trmi_parallel_of(exec)->split->whole_inputs == NULL
                             ? 0
                             : trmi_program_fed_bytes(exec->program, p->size, feeds_parts(p));
}

/* Counts for a program that is not run how its ranks feed samples and divide the optimiser. */
static void count_split(const trm_exec *exec, const trm_program *program,
                        const struct trmi_mesh *mesh, trmi_training *how) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    mesh = mesh != NULL ? mesh : &p->split->plan->mesh;
    how->own_samples = feeds_parts(p);
    how->sliced = p->split->slices && trmi_split_is_sliced(program, mesh);
    how->one_copy = how->sliced && trm_comm_local_size(p->comm) == p->size;
}

const trmi_distribution trmi_way_split = {
    .name = "split",
    .open = open_split,
    .plan = plan_split,
    .place = place_split,
    .bind = bind_moves,
    .connect = connect_split,
    .begin = begin_split,
    .close = trmi_split_close,
    .schedule = trmi_split_schedule,
    .before_step = take_inputs,
    .finish_backward = trmi_split_finish,
    .gather = trmi_split_gather,
    .assemble = trmi_split_assemble,
    .hold = trmi_split_hold,
    .input = trmi_split_input_place,
    .feed = trmi_split_feed,
    .describe = describe_split,
    .count = count_split,
};
