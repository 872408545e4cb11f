/* SPDX-License-Identifier: Apache-2.0 */
/* The way `stages`: options, communicators, memory, and what all stages agree on. stages_run.c
 * walks the schedule, stages_messages.c sends values between stages, stages_variables.c gathers
 * variables.
 *
 *   ranks of the job    0 1 | 2 3 | 4 5        3 stages of 2 ranks
 *   `inner`             the ranks of one stage: all that the other ways see (open_stages)
 *
 * A stage is an executor of its own program. What one optimiser would know, the stages agree on
 * once a step: the loss of the last stage, stop flags, norms of all gradients, whether a gradient
 * is not finite. Invariant: they agree in the same order on every rank, also after an error, so
 * that no stage waits for one that has failed. */
#include "exec/distributed/stages.h"

#include "exec/distributed/ranks_state.h"
#include "exec/exec.h"

#include "base/error.h"
#include "base/memory.h"
#include "comm/shm/shared_buffers.h"

#include <string.h>

_Static_assert((int)TRM_SCHEDULE_1F1B == (int)TRMI_ORDER_1F1B &&
                   (int)TRM_SCHEDULE_GPIPE == (int)TRMI_ORDER_GPIPE &&
                   (int)TRM_SCHEDULE_INTERLEAVED == (int)TRMI_ORDER_INTERLEAVED,
               "plan has the same words");

/* ---- open ------------------------------------------------------------------------------------ */

/* Checks the options that a pipeline excludes. Searching plans with stages is the planner's
 * work, which happens before an executor exists. */
static trm_status check_options(const trm_exec *exec, const trm_exec_options *o, int32_t ranks,
                                trm_error *err) {
    const trm_parallel_options *p = &o->parallel;
    int32_t stages = p->pipeline.stages;
    if (ranks % stages != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "pipeline of %d stages: %d ranks found, a multiple of the stages expected",
                         stages, ranks);
    }
    if (p->split.kind == TRM_SPLIT_SEARCHED) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "pipeline of %d stages: plans of an executor are searched without stages; "
                         "search them before it is made (trm_planner_share, trireme train "
                         "--stages)",
                         stages);
    }
    if (exec->updated_elsewhere || o->parameters_of != NULL || o->loss.id == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "pipeline of %d stages: only a training program with its own parameters "
                         "and optimiser has stages",
                         stages);
    }
    if (p->layerwise_count > 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "pipeline of %d stages: layerwise parameters (%.60s) are for data "
                         "parallel without stages",
                         stages, p->layerwise[0]);
    }
    return TRM_OK;
}

static trm_status make_comms(trmi_stages *s, int32_t inner, trm_error *err) {
    int32_t rank = trm_comm_rank(s->world);
    s->options.stage = rank / inner;
    TRMI_TRY(trm_comm_split(s->world, rank / inner, rank, &s->inner, err));
    return trm_comm_split(s->world, rank % inner, rank, &s->pipe, err);
}

/* Makes the communicators of a pipeline, and replaces the ranks in *options by those of this stage.
 * The way walks the schedule instead of the program, in the last micro-batch of an update. */
static trm_status open_stages(trm_exec *exec, trm_exec_options *options, bool *active,
                              trm_error *err) {
    trm_parallel_options *p = &options->parallel;
    int32_t stages = p->pipeline.stages, chunks = p->pipeline.chunks;
    if (stages <= 1) {
        return TRM_OK;
    }
    int32_t ranks = p->comm != NULL ? trm_comm_size(p->comm) : 1;
    TRMI_TRY(check_options(exec, options, ranks, err));
    trmi_stages *s;
    TRMI_TRY(TRMI_NEW(err, s, 1, "for the stages of a pipeline"));
    trmi_distribution_keep(exec, &trmi_stages_key, s);
    *active = true;
    exec->walk_program = trmi_stages_walk;
    exec->together = true;
    /* Interleaved schedules have at least two chunks on each rank. */
    bool interleaved = p->pipeline.schedule == TRM_SCHEDULE_INTERLEAVED;
    s->world = p->comm;
    s->options = (trmi_stage_options){.stages = stages,
                                      .chunks = chunks > 0    ? chunks
                                                : interleaved ? 2
                                                              : 1,
                                      .micros = exec->accumulate,
                                      .order = (trmi_pipeline_order)p->pipeline.schedule};
    if (p->pipeline.begins != NULL) {
        s->options.begins = trmi_arena_strdup(&exec->memory, p->pipeline.begins);
        TRMI_TRY(TRMI_CHECK_MEMORY(err, &exec->memory, "for the stages of a pipeline"));
    }
    /* From here on the other ways see the ranks of this stage only. */
    TRMI_TRY(make_comms(s, ranks / stages, err));
    p->comm = s->inner;
    return TRM_OK;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Gradients of micro-batches are summed, and the copies of a value have one place each. */
static trm_status plan_stages(trm_exec *exec, const trm_graph *graph,
                              const trm_exec_options *options, trmi_plan_options *plan,
                              trm_error *err) {
    (void)graph;
    (void)options;
    (void)err;
    plan->stages = &trmi_stages_of(exec)->options;
    plan->dense_gradients = true;
    plan->factored_gradients = false;
    return TRM_OK;
}

/* Takes memory for INPUT: as it is fed, and a copy for each micro-batch. */
static trm_status take_inputs(trmi_stages *s, size_t bytes, void **out, trm_error *err) {
    char *memory = trmi_map(bytes * (size_t)(1 + s->options.micros));
    if (memory == NULL) {
        return TRMI_NO_MEMORY(err, "for the inputs of %d micro-batches", s->options.micros);
    }
    s->inputs_bytes = bytes;
    s->fed = memory;
    s->inputs = s->fed + bytes;
    *out = memory;
    return TRM_OK;
}

/* Takes the memory of INPUT and, where options ask for it, memory that other stages reach: for
 * parameters and for other uses. The ranks of a stage, if there are several, take that in the way
 * `ranks`. */
static trm_status take_memory(trm_exec *exec, trmi_arena_id arena, size_t bytes, void **out,
                              trm_error *err) {
    trmi_stages *s = trmi_stages_of(exec);
    const int32_t most = sizeof s->shared / sizeof s->shared[0];
    if (arena == TRMI_ARENA_INPUT) {
        return take_inputs(s, bytes, out, err);
    }
    if ((arena != TRMI_ARENA_PARAM && arena != TRMI_ARENA_NONE) || trmi_parallel_of(exec) != NULL ||
        !exec->lends_state || s->shared_count == most) {
        return TRM_UNSUPPORTED;
    }
    void *memory = trmi_comm_reserve_shared(s->world, bytes, err);
    if (memory == NULL) {
        return TRM_NOMEM;
    }
    s->shared[s->shared_count++] = *out = memory;
    if (arena == TRMI_ARENA_PARAM) {
        trmi_comm_fill_shared(memory, trmi_shared_resident(bytes));
    }
    return TRM_OK;
}

static trm_status connect_stages(trm_exec *exec, const trm_exec_options *options, trm_error *err) {
    trmi_stages *s = trmi_stages_of(exec);
    (void)options;
    TRMI_TRY(trmi_stages_check_shared(exec, err));
    s->kept = exec->env.arena[TRMI_ARENA_KEPT];
    return trmi_stages_open_messages(exec, err);
}

/* Sums of squares of all stages: trmi_update_exchange. `context`: the exec. */
static trm_status add_over_stages(void *context, double *sums, int64_t count, trm_error *err) {
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = sums,
                               .count = count,
                               .dtype = TRM_FLOAT64,
                               .reduce = TRM_REDUCTION_SUM,
                               .tag = "norms of the stages"};
    return trm_comm_run(trmi_stages_of(context)->pipe, &op, err);
}

/* Joins the norms of all stages, and counts the copies of activations, inputs of micro-batches, and
 * messages. */
static trm_status begin_stages(trm_exec *exec, trm_error *err) {
    (void)err;
    trmi_update_join(exec->update, add_over_stages, exec);
    exec->added.activation_bytes += exec->program->arena_bytes[TRMI_ARENA_KEPT];
    exec->added.other_bytes += trmi_staged_bytes(exec->program);
    return TRM_OK;
}

static void close_stages(trm_exec *exec) {
    trmi_stages *s = trmi_stages_of(exec);
    trmi_stages_close_messages(exec);
    if (s->fed != NULL) {
        trmi_unmap(s->fed, s->inputs_bytes * (size_t)(1 + s->options.micros));
    }
    for (int32_t i = 0; i < s->shared_count; i++) {
        trm_comm_free_shared(s->world, s->shared[i]);
    }
    trm_comm_destroy(s->pipe);
    trm_comm_destroy(s->inner);
    trmi_free(s);
    trmi_distribution_keep(exec, &trmi_stages_key, NULL);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Gives every rank the last stage's loss and the flags of all ranks. */
static trm_status agree_on_loss(trm_exec *exec, trm_error *err) {
    trmi_stages *s = trmi_stages_of(exec);
    const trmi_parallel *p = trmi_parallel_of(exec);
    s->agreed.loss = exec->program->outputs[0] != 0 ? trm_exec_loss(exec) : 0;
    for (int which = 0; which < TRMI_FLAGS; which++) {
        bool raised = exec->raised[which] || (p != NULL && p->agreed->flags[which] > 0);
        s->agreed.flags[which] = raised ? 1 : 0;
    }
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = &s->agreed,
                               .count = 1 + TRMI_FLAGS,
                               .dtype = TRM_FLOAT32,
                               .reduce = TRM_REDUCTION_SUM,
                               .tag = "loss of the pipeline"};
    TRMI_TRY(trm_comm_run(s->pipe, &op, err));
    s->valid = true;
    exec->loss = &s->agreed.loss;
    return TRM_OK;
}

/* Waits for the messages of the step, and agrees on the loss after the last micro-batch. */
static trm_status finish_stages(trm_exec *exec, bool training, trm_status status, trm_error *err) {
    (void)training; /* begin_batch refuses a forward pass alone */
    trmi_stages *s = trmi_stages_of(exec);
    if (status != TRM_OK) {
        trm_comm_abort(s->world, err); /* the other stages must not wait for what never comes */
    }
    TRMI_TRY(trmi_stages_wait(exec, status, err));
    return exec->accumulated + 1 >= exec->accumulate ? agree_on_loss(exec, err) : TRM_OK;
}

/* Implements trmi_distribution.agree. The ranks of each stage have agreed before. What one of them
 * found in the gradients concerns the ranks of its number in the other stages, too. */
static trm_status agree_stages(trm_exec *exec, bool of_gradients, int32_t *first, trm_error *err) {
    const trmi_stages *s = trmi_stages_of(exec);
    int32_t rank = *first >= 0 ? trm_comm_rank(s->world) : INT32_MAX;
    TRMI_TRY(trm_comm_allreduce(of_gradients ? s->pipe : s->world, &rank, 1, TRM_INT32,
                                TRM_REDUCTION_MIN, err));
    *first = rank == INT32_MAX ? -1 : rank;
    return TRM_OK;
}

static trm_status begin_batch(trm_exec *exec, bool training, trm_error *err) {
    trmi_stages_of(exec)->valid = false;
    exec->loss = NULL;
    return training ? TRM_OK
                    : TRMI_FAIL(err, TRM_INVALID,
                                "a pipeline of %d stages runs training steps only; evaluate with "
                                "an executor that has the whole graph",
                                trmi_stages_of(exec)->options.stages);
}

const trmi_distribution trmi_way_stages = {
    .name = "stages",
    .outer = true,
    .open = open_stages,
    .plan = plan_stages,
    .memory = take_memory,
    .bind = trmi_stages_bind,
    .connect = connect_stages,
    .begin = begin_stages,
    .close = close_stages,
    .before_step = begin_batch,
    .finish = finish_stages,
    .agree = agree_stages,
    .publish = trmi_stages_publish,
    .gather = trmi_stages_gather,
    .hold = trmi_stages_hold,
};
