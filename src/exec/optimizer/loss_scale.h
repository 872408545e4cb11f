/* SPDX-License-Identifier: Apache-2.0 */
/* exec/optimizer/loss_scale.h: the state machine of loss scaling, for gradients in half precision.
 *
 *      finite step:  good + 1; at `grow_every` good ones  scale *= grow_by    (both counts to 0)
 *      overflow:     good = 0, bad + 1; at `shrink_after` scale *= shrink_by  (both counts to 0)
 *                    the update is skipped
 *
 * The loss is multiplied by the scale before backward, gradients are divided by it before the
 * optimiser. With several ranks the overflow flag is summed over them first, so that all skip
 * together. Pure: the state is five numbers that a checkpoint keeps.
 */
#ifndef TRMI_EXEC_LOSS_SCALE_H
#define TRMI_EXEC_LOSS_SCALE_H

#include "trireme/exec.h"

/* ExponentialUpdateLossScaleManager of guide 000's framework: two bad steps, times 0.8. */
#define TRMI_LOSS_SCALE_EXPONENTIAL(initial_scale, increase_every)                                 \
    ((trm_loss_scale_options){.on = true,                                                          \
                              .dynamic = true,                                                     \
                              .initial = (initial_scale),                                          \
                              .grow_by = 2,                                                        \
                              .shrink_by = 0.8,                                                    \
                              .grow_every = (increase_every),                                      \
                              .shrink_after = 2})

typedef struct trmi_loss_scale {
    trm_loss_scale_options options; /* defaults filled in */
    trm_loss_scale_state state;     /* scale: 1 .. FLT_MAX / grow_by */
} trmi_loss_scale;

/* Fills in defaults and the initial state.   errors  INVALID: an option out of its range, with its
 * value */
trm_status trmi_loss_scale_start(trmi_loss_scale *scale, const trm_loss_scale_options *options,
                                 trm_error *err);
/* Advances the state after a backward pass. Returns whether the update is applied; false: skip
 * it. */
bool trmi_loss_scale_step(trmi_loss_scale *scale, bool overflow);

#endif
