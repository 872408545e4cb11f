/* SPDX-License-Identifier: Apache-2.0 */
/* Casts of parameters that one run makes for all later ones (trm_exec_options.keep_casts). A
 * program whose parameters are those of another with kept casts (parameters_of) reads these, if
 * they are all that it needs. */
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

/* Returns the buffer of `theirs` that holds a kept cast of the same parameter to the same type and
 * layout as buffer `to` of p, which step s writes; NULL = none. */
static const trmi_buffer *find_kept(const trm_program *theirs, const uint8_t *kept,
                                    const trm_program *p, const trmi_step *s,
                                    const trmi_buffer *to) {
    for (int32_t i = 0; i < theirs->steps_count; i++) {
        if (kept[i] == 0) {
            continue;
        }
        const trmi_buffer *from = &theirs->buffers[theirs->steps[i].inputs[0]];
        const trmi_buffer *made = &theirs->buffers[theirs->steps[i].outputs[0]];
        if (from->offset == p->buffers[s->inputs[0]].offset && made->dtype == to->dtype &&
            made->layout == to->layout && made->bytes == to->bytes) {
            return made;
        }
    }
    return NULL;
}

/* Moves the kept casts to those of exec->share. Returns false, and moves none, if one is missing
 * there. */
static bool move_to_shared(trm_exec *exec, const uint8_t *kept) {
    trm_program *p = exec->program;
    const trm_exec *share = exec->share;
    if (share == NULL || share->kept == NULL) {
        return false;
    }
    for (int moves = 0; moves < 2; moves++) {
        for (int32_t i = 0; i < p->steps_count; i++) {
            trmi_buffer *to = kept[i] != 0 ? &p->buffers[p->steps[i].outputs[0]] : NULL;
            const trmi_buffer *same =
                to != NULL ? find_kept(share->program, share->kept, p, &p->steps[i], to) : NULL;
            if (to != NULL && same == NULL) {
                return false;
            }
            if (to != NULL && moves) {
                to->offset = same->offset;
            }
        }
    }
    return true;
}

/* Contract in exec.h. Casts get an arena of their own, which forward does not overwrite. */
trm_status trmi_exec_keep_casts(trm_exec *exec, trm_error *err) {
    enum { ALIGNMENT = 64 };
    trm_program *p = exec->program;
    uint8_t *kept;
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, kept, (size_t)p->steps_count + 1,
                         "for the casts of %d steps", p->steps_count));
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
    if (move_to_shared(exec, kept)) {
        exec->casts_of = exec->share;
        p->arena_bytes[TRMI_ARENA_CAST] = 0; /* memory of the other program */
    }
    return TRM_OK;
}
