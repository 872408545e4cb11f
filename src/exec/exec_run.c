/* SPDX-License-Identifier: Apache-2.0 */
/* Walks a range of the program: the step's own loop. */
#include "exec/convert.h"
#include "exec/exec.h"
#include "exec/determinism/lanes.h"
#include "exec/distributed/parallel.h"

#include "base/error.h"

trm_status trmi_exec_run(trm_exec *exec, int32_t begin, int32_t end, trm_error *err) {
    const trmi_parallel *p = exec->parallel;
    const uint8_t *made = p != NULL && p->casts_fresh ? p->casts : NULL; /* with the last update */
    for (int32_t i = begin; i < end; i++) {
        const trmi_kernel *kernel = &exec->kernels[i];
        if (made == NULL || made[i] == TRMI_CAST_NONE) {
            TRMI_TRY(kernel->run(kernel, &exec->env, err));
        }
    }
    return TRM_OK;
}

float trmi_exec_own_loss(const trm_exec *exec) {
    const trm_program *p = exec->program;
    float loss = exec->lanes != NULL ? exec->lanes->loss : 0;
    if (exec->lanes == NULL && p->outputs_count > 0 && p->outputs[0] != 0) {
        const trmi_buffer *b = &p->buffers[p->outputs[0]];
        trmi_convert_to_float(exec->env.arena[b->arena] + b->offset, b->dtype, &loss, 1);
    }
    return loss;
}
