/* SPDX-License-Identifier: Apache-2.0 */
/* Translates a model's optimiser and initial values into those of the servers' tables. */
#include "train/estimator/remote.h"

/* Contract in remote.h. Embedding tables use lazy Adam, which updates only the moments of rows in
 * the batch. */
void trmi_remote_rule(const trm_optimizer_options *o, double rate, bool decay, bool table,
                      trm_table_options *out) {
    out->learning_rate = rate;
    out->optimizer = *o;
    out->optimizer.kind = table && o->kind == TRM_ADAM       ? TRM_LAZY_ADAM
                          : o->kind == TRM_OPTIMIZER_DEFAULT ? TRM_SGD
                                                             : o->kind;
    out->optimizer.weight_decay = decay ? o->weight_decay : 0;
}

/* The random stream is that of the parameter on one device: a row has the same initial bits
 * there and here. */
trm_row_init trmi_remote_init(trm_init init, const char *name, const trm_shape *shape) {
    trmi_init_rule rule = trmi_init_rule_of(init, name, shape);
    static const trm_row_init_kind kinds[] = {[TRMI_INIT_CONSTANT] = TRM_ROW_INIT_CONSTANT,
                                              [TRMI_INIT_UNIFORM] = TRM_ROW_INIT_UNIFORM,
                                              [TRMI_INIT_NORMAL] = TRM_ROW_INIT_NORMAL};
    return (trm_row_init){.kind = kinds[rule.kind],
                          .value = (float)rule.value,
                          .scale = (float)rule.scale,
                          .stream = rule.stream};
}
