/* SPDX-License-Identifier: Apache-2.0 */
/* base/optimizer_rule.h: the optimisers' options, and the constants of their rules. The update of a
 * model's parameters (exec) and of the rows of parameter servers (ps) check options and make
 * constants here; base/simd/optimizer_rules.h applies them, so that a parameter gets the same bits
 * in both places. */
#ifndef TRMI_BASE_OPTIMIZER_RULE_H
#define TRMI_BASE_OPTIMIZER_RULE_H

#include "trireme/base.h"

/* Kinds of optimisers, and slots of one, at most. */
enum { TRMI_OPTIMIZERS = TRM_LARS + 1, TRMI_SLOTS_MAX = 2 };

/* The properties of a rule. */
typedef struct trmi_optimizer {
    const char *name;                       /* "adagrad" */
    int32_t slots;                          /* numbers that it keeps of each parameter */
    const char *slot_names[TRMI_SLOTS_MAX]; /* "accumulator" */
    bool of_models, of_tables;              /* where it can be used */
} trmi_optimizer;

/* Returns what is known of a rule; NULL: the kind is unknown. TRM_OPTIMIZER_DEFAULT is SGD, the
 * default of models: trmi_optimizer_check replaces that of tables. */
const trmi_optimizer *trmi_optimizer_of(trm_optimizer_kind kind);

/* Checks the options of a model's optimiser, or of a table's (of_table), and fills in defaults.
 * Numbers are rounded to float32, as servers keep them. `owner` begins the message: "table
 * 'users'".
 *   errors  INVALID: the member, its value and its range */
trm_status trmi_optimizer_check(const trm_optimizer_options *in, bool of_table, const char *owner,
                                trm_optimizer_options *out, trm_error *err);

/* The constants of a rule for one step and one run of parameters. */
typedef struct trmi_rule {
    float lr;
    float scale; /* of the gradient: clipping, loss scale, 1 / workers */
    float decay; /* L2: the gradient gets decay * w */
    float momentum;
    float keep1, blend1; /* Adam: first moment = keep1 * itself + blend1 * gradient */
    float keep2, blend2; /* the same of the second moment and the squared gradient */
    float shrink;        /* Adam, decoupled decay: w is first multiplied by this; 1 = none */
    float step_size;     /* Adam: lr / (1 - beta1^step) */
    float root_scale;    /* Adam: 1 / sqrt(1 - beta2^step) */
    float epsilon;
    float local; /* LARS: lr * trust ratio */
    /* FTRL: L1; 1 / lr; addend of the denominator: 2 l2 + beta / lr */
    float l1, lr_inverse, curve;
} trmi_rule;

/* The step for which a rule's constants are made. */
typedef struct trmi_rule_step {
    double rate;     /* learning rate */
    float scale;     /* of the gradient */
    bool decays;     /* weight decay applies to the parameters */
    uint64_t number; /* Adam: 1, 2, ... */
    /* Adam in the form of PyTorch's SparseAdam: epsilon is added to the root that is not yet
     * corrected */
    bool sparse;
} trmi_rule_step;

/* Returns the constants of a rule whose options have been checked. */
trmi_rule trmi_rule_of(const trm_optimizer_options *options, const trmi_rule_step *step);

#endif
