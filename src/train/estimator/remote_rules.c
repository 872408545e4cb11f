/* SPDX-License-Identifier: Apache-2.0 */
/* Translates a model's optimiser and initial values into those of the servers' tables. */
#include "train/estimator/remote.h"

#include "base/error.h"

/* Sets the rule and its constants. Embedding tables use lazy Adam, which updates only the
 * moments of rows in the batch.
 *   error  INVALID: LARS, which needs norms of whole layers */
static trm_status kind_of(const trm_optimizer_options *o, bool table, trm_row_optimizer *out,
                          trm_error *err) {
    switch (o->kind) {
    case TRM_SGD: out->rule = TRM_ROW_SGD; return TRM_OK;
    case TRM_MOMENTUM:
    case TRM_NESTEROV:
        out->rule = TRM_ROW_MOMENTUM;
        out->momentum = (float)o->momentum;
        out->nesterov = o->kind == TRM_NESTEROV;
        return TRM_OK;
    case TRM_ADAM:
        out->rule = table ? TRM_ROW_LAZY_ADAM : TRM_ROW_ADAM;
        out->beta1 = (float)o->beta1;
        out->beta2 = (float)o->beta2;
        out->epsilon = (float)o->epsilon;
        out->decoupled = o->decoupled;
        return TRM_OK;
    case TRM_ADAGRAD:
        out->rule = TRM_ROW_ADAGRAD;
        out->epsilon = (float)o->epsilon;
        out->initial_accumulator = (float)o->initial_accumulator;
        return TRM_OK;
    case TRM_FTRL:
        out->rule = TRM_ROW_FTRL;
        out->initial_accumulator = (float)o->initial_accumulator;
        out->l1 = (float)o->l1;
        out->l2 = (float)(2 * o->l2); /* TensorFlow's FTRL defines l2 with another factor 2 */
        return TRM_OK;
    case TRM_LARS: break;
    }
    return TRMI_FAIL(err, TRM_INVALID,
                     "the optimizer lars needs whole layers in one place; with parameter servers "
                     "use momentum, nesterov, sgd, adam, adagrad or ftrl");
}

/* Contract in remote.h. Clipping by the global norm is refused: no server sees all gradients. */
trm_status trmi_remote_rule(const trm_optimizer_options *o, double rate, bool decay, bool table,
                            trm_row_optimizer *out, trm_error *err) {
    *out = (trm_row_optimizer){.learning_rate = (float)rate,
                               .weight_decay = decay ? (float)o->weight_decay : 0};
    TRMI_TRY(kind_of(o, table, out, err));
    if (o->clip_norm > 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "clip_norm needs all gradients in one place; it cannot be used with "
                         "parameter servers");
    }
    return TRM_OK;
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
