/* SPDX-License-Identifier: Apache-2.0 */
/* train/callbacks/profile.h: the timeline of a training call as a Chrome trace file, for Perfetto.
 */
#ifndef TRMI_TRAIN_CALLBACKS_PROFILE_H
#define TRMI_TRAIN_CALLBACKS_PROFILE_H

#include "train/model.h"

#include "base/trace.h"

typedef struct trmi_profile trmi_profile;

/* Attaches a recorder to the model's executor, its communicator and `data`. `path` is written at
 * the end.
 *   owns   the caller, trmi_profile_end
 *   errors  NOMEM, INVALID: the path is too long */
trm_status trmi_profile_begin(trm_model *model, trm_dataset *data, const char *path,
                              trmi_profile **out, trm_error *err);
/* Attaches the recorder to the executor and the communicator that a change of ranks has made. NULL
 * is accepted. */
void trmi_profile_attach(trmi_profile *profile);
/* Returns the recorder, for events of the training loop itself; NULL without a profile. */
trmi_trace *trmi_profile_trace(const trmi_profile *profile);
/* Detaches the recorder and frees the profile. If `trained` is OK or CANCELLED, which all ranks
 * have alike, the ranks' events are gathered (collective) and rank 0 writes the file. Returns
 * `trained`, or the error of the file if training was OK. NULL is accepted. */
trm_status trmi_profile_end(trmi_profile *profile, trm_status trained, trm_error *err);

#endif
