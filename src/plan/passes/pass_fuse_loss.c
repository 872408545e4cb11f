/* SPDX-License-Identifier: Apache-2.0 */
/* Fuses softmax cross-entropy that a user wrote with small operators, as guide 002 does so that a
 * planner can split it:
 *
 *   mean(-1 * sum(log(e / sum(e)) * one_hot(label))),  e = exp(logit - max(logit))
 *
 * The fused operator is faster on one device and never takes the log of zero. The match is exact:
 * each intermediate value has one reader, the axis is the last one, and the on/off values of
 * one_hot give the label smoothing. */
#include "plan/passes/pass.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* A matched expression. */
typedef struct match {
    int32_t logits, labels; /* values of `from` */
    double smoothing;
    int32_t end;       /* the REDUCE_MEAN */
    int32_t inner[16]; /* operators that disappear */
    int inner_count;
} match;

/* Adds an operator to those that disappear. */
static void remove_op(match *m, const trm_graph *g, const trmi_op *op) {
    m->inner[m->inner_count++] = (int32_t)(op - g->ops);
}

/* Returns whether a reduction is along the last axis only. */
static bool last_axis(const trm_graph *g, const trmi_op *op, bool keep) {
    const trm_shape *shape = &trmi_input_of(g, op, 0)->shape;
    return op->attrs.reduce.axes == 1u << (shape->rank - 1) && op->attrs.reduce.keep_dims == keep;
}

/* Matches x = -1 * y, written as SCALE or as MUL with a constant. Returns y; 0 = no match. */
static int32_t match_negation(match *m, const trm_graph *g, int32_t x) {
    const trmi_op *scale = trmi_made_by(g, x, TRMI_OP_SCALE);
    if (scale != NULL && scale->attrs.scale.factor == -1.0) {
        remove_op(m, g, scale);
        return scale->inputs[0];
    }
    const trmi_op *mul = trmi_made_by(g, x, TRMI_OP_MUL);
    for (int i = 0; mul != NULL && i < 2; i++) {
        const trmi_op *constant = trmi_made_by(g, mul->inputs[i], TRMI_OP_CONSTANT);
        if (constant != NULL && constant->attrs.constant.bytes == sizeof(float) &&
            *(const float *)constant->attrs.constant.data == -1.0f) {
            remove_op(m, g, mul);
            return mul->inputs[1 - i];
        }
    }
    return 0;
}

/* Matches a softmax. Returns the logits; 0 = no match. */
static int32_t softmax_of(match *m, const trm_graph *g, int32_t x) {
    const trmi_op *div = trmi_made_by(g, x, TRMI_OP_DIV);
    const trmi_op *sum = div ? trmi_made_by(g, div->inputs[1], TRMI_OP_REDUCE_SUM) : NULL;
    const trmi_op *exp = div ? trmi_made_by(g, div->inputs[0], TRMI_OP_EXP) : NULL;
    const trmi_op *sub = exp ? trmi_made_by(g, exp->inputs[0], TRMI_OP_SUB) : NULL;
    const trmi_op *max = sub ? trmi_made_by(g, sub->inputs[1], TRMI_OP_REDUCE_MAX) : NULL;
    if (sum == NULL || max == NULL || sum->inputs[0] != exp->outputs[0] ||
        max->inputs[0] != sub->inputs[0] || !last_axis(g, sum, true) || !last_axis(g, max, true)) {
        return 0;
    }
    remove_op(m, g, div);
    remove_op(m, g, sum);
    remove_op(m, g, exp);
    remove_op(m, g, sub);
    remove_op(m, g, max);
    return sub->inputs[0];
}

/* Matches the loss expression that ends in operator `index`: mean, negation, sum, product of a
 * logarithm and one_hot, softmax. Fills in the match. */
static bool match_at(const trm_graph *g, int32_t end, match *m) {
    *m = (match){.end = end};
    const trmi_op *mean = &g->ops[end];
    if (mean->kind != TRMI_OP_REDUCE_MEAN || trmi_input_of(g, mean, 0)->shape.rank != 1 ||
        trm_shape_count(&trmi_output_of(g, mean, 0)->shape) != 1 || mean->attrs.reduce.keep_dims) {
        return false;
    }
    const trmi_op *sum = trmi_made_by(g, match_negation(m, g, mean->inputs[0]), TRMI_OP_REDUCE_SUM);
    const trmi_op *mul = sum ? trmi_made_by(g, sum->inputs[0], TRMI_OP_MUL) : NULL;
    if (mul == NULL || !last_axis(g, sum, false) || trmi_input_of(g, sum, 0)->shape.rank != 2) {
        return false;
    }
    /* The product has the logarithm on either side. */
    int log_at = trmi_made_by(g, mul->inputs[0], TRMI_OP_LOG) != NULL ? 0 : 1;
    const trmi_op *log = trmi_made_by(g, mul->inputs[log_at], TRMI_OP_LOG);
    const trmi_op *hot = trmi_made_by(g, mul->inputs[1 - log_at], TRMI_OP_ONE_HOT);
    m->logits = log ? softmax_of(m, g, log->inputs[0]) : 0;
    if (m->logits == 0 || hot == NULL ||
        !trm_shape_equal(&g->values[m->logits].shape, &trmi_output_of(g, hot, 0)->shape)) {
        return false;
    }
    remove_op(m, g, sum);
    remove_op(m, g, mul);
    remove_op(m, g, log);
    remove_op(m, g, hot);
    m->labels = hot->inputs[0];
    /* Label smoothing s of K classes writes on = 1 - s + s/K, off = s/K. */
    double classes = (double)hot->attrs.one_hot.classes;
    m->smoothing = hot->attrs.one_hot.off * classes;
    double on = 1 - m->smoothing + hot->attrs.one_hot.off;
    return g->values[m->logits].dtype == TRM_FLOAT32 && m->smoothing >= 0 && m->smoothing < 1 &&
           fabs(on - hot->attrs.one_hot.on) < 1e-12 && g->values[m->labels].dtype == TRM_INT32;
}

/* Returns whether every intermediate value is read inside the match only. */
static bool is_closed(const trmi_pass *pass, const trmi_roots *roots, const match *m) {
    const trm_graph *g = pass->from;
    for (int i = 0; i < m->inner_count; i++) {
        int32_t value = g->ops[m->inner[i]].outputs[0];
        int32_t inside = 0;
        for (int j = 0; j <= m->inner_count; j++) {
            const trmi_op *op = &g->ops[j < m->inner_count ? m->inner[j] : m->end];
            for (int32_t k = 0; k < op->inputs_count; k++) {
                inside += op->inputs[k] == value;
            }
        }
        bool root = roots->loss == value;
        for (int32_t k = 0; k < roots->outputs_count; k++) {
            root = root || roots->outputs[k] == value;
        }
        if (root || inside != pass->uses[value]) {
            return false;
        }
    }
    return true;
}

/* Replaces softmax, logarithm and the mean of the chosen classes by one operator, which is
 * faster and does not overflow. A match is taken only if no other operator reads its inner
 * values (is_closed). */
trm_status trmi_pass_fuse_loss(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err) {
    (void)options;
    const trm_graph *g = pass->from;
    bool *skip = trmi_alloc((size_t)g->ops_count * sizeof *skip);
    match *found = trmi_alloc((size_t)g->ops_count * sizeof *found);
    if (skip == NULL || found == NULL) {
        trmi_free(skip);
        trmi_free(found);
        return TRMI_NO_MEMORY(err, "to fuse losses");
    }
    for (int32_t i = 1; i < g->ops_count; i++) {
        match m;
        if (match_at(g, i, &m) && is_closed(pass, roots, &m)) {
            found[i] = m;
            for (int j = 0; j < m.inner_count; j++) {
                skip[m.inner[j]] = true;
            }
        }
    }
    for (int32_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        if (found[i].end == i) {
            /* The fused operator stands at the place of the mean, where logits and labels exist. */
            int32_t inputs[] = {pass->map[found[i].logits], pass->map[found[i].labels]};
            trmi_attrs attrs = {.xent = {.label_smoothing = found[i].smoothing}};
            int32_t index = trmi_pass_emit(pass, TRMI_OP_SOFTMAX_XENT, op->phase, op->name, inputs,
                                           2, 3, &attrs);
            pass->map[op->outputs[0]] = index == 0 ? 0 : pass->to->ops[index].outputs[0];
        } else if (!skip[i]) {
            trmi_pass_copy(pass, op);
        }
    }
    trmi_free(skip);
    trmi_free(found);
    return TRM_OK;
}
