/* SPDX-License-Identifier: Apache-2.0 */
/* Binds a kernel to each step of a program. For each step three sources are tried in this order,
 * until one does not return UNSUPPORTED: the active ways of training, the fast back-end, the
 * reference back-end. */
#include "exec/exec.h"

#include "base/error.h"

/* Binds one step. Returns the error of the first source that has a kernel for the step. */
static trm_status bind_step(trm_exec *exec, trmi_kernel *kernel, trm_error *err) {
    trm_status status = trmi_distribution_bind(exec, kernel, err);
    if (status == TRM_UNSUPPORTED) {
        status = exec->backend->bind(exec->backend, kernel, err);
    }
    if (status == TRM_UNSUPPORTED && exec->backend != exec->reference) {
        status = exec->reference->bind(exec->reference, kernel, err);
    }
    return status;
}

trm_status trmi_exec_bind(trm_exec *exec, trmi_kernel *kernels, trm_error *err) {
    trm_program *p = exec->program;
    for (int32_t i = 0; i < p->steps_count; i++) {
        kernels[i] = (trmi_kernel){.program = p, .step = &p->steps[i]};
        TRMI_TRY(bind_step(exec, &kernels[i], err));
    }
    return TRM_OK;
}
