/* SPDX-License-Identifier: Apache-2.0 */
/* Converts operators to program steps: each operator gets a layout, each value a buffer in every
 * layout in which it is read, and REORDER steps convert a value that is read in another layout than
 * it was made in.
 *
 *      image PLAIN --reorder--> image CHANNELS_LAST --conv--> ... --global pool--> [N, C] PLAIN
 *
 * A parameter has one layout, the one that all its readers want; its gradient is made in the same
 * layout, so that the optimiser works on equal offsets. A cast of a parameter gets no step, and
 * takes no memory, if the kernels of all its readers round the parameter as they read it. */
#include "plan/passes/pass.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* State of the conversion. */
typedef struct lowering {
    trm_program *program;
    const trm_graph *graph;
    const trmi_target *target;
    bool dense_gradients, factored_gradients;
    bool strict;               /* blocks of samples */
    int32_t *at[TRMI_LAYOUTS]; /* value -> buffer in that layout, 0 = none yet */
    trmi_layout *made;         /* value -> layout in which it was made */
    bool *weights;             /* value -> has the form of convolution weights */
    bool *rounded;             /* value -> a cast that its readers make as they read its input */
    int32_t *kept;             /* value -> copy for the optimiser (buffer_for_update), 0 = none */
    int64_t steps_capacity, buffers_capacity;
    bool failed;
} lowering;

/* ---- which values are weights, and how parameters lie ---- */

/* Marks the values that have the form of convolution weights. */
static void mark_weights(lowering *l) {
    const trm_graph *g = l->graph;
    /* filters of convolutions and their gradients */
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        if (op->kind == TRMI_OP_CONV2D || op->kind == TRMI_OP_CONV2D_GRAD_DATA) {
            l->weights[op->inputs[1]] = true;
        } else if (op->kind == TRMI_OP_CONV2D_GRAD_WEIGHTS) {
            l->weights[op->outputs[0]] = true;
        }
    }
    /* propagate through operators that keep the form, in both directions: masters and their bf16
     * copies, summed gradients */
    for (int round = 0; round < 3; round++) {
        for (int64_t i = 1; i < g->ops_count; i++) {
            const trmi_op *op = &g->ops[i];
            if (op->kind != TRMI_OP_CAST && op->kind != TRMI_OP_ADD && op->kind != TRMI_OP_SCALE &&
                op->kind != TRMI_OP_ALL_REDUCE && op->kind != TRMI_OP_EXCHANGE) {
                continue;
            }
            bool any = l->weights[op->outputs[0]];
            for (int32_t j = 0; j < op->inputs_count; j++) {
                any = any || l->weights[op->inputs[j]];
            }
            for (int32_t j = 0; any && j < op->inputs_count; j++) {
                l->weights[op->inputs[j]] = true;
            }
            l->weights[op->outputs[0]] = any;
        }
    }
    l->weights[0] = false;
}

/* Returns whether a value is the cast of a float32 parameter to bfloat16. */
static bool is_rounded_parameter(const trm_graph *g, int32_t value) {
    const trmi_op *op = trmi_maker_of(g, value);
    return value != 0 && op->kind == TRMI_OP_CAST && op->attrs.cast.dtype == TRM_BFLOAT16 &&
           trmi_maker_of(g, op->inputs[0])->kind == TRMI_OP_PARAMETER &&
           g->values[op->inputs[0]].dtype == TRM_FLOAT32;
}

/* Contract in program.h. A single reader whose kernel does not round needs the cast, and then all
 * readers use it. */
void trmi_plan_rounded(const trm_graph *g, const trmi_target *target, bool *rounded) {
    for (int64_t v = 0; v < g->values_count; v++) {
        rounded[v] = target->rounds != NULL && is_rounded_parameter(g, (int32_t)v);
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        for (int32_t j = 0; j < op->inputs_count; j++) {
            int32_t value = op->inputs[j];
            rounded[value] = rounded[value] && target->rounds(target->context, g, op, j);
        }
    }
}

/* Marks the casts that no reader needs. */
static void mark_rounded(lowering *l, const trmi_plan_options *options, const trmi_roots *roots) {
    if (!options->readers_round || !l->program->training) {
        return;
    }
    trmi_plan_rounded(l->graph, l->target, l->rounded);
    for (int32_t i = 0; i < roots->outputs_count; i++) {
        l->rounded[roots->outputs[i]] = false;
    }
}

/* Returns whether the back-end runs an operator in a layout. */
static bool supports_layout(const lowering *l, const trmi_op *op, trmi_layout layout) {
    return layout == TRMI_PLAIN || (l->target->channels_last && l->target->supports != NULL &&
                                    l->target->supports(l->target->context, l->graph, op, layout));
}

/* Returns the layout of a parameter: CHANNELS_LAST if all its readers support it. */
static trmi_layout parameter_layout(const lowering *l, int32_t value) {
    const trm_graph *g = l->graph;
    if (!l->weights[value] || g->values[value].shape.rank != 4) {
        return TRMI_PLAIN;
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        for (int32_t j = 0; j < op->inputs_count; j++) {
            if (op->inputs[j] != value) {
                continue;
            }
            bool fine = op->kind == TRMI_OP_CAST
                            ? parameter_layout(l, op->outputs[0]) == TRMI_CHANNELS_LAST
                            : supports_layout(l, op, TRMI_CHANNELS_LAST);
            if (!fine) {
                return TRMI_PLAIN;
            }
        }
    }
    return l->target->channels_last ? TRMI_CHANNELS_LAST : TRMI_PLAIN;
}

/* ---- buffers ---- */

/* Appends a buffer of a value. Returns its index; 0: no memory. */
static int32_t add_buffer(lowering *l, int32_t value, trmi_layout layout, trmi_arena_id arena) {
    trm_program *p = l->program;
    const trmi_value *v = &l->graph->values[value];
    if (!trmi_grow((void **)&p->buffers, &l->buffers_capacity, p->buffers_count + 1,
                   sizeof *p->buffers)) {
        l->failed = true;
        return 0;
    }
    int32_t index = p->buffers_count++;
    p->buffers[index] = (trmi_buffer){
        .name = l->graph->ops[v->op].name,
        .dtype = v->dtype,
        .shape = v->shape,
        .layout = layout,
        .weights = l->weights[value],
        .arena = arena,
        .bytes = trmi_layout_bytes(v->dtype, &v->shape, layout, l->weights[value]),
        .value = value,
        .first_step = p->steps_count,
        .last_step = p->steps_count,
    };
    return index;
}

/* Returns whether the value has the same bytes in both layouts: one pixel, or one channel. */
static bool same_bytes(const lowering *l, int32_t value) {
    const trm_shape *s = &l->graph->values[value].shape;
    if (s->rank != 4) {
        return true;
    }
    if (l->weights[value]) {
        return (s->dim[2] * s->dim[3] == 1) && (s->dim[0] == 1 || s->dim[1] == 1);
    }
    return s->dim[2] * s->dim[3] == 1 || s->dim[1] == 1;
}

/* Appends an empty step; NULL: no memory. */
static trmi_step *add_step(lowering *l) {
    trm_program *p = l->program;
    if (!trmi_grow((void **)&p->steps, &l->steps_capacity, p->steps_count + 1, sizeof *p->steps)) {
        l->failed = true;
        return NULL;
    }
    return &p->steps[p->steps_count++];
}

/* Copies a list of indices into the program. */
static const int32_t *copy_indices(lowering *l, const int32_t *items, int32_t count) {
    int32_t *copy = trmi_arena_alloc(&l->program->arena, (size_t)(count + 1) * sizeof *copy);
    if (copy == NULL) {
        l->failed = true;
        return items;
    }
    memcpy(copy, items, (size_t)count * sizeof *copy);
    return copy;
}

/* Appends a REORDER step. */
static void add_reorder(lowering *l, int32_t from, int32_t to, trmi_phase phase) {
    trmi_step *step = add_step(l);
    if (step == NULL) {
        return;
    }
    const trmi_buffer *b = &l->program->buffers[from];
    *step = (trmi_step){.kind = TRMI_STEP_REORDER,
                        .phase = phase,
                        .name = b->name,
                        .inputs_count = 1,
                        .outputs_count = 1,
                        .cost = {.bytes = 2.0 * (double)b->bytes}};
    step->inputs = copy_indices(l, &from, 1);
    step->outputs = copy_indices(l, &to, 1);
}

/* Returns the buffer of `value` in `layout`; adds an alias or a REORDER step if it does not exist
 * yet. */
static int32_t buffer_in_layout(lowering *l, int32_t value, trmi_layout layout, trmi_phase phase) {
    if (value == 0) {
        return 0;
    }
    if (l->graph->values[value].shape.rank != 4) {
        layout = TRMI_PLAIN;
    }
    if (l->at[layout][value] != 0) {
        return l->at[layout][value];
    }
    int32_t from = l->at[l->made[value]][value];
    int32_t to = add_buffer(l, value, layout, TRMI_ARENA_ACTIVATION);
    if (same_bytes(l, value)) {
        l->program->buffers[to].alias_of = from;
    } else {
        add_reorder(l, from, to, phase);
    }
    l->at[layout][value] = to;
    return to;
}

/* ---- operators ---- */

/* Makes the buffer of a leaf in its arena. */
static void lower_leaf(lowering *l, const trmi_op *op) {
    static const struct {
        trmi_op_kind kind;
        trmi_arena_id arena;
    } homes[] = {{TRMI_OP_INPUT, TRMI_ARENA_INPUT},
                 {TRMI_OP_PARAMETER, TRMI_ARENA_PARAM},
                 {TRMI_OP_STATE, TRMI_ARENA_STATE},
                 {TRMI_OP_CONSTANT, TRMI_ARENA_CONSTANT}};
    trmi_arena_id arena = TRMI_ARENA_NONE;
    for (size_t i = 0; i < sizeof homes / sizeof homes[0]; i++) {
        arena = homes[i].kind == op->kind ? homes[i].arena : arena;
    }
    int32_t value = op->outputs[0];
    trmi_layout layout = op->kind == TRMI_OP_PARAMETER ? parameter_layout(l, value) : TRMI_PLAIN;
    l->made[value] = layout;
    l->at[layout][value] = add_buffer(l, value, layout, arena);
}

/* Returns whether back-ends compute the operator in channels-last; then a reorder of a plain input
 * is worth it. */
static bool prefers_channels_last(trmi_op_kind kind) {
    switch (kind) {
    case TRMI_OP_CONV2D:
    case TRMI_OP_CONV2D_GRAD_DATA:
    case TRMI_OP_CONV2D_GRAD_WEIGHTS:
    case TRMI_OP_BATCH_NORM:
    case TRMI_OP_BATCH_NORM_INFER:
    case TRMI_OP_BATCH_NORM_GRAD:
    case TRMI_OP_NORM_ACT:
    case TRMI_OP_NORM_ACT_APPLY:
    case TRMI_OP_NORM_ACT_INFER:
    case TRMI_OP_NORM_ACT_GRAD:
    case TRMI_OP_MAX_POOL:
    case TRMI_OP_MAX_POOL_GRAD:
    case TRMI_OP_AVG_POOL:
    case TRMI_OP_AVG_POOL_GRAD:
    case TRMI_OP_GLOBAL_AVG_POOL_GRAD: return true;
    default: return false;
    }
}

/* Returns whether an operator sums over images in the order in which they lie. With blocks of
 * samples that must not depend on what made them. */
static bool sums_images(trmi_op_kind kind) {
    return kind == TRMI_OP_REDUCE_SUM || kind == TRMI_OP_REDUCE_MEAN ||
           kind == TRMI_OP_GLOBAL_AVG_POOL;
}

/* Returns whether an operator sums over the rows of columns of two dimensions (the bias of a layer
 * whose heads are folded, plan/passes/pass_fold_heads.c), in the order of a layer whose are not. */
static bool sums_rows(const trmi_op *op) {
    return op->kind == TRMI_OP_REDUCE_SUM && op->attrs.reduce.axes == 3;
}

/* Returns the layout of an operator: channels-last if it supports that and either prefers it or has
 * an input in it. */
static trmi_layout choose_layout(const lowering *l, const trmi_op *op) {
    bool has_image = false, any_last = false;
    for (int32_t i = 0; i < op->inputs_count; i++) {
        int32_t value = op->inputs[i];
        bool image = value != 0 && l->graph->values[value].shape.rank == 4;
        has_image = has_image || image;
        any_last = any_last || (image && l->made[value] == TRMI_CHANNELS_LAST);
    }
    for (int32_t i = 0; i < op->outputs_count; i++) {
        has_image = has_image || l->graph->values[op->outputs[i]].shape.rank == 4;
    }
    bool prefers = prefers_channels_last(op->kind) || (l->strict && sums_images(op->kind));
    return has_image && !(l->strict && sums_rows(op)) && (any_last || prefers) &&
                   supports_layout(l, op, TRMI_CHANNELS_LAST)
               ? TRMI_CHANNELS_LAST
               : TRMI_PLAIN;
}

/* A reshape is an alias of its plain input; it needs no step. */
static void lower_reshape(lowering *l, const trmi_op *op) {
    int32_t from = buffer_in_layout(l, op->inputs[0], TRMI_PLAIN, op->phase);
    int32_t to = add_buffer(l, op->outputs[0], TRMI_PLAIN, TRMI_ARENA_ACTIVATION);
    if (l->failed) {
        return;
    }
    l->program->buffers[to].alias_of = from;
    l->made[op->outputs[0]] = TRMI_PLAIN;
    l->at[TRMI_PLAIN][op->outputs[0]] = to;
}

/* Makes the step of an operator: inputs in its layout, new buffers for its outputs. */
static void lower_op(lowering *l, int32_t index) {
    const trmi_op *op = &l->graph->ops[index];
    trmi_layout layout = choose_layout(l, op);
    int32_t *inputs =
        trmi_arena_alloc(&l->program->arena, (size_t)(op->inputs_count + 1) * sizeof *inputs);
    if (inputs == NULL) {
        l->failed = true;
        return;
    }
    for (int32_t i = 0; i < op->inputs_count; i++) {
        int32_t value = op->inputs[i];
        value = l->rounded[value] ? trmi_maker_of(l->graph, value)->inputs[0] : value;
        inputs[i] = buffer_in_layout(l, value, layout, op->phase);
    }
    /* Only images (rank 4) have a layout of their own; all other values are plain. */
    int32_t outputs[TRMI_OP_OUTPUTS_MAX] = {0};
    for (int32_t i = 0; i < op->outputs_count; i++) {
        int32_t value = op->outputs[i];
        trmi_layout own = l->graph->values[value].shape.rank == 4 ? layout : TRMI_PLAIN;
        l->made[value] = own;
        outputs[i] = add_buffer(l, value, own, TRMI_ARENA_ACTIVATION);
        l->at[own][value] = outputs[i];
    }
    /* Write the step itself. */
    trmi_step *step = add_step(l);
    if (step == NULL) {
        return;
    }
    *step = (trmi_step){.kind = TRMI_STEP_OP,
                        .op_kind = op->kind,
                        .phase = op->phase,
                        .op = index,
                        .name = op->name,
                        .attrs = &op->attrs,
                        .inputs_count = op->inputs_count,
                        .outputs_count = op->outputs_count,
                        .cost = trmi_op_cost(l->graph, op)};
    step->inputs = inputs;
    step->outputs = copy_indices(l, outputs, op->outputs_count);
}

/* ---- parameters ---- */

/* Moves a gradient to GRAD in the layout of its parameter: the step that makes it writes there
 * directly; if several parameters share it or the layout differs, a REORDER step copies it. */
static int32_t place_gradient(lowering *l, int32_t grad, trmi_layout layout, bool shared) {
    trm_program *p = l->program;
    int32_t made = l->at[layout][grad];
    if (made != 0 && !shared && p->buffers[made].alias_of == 0 &&
        p->buffers[made].arena == TRMI_ARENA_ACTIVATION) {
        p->buffers[made].arena = TRMI_ARENA_GRAD;
        return made;
    }
    int32_t from = l->at[l->made[grad]][grad];
    int32_t to = add_buffer(l, grad, layout, TRMI_ARENA_GRAD);
    add_reorder(l, from, to, TRMI_BACKWARD);
    return to;
}

/* Returns whether an operator is the gradient of a table of which only rows of the batch are not
 * 0. */
static bool is_sparse(const trmi_op *op) {
    return op->kind == TRMI_OP_EMBEDDING_GRAD && op->inputs_count == 2;
}

/* Returns whether a gradient comes from lookups only: an EMBEDDING_GRAD, or its sum over ranks. */
static bool is_of_lookups(const trm_graph *g, int32_t grad) {
    const trmi_op *op = &g->ops[g->values[grad].op];
    while (op->kind == TRMI_OP_ALL_REDUCE || op->kind == TRMI_OP_EXCHANGE) {
        op = &g->ops[g->values[op->inputs[0]].op];
    }
    return is_sparse(op);
}

/* Returns the buffer in which the optimiser reads a plain value after backward. A leaf gets a copy,
 * made at the end of backward: the caller may feed the next batch before the update, and the update
 * changes parameters. Reshapes of a leaf share its copy. */
static int32_t buffer_for_update(lowering *l, int32_t value) {
    trm_program *p = l->program;
    int32_t made = l->at[TRMI_PLAIN][value], root = trmi_buffer_root(p, made);
    int32_t leaf = p->buffers[root].value;
    if (p->buffers[root].arena == TRMI_ARENA_ACTIVATION ||
        p->buffers[root].arena == TRMI_ARENA_CONSTANT) {
        return made;
    }
    if (l->kept[leaf] == 0) {
        l->kept[leaf] = add_buffer(l, leaf, p->buffers[root].layout, TRMI_ARENA_ACTIVATION);
        add_reorder(l, root, l->kept[leaf], TRMI_BACKWARD);
    }
    if (made == root) {
        return l->kept[leaf];
    }
    int32_t reshaped = add_buffer(l, value, TRMI_PLAIN, TRMI_ARENA_ACTIVATION);
    if (!l->failed) {
        p->buffers[reshaped].alias_of = l->kept[leaf];
    }
    return reshaped;
}

/* Fills in the parameters: dense, sparse or factored gradients. */
static void lower_params(lowering *l, const trmi_roots *roots) {
    trm_program *p = l->program;
    p->params = trmi_arena_alloc(&p->arena, (size_t)(roots->params_count + 1) * sizeof *p->params);
    if (p->params == NULL) {
        l->failed = true;
        return;
    }
    p->params_count = roots->params_count;
    for (int32_t i = 0; i < roots->params_count && !l->failed; i++) {
        int32_t value = roots->params[i], grad = roots->grads[i];
        const trmi_op *leaf = &l->graph->ops[l->graph->values[value].op];
        trmi_param *param = &p->params[i];
        *param = (trmi_param){.name = leaf->name,
                              .init = leaf->attrs.leaf.init,
                              .undecayed = leaf->attrs.leaf.undecayed,
                              .frozen = !leaf->attrs.leaf.trainable,
                              .remote = leaf->attrs.leaf.remote};
        param->param_buffer = l->at[l->made[value]][value];
        param->grad_axes = roots->grad_axes != NULL ? roots->grad_axes[i] : 0;
        if (grad == 0) {
            continue;
        }
        const trmi_op *producer = &l->graph->ops[l->graph->values[grad].op];
        /* A sparse gradient has ids and rows. */
        if (is_sparse(producer) && l->at[TRMI_PLAIN][grad] == 0) {
            param->sparse_rows = buffer_for_update(l, producer->inputs[0]);
            param->sparse_ids = buffer_for_update(l, producer->inputs[1]);
            continue;
        }
        param->table = is_of_lookups(l->graph, grad) && !leaf->attrs.leaf.all_rows;
        /* The gradient is in factors. */
        if (l->at[l->made[grad]][grad] == 0) {
            param->factor_left = buffer_for_update(l, producer->inputs[0]);
            param->factor_right = buffer_for_update(l, producer->inputs[1]);
            continue;
        }
        /* The gradient is dense; it may be the gradient of several parameters. */
        bool shared = false;
        for (int32_t j = 0; j < i; j++) {
            shared = shared || roots->grads[j] == grad;
        }
        param->grad_buffer = place_gradient(l, grad, l->made[value], shared);
    }
}

/* Returns whether a value is read by the optimiser of one parameter only. */
static bool only_for_update(const trmi_roots *roots, const int32_t *uses, int32_t value) {
    int32_t parameters = 0;
    for (int32_t i = 0; i < roots->params_count; i++) {
        bool summed = roots->grad_axes != NULL && roots->grad_axes[i] != 0;
        parameters += roots->grads[i] == value ? 1 + summed : 0;
    }
    return parameters == 1 && uses[value] == 0;
}

/* Returns whether the optimiser updates all rows of the parameter with this gradient. */
static bool updates_all_rows(const lowering *l, const trmi_roots *roots, int32_t grad) {
    for (int32_t i = 0; i < roots->params_count; i++) {
        if (roots->grads[i] == grad) {
            return trmi_maker_of(l->graph, roots->params[i])->attrs.leaf.all_rows;
        }
    }
    return false;
}

/* Returns whether an operator gets no step: a cast that its readers make themselves, and some
 * gradients. The gradient of an embedding that only its table reads
 * stays sparse, unless all rows are updated. The gradient of a matrix, dy^T x of few samples, stays
 * in its factors: the optimiser multiplies them, and the product is never stored. */
static bool has_no_step(const lowering *l, const trmi_roots *roots, const int32_t *uses,
                        const trmi_op *op) {
    const trm_graph *g = l->graph;
    if (l->rounded[op->outputs[0]]) {
        return true;
    }
    if (!only_for_update(roots, uses, op->outputs[0])) {
        return false;
    }
    if (is_sparse(op)) {
        return !l->dense_gradients && !updates_all_rows(l, roots, op->outputs[0]);
    }
    const trmi_value *left = trmi_input_of(g, op, 0), *right = trmi_input_of(g, op, 1);
    return op->kind == TRMI_OP_MATMUL && l->factored_gradients && op->inputs_count == 2 &&
           (left->shape.rank == 2 || op->attrs.matmul.rows) && op->attrs.matmul.transpose_a &&
           !op->attrs.matmul.transpose_b && op->attrs.matmul.columns == 0 &&
           trmi_as_rows(&left->shape).dim[0] <= TRMI_FACTORS_MOST &&
           trmi_output_of(g, op, 0)->shape.rank == 2 && left->dtype == right->dtype &&
           trm_shape_count(&trmi_output_of(g, op, 0)->shape) >= TRMI_FACTORS_FROM;
}

/* Lists the buffers of states and inputs. */
static trm_status list_states_and_inputs(lowering *l, trm_error *err) {
    trm_program *p = l->program;
    TRMI_TRY(TRMI_NEW_IN(err, &p->arena, p->states, p->buffers_count, "for the program"));
    TRMI_TRY(TRMI_NEW_IN(err, &p->arena, p->inputs, p->buffers_count, "for the program"));
    for (int32_t i = 1; i < p->buffers_count; i++) {
        trmi_op_kind kind = l->graph->ops[l->graph->values[p->buffers[i].value].op].kind;
        if (p->buffers[i].arena == TRMI_ARENA_STATE) {
            p->states[p->states_count++] = i;
        } else if (p->buffers[i].arena == TRMI_ARENA_INPUT && kind == TRMI_OP_INPUT) {
            p->inputs[p->inputs_count++] = i;
        }
    }
    return TRM_OK;
}

/* Converts all operators in order, then outputs and parameters. */
static trm_status lower_all(lowering *l, const trmi_roots *roots, const int32_t *uses,
                            trm_error *err) {
    trm_program *p = l->program;
    const trm_graph *g = l->graph;
    mark_weights(l);
    p->buffers_count = 1; /* 0 = absent */
    TRMI_TRY(TRMI_GROW(err, p->buffers, l->buffers_capacity, 1, "for the program"));
    /* Leaves become buffers, reshapes aliases, operators steps, except those that no step needs. */
    for (int32_t i = 1; i < g->ops_count && !l->failed; i++) {
        const trmi_op *op = &g->ops[i];
        if (trmi_is_leaf(op)) {
            lower_leaf(l, op);
        } else if (op->kind == TRMI_OP_RESHAPE) {
            lower_reshape(l, op);
        } else if (!has_no_step(l, roots, uses, op)) {
            lower_op(l, i);
        }
    }
    p->outputs =
        trmi_arena_alloc(&p->arena, (size_t)(roots->outputs_count + 2) * sizeof *p->outputs);
    if (p->outputs == NULL || l->failed) {
        return TRMI_NO_MEMORY(err, "for the program");
    }
    /* outputs: the loss first, then those that the caller gave, in plain layout */
    p->outputs[p->outputs_count++] =
        roots->loss == 0 ? 0 : l->at[l->made[roots->loss]][roots->loss];
    for (int32_t i = 0; i < roots->outputs_count; i++) {
        int32_t value = roots->outputs[i];
        p->outputs[p->outputs_count++] = buffer_in_layout(l, value, TRMI_PLAIN, TRMI_FORWARD);
    }
    lower_params(l, roots);
    return l->failed ? TRMI_NO_MEMORY(err, "for the program") : list_states_and_inputs(l, err);
}

/* Contract in plan/passes/pass.h. Allocates the tables of the lowering, which all have one entry
 * for each value of the graph: buffers by layout, buffers of weights, and the number of readers.
 * lower_all does the work. */
trm_status trmi_lower_steps(trm_program *program, const trmi_plan_options *options,
                            const trmi_roots *roots, trm_error *err) {
    const trm_graph *g = program->graph;
    lowering l = {.program = program,
                  .graph = g,
                  .target = options->target,
                  .dense_gradients = options->dense_gradients,
                  .strict = options->blocks > 0,
                  .factored_gradients = options->factored_gradients && !options->no_fusion};
    /* Make tables with an entry for each value. */
    size_t values = (size_t)g->values_count;
    int32_t *uses = trmi_alloc(values * sizeof *uses);
    l.made = trmi_alloc(values * sizeof *l.made);
    l.weights = trmi_alloc(values * sizeof *l.weights);
    l.rounded = trmi_alloc(values * sizeof *l.rounded);
    l.kept = trmi_alloc(values * sizeof *l.kept);
    bool memory =
        uses != NULL && l.made != NULL && l.weights != NULL && l.rounded != NULL && l.kept != NULL;
    for (int i = 0; i < TRMI_LAYOUTS; i++) {
        l.at[i] = trmi_alloc(values * sizeof *l.at[i]);
        memory = memory && l.at[i] != NULL;
    }
    trm_status status = TRM_OK;
    if (!memory) {
        status = TRMI_NO_MEMORY(err, "to lower %lld operators", (long long)g->ops_count);
    } else {
        for (int64_t i = 1; i < g->ops_count; i++) {
            for (int32_t j = 0; j < g->ops[i].inputs_count; j++) {
                uses[g->ops[i].inputs[j]]++;
            }
        }
        mark_rounded(&l, options, roots);
        status = lower_all(&l, roots, uses, err);
    }
    trmi_free(uses);
    trmi_free(l.made);
    trmi_free(l.weights);
    trmi_free(l.rounded);
    trmi_free(l.kept);
    for (int i = 0; i < TRMI_LAYOUTS; i++) {
        trmi_free(l.at[i]);
    }
    return status;
}
