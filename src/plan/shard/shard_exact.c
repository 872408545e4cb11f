/* SPDX-License-Identifier: Apache-2.0 */
/* Strict determinism of plans: results that do not depend on the plan. Each operator that sums over
 * something that may be cut becomes
 *
 *      magnitudes of its inputs, of all ranks      LARGEST, ALL_REDUCE
 *      its sums on this rank, as integers          EXACT_SUM
 *      those of other ranks added                  EXCHANGE of halos, ALL_REDUCE: integers, any order
 *      numbers                                     EXACT_ROUND, with the bias and a mean's count
 *
 * so that every tensor of the graph is, bit for bit, a function of the whole tensors before it.
 * Nothing stays partial: a sum that passed through an addition would be rounded once less. Norms
 * and the softmax loss keep their operators; their kernels (exec/ref/ref_norm.c,
 * exec/ref/ref_loss.c) sum in the same way. */
#include "plan/shard/shard_state.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

bool trmi_shard_is_exact(trmi_op_kind kind) {
    switch (kind) {
    case TRMI_OP_CONV2D:
    case TRMI_OP_CONV2D_GRAD_DATA:
    case TRMI_OP_CONV2D_GRAD_WEIGHTS:
    case TRMI_OP_LINEAR:
    case TRMI_OP_MATMUL:
    case TRMI_OP_REDUCE_SUM:
    case TRMI_OP_REDUCE_MEAN:
    case TRMI_OP_GLOBAL_AVG_POOL:
    case TRMI_OP_EMBEDDING_GRAD:
    case TRMI_OP_MAX_POOL_GRAD:
    case TRMI_OP_AVG_POOL_GRAD:
    case TRMI_OP_BCE_LOGITS:
    case TRMI_OP_PAIR_DOTS: return true;
    default: return false;
    }
}

/* Returns whether cutting this loop of an operator would make ranks add up rounded numbers: partial
 * sums that pass on, and the sums of operators that have no exact form. */
static bool rounds(const trmi_op *op, char letter) {
    switch (op->kind) {
    case TRMI_OP_LINEAR_XENT:
    case TRMI_OP_LAYER_NORM_GRAD:
    case TRMI_OP_RMS_NORM_GRAD: return letter != '.';
    case TRMI_OP_ATTENTION_GRAD: return letter == 'q';
    case TRMI_OP_EXPERT_LINEAR: return letter == (op->attrs.expert.transposed ? 'k' : 'c');
    case TRMI_OP_EXPERT_GRAD_WEIGHTS:
        return letter != '.' && strchr("ekc", letter) == NULL; /* rows */
    case TRMI_OP_BAG_POOL: return letter == 'k' || letter == '+';
    default: return letter == '+';
    }
}

void trmi_shard_exact_letters(const trmi_op *op, char *letters) {
    for (; *letters != '\0'; letters++) {
        *letters = rounds(op, *letters) ? '.' : *letters;
    }
}

bool trmi_shard_settle(const trmi_sharder *s, const trmi_op *op, trmi_strategy *strategy) {
    if (!s->plan->exact) {
        return true;
    }
    bool norm = op->kind == TRMI_OP_BATCH_NORM_GRAD || op->kind == TRMI_OP_NORM_ACT_GRAD;
    for (int32_t i = 0; i < op->outputs_count && (norm || trmi_shard_is_exact(op->kind)); i++) {
        for (int axis = 0; axis < TRMI_MESH_AXES; axis++) {
            uint8_t *at = &strategy->outputs[i].at[axis];
            *at = *at == TRMI_PARTIAL_SUM ? TRMI_WHOLE : *at;
        }
    }
    for (int32_t i = 0; i < op->inputs_count; i++) { /* a bias is added after the sum */
        for (int axis = 0; axis < TRMI_MESH_AXES; axis++) {
            uint8_t *at = &strategy->inputs[i].at[axis];
            *at = *at == TRMI_PARTIAL_SUM ? TRMI_WHOLE : *at;
        }
    }
    bool exact = true;
    for (const char *letter = strategy->letters; *letter != '\0'; letter++) {
        exact = exact && !rounds(op, *letter);
    }
    return exact;
}

/* ---- what the whole operator adds up ---- */

/* Returns how many terms the whole operator sums for one output; determines the unit of the
 * integers. */
static int64_t terms_of(const trm_graph *g, const trmi_op *op) {
    const trm_shape *a = &trmi_input_of(g, op, 0)->shape, *y = &trmi_output_of(g, op, 0)->shape;
    const trmi_value *second = trmi_input_of(g, op, 1);
    const trm_shape *b = second != NULL ? &second->shape : NULL;
    int64_t ins = trm_shape_count(a), outs = trm_shape_count(y);
    switch (op->kind) {
    case TRMI_OP_CONV2D: return b->dim[1] * b->dim[2] * b->dim[3];
    case TRMI_OP_CONV2D_GRAD_DATA: return b->dim[0] / op->attrs.conv.groups * b->dim[2] * b->dim[3];
    case TRMI_OP_CONV2D_GRAD_WEIGHTS: return a->dim[0] * a->dim[2] * a->dim[3];
    case TRMI_OP_LINEAR:
    case TRMI_OP_PAIR_DOTS: return a->dim[a->rank - 1];
    case TRMI_OP_MATMUL: return a->dim[op->attrs.matmul.transpose_a ? a->rank - 2 : a->rank - 1];
    case TRMI_OP_EMBEDDING_GRAD: return trm_shape_count(b);
    case TRMI_OP_MAX_POOL_GRAD:
    case TRMI_OP_AVG_POOL_GRAD: return op->attrs.pool.kernel[0] * op->attrs.pool.kernel[1];
    default: /* reductions */ return outs > 0 ? ins / outs : 1;
    }
}

/* Returns whether the operator divides its sum by the number of terms. */
static bool is_mean(trmi_op_kind kind) {
    return kind == TRMI_OP_REDUCE_MEAN || kind == TRMI_OP_GLOBAL_AVG_POOL ||
           kind == TRMI_OP_BCE_LOGITS;
}

/* Returns the number of inputs whose magnitudes bound a term: the two factors of a product, or the
 * summand. */
static int32_t factors_of(trmi_op_kind kind) {
    switch (kind) {
    case TRMI_OP_CONV2D:
    case TRMI_OP_CONV2D_GRAD_DATA:
    case TRMI_OP_CONV2D_GRAD_WEIGHTS:
    case TRMI_OP_LINEAR:
    case TRMI_OP_MATMUL:
    case TRMI_OP_BCE_LOGITS: return 2;
    default: return 1;
    }
}

/* ---- emission ---- */

/* Emits an operator with one output, named after `op`. */
static trm_status emit(trmi_sharder *s, const trmi_op *op, trmi_op_kind kind, const char *what,
                       const int32_t *inputs, int32_t count, trmi_attrs *attrs, int32_t *out,
                       trm_error *err) {
    char name[300];
    snprintf(name, sizeof name, "%.200s %s", op->name, what);
    int32_t index = trmi_pass_emit(&s->pass, kind, op->phase, name, inputs, count, 1, attrs);
    *out = index == 0 ? 0 : s->pass.to->ops[index].outputs[0];
    return index == 0 ? trm_graph_check(s->pass.to, err) : TRM_OK;
}

/* Emits an ALL_REDUCE of *value over `axes`; none if there are no axes. */
static trm_status all_reduce(trmi_sharder *s, const trmi_op *op, const char *what, uint32_t axes,
                             trmi_combine combine, int32_t *value, trm_error *err) {
    const trmi_box_exchange to = {.head = {.bytes = sizeof to}, .axes = axes, .combine = combine};
    trmi_attrs attrs = {.attached = &to.head};
    return axes == 0 ? TRM_OK : emit(s, op, TRMI_OP_ALL_REDUCE, what, value, 1, &attrs, value, err);
}

/* Returns the axes on which ranks have different parts of the first `inputs` inputs. */
static uint32_t cut_axes(const trmi_strategy *strategy, int32_t inputs) {
    uint32_t axes = 0;
    for (int32_t i = 0; i < inputs; i++) {
        for (int axis = 0; axis < TRMI_MESH_AXES; axis++) {
            axes |= strategy->inputs[i].at[axis] >= TRMI_SPLIT ? 1u << axis : 0;
        }
    }
    return axes;
}

trm_status trmi_shard_exact_sum(trmi_sharder *s, const trmi_op *op, const trmi_strategy *strategy,
                                const trmi_exact *of, const int32_t *inputs,
                                trmi_exact_state *state, trm_error *err) {
    int32_t factors = factors_of(op->kind), read = op->inputs_count < 2 ? op->inputs_count : 2,
            given[TRMI_LOOP_TENSORS];
    trmi_attrs none = {.attached = NULL};
    TRMI_TRY(
        emit(s, op, TRMI_OP_LARGEST, "magnitudes", inputs, factors, &none, &state->largest, err));
    TRMI_TRY(all_reduce(s, op, "all magnitudes", cut_axes(strategy, factors), TRMI_COMBINE_MAX,
                        &state->largest, err));
    int64_t terms = terms_of(s->from, op);
    state->what = *of;
    state->what.head.bytes = sizeof state->what;
    state->what.kind = op->kind;
    state->what.terms = terms;
    state->what.divide = is_mean(op->kind) ? (double)terms : 1;
    state->what.dtype = s->from->values[op->outputs[0]].dtype;
    memcpy(given, inputs, (size_t)read * sizeof *given);
    given[read] = state->largest;
    trmi_attrs exact = {.attached = &state->what.head};
    return emit(s, op, TRMI_OP_EXACT_SUM, "sums", given, read + 1, &exact, &state->sums, err);
}

trm_status trmi_shard_exact_round(trmi_sharder *s, const trmi_op *op, const trmi_strategy *strategy,
                                  int32_t bias, trmi_exact_state *state, int32_t *out,
                                  trm_error *err) {
    trmi_strategy raw;
    uint32_t axes = 0;
    if (!trmi_shard_strategy(s->from, op, s->mesh, strategy->letters, &raw)) {
        return TRMI_FAIL(err, TRM_INTERNAL, "%s cannot be cut by '%s'", op->name,
                         strategy->letters);
    }
    for (int axis = 0; axis < TRMI_MESH_AXES; axis++) {
        axes |= raw.outputs[0].at[axis] == TRMI_PARTIAL_SUM ? 1u << axis : 0;
    }
    TRMI_TRY(all_reduce(s, op, "all sums", axes, TRMI_COMBINE_SUM, &state->sums, err));
    const int32_t given[3] = {state->sums, state->largest, bias};
    trmi_attrs exact = {.attached = &state->what.head};
    state->what.shape = s->pass.to->values[state->sums].shape;
    int32_t index;
    TRMI_TRY(
        emit(s, op, TRMI_OP_EXACT_ROUND, "rounded", given, bias != 0 ? 3 : 2, &exact, out, err));
    index = s->pass.to->values[*out].op;
    s->pass.to->ops[index].name = trmi_arena_strdup(&s->pass.to->arena, op->name);
    return s->pass.to->ops[index].name != NULL
               ? TRM_OK
               : TRMI_FAIL(err, TRM_NOMEM, "no memory to split %s", op->name);
}
