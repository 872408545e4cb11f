/* SPDX-License-Identifier: Apache-2.0 */
/* Casts of parameters that one run makes for all later ones (trm_exec_options.keep_casts). */
#include "exec/exec.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

/* Returns whether another buffer lies in this one: views, and results written in its place. */
static bool has_alias(const trm_program *p, int32_t buffer) {
    for (int32_t i = 1; i < p->buffers_count; i++) {
        if (p->buffers[i].alias_of == buffer) {
            return true;
        }
    }
    return false;
}

bool trmi_is_parameter_cast(const trm_program *p, const trmi_step *s) {
    if (s->kind != TRMI_STEP_OP || s->op_kind != TRMI_OP_CAST || s->outputs[0] == 0) {
        return false;
    }
    const trmi_buffer *from = &p->buffers[s->inputs[0]], *to = &p->buffers[s->outputs[0]];
    return from->arena == TRMI_ARENA_PARAM && to->arena == TRMI_ARENA_ACTIVATION &&
           to->alias_of == 0 && !has_alias(p, s->outputs[0]);
}

trm_status trmi_exec_keep_casts(trm_exec *exec, trm_error *err) {
    enum { ALIGNMENT = 64 };
    trm_program *p = exec->program;
    uint8_t *kept = trmi_arena_alloc(&exec->memory, (size_t)p->steps_count + 1);
    if (kept == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for the casts of %d steps", p->steps_count);
    }
    memset(kept, 0, (size_t)p->steps_count + 1);
    for (int32_t i = 0; i < p->steps_count; i++) {
        if (trmi_is_parameter_cast(p, &p->steps[i])) {
            trmi_buffer *to = &p->buffers[p->steps[i].outputs[0]];
            to->arena = TRMI_ARENA_CAST;
            to->offset = p->arena_bytes[TRMI_ARENA_CAST];
            p->arena_bytes[TRMI_ARENA_CAST] += trmi_round_up(to->bytes, ALIGNMENT);
            kept[i] = 1;
        }
    }
    exec->kept = kept;
    return TRM_OK;
}
