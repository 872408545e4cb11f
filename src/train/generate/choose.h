/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/choose.h: logits to a token. */
#ifndef TRMI_TRAIN_GENERATE_CHOOSE_H
#define TRMI_TRAIN_GENERATE_CHOOSE_H

#include "trireme/nn.h"

/* Returns a token chosen from logits[count] as the options say: a function of its arguments.
 * `number` selects the random number of options->seed. Of equal logits the lower id is the more
 * probable; logits that are NaN have probability 0. */
int32_t trmi_choose(const float *logits, int64_t count, const trm_sampling *options,
                    uint64_t number);

#endif
