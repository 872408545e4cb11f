/* SPDX-License-Identifier: Apache-2.0 */
/* Second walk of the partition, one operator: emits the same operator on local shapes, with its
 * attributes adjusted to the part (padding only at the true border, positions, denominators), the
 * halo exchange before it and the halo sum after it:
 *
 *   redistribute_inputs -> localize_attrs -> emit_local -> add_halo -> scale_mean -> check_shape
 *
 * Each localize_ function adjusts one family of operators and leaves all others as they are, so
 * their order does not matter. What a kernel must know of its part beside its shapes is attached to
 * the operator as a record (plan/partition/part.h).
 *
 * Invariant: the local operator's shapes, which its own shape rule computes, are those that the
 * strategy predicts. A difference is a defect of this file, found here instead of as a wrong
 * number. */
#include "plan/partition/partition_state.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* State while one operator is emitted. */
typedef struct emission {
    trmi_partitioner *s;
    const trmi_op *op;
    const trmi_strategy *strategy;
    trmi_loops loops;
    trmi_attrs attrs;
    trmi_op_part part;
    /* factor applied to output 0 afterwards: local / global element count of a mean */
    double factor;
} emission;

/* Returns this rank's box of a tensor. The functions below do so for input or output `i` of the
 * operator, or return its shape on one device; local_out returns the shape of the box. */
static trmi_box box_of(const emission *e, const trm_shape *shape, const trmi_spread *spread) {
    return trmi_spread_box(e->s->mesh, shape, spread, e->s->rank);
}
/* Return shape (of one device) and box (of this rank) of inputs and outputs of the operator. */
static const trm_shape *in_shape(const emission *e, int i) {
    return &trmi_input_of(e->s->from, e->op, i)->shape;
}
static const trm_shape *out_shape(const emission *e, int i) {
    return &trmi_output_of(e->s->from, e->op, i)->shape;
}
static trmi_box in_box(const emission *e, int i) {
    return box_of(e, in_shape(e, i), &e->strategy->inputs[i]);
}
static trmi_box out_box(const emission *e, int i) {
    return box_of(e, out_shape(e, i), &e->strategy->outputs[i]);
}
/* Returns the shape that output i has on this rank. */
static trm_shape local_out(const emission *e, int i) {
    trmi_box box = out_box(e, i);
    return trmi_box_shape(&box);
}

/* ---- attributes of the part ---- */

/* Returns into how many parts the axes of a letter cut the operator. */
static int32_t count_parts(const emission *e, const char *letter) {
    return trmi_mesh_group(e->s->mesh, trmi_letters_mask(e->strategy->letters, letter));
}

/* Returns whether an axis cuts a dimension. */
static bool is_cut(const trmi_spread *spread, int32_t dim) {
    bool any = false;
    for (int i = 0; i < TRMI_MESH_AXES; i++) {
        any = any || spread->at[i] == TRMI_SPLIT + dim;
    }
    return any;
}

/* The image side (x) and the window side (y) of a windowed operator. */
typedef struct sides {
    const trm_shape *x, *y;     /* shapes on one device */
    const trmi_spread *sx, *sy; /* spreads by the operator's strategy */
} sides;

/* Returns both sides of a windowed operator, forward or gradient. */
static sides sides_of(const emission *e) {
    const trmi_strategy *st = e->strategy;
    if (e->loops.window_adds) {
        return (sides){out_shape(e, 0), in_shape(e, 0), &st->outputs[0], &st->inputs[0]};
    }
    if (e->loops.window_input == 1) {
        return (sides){in_shape(e, 1), in_shape(e, 0), &st->inputs[1], &st->inputs[0]};
    }
    return (sides){in_shape(e, 0), out_shape(e, 0), &st->inputs[0], &st->outputs[0]};
}

/* Sets the padding of this rank: padding remains only where its window crosses the true border. */
static void localize_windows(emission *e, int64_t pad[4]) {
    sides of = sides_of(e);
    trmi_box y = box_of(e, of.y, of.sy);
    for (int i = 0; i < 2; i++) {
        const trmi_partition_window *w = &e->loops.window[i];
        if (is_cut(of.sy, 2 + i)) {
            int64_t before = w->before - y.begin[2 + i] * w->stride;
            int64_t after = (y.end[2 + i] - 1) * w->stride - w->before + w->extent - w->in;
            pad[2 * i] = before > 0 ? before : 0;
            pad[2 * i + 1] = after > 0 ? after : 0;
        }
    }
}

/* Sets the shape of a gradient's result: weights, or the image with its halo. */
static void localize_target(emission *e, int64_t shape[4]) {
    trmi_box box = out_box(e, 0);
    if (e->loops.window_adds) {
        sides of = sides_of(e);
        box = trmi_window_box(&e->loops, e->s->mesh, of.x, of.y, of.sx, of.sy, e->s->rank);
    }
    for (int i = 0; i < 4; i++) {
        shape[i] = box.end[i] - box.begin[i];
    }
}

/* Returns the fraction of a tensor's elements that this rank has. */
static double fraction_of(const emission *e, const trm_shape *shape, const trmi_spread *spread) {
    trmi_box box = box_of(e, shape, spread);
    int64_t whole = trm_shape_count(shape);
    return whole > 0 ? (double)trmi_box_count(&box) / (double)whole : 1;
}

/* Adjusts shapes and positions of reshape, broadcast, slice, one-hot and dropout. */
static void localize_moves(emission *e) {
    const trm_shape local = local_out(e, 0);
    switch (e->op->kind) {
    case TRMI_OP_RESHAPE:
    case TRMI_OP_BROADCAST: e->attrs.shape.shape = local; break;
    case TRMI_OP_SLICE:
        for (int32_t d = 0; d < local.rank; d++) {
            e->attrs.slice.size[d] = local.dim[d];
        }
        break;
    case TRMI_OP_ONE_HOT: {
        trmi_box box = out_box(e, 0);
        e->part.begin = box.begin[box.rank - 1];
        e->attrs.one_hot.classes = local.dim[local.rank - 1];
        break;
    }
    case TRMI_OP_DROPOUT: {
        trmi_box box = out_box(e, 0);
        memcpy(e->part.at, box.begin, sizeof box.begin);
        memcpy(e->part.extents, out_shape(e, 0)->dim, sizeof e->part.extents);
        break;
    }
    default: break;
    }
}

/* Adjusts the rows of an embedding table. */
static void localize_tables(emission *e) {
    bool gradient = e->op->kind == TRMI_OP_EMBEDDING_GRAD;
    const trm_shape *table = gradient ? out_shape(e, 0) : in_shape(e, 0);
    trmi_box box = gradient ? out_box(e, 0) : in_box(e, 0);
    e->attrs.embed.rows = box.end[0] - box.begin[0];
    e->part.begin = box.begin[0];
    e->part.extent = table->dim[0];
}

/* Adjusts rows and bags of bag pooling. */
static void localize_bags(emission *e) {
    bool gradient = e->op->kind == TRMI_OP_BAG_POOL_GRAD;
    trmi_box rows = gradient ? out_box(e, 0) : in_box(e, 0),
             bags = gradient ? in_box(e, 0) : out_box(e, 0);
    e->part.bag = bags.begin[0];
    e->attrs.bag.some = true;
    e->attrs.bag.bags = bags.end[0] - bags.begin[0];
    e->part.begin = rows.begin[0];
    e->part.extent = (gradient ? out_shape(e, 0) : in_shape(e, 0))->dim[0];
    e->attrs.bag.rows = rows.end[0] - rows.begin[0]; /* read by the gradient only */
}

/* Sets the factor of a mean over a cut dimension: the mean of this part is multiplied by the
 * fraction of the elements that it has. */
static void localize_means(emission *e) {
    switch (e->op->kind) {
    case TRMI_OP_REDUCE_MEAN:
    case TRMI_OP_GLOBAL_AVG_POOL:
    case TRMI_OP_BCE_LOGITS:
        e->factor = fraction_of(e, in_shape(e, 0), &e->strategy->inputs[0]) /
                    fraction_of(e, out_shape(e, 0), &e->strategy->outputs[0]);
        break;
    case TRMI_OP_GLOBAL_AVG_POOL_GRAD:
        e->factor = fraction_of(e, out_shape(e, 0), &e->strategy->outputs[0]) /
                    fraction_of(e, in_shape(e, 0), &e->strategy->inputs[0]);
        break;
    case TRMI_OP_BCE_LOGITS_GRAD:
        e->factor = fraction_of(e, out_shape(e, 0), &e->strategy->outputs[0]);
        break;
    default: break;
    }
}

/* Adjusts convolution and pooling: fewer groups, padding only at the border of the image, the shape
 * of this part. */
static void localize_images(emission *e) {
    switch (e->op->kind) {
    case TRMI_OP_CONV2D:
    case TRMI_OP_CONV2D_GRAD_DATA:
    case TRMI_OP_CONV2D_GRAD_WEIGHTS:
        e->attrs.conv.groups /= count_parts(e, "g");
        localize_windows(e, e->attrs.conv.pad);
        localize_target(e, e->attrs.conv.shape);
        break;
    case TRMI_OP_MAX_POOL:
    case TRMI_OP_AVG_POOL: localize_windows(e, e->attrs.pool.pad); break;
    case TRMI_OP_MAX_POOL_GRAD:
    case TRMI_OP_AVG_POOL_GRAD:
        localize_windows(e, e->attrs.pool.pad);
        localize_target(e, e->attrs.pool.shape);
        break;
    case TRMI_OP_GLOBAL_AVG_POOL_GRAD: localize_target(e, e->attrs.pool.shape); break;
    default: break;
    }
}

/* Sets the axes over which the kernels of statistics and losses combine their sums with other
 * ranks, and which classes this rank has. */
static void localize_sums(emission *e) {
    const char *letters = e->strategy->letters;
    int logits = e->op->kind == TRMI_OP_SOFTMAX_XENT_GRAD ? 1 : 0; /* the input that has them */
    switch (e->op->kind) {
    case TRMI_OP_BATCH_NORM:
    case TRMI_OP_NORM_ACT:
    case TRMI_OP_BATCH_NORM_GRAD:
    case TRMI_OP_NORM_ACT_GRAD:
        e->part.sample_axes = trmi_letters_mask(letters, trmi_norm_loops(e->op));
        break;
    case TRMI_OP_SOFTMAX_XENT:
    case TRMI_OP_SOFTMAX_XENT_GRAD:
        e->part.class_axes = trmi_letters_mask(letters, "k");
        e->part.sample_axes = trmi_letters_mask(letters, "n");
        e->part.begin = in_box(e, logits).begin[1];
        e->part.extent = in_shape(e, logits)->dim[1];
        break;
    case TRMI_OP_LINEAR_XENT:
        e->part.class_axes = trmi_letters_mask(letters, "k");
        e->part.sample_axes = trmi_letters_mask(letters, e->loops.letters) & ~e->part.class_axes;
        e->part.begin = in_box(e, 1).begin[0];
        e->part.extent = in_shape(e, 1)->dim[0];
        break;
    default: break;
    }
}

/* Adjusts attention and rotary positions to the heads and the first position of this part, and
 * experts to the first expert of this rank and their number on one device. */
static void localize_sequences(emission *e) {
    switch (e->op->kind) {
    case TRMI_OP_ATTENTION:
    case TRMI_OP_ATTENTION_GRAD:
        e->attrs.attention.begin += in_box(e, e->op->kind == TRMI_OP_ATTENTION ? 0 : 1).begin[1];
        e->attrs.attention.heads /= count_parts(e, "g"); /* of packed queries, keys and values */
        e->attrs.attention.kv_heads /= count_parts(e, "g");
        break;
    case TRMI_OP_ROTARY: e->attrs.rotary.begin += in_box(e, 0).begin[1]; break;
    case TRMI_OP_EXPERT_LINEAR:
        e->part.begin = in_box(e, 1).begin[0];
        e->part.extent = in_shape(e, 1)->dim[0];
        break;
    case TRMI_OP_EXPERT_GRAD_WEIGHTS:
        e->part.begin = out_box(e, 0).begin[0];
        e->part.extent = out_shape(e, 0)->dim[0];
        e->attrs.expert.experts = out_box(e, 0).end[0] - e->part.begin;
        break;
    default: break;
    }
}

/* Adjusts lookups of tables that are cut by rows, and pooling of bags. */
static void localize_rows(emission *e) {
    switch (e->op->kind) {
    case TRMI_OP_EMBEDDING:
    case TRMI_OP_EMBEDDING_GRAD: localize_tables(e); break;
    case TRMI_OP_BAG_POOL:
    case TRMI_OP_BAG_POOL_GRAD: localize_bags(e); break;
    default: break;
    }
}

/* Adjusts what strict determinism computes in another way: no mean is cut, what divides by the
 * samples of all ranks has their number, and the loss is a sum over samples. */
static void localize_strict(emission *e) {
    e->factor = 1;
    if (e->op->kind == TRMI_OP_BCE_LOGITS_GRAD) {
        e->part.count = trm_shape_count(in_shape(e, 1));
    } else if (e->op->kind == TRMI_OP_LINEAR_XENT) {
        e->part.sample_axes = 0;
    }
}

/* Adjusts the attributes of the operator to this rank's part. Each function adjusts one family of
 * operators and leaves the others as they are. */
static void localize_attrs(emission *e) {
    localize_images(e);
    localize_sums(e);
    localize_sequences(e);
    localize_rows(e);
    localize_moves(e);
    localize_means(e);
    if (e->s->plan->blocks > 0) {
        localize_strict(e);
    }
}

/* ---- after the operator: halo sums and means ---- */

/* Context of widened_part() and own_part(). */
typedef struct widened {
    const emission *e;
    sides of;
} widened;

/* Return the box of a rank with and without its halo, for an exchange. */
static trmi_box widened_part(const void *context, int32_t rank) {
    const widened *w = context;
    return trmi_window_box(&w->e->loops, w->e->s->mesh, w->of.x, w->of.y, w->of.sx, w->of.sy, rank);
}
static trmi_box own_part(const void *context, int32_t rank) {
    const widened *w = context;
    return trmi_spread_box(w->e->s->mesh, w->of.x, w->of.sx, rank);
}

/* Emits the halo sum: rows that were computed for neighbours are sent to them and added there. */
static trm_status add_halo(emission *e, int32_t *local, trm_error *err) {
    uint32_t axes = trmi_letters_mask(e->strategy->letters, "hw");
    if (!e->loops.window_adds || axes == 0) {
        return TRM_OK;
    }
    widened context = {.e = e, .of = sides_of(e)};
    char name[300];
    snprintf(name, sizeof name, "%.200s halo sum", e->op->name);
    const trmi_exchange_plan plan = {.name = name,
                                     .phase = e->op->phase,
                                     .axes = axes,
                                     .combine = TRMI_COMBINE_SUM,
                                     .has = widened_part,
                                     .had_by = &context,
                                     .wants = own_part,
                                     .wanted_by = &context};
    return trmi_partition_exchange(e->s, *local, &plan, local, err);
}

/* Emits the multiplication by the factor of a mean, if there is one. */
static trm_status scale_mean(emission *e, int32_t *local, trm_error *err) {
    if (e->factor == 1) {
        return TRM_OK;
    }
    trmi_attrs attrs = {.scale = {.factor = e->factor}};
    char name[300];
    snprintf(name, sizeof name, "%.200s share", e->op->name);
    *local = trmi_pass_emit_unary(&e->s->pass, TRMI_OP_SCALE, e->op->phase, name, *local, &attrs);
    return trm_graph_check(e->s->pass.to, err);
}

/* Checks the shape of a local output against the spread; a difference is a bug here. */
static trm_status check_shape(const emission *e, int32_t local, int output, trm_error *err) {
    trm_shape expected = local_out(e, output);
    const trm_shape *found = &e->s->pass.to->values[local].shape;
    char want[96], have[96];
    return trm_shape_equal(found, &expected)
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INTERNAL,
                           "%s cut by '%s': output %d has shape %s on rank %d, %s expected",
                           e->op->name, e->strategy->letters, output,
                           trm_shape_format(found, have, sizeof have), e->s->rank,
                           trm_shape_format(&expected, want, sizeof want));
}

/* ---- the operator ---- */

/* Redistributes all inputs to the spreads that the strategy reads, with halos where needed.
 *   errors  INVALID: a state is stored in another spread than its operator writes */
static trm_status redistribute_inputs(emission *e, int32_t *inputs, trm_error *err) {
    trmi_partitioner *s = e->s;
    bool windows = trmi_letters_mask(e->strategy->letters, "hw") != 0 && e->loops.windows;
    for (int32_t i = 0; i < e->op->inputs_count; i++) {
        char what[24];
        snprintf(what, sizeof what, "input %d", i);
        inputs[i] = 0;
        if (e->op->inputs[i] == 0) {
            continue;
        }
        TRMI_TRY(
            trmi_redistribute(s, e->op->inputs[i], &e->strategy->inputs[i], what, &inputs[i], err));
        const trmi_op *maker = &s->from->ops[s->from->values[e->op->inputs[i]].op];
        if (maker->kind == TRMI_OP_STATE &&
            inputs[i] != s->values[e->op->inputs[i]].versions[0].value) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s writes the state %s in another spread than the plan stores it "
                             "in: leave the storage of the state to its operator",
                             e->op->name, maker->name);
        }
        if (windows && e->loops.window_input == i) {
            sides of = sides_of(e);
            TRMI_TRY(trmi_partition_widen(s, e->op->inputs[i], &e->loops, of.y, of.sx, of.sy,
                                          &inputs[i], err));
        }
    }
    return TRM_OK;
}

/* Adds the operator and its own messages to the report. */
static void note_work(emission *e) {
    trmi_partitioner *s = e->s;
    trmi_partition_report *r = s->report;
    for (int32_t i = 0; i < e->strategy->comms_count; i++) {
        const trmi_partition_comm *c = &e->strategy->comms[i];
        trmi_partition_note(
            s, &(trmi_partition_message){.op = e->op->name,
                                         .what = c->what,
                                         .phase = e->op->phase,
                                         .move = c->move,
                                         .axes = c->axes,
                                         .bytes = c->times * c->bytes,
                                         .seconds = trmi_comm_seconds(s->prices, s->mesh, c)});
    }
    if (r == NULL ||
        !trmi_grow((void **)&r->work, &r->work_capacity, r->work_count + 1, sizeof *r->work)) {
        return;
    }
    const char *name = trmi_arena_strdup(&r->arena, e->op->name);
    if (name != NULL) {
        trmi_partition_work *w = &r->work[r->work_count++];
        *w = (trmi_partition_work){.op = name,
                                   .phase = e->op->phase,
                                   .fraction = e->strategy->fraction,
                                   .cost = trmi_op_cost(s->from, e->op),
                                   .warning = s->warnings[e->op - s->from->ops]};
        w->cost.flops *= e->strategy->fraction;
        w->cost.bytes *= e->strategy->fraction;
        snprintf(w->letters, sizeof w->letters, "%s", e->strategy->letters);
    }
}

/* Emits the operator, its halo sum and its factor. */
static trm_status emit_local(emission *e, const int32_t *inputs, int32_t *locals, trm_error *err) {
    trmi_partitioner *s = e->s;
    const trmi_op *op = e->op;
    if (trmi_letters_mask(e->strategy->letters, "r") != 0) {
        return trmi_partition_emit_ring(s, op, e->strategy, &e->attrs, inputs, locals, err);
    }
    e->attrs.attached = &e->part.head;
    int32_t index = trmi_pass_emit_like(&s->pass, op, inputs, op->inputs_count, &e->attrs);
    if (index == 0) {
        return trm_graph_check(s->pass.to, err);
    }
    const trmi_op *made = &s->pass.to->ops[index];
    memcpy(locals, made->outputs, sizeof made->outputs);
    TRMI_TRY(add_halo(e, &locals[0], err));
    return scale_mean(e, &locals[0], err);
}

/* Contract in partition_state.h. In order: attributes for the part (convolution padding,
 * ranges), inputs in the spreads that the strategy wants, the local operator, and the collective
 * that completes a partial result. The local shape is compared with the one that the strategy
 * predicts, because a difference would be a wrong answer, not a crash. */
trm_status trmi_partition_emit(trmi_partitioner *s, const trmi_op *op,
                               const trmi_strategy *strategy, trm_error *err) {
    emission e = {.s = s,
                  .op = op,
                  .strategy = strategy,
                  .attrs = op->attrs,
                  .part = trmi_whole_op,
                  .factor = 1};
    e.attrs.attached = NULL;
    s->phase = op->phase;
    trmi_loops_of(s->from, op, &e.loops);
    int32_t *inputs;
    TRMI_TRY(TRMI_NEW_IN(err, &s->scratch, inputs, op->inputs_count + 1, "to split %s", op->name));
    localize_attrs(&e);
    TRMI_TRY(redistribute_inputs(&e, inputs, err));
    int32_t locals[TRMI_OP_OUTPUTS_MAX];
    TRMI_TRY(emit_local(&e, inputs, locals, err));
    TRMI_TRY(trmi_partition_add_samples(s, op, strategy, locals, err));
    note_work(&e);
    for (int32_t i = 0; i < op->outputs_count; i++) {
        TRMI_TRY(check_shape(&e, locals[i], i, err));
        trmi_partition_value *v = &s->values[op->outputs[i]];
        v->versions[0] =
            (trmi_version){.spread = strategy->outputs[i], .value = locals[i], .forward = v->again};
        v->count = 1;
    }
    return TRM_OK;
}

/* Contract in partition_state.h. A leaf's shape follows from no rule, so the local one is set
 * here. */
trm_status trmi_partition_emit_leaf(trmi_partitioner *s, const trmi_op *op, trm_error *err) {
    int32_t value = op->outputs[0];
    trmi_attrs attrs = op->attrs;
    if (!trmi_graph_own_attrs(s->pass.to, op->kind, &attrs)) {
        return TRMI_NO_MEMORY(err, "to split %s", op->name);
    }
    int32_t index = trmi_pass_emit(&s->pass, op->kind, op->phase, op->name, NULL, 0, 1, &attrs);
    if (index == 0) {
        return trm_graph_check(s->pass.to, err);
    }
    const trmi_value *global = &s->from->values[value];
    trmi_box box = trmi_spread_box(s->mesh, &global->shape, &s->stored[value], s->rank);
    trmi_value *local = &s->pass.to->values[s->pass.to->ops[index].outputs[0]];
    local->dtype = global->dtype;
    local->shape = trmi_box_shape(&box);
    s->values[value].versions[0] =
        (trmi_version){.spread = s->stored[value], .value = s->pass.to->ops[index].outputs[0]};
    s->values[value].count = 1;
    return TRM_OK;
}
