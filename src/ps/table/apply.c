/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of row kernels for this CPU, and the constants of a push (contracts in apply.h). */
#include "ps/table/apply.h"

#include "base/cpu.h"

const trmi_apply_kernels *trmi_apply_kernels_here(void) { return TRMI_CPU_CHOICE(&trmi_apply); }

trmi_rule trmi_row_rule_of(const trm_optimizer_options *optimizer, float learning_rate,
                           const trmi_tick *tick) {
    const float rate = learning_rate * tick->rate_scale;
    return trmi_rule_of(optimizer, &(trmi_rule_step){.rate = (double)rate,
                                                     .scale = tick->gradient_scale,
                                                     .decays = true,
                                                     .number = tick->tick,
                                                     .sparse = optimizer->kind == TRM_LAZY_ADAM});
}
