/* SPDX-License-Identifier: Apache-2.0 */
/* Ring attention (Liu, Zaharia and Abbeel 2023): ranks that cut queries, keys and values alike pass
 * blocks of keys and values around.
 *
 *      turn    rank 0    rank 1    rank 2        each turn: ATTENTION with the block that is here,
 *       0      q0 k0     q1 k1     q2 k2         ATTENTION_JOIN with the turns before,
 *       1      q0 k2     q1 k0     q2 k1         EXCHANGE with the neighbour
 *       2      q0 k1     q1 k2     q2 k0
 *
 * A rank never has more keys than two blocks. Backward takes the same turns: the log-sum-exp of all
 * keys gives the weights of each block by itself, so that the gradients of the blocks are added:
 * those of the queries here, those of keys and values by the rank to which they belong. An EXCHANGE
 * stands after a turn of attention that does not need it, so that its messages can travel
 * meanwhile (plan/lower/lower_ahead.c): the next keys after this turn, gradients after the next.
 *
 * All ranks emit the same operators. Under a causal mask a block may lie after all queries of a
 * rank: then `begin` is negative, the result is zero and its log-sum-exp the lowest number, which
 * weighs nothing. Packed queries, keys and values are taken apart before, and their gradients put
 * together after the ring. */
#include "plan/partition/partition_state.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Places of the inputs in arrays of this file. */
enum { Q, K, V, MASK };

/* A ring of one operator. */
typedef struct ring {
    trmi_partitioner *s;
    const trmi_op *op;
    const trmi_attrs *attrs; /* of this rank's heads; `begin`: position of its first query */
    uint32_t axes;
    int32_t members;
    trm_shape keys; /* [B, S, G, D] of all ranks, and how they lie */
    trmi_spread spread;
    int32_t local[4]; /* queries, keys, values, and the mask of all keys or 0 */
    bool packed, folded;
} ring;

/* An operator to be emitted. what: NULL = the name of the attention itself, which one of its kind
 * has. */
typedef struct piece {
    trmi_op_kind kind;
    const char *what;
    int32_t inputs[7], inputs_count, outputs_count;
    trmi_attrs attrs;
} piece;

/* Emits an operator. out [outputs_count]: its values. */
static trm_status emit_piece(const ring *r, const piece *p, int32_t *out, trm_error *err) {
    trmi_pass *pass = &r->s->pass;
    char name[300];
    snprintf(name, sizeof name, "%.200s%s%s", r->op->name, p->what != NULL ? " " : "",
             p->what != NULL ? p->what : "");
    int32_t index = trmi_pass_emit(pass, p->kind, r->op->phase, name, p->inputs, p->inputs_count,
                                   p->outputs_count, &p->attrs);
    if (index == 0) {
        return trm_graph_check(pass->to, err);
    }
    trmi_pass_set_origin(pass, index, r->op->origin);
    memcpy(out, pass->to->ops[index].outputs, (size_t)p->outputs_count * sizeof *out);
    return TRM_OK;
}

/* Returns the shape of a value of the local graph. */
static const trm_shape *shape_of(const ring *r, int32_t value) {
    return &r->s->pass.to->values[value].shape;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A turn of the ring, as a context of block_of(). */
typedef struct turn {
    const ring *r;
    int32_t number;
} turn;

/* Returns the block of keys that a rank has in a turn: that of the member so many places before
 * it. */
static trmi_box block_of(const void *context, int32_t rank) {
    const turn *t = context;
    const trmi_mesh *mesh = t->r->s->mesh;
    int32_t at[TRMI_MESH_AXES], place = 0;
    trmi_mesh_coordinates(mesh, rank, at);
    for (int32_t i = 0; i < mesh->axes; i++) {
        place = t->r->axes >> i & 1 ? place * mesh->size[i] + at[i] : place;
    }
    place = (place + t->r->members - t->number) % t->r->members;
    for (int32_t i = mesh->axes - 1; i >= 0; i--) {
        if (t->r->axes >> i & 1) {
            at[i] = place % mesh->size[i];
            place /= mesh->size[i];
        }
    }
    return trmi_spread_box(mesh, &t->r->keys, &t->r->spread, trmi_mesh_rank(mesh, at));
}

/* Exchanges the blocks of turn `from` for those of turn `to`. */
static trm_status pass_on(const ring *r, const char *what, int32_t from, int32_t to, int32_t *value,
                          trm_error *err) {
    char name[300];
    snprintf(name, sizeof name, "%.200s %s %d", r->op->name, what, (int)from);
    const trmi_exchange_plan plan = {.name = name,
                                     .phase = r->op->phase,
                                     .axes = r->axes,
                                     .combine = TRMI_COMBINE_NONE,
                                     .has = block_of,
                                     .had_by = &(turn){r, from},
                                     .wants = block_of,
                                     .wanted_by = &(turn){r, to}};
    trm_status status = trmi_partition_exchange(r->s, *value, &plan, value, err);
    if (status == TRM_OK) {
        trmi_pass_set_origin(&r->s->pass, r->s->pass.to->values[*value].op, r->op->origin);
    }
    return status;
}

/* Passes keys and values on to the next turn. */
static trm_status pass_keys(const ring *r, int32_t number, int32_t *k, int32_t *v, trm_error *err) {
    TRMI_TRY(pass_on(r, "keys", number, number + 1, k, err));
    return pass_on(r, "values", number, number + 1, v, err);
}

/* Emits the part of the mask that belongs to the block of a turn. */
static trm_status cut_mask(const ring *r, int32_t number, int32_t *out, trm_error *err) {
    *out = r->local[MASK];
    if (*out == 0) {
        return TRM_OK;
    }
    trmi_box box = block_of(&(turn){r, number}, r->s->rank);
    const piece cut = {
        .kind = TRMI_OP_SLICE,
        .what = "mask",
        .inputs = {*out},
        .inputs_count = 1,
        .outputs_count = 1,
        .attrs = {.slice = {.begin = {0, box.begin[1]},
                            .size = {shape_of(r, *out)->dim[0], box.end[1] - box.begin[1]}}}};
    return emit_piece(r, &cut, out, err);
}

/* Returns the attributes of an attention with the block of a turn: positions count from its first
 * key. */
static trmi_attrs attrs_of(const ring *r, int32_t number) {
    trmi_attrs attrs = *r->attrs;
    attrs.attached = NULL;
    attrs.attention.begin -= block_of(&(turn){r, number}, r->s->rank).begin[1];
    return attrs;
}

/* ---- packed tensors -------------------------------------------------------------------------- */

/* Emits a RESHAPE, unless the shape is that already. */
static trm_status change_shape(const ring *r, const char *what, trm_shape shape, int32_t *value,
                               trm_error *err) {
    const piece to = {.kind = TRMI_OP_RESHAPE,
                      .what = what,
                      .inputs = {*value},
                      .inputs_count = 1,
                      .outputs_count = 1,
                      .attrs = {.shape = {.shape = shape}}};
    return trm_shape_equal(shape_of(r, *value), &shape) ? TRM_OK : emit_piece(r, &to, value, err);
}

/* Takes the packed tensor apart: part 0 queries, 1 keys, 2 values, each [B, T, heads, D]. */
static trm_status take_part(const ring *r, int32_t part, int32_t packed, int32_t *out,
                            trm_error *err) {
    static const char *const names[] = {"queries", "keys", "values"};
    const trm_shape *all = shape_of(r, packed);
    int64_t own = r->attrs->attention.heads, other = r->attrs->attention.kv_heads,
            heads = part == 0 ? own : other, width = r->keys.dim[3];
    piece cut = {.kind = TRMI_OP_SLICE,
                 .what = names[part],
                 .inputs = {packed},
                 .inputs_count = 1,
                 .outputs_count = 1};
    memcpy(cut.attrs.slice.size, all->dim, sizeof all->dim);
    cut.attrs.slice.begin[2] =
        r->folded ? part : (part == 0 ? 0 : own + (part - 1) * other) * width;
    cut.attrs.slice.size[2] = r->folded ? 1 : heads * width;
    trm_shape shape = trm_shape_of(all->dim[0], all->dim[1], heads, width);
    TRMI_TRY(emit_piece(r, &cut, out, err));
    return change_shape(r, names[part], shape, out, err);
}

/* Puts gradients of queries, keys and values together. */
static trm_status join_parts(const ring *r, int32_t gradients[3], int32_t *out, trm_error *err) {
    piece all = {.kind = TRMI_OP_CONCAT,
                 .inputs_count = 3,
                 .outputs_count = 1,
                 .attrs = {.concat = {.axis = 2}}};
    for (int32_t i = 0; i < 3; i++) {
        const trm_shape *s = shape_of(r, gradients[i]);
        int64_t columns = s->dim[2] * s->dim[3];
        trm_shape flat = r->folded ? trm_shape_of(s->dim[0], s->dim[1], 1, columns)
                                   : trm_shape_of(s->dim[0], s->dim[1], columns);
        TRMI_TRY(change_shape(r, "columns", flat, &gradients[i], err));
        all.inputs[i] = gradients[i];
    }
    return emit_piece(r, &all, out, err);
}

/* ---- forward and backward -------------------------------------------------------------------- */

/* Opens the ring of an operator of which q is input number `first`. */
static trm_status open_ring(ring *r, const trmi_strategy *strategy, const int32_t *inputs,
                            int32_t first, trm_error *err) {
    const trmi_value *q = trmi_input_of(r->s->from, r->op, first),
                     *k = trmi_input_of(r->s->from, r->op, first + 1);
    r->axes = trmi_letters_mask(strategy->letters, "r");
    r->members = trmi_mesh_group(r->s->mesh, r->axes);
    r->packed = k == NULL;
    r->folded = r->packed && q->shape.rank == 4;
    r->spread = strategy->inputs[first + (r->packed ? 0 : 1)];
    memcpy(r->local, inputs + first, sizeof r->local);
    if (!r->packed) {
        r->keys = k->shape;
        return TRM_OK;
    }
    /* Packed: cut the tensor into queries, keys and values, which are then passed on separately. */
    const trmi_attrs *all = &r->op->attrs;
    int64_t heads = all->attention.heads + 2 * all->attention.kv_heads,
            columns = r->folded ? q->shape.dim[2] * q->shape.dim[3] : q->shape.dim[2];
    r->keys =
        trm_shape_of(q->shape.dim[0], q->shape.dim[1], all->attention.kv_heads, columns / heads);
    for (int32_t i = 0; i < r->s->mesh->axes; i++) { /* columns of heads are heads now */
        r->spread.at[i] = r->spread.at[i] == TRMI_SPLIT + 3 ? TRMI_SPLIT + 2 : r->spread.at[i];
    }
    for (int32_t i = Q; i <= V; i++) {
        TRMI_TRY(take_part(r, i, inputs[first], &r->local[i], err));
    }
    return TRM_OK;
}

/* Emits all turns of forward. locals: y and log_sum_exp. */
static trm_status emit_forward(const ring *r, int32_t *locals, trm_error *err) {
    int32_t k = r->local[K], v = r->local[V], sums[4] = {0};
    for (int32_t t = 0; t < r->members; t++) {
        /* Turn t: this rank's queries and the keys of the rank t places before it. The results of
         * two turns are joined by their log-sum-exps. */
        int32_t mask;
        TRMI_TRY(cut_mask(r, t, &mask, err));
        bool last = t + 1 == r->members;
        const piece attend = {.kind = TRMI_OP_ATTENTION,
                              .what = last ? NULL : "turn",
                              .inputs = {r->local[Q], k, v, mask},
                              .inputs_count = 4,
                              .outputs_count = 2,
                              .attrs = attrs_of(r, t)};
        TRMI_TRY(emit_piece(r, &attend, t == 0 ? sums : sums + 2, err));
        const piece join = {.kind = TRMI_OP_ATTENTION_JOIN,
                            .what = "join",
                            .inputs = {sums[0], sums[1], sums[2], sums[3]},
                            .inputs_count = 4,
                            .outputs_count = 2};
        TRMI_TRY(t > 0 ? emit_piece(r, &join, sums, err) : TRM_OK);
        TRMI_TRY(last ? TRM_OK : pass_keys(r, t, &k, &v, err));
    }
    memcpy(locals, sums, 2 * sizeof *sums);
    const trm_shape *y = shape_of(r, locals[0]);
    return r->packed ? change_shape(r, "columns",
                                    trm_shape_of(y->dim[0], y->dim[1], y->dim[2] * y->dim[3]),
                                    locals, err)
                     : TRM_OK;
}

/* Ends of the names of operators that sum the gradients, by Q, K, V. */
static const char *const gradient_names[] = {"gradient of queries", "gradient of keys",
                                             "gradient of values"};

/* Adds a gradient of one turn to the sum of those before. */
static trm_status add_gradient(const ring *r, const char *what, int32_t gradient, int32_t *sum,
                               trm_error *err) {
    const piece add = {.kind = TRMI_OP_ADD,
                       .what = what,
                       .inputs = {*sum, gradient},
                       .inputs_count = 2,
                       .outputs_count = 1};
    return emit_piece(r, &add, sum, err);
}

/* Brings the gradients of keys and values of turn `number` to the rank to which they belong, and
 * adds them to the sums. */
static trm_status return_gradients(const ring *r, int32_t number, int32_t own[3], int32_t sums[3],
                                   trm_error *err) {
    for (int32_t i = K; i <= V; i++) {
        TRMI_TRY(pass_on(r, gradient_names[i], number, 0, &own[i], err));
        TRMI_TRY(add_gradient(r, gradient_names[i], own[i], &sums[i], err));
    }
    return TRM_OK;
}

/* Emits all turns of backward. dy, y, lse: of this rank's queries. locals: gradients. */
static trm_status emit_backward(const ring *r, const int32_t *inputs, int32_t *locals,
                                trm_error *err) {
    enum { DY = 0, Y = 5, LSE = 6 };
    int32_t k = r->local[K], v = r->local[V], dy = inputs[DY], y = inputs[Y], sums[3], own[3] = {0},
            before[3];
    TRMI_TRY(change_shape(r, "result", *shape_of(r, r->local[Q]), &y, err));
    TRMI_TRY(change_shape(r, "gradient", *shape_of(r, r->local[Q]), &dy, err));
    for (int32_t t = 0; t < r->members; t++) {
        /* The gradients of keys and values of turn t belong to another rank: they go back around
         * the ring to it, after the next turn. */
        int32_t mask;
        memcpy(before, own, sizeof before);
        TRMI_TRY(cut_mask(r, t, &mask, err));
        const piece back = {.kind = TRMI_OP_ATTENTION_GRAD,
                            .what = "turn",
                            .inputs = {dy, r->local[Q], k, v, mask, y, inputs[LSE]},
                            .inputs_count = 7,
                            .outputs_count = 3,
                            .attrs = attrs_of(r, t)};
        TRMI_TRY(emit_piece(r, &back, t == 0 ? sums : own, err));
        TRMI_TRY(t > 0 ? add_gradient(r, gradient_names[Q], own[Q], &sums[Q], err) : TRM_OK);
        TRMI_TRY(t > 1 ? return_gradients(r, t - 1, before, sums, err) : TRM_OK);
        TRMI_TRY(t + 1 < r->members ? pass_keys(r, t, &k, &v, err)
                 : t > 0            ? return_gradients(r, t, own, sums, err)
                                    : TRM_OK);
    }
    if (r->packed) {
        return join_parts(r, sums, locals, err);
    }
    memcpy(locals, sums, sizeof sums);
    return TRM_OK;
}

trm_status trmi_partition_emit_ring(trmi_partitioner *s, const trmi_op *op,
                                    const trmi_strategy *strategy, const trmi_attrs *attrs,
                                    const int32_t *inputs, int32_t *locals, trm_error *err) {
    bool gradient = op->kind == TRMI_OP_ATTENTION_GRAD;
    ring r = {.s = s, .op = op, .attrs = attrs};
    TRMI_TRY(open_ring(&r, strategy, inputs, gradient ? 1 : 0, err));
    return gradient ? emit_backward(&r, inputs, locals, err) : emit_forward(&r, locals, err);
}
