/* SPDX-License-Identifier: Apache-2.0 */
/* The loss scale and its state machine. Pure arithmetic: exec_scale.c applies the scale.
 *
 *     static     constant; steps that overflow are skipped
 *     dynamic    multiplied by grow_by after grow_every good steps, and by shrink_by after
 *                shrink_after overflows; between 1 and what a float32 can hold */
#include "exec/optimizer/loss_scale.h"

#include "base/error.h"

#include <float.h>
#include <math.h>

/* Contract in loss_scale.h. Zeros become the defaults that trm_loss_scale_options documents. */
trm_status trmi_loss_scale_start(trmi_loss_scale *scale, const trm_loss_scale_options *options,
                                 trm_error *err) {
    trm_loss_scale_options o = *options;
    o.initial = o.initial == 0 ? 65536 : o.initial;
    o.grow_by = o.grow_by == 0 ? 2 : o.grow_by;
    o.shrink_by = o.shrink_by == 0 ? 0.5 : o.shrink_by;
    o.grow_every = o.grow_every == 0 ? 2000 : o.grow_every;
    o.shrink_after = o.shrink_after == 0 ? 1 : o.shrink_after;
    if (!(o.initial >= 1 && o.initial <= (double)FLT_MAX)) {
        return TRMI_FAIL(err, TRM_INVALID, "loss scale %g, 1 to %g expected", o.initial,
                         (double)FLT_MAX);
    }
    if (!(o.grow_by > 1 && isfinite(o.grow_by)) || !(o.shrink_by > 0 && o.shrink_by < 1)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "loss scale: grows by %g and shrinks by %g; more than 1 and less expected",
                         o.grow_by, o.shrink_by);
    }
    if (o.grow_every < 1 || o.shrink_after < 1) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "loss scale: grows after %d and shrinks after %d steps; 1 or more expected",
            o.grow_every, o.shrink_after);
    }
    *scale = (trmi_loss_scale){.options = o, .state.scale = o.initial};
    return TRM_OK;
}

/* Contract in loss_scale.h. Growth forgets earlier overflows, and an overflow the good steps before
 * it. */
bool trmi_loss_scale_step(trmi_loss_scale *scale, bool overflow) {
    const trm_loss_scale_options *o = &scale->options;
    trm_loss_scale_state *s = &scale->state;
    if (!o->dynamic) {
        s->skipped += overflow;
        return !overflow;
    }
    if (overflow) {
        s->skipped++;
        s->good = 0;
        if (++s->bad >= o->shrink_after) {
            s->scale = fmax(1, s->scale * o->shrink_by);
            s->bad = 0;
        }
        return false;
    }
    if (++s->good >= o->grow_every) {
        /* The scale stays a finite float32. */
        if (s->scale <= (double)FLT_MAX / o->grow_by) {
            s->scale *= o->grow_by;
        }
        s->good = s->bad = 0;
    }
    return true;
}
