/* SPDX-License-Identifier: Apache-2.0 */
/* The table of optimisers, the checks of their options and the constants of their rules (contracts
 * in optimizer_rule.h). The rules themselves, one function each, are in
 * base/simd/optimizer_rules.h; the executor applies them to a model's parameters, servers to the
 * rows of their tables.
 *
 *     trm_optimizer_options --trmi_optimizer_check--> options without defaults, in range, as float32
 *                                                              |
 *             rate, scale, number of the step -----------------+--trmi_rule_of--> constants of a step
 *
 * Checked options are rounded to float32 once, so that all ranks and servers compute with the same
 * bits as the kernels, whether an option was written in C, in Python or on the command line. */
#include "base/optimizer_rule.h"

#include "base/error.h"

#include <float.h>
#include <math.h>

/* Name, slots and their names, and whether the rule is for parameters of a model, and for rows of
 * servers. */
static const trmi_optimizer OPTIMIZERS[TRMI_OPTIMIZERS] = {
    [TRM_OPTIMIZER_DEFAULT] = {"sgd", 0, {NULL}, true, false},
    [TRM_SGD] = {"sgd", 0, {NULL}, true, true},
    [TRM_MOMENTUM] = {"momentum", 1, {"momentum"}, true, true},
    [TRM_ADAGRAD] = {"adagrad", 1, {"accumulator"}, true, true},
    [TRM_ROWWISE_ADAGRAD] = {"rowwise_adagrad", 1, {"accumulator"}, false, true},
    [TRM_ADAM] = {"adam", 2, {"m", "v"}, true, true},
    [TRM_LAZY_ADAM] = {"lazy_adam", 2, {"m", "v"}, false, true},
    [TRM_FTRL] = {"ftrl", 2, {"n", "z"}, true, true},
    [TRM_NESTEROV] = {"nesterov", 1, {"momentum"}, true, true},
    [TRM_LARS] = {"lars", 1, {"momentum"}, true, false},
};

/* Contract in optimizer_rule.h. The number may come from another process, so it is checked. */
const trmi_optimizer *trmi_optimizer_of(trm_optimizer_kind kind) {
    return (int)kind >= 0 && (int)kind < TRMI_OPTIMIZERS ? &OPTIMIZERS[kind] : NULL;
}

/* Returns whether the rule has Adam's constants. */
static bool is_adam(trm_optimizer_kind kind) { return kind == TRM_ADAM || kind == TRM_LAZY_ADAM; }

/* Checks the rule, and the options that only some rules have. */
static trm_status check_kind(const trm_optimizer_options *o, bool of_table, const char *owner,
                             trm_error *err) {
    const trmi_optimizer *rule = trmi_optimizer_of(o->kind);
    if (rule == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: rule %d is unknown, 1 to %d expected", owner,
                         (int)o->kind, TRMI_OPTIMIZERS - 1);
    }
    if (!of_table && !rule->of_models) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %s is a rule of parameter servers' tables only",
                         owner, rule->name);
    }
    if (of_table && !rule->of_tables) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %s needs whole layers in one place; with parameter servers use "
                         "momentum, nesterov, sgd, adam, adagrad or ftrl",
                         owner, rule->name);
    }
    if (of_table && o->clip_norm > 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: clip_norm needs all gradients in one place; it cannot be used with "
                         "parameter servers",
                         owner);
    }
    return o->decoupled && !is_adam(o->kind)
               ? TRMI_FAIL(err, TRM_INVALID, "%s: decoupled weight decay is of Adam, not of %s",
                           owner, rule->name)
               : TRM_OK;
}

/* Replaces zeros by the defaults of trireme/base.h. */
static void fill_defaults(trm_optimizer_options *o, bool of_table) {
    if (o->kind == TRM_OPTIMIZER_DEFAULT) {
        o->kind = of_table ? TRM_ADAGRAD : TRM_SGD;
    }
    double epsilon = is_adam(o->kind) ? 1e-8 : o->kind == TRM_LARS ? 1e-9 : 1e-10;
    o->epsilon = o->epsilon == 0 ? epsilon : o->epsilon;
    o->beta1 = o->beta1 == 0 ? 0.9 : o->beta1;
    o->beta2 = o->beta2 == 0 ? 0.999 : o->beta2;
    o->trust_coefficient = o->trust_coefficient == 0 ? 0.001 : o->trust_coefficient;
}

/* Returns x rounded to float32. Not inline: gcc 12 drops two neighbouring conversions to float and
 * back when it vectorises them. */
static __attribute__((noinline)) float round_to_float(double x) { return (float)x; }

/* Contract in optimizer_rule.h. NaN fails every range. */
trm_status trmi_optimizer_check(const trm_optimizer_options *in, bool of_table, const char *owner,
                                trm_optimizer_options *out, trm_error *err) {
    trm_optimizer_options o = *in;
    fill_defaults(&o, of_table);
    /* Name, place and largest value of each option. Values are rounded to float32, as the kernels
     * use them. */
    struct {
        const char *name;
        double *value, most;
    } ranges[] = {{"momentum", &o.momentum, 1},
                  {"beta1", &o.beta1, 0.9999999},
                  {"beta2", &o.beta2, 0.9999999},
                  {"epsilon", &o.epsilon, 1e3},
                  {"weight_decay", &o.weight_decay, 1e3},
                  {"trust_coefficient", &o.trust_coefficient, 1e6},
                  {"initial_accumulator", &o.initial_accumulator, 1e6},
                  {"l1", &o.l1, 1e6},
                  {"l2", &o.l2, 1e6},
                  {"beta", &o.beta, 1e6},
                  {"clip_norm", &o.clip_norm, FLT_MAX}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        double *value = ranges[i].value;
        if (!(*value >= 0 && *value <= ranges[i].most)) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: %s is %g, 0 to %g expected", owner,
                             ranges[i].name, *value, ranges[i].most);
        }
        *value = (double)round_to_float(*value);
    }
    TRMI_TRY(check_kind(&o, of_table, owner, err));
    *out = o;
    return TRM_OK;
}

/* Contract in optimizer_rule.h. Bias correction of Adam (Kingma and Ba 2015): TensorFlow's form for
 * sparse rows puts both factors into the step size, which makes epsilon relative to the uncorrected
 * root; the dense form follows the paper. */
trmi_rule trmi_rule_of(const trm_optimizer_options *o, const trmi_rule_step *s) {
    const float rate = (float)s->rate;
    const double decay = s->decays ? o->weight_decay : 0;
    trmi_rule r = {.lr = rate,
                   .scale = s->scale,
                   .decay = o->decoupled ? 0 : (float)decay,
                   .shrink = o->decoupled ? (float)(1 - s->rate * decay) : 1,
                   .momentum = (float)o->momentum,
                   .epsilon = (float)o->epsilon,
                   .local = rate,
                   .l1 = (float)o->l1,
                   .lr_inverse = s->rate > 0 ? (float)(1 / s->rate) : 0,
                   .curve = (float)(2 * o->l2) + (rate > 0 ? (float)o->beta / rate : 0)};
    if (is_adam(o->kind)) {
        const double bias1 = 1 - pow(o->beta1, (double)s->number),
                     bias2 = 1 - pow(o->beta2, (double)s->number);
        r.keep1 = (float)o->beta1;
        r.keep2 = (float)o->beta2;
        r.blend1 = 1 - r.keep1;
        r.blend2 = 1 - r.keep2;
        r.step_size = (float)(s->sparse ? s->rate * sqrt(bias2) / bias1 : s->rate / bias1);
        r.root_scale = (float)(s->sparse ? 1 : 1 / sqrt(bias2));
    }
    return r;
}
