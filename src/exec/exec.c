/* SPDX-License-Identifier: Apache-2.0 */
/* The training step of an executor:
 *
 *      trm_exec_feed               the batch (exec_inputs_outputs.c; outputs too)
 *            |
 *      trm_exec_forward_backward   trmi_exec_walk_program: the kernels in order and, between them,
 *            |                     actions: of ways of training (exec/distributed/distribution.h),
 *            |                     and of the executor (trmi_exec_schedule)
 *      trm_exec_update             one pass of the optimiser over PARAM, GRAD and the slots, then
 *                                  the rows of tables; then the other ranks get the parameters
 *
 * exec_create.c makes and destroys an executor, exec_optimizer.c its optimiser; exec_variables.c
 * reads and writes its variables. One thread at a time uses an executor. After creation a step
 * allocates nothing and looks nothing up. */
#include "exec/exec.h"
#include "exec/threads.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/os.h"
#include "base/trace.h"

#include <string.h>

/* ---- the program ----------------------------------------------------------------------------- */

/* Runs one kernel and records it in the trace. All-reduces and exchanges are recorded as
 * communication, all other steps as compute. */
static trm_status run_recorded(trm_exec *exec, int32_t index, trm_error *err) {
    const trmi_kernel *kernel = &exec->kernels[index];
    const trmi_step *step = kernel->step;
    double begin = trmi_os_now();
    trm_status status = kernel->run(kernel, &exec->env, err);
    bool sends = step->kind == TRMI_STEP_OP &&
                 (step->op_kind == TRMI_OP_ALL_REDUCE || step->op_kind == TRMI_OP_EXCHANGE ||
                  step->op_kind == TRMI_OP_SEND || step->op_kind == TRMI_OP_RECEIVE);
    trmi_trace_add(exec->trace, &(trmi_trace_event){
                                    .category = sends ? "communication" : "compute",
                                    .name = step->name,
                                    .phase = step->phase == TRMI_FORWARD ? "forward" : "backward",
                                    .bytes = step->cost.bytes,
                                    .begin = begin,
                                    .end = trmi_os_now()});
    return status;
}

/* Contract in exec.h. A step whose output is there already (`made`: casts that another executor
 * or another rank has computed) is left out. */
trm_status trmi_exec_run(trm_exec *exec, int32_t begin, int32_t end, trm_error *err) {
    exec->env.micro = exec->accumulated;
    for (int32_t i = begin; i < end; i++) {
        const trmi_kernel *kernel = &exec->kernels[i];
        if (exec->made == NULL || exec->made[i] == 0) {
            TRMI_TRY(exec->trace == NULL ? kernel->run(kernel, &exec->env, err)
                                         : run_recorded(exec, i, err));
        }
        if (exec->step_end != NULL) {
            exec->step_end[i] = trmi_os_now() - exec->step_begin;
        }
    }
    return TRM_OK;
}

/* Contract in exec.h. The one loop of a training step: kernels in the order of the program, and
 * between them what the ways of training have scheduled (trmi_distribution_add). */
trm_status trmi_exec_walk_program(trm_exec *exec, trm_error *err) {
    bool last = exec->accumulated + 1 >= exec->accumulate;
    int32_t at = 0, end = exec->program->steps_count;
    /* Actions are sorted by the step that they precede: run the steps before each, then the action.
     * While batches are accumulated, actions with last_only run with the last batch only. */
    for (int32_t i = 0; i < exec->actions_count; i++) {
        const trmi_action *action = &exec->actions[i];
        if (action->last_only && !last) {
            continue;
        }
        if (action->before > at) {
            TRMI_TRY(exec->walk(exec, at, action->before, err));
            at = action->before;
        }
        TRMI_TRY(action->run(exec, action->item, err));
    }
    return at < end ? exec->walk(exec, at, end, err) : TRM_OK;
}

/* ---- forward and backward -------------------------------------------------------------------- */

/* Returns INVALID if an input that is read was never fed, nor its memory given out: a step would
 * compute with zeros; NOMEM if a variable does not have the values that were written to it. */
static trm_status check_values(const trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    if (exec->lacks_values) {
        return TRMI_FAIL(
            err, TRM_NOMEM,
            "a variable has its old values, because trm_exec_write found no memory for "
            "this rank's part of the new ones; create the executor again");
    }
    for (int32_t i = 0; exec->inputs_unknown > 0 && i < p->inputs_count; i++) {
        if (!exec->inputs_known[i]) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "input '%s' has no values; feed it, or write to its memory, before "
                             "the first step",
                             p->buffers[p->inputs[i]].name);
        }
    }
    return TRM_OK;
}

trm_status trm_exec_forward(trm_exec *exec, trm_error *err) {
    TRMI_NEED(err, exec);
    trmi_threads_use(exec->env.threads);
    TRMI_TRY(check_values(exec, err));
    TRMI_TRY(trmi_distribution_before_step(exec, false, err));
    exec->gradients_overwritten = exec->forward_overwrites;
    if (exec->casts_of != NULL && exec->casts_of->made != NULL) { /* the other program has run */
        exec->made = exec->kept;
    }
    TRMI_TRY(exec->walk(exec, 0, exec->program->backward_begin, err));
    exec->made = exec->kept != NULL ? exec->kept : exec->made;
    return trmi_distribution_finish(exec, false, TRM_OK, err);
}

/* Contract in trireme/exec.h. After an error, too, every way ends its part of the step, because
 * other ranks wait in the same collectives. */
trm_status trm_exec_forward_backward(trm_exec *exec, trm_error *err) {
    TRMI_NEED(err, exec);
    if (!exec->program->training) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "forward_backward needs a training graph and a loss; use trm_exec_forward");
    }
    /* The ways end every step, also a failed one, so that no collective stays open. */
    trmi_threads_use(exec->env.threads);
    double begin = trmi_os_now();
    trm_error own; /* the other ranks get the error even if the caller passes NULL */
    err = err != NULL ? err : &own;
    trm_status status = trmi_distribution_before_step(exec, true, err);
    status = status == TRM_OK ? check_values(exec, err) : status;
    status = status == TRM_OK ? exec->walk_program(exec, err) : status;
    TRMI_TRY(trmi_distribution_finish(exec, true, status, err));
    exec->gradients_overwritten = exec->inputs_given = false;
    exec->accumulated += exec->accumulator != NULL;
    exec->step_seconds += trmi_os_now() - begin;
    return TRM_OK;
}

float trmi_exec_own_loss(const trm_exec *exec) {
    const trm_program *p = exec->program;
    if (exec->own_loss != NULL) {
        return *exec->own_loss;
    }
    if (p->outputs_count == 0 || p->outputs[0] == 0) {
        return 0;
    }
    const trmi_buffer *b = &p->buffers[p->outputs[0]];
    return *(const float *)(const void *)(exec->env.arena[b->arena] + b->offset);
}

float trm_exec_loss(const trm_exec *exec) {
    TRMI_NEED_OR(0, NULL, exec);
    return exec->loss != NULL ? *exec->loss : trmi_exec_own_loss(exec);
}

/* ---- gradients, and those in factors --------------------------------------------------------- */

/* Contract in exec.h. Forward overwrites GRAD where a step before backward has its output or its
 * scratch there, and where gradients stay in factors or rows, which lie among the activations. */
bool trmi_exec_forward_overwrites(const trm_exec *exec) {
    const trm_program *p = exec->program;
    bool overwrites = false;
    for (int32_t i = 0; i < p->params_count; i++) {
        overwrites = overwrites || p->params[i].factor_left != 0 || p->params[i].sparse_rows != 0;
    }
    for (int32_t s = 0; s < p->backward_begin; s++) {
        for (int32_t i = 0; i < p->steps[s].outputs_count; i++) {
            const trmi_buffer *b = &p->buffers[p->steps[s].outputs[i]];
            overwrites = overwrites || b->arena == TRMI_ARENA_GRAD;
        }
        overwrites = overwrites || p->buffers[p->steps[s].scratch].arena == TRMI_ARENA_GRAD;
    }
    return p->training && exec->accumulator == NULL && overwrites;
}

trm_status trmi_exec_check_gradients(const trm_exec *exec, trm_error *err) {
    return exec->gradients_overwritten
               ? TRMI_FAIL(err, TRM_INVALID,
                           "gradients: trm_exec_forward has overwritten them; call "
                           "trm_exec_forward_backward again, or create an executor for evaluation "
                           "(parameters_of)")
               : TRM_OK;
}

/* Completes the range of gradients: multiplies all factors into GRAD, from where the optimiser then
 * reads them, too, and clears the bytes between gradients, where activations may have been. */
static void complete_gradients(trm_exec *exec) {
    const trm_program *p = exec->program;
    trmi_update_multiply(exec->update, (float *)(void *)exec->env.arena[TRMI_ARENA_GRAD]);
    for (int32_t i = 0; i < p->trained_count && p->lent_bytes > 0; i++) {
        const trmi_buffer *b = &p->buffers[p->params[i].param_buffer];
        int64_t end = b->offset + b->bytes;
        memset((char *)trmi_exec_gradient_range(exec) + end, 0,
               (size_t)(trmi_round_up(end, TRMI_BUFFER_ALIGNMENT) - end));
    }
}

/* Action: adds all gradients of the batch to the accumulator, unless a way adds those of this batch
 * itself. */
static trm_status accumulate_all(trm_exec *exec, int32_t item, trm_error *err) {
    (void)item, (void)err;
    if (!exec->adds_up) {
        trmi_exec_accumulate(exec, 0,
                             exec->program->arena_bytes[TRMI_ARENA_GRAD] / (int64_t)sizeof(float));
    }
    return TRM_OK;
}

/* Action: completes the range of gradients, which a caller reads after each backward. */
static trm_status complete_range(trm_exec *exec, int32_t item, trm_error *err) {
    (void)item, (void)err;
    complete_gradients(exec);
    return TRM_OK;
}

void trmi_exec_schedule(trm_exec *exec) {
    const int32_t end = exec->program->steps_count;
    if (exec->accumulator != NULL && !exec->together) {
        trmi_distribution_add(exec,
                              (trmi_action){.before = end, .own = true, .run = accumulate_all});
    }
}

void trmi_exec_hand_out_gradients(trm_exec *exec) {
    const int32_t end = exec->program->steps_count;
    exec->gradients_handed_out = true;
    trmi_distribution_add(exec, (trmi_action){.before = end, .own = true, .run = complete_range});
    complete_gradients(exec);
}

/* ---- update ---------------------------------------------------------------------------------- */

/* Finds the gradient of a parameter. Returns false if it is not that of a table. */
static bool find_table_gradient(const trm_exec *exec, int32_t parameter, trmi_table_gradient *out) {
    const trm_program *p = exec->program;
    const trmi_param *param = &p->params[parameter];
    const trmi_buffer *ids = &p->buffers[param->sparse_ids];
    const trmi_buffer *rows = &p->buffers[param->sparse_rows];
    if (param->sparse_rows == 0) {
        return false;
    }
    *out = (trmi_table_gradient){
        .segment = parameter,
        .ids = exec->env.arena[ids->arena] + ids->offset,
        .rows = (const float *)(exec->env.arena[rows->arena] + rows->offset),
        .count = trm_shape_count(&ids->shape),
        .width = p->buffers[param->param_buffer].shape.dim[1],
        .id_dtype = ids->dtype,
    };
    return true;
}

/* Merges the rows of equal ids in the gradients of all tables, and adds their squares to the norm
 * of all gradients, so that clipping and the search for an overflow include them. */
static trm_status merge_table_gradients(trm_exec *exec, trm_error *err) {
    trmi_table_gradient g;
    for (int32_t i = 0; i < exec->program->params_count; i++) {
        if (find_table_gradient(exec, i, &g)) {
            TRMI_TRY(trmi_update_prepare(exec->update, &g, err));
        }
    }
    return TRM_OK;
}

/* Updates all dense parameters, from the accumulator where batches are accumulated.
 *   errors  DIVERGED: a gradient is not finite; nothing has changed */
static trm_status update_dense(trm_exec *exec, double learning_rate, trm_error *err) {
    return trmi_update_run(exec->update, (float *)exec->env.arena[TRMI_ARENA_PARAM],
                           trmi_exec_gradient_range(exec), learning_rate, exec->env.step + 1, err);
}

/* Updates the rows of all tables that have a gradient. */
static trm_status update_tables(trm_exec *exec, double learning_rate, trm_error *err) {
    trmi_table_gradient g;
    for (int32_t i = 0; i < exec->program->params_count; i++) {
        if (find_table_gradient(exec, i, &g)) {
            TRMI_TRY(trmi_update_sparse(exec->update, (float *)exec->env.arena[TRMI_ARENA_PARAM],
                                        &g, learning_rate, exec->env.step + 1, err));
        }
    }
    return TRM_OK;
}

/* Returns INVALID for an executor that cannot update its parameters, or not yet. */
static trm_status check_update(const trm_exec *exec, trm_error *err) {
    if (!exec->program->training) {
        return TRMI_FAIL(err, TRM_INVALID, "update needs a training graph and a loss");
    }
    if (exec->updated_elsewhere) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "update: servers update the parameters of this executor (updated_elsewhere)");
    }
    if (exec->accumulator != NULL && exec->accumulated != exec->accumulate) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "update after %d of %d calls of trm_exec_forward_backward; call it "
                         "as often as the option accumulate says",
                         exec->accumulated, exec->accumulate);
    }
    return trmi_exec_check_gradients(exec, err);
}

/* Contract in trireme/exec.h. The dense pass comes before the rows of tables, because it changes
 * nothing if it finds a gradient that is not finite (an overflow, where the loss is scaled). The
 * ranks then agree: an overflow of one rank is an overflow of all, so that all ranks skip the
 * update or none. */
trm_status trm_exec_update(trm_exec *exec, double learning_rate, trm_error *err) {
    TRMI_NEED(err, exec);
    TRMI_TRY(check_update(exec, err));
    double begin = trmi_os_now();
    trm_status status = merge_table_gradients(exec, err);
    status = status == TRM_OK ? update_dense(exec, learning_rate, err) : status;
    int32_t first;
    TRMI_TRY(trmi_distribution_agree(exec, true, status == TRM_DIVERGED, &first, err));
    bool overflow = first >= 0;
    status = overflow && status == TRM_OK ? TRM_DIVERGED : status;
    bool skips = (status == TRM_OK || overflow) && trmi_exec_advance_loss_scale(exec, overflow);
    if (overflow && !skips) {
        return trmi_exec_find_nonfinite(exec, err);
    }
    if (!skips) {
        TRMI_TRY(status);
        TRMI_TRY(update_tables(exec, learning_rate, err));
        if (exec->watcher.updated != NULL) {
            exec->watcher.updated(exec->watcher.context, exec->env.step + 1);
        }
        TRMI_TRY(trmi_distribution_publish(exec, false, err));
    }
    exec->accumulated = 0;
    exec->env.step++;
    exec->step_seconds += trmi_os_now() - begin;
    return TRM_OK;
}

/* ---- the step number ------------------------------------------------------------------------- */

uint64_t trm_exec_step(const trm_exec *exec) {
    TRMI_NEED_OR(0, NULL, exec);
    return exec->env.step;
}

void trm_exec_set_step(trm_exec *exec, uint64_t step) {
    TRMI_NEED_OR(, NULL, exec);
    exec->env.step = step;
}
