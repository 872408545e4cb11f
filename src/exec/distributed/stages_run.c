/* SPDX-License-Identifier: Apache-2.0 */
/* A training step of a rank that runs a stage of a pipeline.
 *
 *      trmi_stages_walk   copies each micro-batch that the caller feeds; with the last one it runs
 *                         the rank's actions (plan/pipeline/stage_schedule.h)
 *      run_schedule       one action: a chunk of the stage forward or backward for one micro-batch
 *
 * Each micro-batch has its own copy of the inputs, and of the values that backward reads. Before an
 * action the arenas INPUT and KEPT point to the copies of its micro-batch; after the last one they
 * point to the first copies again. */
#include "exec/distributed/stages.h"
#include "exec/exec.h"

#include "base/error.h"

#include <string.h>

/* Points the arenas INPUT and KEPT to their copies for a micro-batch. */
static void enter_micro_batch(trm_exec *exec, const trmi_stage_chunk *chunk, int32_t micro) {
    trmi_stages *s = trmi_stages_of(exec);
    s->micro = micro;
    exec->env.arena[TRMI_ARENA_INPUT] = s->inputs + (size_t)micro * s->inputs_bytes;
    exec->env.arena[TRMI_ARENA_KEPT] = s->kept + micro % chunk->copies * chunk->kept_bytes;
    exec->accumulated = exec->accumulator != NULL ? micro : 0;
}

/* Points the arenas back to their first copies, into which callers feed and with which the next
 * step begins, and restores `accumulated`. */
static void leave_micro_batches(trm_exec *exec, int32_t accumulated) {
    trmi_stages *s = trmi_stages_of(exec);
    exec->env.arena[TRMI_ARENA_INPUT] = s->fed;
    exec->env.arena[TRMI_ARENA_KEPT] = s->kept;
    exec->accumulated = accumulated;
}

/* Runs the actions of the ways that come after step `begin` and not after step `end`. */
static trm_status run_way_actions(trm_exec *exec, int32_t begin, int32_t end, trm_error *err) {
    for (int32_t i = 0; i < exec->actions_count; i++) {
        const trmi_action *action = &exec->actions[i];
        if (action->before > begin && action->before <= end) {
            TRMI_TRY(action->run(exec, action->item, err));
        }
    }
    return TRM_OK;
}

/* Runs the steps [begin, end) and the actions between and after them. */
static trm_status walk_steps(trm_exec *exec, int32_t begin, int32_t end, trm_error *err) {
    for (int32_t at = begin; at < end;) {
        int32_t next = end;
        for (int32_t i = 0; i < exec->actions_count; i++) {
            int32_t before = exec->actions[i].before;
            next = before > at && before < next ? before : next;
        }
        TRMI_TRY(exec->walk(exec, at, next, err));
        TRMI_TRY(run_way_actions(exec, next - 1, next, err));
        at = next;
    }
    return TRM_OK;
}

/* Runs a chunk forward. If the chunk computes the loss, adds the micro-batch's loss to the mean
 * over the micro-batches. After the last one runs the actions of the ways. */
static trm_status run_forward(trm_exec *exec, const int32_t steps[2], bool last, trm_error *err) {
    trmi_stages *s = trmi_stages_of(exec);
    exec->own_loss = NULL;
    TRMI_TRY(exec->walk(exec, steps[0], steps[1], err));
    int32_t loss = exec->program->outputs[0];
    const trmi_buffer *b = &exec->program->buffers[loss];
    if (loss != 0 && b->first_step >= steps[0] && b->first_step < steps[1]) {
        s->loss_sum += (double)trmi_exec_own_loss(exec);
        s->loss = (float)(s->loss_sum / s->options.micros);
    }
    exec->own_loss = &s->loss;
    return last ? run_way_actions(exec, steps[0], steps[1], err) : TRM_OK;
}

/* Runs a chunk backward and adds its gradients of this micro-batch to the accumulator. With the
 * last micro-batch the actions of the ways run; a way with adds_up adds the last gradients
 * itself. */
static trm_status run_backward(trm_exec *exec, const trmi_stage_chunk *chunk, bool last,
                               trm_error *err) {
    const int32_t *steps = chunk->steps[1];
    TRMI_TRY(last ? walk_steps(exec, steps[0], steps[1], err)
                  : exec->walk(exec, steps[0], steps[1], err));
    if (exec->accumulator != NULL && !(last && exec->adds_up)) {
        int64_t begin = chunk->gradients_begin / (int64_t)sizeof(float);
        trmi_exec_accumulate(exec, begin, chunk->gradients_end / (int64_t)sizeof(float) - begin);
    }
    return TRM_OK;
}

/* Runs the schedule of this stage: each action is the forward or the backward of one chunk for
 * one micro-batch. */
static trm_status run_schedule(trm_exec *exec, trm_error *err) {
    const trmi_staged *staged = exec->program->staged;
    const trmi_pipeline *p = &staged->pipeline;
    const trmi_pipeline_action *actions = p->actions + staged->stage * p->count;
    for (int32_t i = 0; i < p->count; i++) {
        const trmi_stage_chunk *chunk = &staged->chunks[actions[i].chunk];
        bool last = actions[i].micro + 1 == p->micros;
        enter_micro_batch(exec, chunk, actions[i].micro);
        TRMI_TRY(actions[i].backward ? run_backward(exec, chunk, last, err)
                                     : run_forward(exec, chunk->steps[0], last, err));
    }
    return TRM_OK;
}

trm_status trmi_stages_walk(trm_exec *exec, trm_error *err) {
    trmi_stages *s = trmi_stages_of(exec);
    int32_t micro = exec->accumulator != NULL ? exec->accumulated : 0;
    memcpy(s->inputs + (size_t)micro * s->inputs_bytes, s->fed, s->inputs_bytes);
    if (micro + 1 < s->options.micros) {
        return TRM_OK;
    }
    trmi_stages_rewind(exec);
    s->loss_sum = 0;
    trm_status status = run_schedule(exec, err);
    leave_micro_batches(exec, micro);
    return status;
}
