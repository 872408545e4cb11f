/* SPDX-License-Identifier: Apache-2.0 */
/* First walk of the partition: decides how each operator is cut. An operator with a line in the
 * plan takes its letters; a gradient operator takes those of its forward operator; any other
 * operator takes the strategy that is cheapest from the spreads of its inputs: its messages, its
 * share of the work and, in forward, the redistribution of its gradients.
 *
 * trmi_space_choose_strategy() of plan/search makes the same choice in the space of plans. */
#include "plan/partition/partition_state.h"

#include "base/element.h"
#include "base/error.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the roofline seconds of a whole operator; three times as much in forward of training, for
 * its gradients. */
static double seconds_of(const trmi_partitioner *s, const trmi_op *op) {
    trmi_cost cost = trmi_op_cost(s->from, op);
    double flop = s->prices->flop > 0 ? s->prices->flop : 1 / 1e11;
    double byte = s->prices->byte > 0 ? s->prices->byte : 1 / 2e10;
    return fmax(cost.flops * flop, cost.bytes * byte) *
           (op->phase == TRMI_FORWARD && s->from->training ? 3 : 1);
}

/* ---- leaves ---- */

/* Returns the spread with partial axes made whole. */
static trmi_spread without_partials(trmi_spread spread) {
    for (int i = 0; i < TRMI_MESH_AXES; i++) {
        spread.at[i] = trmi_is_partial(spread.at[i]) ? TRMI_WHOLE : spread.at[i];
    }
    return spread;
}

/* Computes the letters of an elementwise operator whose output has this spread; false: there are
 * none. */
static bool letters_of_spread(trmi_partitioner *s, const trmi_op *op, const trmi_spread *spread,
                              char *letters) {
    trmi_loops l;
    trmi_strategy strategy;
    trmi_loops_of(s->from, op, &l);
    for (int32_t i = 0; i < s->mesh->axes; i++) {
        letters[i] = spread->at[i] >= TRMI_SPLIT ? l.out[0][spread->at[i] - TRMI_SPLIT] : '.';
    }
    letters[s->mesh->axes] = '\0';
    return trmi_partition_strategy(s->from, op, s->mesh, letters, &strategy) &&
           trmi_spread_equal(&strategy.outputs[0], spread);
}

/* Decides the spread of a leaf, or of its cast: the store of the plan, otherwise the spread in
 * which the first reader reads it. A parameter is cast where it is stored, so that what travels to
 * readers has the size of the cast. */
static void decide_leaf_spread(trmi_partitioner *s, int32_t value, const trmi_spread *wanted) {
    trmi_partition_value *v = &s->values[value];
    const trmi_op *op = &s->from->ops[s->from->values[value].op];
    const bool cast = op->kind == TRMI_OP_CAST;
    const trmi_partition_store *store = trmi_partition_plan_stored(
        s->plan, cast ? s->from->ops[s->from->values[op->inputs[0]].op].name : op->name);
    trmi_spread spread = store != NULL ? store->spread : without_partials(*wanted);
    v->follows_reader = false;
    /* the cast of a parameter is cut like its output, or not at all; its input has the same spread
     */
    if (cast) {
        char letters[TRMI_MESH_AXES + 1];
        if (!letters_of_spread(s, op, &spread, letters)) {
            memset(letters, '.', (size_t)s->mesh->axes);
            memset(&spread, 0, sizeof spread);
        }
        memcpy(s->letters[op - s->from->ops], letters, sizeof letters);
        if (s->values[op->inputs[0]].follows_reader) {
            decide_leaf_spread(s, op->inputs[0], &spread);
        }
    }
    v->again = cast ? s->values[op->inputs[0]].again : store != NULL && store->again;
    s->stored[value] = spread;
    v->versions[0] = (trmi_version){.spread = spread, .forward = v->again && cast};
    v->count = 1;
}

/* ---- gradients follow ---- */

/* Computes the letters of a gradient operator from those of its forward operator; false: no rule,
 * it is treated like any other operator. */
static bool letters_of_forward(const trmi_partitioner *s, const trmi_op *op,
                               char letters[TRMI_MESH_AXES + 1]) {
    int32_t origin = s->origins[op - s->from->ops];
    const trmi_op *forward = &s->from->ops[origin];
    if (origin == 0 || op->phase != TRMI_BACKWARD || s->letters[origin][0] == '\0') {
        return false;
    }
    memcpy(letters, s->letters[origin], TRMI_MESH_AXES + 1);
    switch (op->kind) {
    case TRMI_OP_CONV2D_GRAD_DATA:
    case TRMI_OP_CONV2D_GRAD_WEIGHTS:
    case TRMI_OP_BATCH_NORM_GRAD:
    case TRMI_OP_NORM_ACT_GRAD:
    case TRMI_OP_MAX_POOL_GRAD:
    case TRMI_OP_AVG_POOL_GRAD:
    case TRMI_OP_GLOBAL_AVG_POOL_GRAD:
    case TRMI_OP_SOFTMAX_XENT_GRAD:
    case TRMI_OP_EMBEDDING_GRAD:
    case TRMI_OP_DROPOUT:
    case TRMI_OP_RELU_GRAD:
    case TRMI_OP_SIGMOID_GRAD:
    case TRMI_OP_TANH_GRAD:
    case TRMI_OP_SOFTMAX_GRAD:
    case TRMI_OP_TOP_K_GRAD:
    case TRMI_OP_EXPERT_LINEAR:
    case TRMI_OP_EXPERT_GRAD_WEIGHTS:
    case TRMI_OP_LAYER_NORM_GRAD:
    case TRMI_OP_RMS_NORM_GRAD:
    case TRMI_OP_ATTENTION_GRAD:
    case TRMI_OP_ROTARY:
    case TRMI_OP_GELU_GRAD:
    case TRMI_OP_SILU_GRAD:
    case TRMI_OP_SWIGLU_GRAD:
    case TRMI_OP_REDUCE_MAX_GRAD:
    case TRMI_OP_BCE_LOGITS_GRAD:
    case TRMI_OP_BAG_POOL_GRAD:
    case TRMI_OP_PAIR_DOTS_GRAD: return true;
    case TRMI_OP_MATMUL:
        /* dx = dy w sums over the columns of the layer; dw = x^T dy, of weights [I, O], has its
         * inner loop as columns */
        for (int i = 0; i < s->mesh->axes && op->attrs.matmul.rows; i++) {
            bool turned = !op->attrs.matmul.transpose_a || forward->attrs.matmul.inputs_first;
            char was = letters[i];
            letters[i] = !turned ? was : was == 'k' ? 'c' : was == 'c' ? 'k' : was;
        }
        return op->attrs.matmul.rows;
    default: return false;
    }
}

/* ---- cheapest from here ---- */

/* Returns the seconds of redistributing a gradient from its reader's adjoint to its maker's. */
static double backward_seconds(trmi_partitioner *s, int32_t value, const trmi_spread *read,
                               const trmi_spread *made) {
    const trmi_value *v = &s->from->values[value];
    trmi_spread from = trmi_spread_adjoint(s->mesh, read), to = trmi_spread_adjoint(s->mesh, made);
    /* a whole gradient need not become partial */
    for (int i = 0; i < TRMI_MESH_AXES; i++) {
        to.at[i] = to.at[i] == TRMI_PARTIAL_SUM && from.at[i] == TRMI_WHOLE ? TRMI_WHOLE : to.at[i];
    }
    return trmi_dtype_is_float(v->dtype)
               ? trmi_route_seconds(s->router, &v->shape, v->dtype, &from, &to)
               : 0;
}

/* Returns the seconds of a list of messages. */
static double comms_seconds(const trmi_partitioner *s, const trmi_partition_comm *comms,
                            int32_t count) {
    double seconds = 0;
    for (int32_t i = 0; i < count; i++) {
        seconds += trmi_comm_seconds(s->prices, s->mesh, &comms[i]);
    }
    return seconds;
}

/* Contract in partition_state.h. On axes where the parameter is stored whole and its gradient is
 * partial, the gradient stays partial: buckets reduce it later, with others. */
trmi_spread trmi_partition_brought(const trmi_partitioner *s, int32_t parameter,
                                   const trmi_spread *made, uint32_t *axes) {
    trmi_spread to = s->stored[parameter];
    *axes = 0;
    for (int32_t i = 0; i < s->mesh->axes; i++) {
        if (to.at[i] == TRMI_WHOLE && made->at[i] == TRMI_PARTIAL_SUM) {
            to.at[i] = TRMI_PARTIAL_SUM;
            *axes |= 1u << i;
        }
    }
    return to;
}

/* Returns the seconds of redistributing those outputs that are gradients of parameters to their
 * stores: of the sum of a tied parameter's gradients. */
static double seconds_to_stores(trmi_partitioner *s, const trmi_op *op,
                                const trmi_strategy *strategy) {
    double seconds = 0;
    for (int32_t i = 0; i < op->outputs_count; i++) {
        int32_t parameter = s->parameter[op->outputs[i]];
        if (parameter != 0 && !s->values[parameter].follows_reader) {
            uint32_t axes;
            trmi_spread to = trmi_partition_brought(s, parameter, &strategy->outputs[i], &axes);
            seconds += trmi_route_seconds(s->router, &s->from->values[parameter].shape, TRM_FLOAT32,
                                          &strategy->outputs[i], &to);
        }
    }
    return seconds;
}

/* Returns the seconds of an operator in a strategy: work, own messages, redistribution of inputs
 * and of their gradients. whole: seconds of the uncut operator. */
static double follow_cost(trmi_partitioner *s, const trmi_op *op, const trmi_strategy *strategy,
                          double whole) {
    double cost =
        whole * strategy->fraction + comms_seconds(s, strategy->comms, strategy->comms_count);
    bool trains = s->from->training && op->phase == TRMI_FORWARD;
    cost += trains ? comms_seconds(s, strategy->backward, strategy->backward_count) : 0;
    for (int32_t i = 0; i < op->inputs_count && cost < INFINITY; i++) {
        int32_t value = op->inputs[i];
        if (value == 0) {
            continue;
        }
        const trmi_partition_value *v = &s->values[value];
        const trmi_op *maker = &s->from->ops[s->from->values[value].op];
        bool data = maker->kind == TRMI_OP_INPUT || maker->kind == TRMI_OP_CONSTANT ||
                    maker->kind == TRMI_OP_STATE;
        /* A leaf takes the spread of its first reader, so nothing is moved. */
        trmi_spread made = without_partials(strategy->inputs[i]);
        if (!v->follows_reader) {
            double seconds;
            int32_t source = trmi_partition_source(s, value, &strategy->inputs[i], &seconds);
            cost += seconds;
            made = source >= 0 ? v->versions[source].spread : made;
        }
        /* add the redistribution of the gradient; that of a parameter goes to its store */
        if (trains && !data && cost < INFINITY) {
            trmi_spread back = trmi_spread_adjoint(s->mesh, &strategy->inputs[i]),
                        store = v->follows_reader ? made : without_partials(made);
            bool leaf = v->follows_reader || maker->kind == TRMI_OP_PARAMETER;
            cost += leaf ? trmi_route_seconds(s->router, &s->from->values[value].shape, TRM_FLOAT32,
                                              &back, &store)
                         : backward_seconds(s, value, &strategy->inputs[i], &made);
        }
    }
    return cost + seconds_to_stores(s, op, strategy);
}

/* Returns whether letters are those of `wanted` on every axis on which it has a letter. */
static bool keeps_letters(const char *letters, const char *wanted) {
    bool kept = true;
    for (int i = 0; wanted[i] != '\0' && kept; i++) {
        kept = wanted[i] == ' ' || letters[i] == wanted[i];
    }
    return kept;
}

/* Writes the letters of the cheapest strategy of an operator without a line. wanted: the letters of
 * some axes, ' ' = any. Ties go to the first strategy.   errors  INTERNAL: there is none */
static trm_status choose_cheapest(trmi_partitioner *s, const trmi_op *op, const char *wanted,
                                  char *letters, trm_error *err) {
    trmi_arena arena = {0};
    trmi_strategy *list;
    int32_t count;
    TRMI_TRY(trmi_partition_strategies(s->from, op, s->mesh, &arena, &list, &count, err));
    double whole = seconds_of(s, op), best = INFINITY;
    for (int32_t i = 0; i < count; i++) {
        bool fits =
            keeps_letters(list[i].letters, wanted) && trmi_partition_settle(s, op, &list[i]);
        double cost = fits ? follow_cost(s, op, &list[i], whole) : INFINITY;
        if (cost < best * (1 - 1e-9)) {
            best = cost;
            memcpy(letters, list[i].letters, sizeof list[i].letters);
        }
    }
    trmi_arena_free(&arena);
    return best < INFINITY ? TRM_OK
                           : TRMI_FAIL(err, TRM_INTERNAL,
                                       "%s: no way to cut it from where its inputs lie", op->name);
}

/* ---- the walk ---- */

/* Strict plans: replaces letters by which ranks would add numbers in another order than one device:
 * on the axes that have them, or else on all axes. */
static trm_status make_strict(trmi_partitioner *s, const trmi_op *op, char *letters,
                              trm_error *err) {
    char wanted[TRMI_MESH_AXES + 1], one[TRMI_MESH_AXES + 1];
    if (s->plan->blocks == 0 ||
        trmi_partition_is_strict(s->from, &s->marks, s->plan->blocks, op, s->mesh, letters)) {
        return TRM_OK;
    }
    memcpy(wanted, letters, sizeof wanted);
    for (int32_t i = 0; i < s->mesh->axes; i++) {
        /* Is the letter of this axis strict by itself? ' ' leaves the axis open. */
        memset(one, '.', (size_t)s->mesh->axes);
        one[s->mesh->axes] = '\0';
        one[i] = letters[i];
        wanted[i] = trmi_partition_is_strict(s->from, &s->marks, s->plan->blocks, op, s->mesh, one)
                        ? letters[i]
                        : ' ';
    }
    char asked[TRMI_MESH_AXES + 1];
    memcpy(asked, letters, sizeof asked);
    trm_status status = choose_cheapest(s, op, wanted, letters, NULL);
    status = status == TRM_OK ? status : choose_cheapest(s, op, "", letters, err);
    /* A line of the plan that is not followed must be reported; letters that the partition chose
     * itself need not. */
    const trmi_partition_choice *line = s->choices[op - s->from->ops];
    if (line != NULL && line->line > 0 && s->rank == 0) {
        trmi_log(TRM_LOG_WARN, "plan",
                 "%s: strict determinism has no fixed order of sums for ranks that cut it by '%s'; "
                 "it is cut by '%s'",
                 op->name, asked, letters);
    }
    return status;
}

/* Decides the letters of an operator: the plan's line, inherited, or the cheapest. */
static trm_status decide_letters(trmi_partitioner *s, const trmi_op *op, char *letters,
                                 trmi_strategy *strategy, trm_error *err) {
    int64_t index = op - s->from->ops;
    const trmi_partition_choice *choice = s->choices[index];
    if (choice != NULL) {
        memcpy(letters, choice->letters, TRMI_MESH_AXES + 1);
    } else if (!letters_of_forward(s, op, letters) ||
               !trmi_partition_strategy(s->from, op, s->mesh, letters, strategy)) {
        TRMI_TRY(choose_cheapest(s, op, "", letters, err));
    }
    TRMI_TRY(make_strict(s, op, letters, err));
    if (!trmi_partition_strategy(s->from, op, s->mesh, letters, strategy) ||
        !trmi_partition_settle(s, op, strategy)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s cannot be cut by '%s'", op->name, letters);
    }
    char loops[TRMI_PARTITION_LETTERS];
    const char *reason = NULL;
    trmi_partition_loops(s->from, op, loops, &reason);
    if (loops[0] == '\0' && reason != NULL) {
        s->warnings[index] = reason;
    }
    return TRM_OK;
}

/* Returns whether an operator casts an undecided parameter; its first reader decides both. */
static bool is_undecided_cast(const trmi_partitioner *s, const trmi_op *op) {
    return op->kind == TRMI_OP_CAST && s->values[op->inputs[0]].follows_reader &&
           s->from->ops[s->from->values[op->inputs[0]].op].kind == TRMI_OP_PARAMETER &&
           s->choices[op - s->from->ops] == NULL;
}

/* Decides one operator and records the versions of values that it creates. */
static trm_status choose_cut(trmi_partitioner *s, const trmi_op *op, trm_error *err) {
    int64_t index = op - s->from->ops;
    if (op->kind == TRMI_OP_CONSTANT) {
        s->values[op->outputs[0]].versions[0] = (trmi_version){.value = 0};
        s->values[op->outputs[0]].count = 1;
        return TRM_OK;
    }
    if (trmi_is_leaf(op) || is_undecided_cast(s, op)) {
        s->values[op->outputs[0]].follows_reader = true;
        return TRM_OK;
    }
    /* Inputs are redistributed as the strategy reads them; its outputs are the first versions of
     * new values. */
    trmi_strategy strategy;
    s->phase = op->phase;
    TRMI_TRY(decide_letters(s, op, s->letters[index], &strategy, err));
    for (int32_t i = 0; i < op->inputs_count; i++) {
        int32_t local;
        if (op->inputs[i] == 0) {
            continue;
        }
        if (s->values[op->inputs[i]].follows_reader) {
            decide_leaf_spread(s, op->inputs[i], &strategy.inputs[i]);
        }
        TRMI_TRY(trmi_redistribute(s, op->inputs[i], &strategy.inputs[i], NULL, &local, err));
    }
    for (int32_t i = 0; i < op->outputs_count; i++) {
        s->values[op->outputs[i]].versions[0] = (trmi_version){.spread = strategy.outputs[i]};
        s->values[op->outputs[i]].count = 1;
    }
    /* the plan redistributes the result: only that version remains */
    const trmi_partition_choice *choice = s->choices[index];
    if (choice != NULL && choice->has_output) {
        int32_t local;
        TRMI_TRY(trmi_redistribute(s, op->outputs[0], &choice->output, NULL, &local, err));
        trmi_partition_value *v = &s->values[op->outputs[0]];
        v->versions[0] = v->versions[v->count - 1];
        v->versions[0].spread = choice->output;
        v->count = 1;
    }
    return TRM_OK;
}

/* Contract in partition_state.h. Operators are walked in their order, so the spreads of inputs are
 * known when an operator is decided. */
trm_status trmi_partition_choose(trmi_partitioner *s, trm_error *err) {
    for (int64_t i = 1; i < s->from->ops_count; i++) {
        TRMI_TRY(choose_cut(s, &s->from->ops[i], err));
    }
    /* leaves without a reader are whole */
    for (int64_t i = 1; i < s->from->ops_count; i++) {
        const trmi_op *op = &s->from->ops[i];
        if (op->outputs_count > 0 && s->values[op->outputs[0]].follows_reader) {
            decide_leaf_spread(s, op->outputs[0], &(trmi_spread){{0}, {0}});
        }
    }
    return TRM_OK;
}
