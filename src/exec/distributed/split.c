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

/* Returns whether callers feed this rank's samples only, not the whole batch. */
static bool feeds_parts(const trmi_parallel *p) {
    return p->options.batch == TRM_BATCH_OF_RANK || p->options.split.input_cuts != NULL;
}

/* Activates the way where options ask for a split graph, and reads its plan. */
static trm_status open_split(trm_exec *exec, trm_exec_options *options, bool *active,
                             trm_error *err) {
    *active = trmi_parallel_of(exec) != NULL && options->parallel.split.kind != TRM_SPLIT_NONE;
    if (!*active) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_split_prepare(exec, err));
    trmi_parallel *p = trmi_parallel_of(exec);
    p->split->slices =
        options->parallel.shard_optimizer && !exec->updated_elsewhere && !options->whole_gradients;
    exec->divided.own_samples = feeds_parts(p);
    exec->divided.sliced = p->split->slices;
    return TRM_OK;
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

/* Reports what the plan could not split, and decides whether ranks update slices, as in data
 * parallel: where the plan leaves every parameter whole. The same on all ranks. */
static trm_status place_split(trm_exec *exec, trm_error *err) {
    (void)err;
    trmi_parallel *p = trmi_parallel_of(exec);
    trmi_split_warn(exec, &p->split->report);
    trmi_partition_report_free(&p->split->report);
    p->options.shard_optimizer = p->split->slices && trmi_program_is_whole(exec->program);
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
    TRMI_TRY(trmi_split_make_inputs(exec, err));
    const trmi_parallel *p = trmi_parallel_of(exec);
    exec->added.other_bytes += p->split->whole_inputs != NULL
                                   ? trmi_program_fed_bytes(exec->program, p->size, feeds_parts(p))
                                   : 0;
    return TRM_OK;
}

/* Prepares the norms, and adds the messages that begin ahead of their steps. Without slices each
 * rank updates its own parts of the parameters: norms are those of the whole. */
static trm_status begin_split(trm_exec *exec, trm_error *err) {
    (void)err;
    if (!trmi_parallel_of(exec)->options.shard_optimizer) {
        trmi_update_share(exec->update, NULL, exec->norms != NULL ? exec->norms : trmi_split_norms,
                          exec);
    }
    trmi_split_add_messages(exec);
    return TRM_OK;
}

/* Copies this rank's parts out of the inputs that were fed whole. */
static trm_status take_inputs(trm_exec *exec, bool training, trm_error *err) {
    (void)training;
    return trmi_split_take_inputs(exec, err);
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
    .before_step = take_inputs,
    .finish = trmi_split_finish,
    .feed = trmi_split_feed,
    .gather = trmi_split_gather,
    .hold = trmi_split_hold,
};
