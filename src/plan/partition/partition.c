/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the graph of one rank: decides how all operators are cut (choose_cuts.c), then emits them
 * one by one (emit_local.c), then maps the roots and lists the leaves. trmi_partition_graph() is
 * the only entry point.
 *
 *   graph, plan --take_tables--> names, origins --choose--> letters --emit_all--> local graph
 *               --map_roots--> loss, outputs, gradients of the local graph --list_leaves--> parts
 *
 * Invariant: decisions depend on graph, plan and prices only, never on the rank, so all ranks
 * decide alike and their programs have the same messages in the same order. */
#include "plan/partition/partition_state.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* ---- set up ---- */

/* Returns the last operator with a name before index `before`; 0: none. */
static int32_t find_named(const trm_graph *graph, const char *name, int64_t before) {
    for (int64_t i = before - 1; i > 0; i--) {
        if (strcmp(graph->ops[i].name, name) == 0) {
            return (int32_t)i;
        }
    }
    return 0;
}

/* Allocates the arrays of the partition and fills in lines, origins, gradients and outputs. */
static trm_status take_tables(trmi_partitioner *s, const trmi_roots *roots, trm_error *err) {
    size_t ops = (size_t)s->from->ops_count, values = (size_t)s->from->values_count;
    s->letters = trmi_arena_alloc(&s->scratch, ops * sizeof *s->letters);
    s->choices = trmi_arena_alloc(&s->scratch, ops * sizeof *s->choices);
    s->origins = trmi_arena_alloc(&s->scratch, ops * sizeof *s->origins);
    s->warnings = trmi_arena_alloc(&s->scratch, ops * sizeof *s->warnings);
    s->stored = trmi_arena_alloc(&s->scratch, values * sizeof *s->stored);
    s->values = trmi_arena_alloc(&s->scratch, values * sizeof *s->values);
    s->parameter = trmi_arena_alloc(&s->scratch, values * sizeof *s->parameter);
    s->asked = trmi_arena_alloc(&s->scratch, values);
    if (s->letters == NULL || s->choices == NULL || s->origins == NULL || s->warnings == NULL ||
        s->stored == NULL || s->values == NULL || s->parameter == NULL || s->asked == NULL) {
        return TRMI_NO_MEMORY(err, "to split a graph of %lld operators",
                              (long long)s->from->ops_count);
    }
    for (int64_t i = 0; i < s->plan->choices_count; i++) {
        int32_t op = find_named(s->from, s->plan->choices[i].op, s->from->ops_count);
        s->choices[op] = op != 0 ? &s->plan->choices[i] : NULL;
    }
    for (int64_t i = 1; i < s->from->ops_count; i++) {
        const trmi_op *op = &s->from->ops[i];
        /* operators of one gradient are neighbours: try the origin of the previous one first */
        bool again = i > 1 && op->origin != NULL && s->origins[i - 1] != 0 &&
                     strcmp(s->from->ops[s->origins[i - 1]].name, op->origin) == 0;
        s->origins[i] = again                ? s->origins[i - 1]
                        : op->origin != NULL ? find_named(s->from, op->origin, i)
                                             : 0;
    }
    /* A gradient gets its parameter; 0 is "absent". */
    for (int32_t i = 0; i < roots->params_count; i++) {
        s->parameter[roots->grads[i]] = roots->grads[i] != 0 ? roots->params[i] : 0;
    }
    s->asked[roots->loss] = roots->loss != 0;
    for (int32_t i = 0; i < roots->outputs_count; i++) {
        s->asked[roots->outputs[i]] = true;
    }
    return TRM_OK;
}

/* Strict plans: finds the sums over samples. */
static trm_status mark_blocks(trmi_partitioner *s, trm_error *err) {
    int64_t samples;
    if (s->plan->blocks == 0) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_block_samples(s->from, s->plan->blocks, &samples, err));
    return trmi_mark_blocks(s->from, samples, &s->scratch, &s->marks, err);
}

/* ---- emit ---- */

/* Redistributes what an operator makes for the caller, right after it: the loss and outputs become
 * whole, so that a forward pass alone has them, too; the gradient of a parameter moves to the
 * parameter's parts, so that whole gradients exist for a moment only. */
static trm_status bring_results(trmi_partitioner *s, const trmi_op *op, trm_error *err) {
    const trmi_spread whole = {{0}, {0}};
    for (int32_t i = 0; i < op->outputs_count; i++) {
        int32_t local;
        if (s->asked[op->outputs[i]]) {
            TRMI_TRY(trmi_redistribute(s, op->outputs[i], &whole, "output", &local, err));
        }
        int32_t parameter = s->parameter[op->outputs[i]];
        if (parameter != 0) {
            uint32_t axes;
            const trmi_spread to = trmi_partition_brought(
                s, parameter, &s->values[op->outputs[i]].versions[0].spread, &axes);
            TRMI_TRY(trmi_redistribute(s, op->outputs[i], &to, "gradient", &local, err));
        }
    }
    return TRM_OK;
}

/* Second walk: emits all operators, and redistributes results to the spreads in the plan. */
static trm_status emit_all(trmi_partitioner *s, trm_error *err) {
    s->emitting = true;
    for (int64_t i = 1; i < s->from->ops_count; i++) {
        const trmi_op *op = &s->from->ops[i];
        if (trmi_is_leaf(op)) {
            TRMI_TRY(trmi_partition_emit_leaf(s, op, err));
            continue;
        }
        /* The letters were decided in the first walk, so they fit. */
        trmi_strategy strategy;
        if (!trmi_partition_strategy(s->from, op, s->mesh, s->letters[i], &strategy) ||
            !trmi_partition_settle(s, op, &strategy)) {
            return TRMI_FAIL(err, TRM_INTERNAL, "%s cannot be cut by '%s'", op->name,
                             s->letters[i]);
        }
        TRMI_TRY(trmi_partition_emit(s, op, &strategy, err));
        if (s->choices[i] != NULL && s->choices[i]->has_output) {
            trmi_partition_value *v = &s->values[op->outputs[0]];
            int32_t local;
            TRMI_TRY(trmi_redistribute(s, op->outputs[0], &s->choices[i]->output, "output", &local,
                                       err));
            v->versions[0] = (trmi_version){.spread = s->choices[i]->output, .value = local};
            v->count = 1;
        }
        TRMI_TRY(bring_results(s, op, err));
    }
    return TRM_OK;
}

/* ---- roots ---- */

/* Redistributes a gradient to the spread of its parameter, without the sums over *axes. */
static trm_status bring_gradient(trmi_partitioner *s, int32_t param, int32_t *grad, uint32_t *axes,
                                 trm_error *err) {
    const trmi_value *v = &s->from->values[*grad];
    trmi_spread to = trmi_partition_brought(s, param, &s->values[*grad].versions[0].spread, axes);
    int32_t value = *grad;
    TRMI_TRY(trmi_redistribute(s, value, &to, "gradient", grad, err));
    if (*axes != 0) {
        double bytes = (double)trmi_spread_most(s->mesh, &v->shape, &to) *
                       (double)trm_dtype_bytes(TRM_FLOAT32);
        trmi_partition_note(
            s, &(trmi_partition_message){
                   .op = s->from->ops[s->from->values[param].op].name,
                   .what = "gradient",
                   .phase = TRMI_BACKWARD,
                   .move = TRMI_MOVE_ALL_REDUCE,
                   .axes = *axes,
                   .bytes = bytes,
                   .seconds = trmi_price(s->prices, s->mesh, TRMI_MOVE_ALL_REDUCE, *axes, bytes),
                   .gradient = true});
    }
    return TRM_OK;
}

/* Replaces the roots by values of the local graph. */
static trm_status map_roots(trmi_partitioner *s, trmi_roots *roots, trm_error *err) {
    const trmi_spread whole = {{0}, {0}};
    trmi_roots to = *roots;
    trm_graph *g = s->pass.to;
    size_t params = (size_t)roots->params_count + 1, outputs = (size_t)roots->outputs_count + 1;
    TRMI_TRY(TRMI_NEW_IN(err, &g->arena, to.outputs, outputs, "to split the graph"));
    TRMI_TRY(TRMI_NEW_IN(err, &g->arena, to.params, params, "to split the graph"));
    TRMI_TRY(TRMI_NEW_IN(err, &g->arena, to.grads, params, "to split the graph"));
    TRMI_TRY(TRMI_NEW_IN(err, &g->arena, to.grad_axes, params, "to split the graph"));
    /* The caller reads loss and outputs, so they are whole on every rank. */
    if (roots->loss != 0) {
        TRMI_TRY(trmi_redistribute(s, roots->loss, &whole, "loss", &to.loss, err));
    }
    for (int32_t i = 0; i < roots->outputs_count; i++) {
        TRMI_TRY(trmi_redistribute(s, roots->outputs[i], &whole, "output", &to.outputs[i], err));
    }
    for (int32_t i = 0; i < roots->params_count; i++) {
        to.params[i] = s->values[roots->params[i]].versions[0].value;
        to.grads[i] = roots->grads[i];
        if (roots->grads[i] != 0) {
            TRMI_TRY(bring_gradient(s, roots->params[i], &to.grads[i], &to.grad_axes[i], err));
        }
    }
    /* the lists of the caller outlive this graph, so they are overwritten in place */
    roots->loss = to.loss;
    memcpy(roots->outputs, to.outputs, outputs * sizeof *to.outputs);
    memcpy(roots->params, to.params, params * sizeof *to.params);
    memcpy(roots->grads, to.grads, params * sizeof *to.grads);
    if (roots->grad_axes != NULL) {
        memcpy(roots->grad_axes, to.grad_axes, params * sizeof *to.grad_axes);
    }
    return TRM_OK;
}

/* Lists inputs, parameters and states with their parts. */
static trm_status list_leaves(trmi_partitioner *s, trmi_partition_leaf **leaves, int32_t *count,
                              trm_error *err) {
    trmi_partition_leaf *list;
    TRMI_TRY(TRMI_NEW_IN(err, &s->pass.to->arena, list, s->from->ops_count, "to split the graph"));
    *count = 0;
    for (int64_t i = 1; i < s->from->ops_count; i++) {
        const trmi_op *op = &s->from->ops[i];
        if (trmi_is_leaf(op) && op->kind != TRMI_OP_CONSTANT) {
            int32_t value = op->outputs[0];
            const trm_shape *shape = &s->from->values[value].shape;
            list[(*count)++] = (trmi_partition_leaf){
                .name =
                    s->pass.to->ops[s->pass.to->values[s->values[value].versions[0].value].op].name,
                .value = s->values[value].versions[0].value,
                .shape = *shape,
                .global = *shape,
                .spread = s->stored[value],
                .box = trmi_spread_box(s->mesh, shape, &s->stored[value], s->rank)};
        }
    }
    *leaves = list;
    return TRM_OK;
}

/* ---- all ---- */

/* Contract in partition.h. Decides first, then emits: trmi_partition_choose fixes the strategy
 * of every operator, also of those that the plan does not name, and emit_all copies the graph as
 * this rank runs it. The decisions depend on plan, graph and prices only, so that all ranks make
 * the same ones. */
trm_status trmi_partition_graph(const trm_graph *graph, const trmi_partition_plan *plan,
                                const trmi_prices *prices, int32_t rank, trmi_roots *roots,
                                trm_graph **out, trmi_partition_leaf **leaves,
                                int32_t *leaves_count, trmi_partition_report *report,
                                trm_error *err) {
    static const trmi_prices usual = {0};
    trmi_partitioner s = {.from = graph,
                          .plan = plan,
                          .mesh = &plan->mesh,
                          .rank = rank,
                          .report = report,
                          .prices = prices != NULL ? prices : &usual};
    TRMI_TRY(trmi_partition_plan_check(plan, graph, trmi_mesh_ranks(&plan->mesh), err));
    trm_status status = trmi_router_create(&plan->mesh, prices, &s.router, err);
    status = status == TRM_OK ? take_tables(&s, roots, err) : status;
    status = status == TRM_OK ? mark_blocks(&s, err) : status;
    status = status == TRM_OK ? trmi_pass_begin(&s.pass, graph, err) : status;
    if (status == TRM_OK) {
        s.pass.to->rows = trmi_program_ops;
    }
    status = status == TRM_OK ? trmi_partition_choose(&s, err) : status;
    status = status == TRM_OK ? emit_all(&s, err) : status;
    status = status == TRM_OK ? map_roots(&s, roots, err) : status;
    status = status == TRM_OK ? list_leaves(&s, leaves, leaves_count, err) : status;
    if (status == TRM_OK) {
        status = trmi_pass_end(&s.pass, out, err);
    } else {
        trmi_pass_cancel(&s.pass);
    }
    trmi_router_destroy(s.router);
    trmi_arena_free(&s.scratch);
    return status;
}

void trmi_partition_report_free(trmi_partition_report *report) {
    free(report->messages);
    free(report->work);
    trmi_arena_free(&report->arena);
    *report = (trmi_partition_report){.messages = NULL};
}
