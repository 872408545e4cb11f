/* SPDX-License-Identifier: Apache-2.0 */
/* train/callbacks/callback.h: shared by the callbacks that come with the library (callbacks.c,
 * callback_records.c). */
#ifndef TRMI_TRAIN_CALLBACKS_CALLBACK_H
#define TRMI_TRAIN_CALLBACKS_CALLBACK_H

#include "trireme/train.h"

#include "base/os.h"

/* Returns a callback that fails training with NOMEM in on_begin. Makers of callbacks have no
 * error argument, so they return this one when allocation fails. */
trm_callback trmi_callback_no_memory(void);
/* Returns a callback that fails training with INVALID in on_begin: a required directory, path,
 * function or dataset is NULL, or an interval is negative. */
trm_callback trmi_callback_unusable(void);
/* Returns trm_model_checkpoint over the platform functions `os` (base/os.h), through which tests
 * inject failures. */
trm_callback trmi_model_checkpoint_on(const trmi_os *os,
                                      const trm_model_checkpoint_options *options);

#endif
