/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of row kernels for this CPU, and the checks of optimiser options. */
#include "ps/table/apply.h"

#include "base/cpu.h"
#include "base/error.h"

#include <math.h>

const trmi_apply_kernels *trmi_apply_kernels_here(void) { return TRMI_CPU_CHOICE(&trmi_apply); }

/* Returns `fallback` for 0. */
static float or_default(float value, float fallback) { return value == 0 ? fallback : value; }

/* Contract in apply.h. NaN fails every range. */
trm_status trmi_row_optimizer_check(const trm_row_optimizer *in, trm_row_optimizer *out,
                                    const char *table, trm_error *err) {
    trm_row_optimizer o = *in;
    o.rule = o.rule == 0 ? TRM_ROW_ADAGRAD : o.rule;
    if (o.rule < TRM_ROW_SGD || o.rule > TRM_ROW_FTRL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "table '%.40s': optimizer rule %d is unknown, 1 to %d expected", table,
                         (int)o.rule, (int)TRM_ROW_FTRL);
    }
    bool adam = o.rule == TRM_ROW_ADAM || o.rule == TRM_ROW_LAZY_ADAM;
    if (o.decoupled && !adam) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "table '%.40s': decoupled weight decay is of Adam and lazy Adam, not of "
                         "rule %d",
                         table, (int)o.rule);
    }
    o.learning_rate = or_default(o.learning_rate, 0.01f);
    o.beta1 = or_default(o.beta1, 0.9f);
    o.beta2 = or_default(o.beta2, 0.999f);
    o.epsilon = or_default(o.epsilon, adam ? 1e-8f : 1e-10f);
    const struct {
        const char *name;
        float value, low, high;
    } ranges[] = {{"learning_rate", o.learning_rate, 0, 1e6f},
                  {"momentum", o.momentum, 0, 1},
                  {"beta1", o.beta1, 0, 0.9999999f},
                  {"beta2", o.beta2, 0, 0.9999999f},
                  {"epsilon", o.epsilon, 0, 1e3f},
                  {"initial_accumulator", o.initial_accumulator, 0, 1e6f},
                  {"l1", o.l1, 0, 1e6f},
                  {"l2", o.l2, 0, 1e6f},
                  {"beta", o.beta, 0, 1e6f},
                  {"weight_decay", o.weight_decay, 0, 1e3f}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high)) {
            return TRMI_FAIL(err, TRM_INVALID, "table '%.40s': %s is %g, %g to %g expected", table,
                             ranges[i].name, (double)ranges[i].value, (double)ranges[i].low,
                             (double)ranges[i].high);
        }
    }
    *out = o;
    return TRM_OK;
}

trmi_rule trmi_row_rule_of(const trm_row_optimizer *o, const trmi_tick *tick) {
    const float rate = o->learning_rate * tick->rate_scale;
    bool lazy = o->rule == TRM_ROW_LAZY_ADAM, adam = o->rule == TRM_ROW_ADAM || lazy;
    return trmi_rule_of(
        &(trmi_rule_options){.rate = (double)rate,
                             .scale = tick->gradient_scale,
                             .decay = (double)o->weight_decay,
                             .decoupled = o->decoupled,
                             .momentum = (double)o->momentum,
                             .epsilon = (double)o->epsilon,
                             .l1 = (double)o->l1,
                             .curve = (double)(o->l2 + (rate > 0 ? o->beta / rate : 0)),
                             .beta1 = adam ? (double)o->beta1 : 0,
                             .beta2 = (double)o->beta2,
                             .step = tick->tick,
                             .sparse = lazy});
}

int trmi_row_kernel_of(const trm_row_optimizer *o) {
    return o->rule == TRM_ROW_MOMENTUM && o->nesterov ? TRMI_ROW_NESTEROV : (int)o->rule;
}
