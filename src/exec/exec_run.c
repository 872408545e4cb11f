/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the program of an executor: its kernels in order and, between them, the actions that ways of
 * training have added (exec/distributed/distribution.h). This is the inner loop of training: it
 * allocates nothing and searches nothing. */
#include "exec/exec.h"

#include "base/error.h"
#include "base/os.h"
#include "base/trace.h"

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

trm_status trmi_exec_run_actions(trm_exec *exec, int32_t begin, int32_t end, trm_error *err) {
    for (int32_t i = 0; i < exec->actions_count; i++) {
        const trmi_action *action = &exec->actions[i];
        if (action->before > begin && action->before <= end) {
            TRMI_TRY(action->run(exec, action->item, err));
        }
    }
    return TRM_OK;
}

trm_status trmi_exec_walk_steps(trm_exec *exec, int32_t begin, int32_t end, trm_error *err) {
    for (int32_t at = begin; at < end;) {
        int32_t next = end;
        for (int32_t i = 0; i < exec->actions_count; i++) {
            int32_t before = exec->actions[i].before;
            next = before > at && before < next ? before : next;
        }
        TRMI_TRY(exec->walk(exec, at, next, err));
        TRMI_TRY(trmi_exec_run_actions(exec, next - 1, next, err));
        at = next;
    }
    return TRM_OK;
}

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
