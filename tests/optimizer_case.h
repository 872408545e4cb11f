/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optimizer_case.h: for the tests of optimisers: options in which every term of a rule
 * counts, whatever its kind is. */
#ifndef TRMI_TESTS_OPTIMIZER_CASE_H
#define TRMI_TESTS_OPTIMIZER_CASE_H

#include "trireme/base.h"

/* Returns the options of a kind; the norm of the gradients is clipped at `clip_norm` (0: not). */
static inline trm_optimizer_options optimizer_case(trm_optimizer_kind kind, double clip_norm) {
    return (trm_optimizer_options){.kind = kind,
                                   .momentum = 0.9,
                                   .weight_decay = 1e-3,
                                   .initial_accumulator = 0.1,
                                   .l1 = 0.01,
                                   .l2 = 0.01,
                                   .clip_norm = clip_norm};
}

#endif
