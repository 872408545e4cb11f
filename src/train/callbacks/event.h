/* SPDX-License-Identifier: Apache-2.0 */
/* train/callbacks/event.h: an event of a training, appended to a text. */
#ifndef TRMI_TRAIN_CALLBACKS_EVENT_H
#define TRMI_TRAIN_CALLBACKS_EVENT_H

#include "trireme/train.h"

#include "base/memory.h"

/* Appends the members of the event (trm_event_members), a comma in front of each. */
void trmi_text_event(trmi_text *to, trm_training_event event, const trm_progress *progress,
                     const trm_mean_step *mean);

#endif
