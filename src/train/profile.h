/* SPDX-License-Identifier: Apache-2.0 */
/* train/profile.h: the timeline of a training call, as a file for Perfetto. */
#ifndef TRMI_TRAIN_PROFILE_H
#define TRMI_TRAIN_PROFILE_H

#include "train/model.h"

#include "base/trace.h"

typedef struct trmi_profile trmi_profile;

/* Records from here on what executor, communicator and dataset do.   error  NOMEM, INVALID */
trm_status trmi_profile_begin(trm_model *model, trm_dataset *data, const char *path,
                              trmi_profile **out, trm_error *err);
/* Where the training loop adds its own events; NULL without a profile. */
trmi_trace *trmi_profile_trace(const trmi_profile *profile);
/* Ends the recording; after a training that all ranks ended alike (`trained` OK or CANCELLED) rank 0
 * writes the file. Frees. Returns `trained`, or why the file could not be written. NULL is fine. */
trm_status trmi_profile_end(trmi_profile *profile, trm_status trained, trm_error *err);

#endif
