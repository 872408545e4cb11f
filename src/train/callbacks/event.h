/* SPDX-License-Identifier: Apache-2.0 */
/* train/callbacks/event.h: an event of a training, put into a report. */
#ifndef TRMI_TRAIN_CALLBACKS_EVENT_H
#define TRMI_TRAIN_CALLBACKS_EVENT_H

#include "trireme/train.h"

#include "base/format/report.h"

/* Puts the members of the event (trm_event_members). Metrics have the user's names. */
void trmi_report_event(trmi_report *to, trm_training_event event, const trm_progress *progress,
                       const trm_mean_step *mean);

#endif
