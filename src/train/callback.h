/* SPDX-License-Identifier: Apache-2.0 */
/* train/callback.h: shared by the callbacks that come with the library. */
#ifndef TRMI_TRAIN_CALLBACK_H
#define TRMI_TRAIN_CALLBACK_H

#include "trireme/callbacks.h"

#include "base/os.h"

/* A callback that makes training fail with NOMEM before its first step. */
trm_callback trmi_callback_no_memory(void);
/* With INVALID: nothing was said about where, with what or on what it is to work. */
trm_callback trmi_callback_unusable(void);
/* trm_model_checkpoint on another platform (base/os.h), so that tests see failures. */
trm_callback trmi_model_checkpoint_on(const trmi_os *os,
                                      const trm_model_checkpoint_options *options);

#endif
