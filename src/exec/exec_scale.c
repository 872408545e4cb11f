/* SPDX-License-Identifier: Apache-2.0 */
/* Loss scaling: backward starts with the scale instead of 1, the optimiser divides gradients by it
 * (trmi_update_set_scale), and an overflow skips the update and lowers the scale
 * (exec/optimizer/loss_scale.h). Small gradients would otherwise underflow in 16 bits.
 *
 *      seed (CONSTANT) = scale --backward--> scale * gradients --reduce--> norm finite?
 *                ^                                                  |yes: update by 1/scale
 *                +------------------ trmi_loss_scale_step <---------+no: nothing changes */
#include "exec/exec.h"

#include "base/arguments.h"
#include "base/error.h"

#include <math.h>

/* Writes scale * seed_share to the seed of backward, and 1 / scale to the optimiser. */
static void write_seed(const trm_exec *exec) {
    if (exec->seed != NULL) {
        *exec->seed = (exec->scaling ? (float)exec->scale.state.scale : 1.0f) * exec->seed_share;
    }
    trmi_update_set_scale(exec->update, trmi_exec_unscale(exec));
}

/* Contract in exec.h. The loss scale is the seed of backward: a constant from which all gradients
 * follow, which the executor rewrites when the scale changes. */
trm_status trmi_exec_make_scale(trm_exec *exec, const trm_loss_scale_options *options,
                                trm_error *err) {
    const trm_program *p = exec->program;
    bool mean = exec->seed_share != 1; /* cooperative gradients: the seed averages over ranks */
    exec->scaling = options->on && p->training;
    if (!exec->scaling && !mean) {
        return TRM_OK;
    }
    if (exec->updated_elsewhere) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "loss scaling needs the optimiser where the gradients are, not on "
                         "parameter servers");
    }
    if (exec->scaling) {
        TRMI_TRY(trmi_loss_scale_start(&exec->scale, options, err));
    }
    int32_t seed = trmi_seed_buffer(p);
    if (seed == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "loss scaling: backward of this program does not begin with the loss");
    }
    exec->seed = (float *)(exec->env.arena[TRMI_ARENA_CONSTANT] + p->buffers[seed].offset);
    write_seed(exec);
    return TRM_OK;
}

bool trmi_exec_advance_loss_scale(trm_exec *exec, bool overflow) {
    if (!exec->scaling) {
        return false;
    }
    bool last = overflow && exec->scale.options.dynamic && exec->scale.state.scale <= 1;
    exec->scale.state.overflow = overflow && !last;
    if (last) {
        return false; /* the scale cannot be lowered: the gradients themselves are not finite */
    }
    bool skips = !trmi_loss_scale_step(&exec->scale, overflow);
    write_seed(exec);
    return skips;
}

double trmi_exec_unscale(const trm_exec *exec) {
    return exec->scaling ? 1 / exec->scale.state.scale : 1;
}

bool trm_exec_get_loss_scale(const trm_exec *exec, trm_loss_scale_state *out) {
    TRMI_NEED_OR(false, NULL, exec, out);
    if (exec->scaling) {
        *out = exec->scale.state;
    }
    return exec->scaling;
}

trm_status trm_exec_set_loss_scale(trm_exec *exec, const trm_loss_scale_state *state,
                                   trm_error *err) {
    TRMI_NEED(err, exec, state);
    if (!exec->scaling) {
        return TRMI_FAIL(err, TRM_INVALID, "a loss scale for an executor that scales no loss");
    }
    if (!(state->scale >= 1 && isfinite((float)state->scale)) || state->good < 0 ||
        state->bad < 0 || state->skipped < 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "loss scale %g, %d good and %d bad steps, %lld skipped; a finite scale of 1 or "
            "more and numbers of 0 or more expected",
            state->scale, (int)state->good, (int)state->bad, (long long)state->skipped);
    }
    exec->scale.state = *state;
    write_seed(exec);
    return TRM_OK;
}
