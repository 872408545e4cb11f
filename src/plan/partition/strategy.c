/* SPDX-License-Identifier: Apache-2.0 */
/* Computes a strategy from its letters: whether it is possible, the spreads of inputs and outputs,
 * the operator's own messages, the work of the busiest rank; and lists all strategies of an
 * operator.
 *
 *   letters, one a mesh axis    "n." of 2x4: the first axis cuts samples, the second one nothing
 *      -> letters_fit, groups_fit, windows_fit, reshape_fits    can ranks run it so?
 *      -> spread_of each input and output                       a loop it lacks: whole or partial
 *      -> add_statistics, add_halo, add_ring, ...               messages of the operator
 *      -> fraction_of                                           work of the largest part
 *
 * Messages that bring inputs to these spreads are not counted here: they depend on the operators
 * before, and are the prices of edges (spread_route.c). Pure: the same letters give the same
 * strategy. */
#include "plan/lower/program.h"
#include "plan/partition/operator_loops.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Computes the input rows [*begin, *end) that output rows [a, b) need, clipped to the image; may be
 * empty. */
static void rows_needed(const trmi_partition_window *w, int64_t a, int64_t b, int64_t *begin,
                        int64_t *end) {
    int64_t first = a * w->stride - w->before, last = (b - 1) * w->stride - w->before + w->extent;
    *begin = first < 0 ? 0 : first > w->in ? w->in : first;
    *end = last > w->in ? w->in : last;
}

/* Contract in operator_loops.h. Only dimensions that are cut are widened; along the others the rank
 * has all rows anyway. */
trmi_box trmi_window_box(const trmi_loops *l, const trmi_mesh *mesh, const trm_shape *in,
                         const trm_shape *out, const trmi_spread *in_spread,
                         const trmi_spread *out_spread, int32_t rank) {
    trmi_box box = trmi_spread_box(mesh, in, in_spread, rank);
    trmi_box made = trmi_spread_box(mesh, out, out_spread, rank);
    for (int i = 0; i < 2; i++) {
        bool cut = false;
        for (int32_t axis = 0; axis < mesh->axes; axis++) {
            cut = cut || out_spread->at[axis] == TRMI_SPLIT + 2 + i;
        }
        if (cut) {
            rows_needed(&l->window[i], made.begin[2 + i], made.end[2 + i], &box.begin[2 + i],
                        &box.end[2 + i]);
        }
    }
    return box;
}

uint32_t trmi_letters_mask(const char *letters, const char *loops) {
    uint32_t mask = 0;
    for (int i = 0; letters[i] != '\0'; i++) {
        mask |= strchr(loops, letters[i]) != NULL ? 1u << i : 0;
    }
    return mask;
}

/* Returns the spread of a tensor whose dimensions have the letters `dims`. without: letter on axes
 * whose loop the tensor lacks. */
static trmi_spread spread_of(const trmi_mesh *mesh, const char *letters, const char *dims,
                             uint8_t without) {
    trmi_spread s = {{0}, {0}};
    for (int32_t i = 0; i < mesh->axes; i++) {
        const char *at = letters[i] == '.' || letters[i] == '+' || dims == NULL
                             ? NULL
                             : trmi_dimension_of(dims, letters[i]);
        if (letters[i] == '+') {
            s.at[i] = TRMI_PARTIAL_SUM;
        } else if (at != NULL) {
            for (int32_t j = 0; j < i; j++) {
                s.place[i] = (uint8_t)(s.place[i] + (s.at[j] == TRMI_SPLIT + (at - dims)));
            }
            s.at[i] = (uint8_t)(TRMI_SPLIT + (at - dims));
        } else if (letters[i] != '.') {
            s.at[i] = without;
        }
    }
    return s;
}

/* ---- is it possible ---- */

/* Returns into how many parts the letters cut a loop. */
static int64_t parts_of(const trmi_mesh *mesh, const char *letters, char letter) {
    return trmi_mesh_group(mesh, trmi_letters_mask(letters, (char[]){letter, '\0'}));
}

/* Returns whether groups are divided evenly. */
static bool groups_fit(const trmi_loops *l, const trmi_mesh *mesh, const char *letters) {
    return l->groups == 0 || l->groups % parts_of(mesh, letters, 'g') == 0;
}

/* Returns whether every cut of a reshape is the same cut on both sides: the dimensions are equal,
 * or divided evenly. */
static bool reshape_fits(const trmi_loops *l, const trmi_mesh *mesh, const char *letters,
                         const trm_shape *in, const trm_shape *out) {
    for (int32_t d = 0; d < in->rank; d++) {
        const char *at = l->in[0][d] == '-' ? NULL : strchr(l->out[0], l->in[0][d]);
        if (at == NULL) {
            continue;
        }
        int64_t a = in->dim[d], b = out->dim[at - l->out[0]],
                parts = parts_of(mesh, letters, l->in[0][d]);
        if (a != b && (a % parts != 0 || b % parts != 0)) {
            return false;
        }
    }
    return true;
}

/* Returns whether every rank has output rows, and no rank's window lies completely in the padding.
 */
static bool windows_fit(const trmi_loops *l, const trmi_mesh *mesh, const char *letters) {
    for (int i = 0; l->windows && i < 2; i++) {
        int64_t parts = parts_of(mesh, letters, "hw"[i]);
        const trmi_partition_window *w = &l->window[i];
        if (parts > 1 && (w->out < parts || w->in < parts)) {
            return false;
        }
        int64_t each = parts > 1 ? w->out / parts : 0, more = parts > 1 ? w->out % parts : 0;
        for (int64_t p = 0; parts > 1 && p < parts; p++) {
            int64_t a = p * each + (p < more ? p : more), begin, end;
            rows_needed(w, a, a + each + (p < more), &begin, &end);
            if (begin >= end) {
                return false;
            }
        }
    }
    return true;
}

/* Returns whether the operator has loops of all letters. */
static bool letters_fit(const trmi_loops *l, const trmi_mesh *mesh, const char *letters) {
    if (strlen(letters) != (size_t)mesh->axes) {
        return false;
    }
    for (int32_t i = 0; i < mesh->axes; i++) {
        bool known = letters[i] == '.' ||
                     (letters[i] == '+' ? l->linear : strchr(l->letters, letters[i]) != NULL);
        if (!known) {
            return false;
        }
    }
    return true;
}

/* ---- what it costs ---- */

/* Appends a message, unless it is empty. */
static void add_comm(trmi_partition_comm *list, int32_t *count, trmi_move move, uint32_t axes,
                     double bytes, const char *what) {
    if (axes != 0 && bytes > 0 && *count < TRMI_PARTITION_COMMS) {
        list[(*count)++] = (trmi_partition_comm){move, axes, bytes, what, 1, 0};
    }
}

/* Returns the largest part of a loop / its whole length, all axes that cut the loop together. */
static double largest_part(const trmi_mesh *mesh, const char *letters, char letter,
                           int64_t length) {
    int64_t parts = parts_of(mesh, letters, letter);
    return parts <= 1 || length <= 0 ? 1 : (double)((length + parts - 1) / parts) / (double)length;
}

/* Returns the length of a loop, from the first tensor that has it. */
static int64_t length_of(const trm_graph *g, const trmi_op *op, const trmi_loops *l, char letter) {
    for (int i = 0; i < op->outputs_count; i++) {
        const char *at = trmi_dimension_of(l->out[i], letter);
        if (at != NULL) {
            return trmi_output_of(g, op, i)->shape.dim[at - l->out[i]];
        }
    }
    for (int i = 0; i < op->inputs_count && i < TRMI_LOOP_TENSORS; i++) {
        const char *at = trmi_dimension_of(l->in[i], letter);
        if (at != NULL && op->inputs[i] != 0) {
            return trmi_input_of(g, op, i)->shape.dim[at - l->in[i]];
        }
    }
    return 1;
}

/* Returns the work of the largest part / the work of the whole operator. */
static double fraction_of(const trm_graph *g, const trmi_op *op, const trmi_loops *l,
                          const trmi_mesh *mesh, const char *letters) {
    double fraction = 1;
    for (int i = 0; l->letters[i] != '\0'; i++) {
        bool window = l->windows && (l->letters[i] == 'h' || l->letters[i] == 'w');
        int64_t length = l->letters[i] == 'g' ? l->groups
                         : window             ? l->window[l->letters[i] == 'w'].out
                                              : length_of(g, op, l, l->letters[i]);
        double part = largest_part(mesh, letters, l->letters[i], length);
        /* the last queries read all keys, the first ones few */
        bool growing = (l->letters[i] == 'q' || l->letters[i] == 'r') && op->attrs.attention.causal;
        fraction *= growing ? part * (2 - part) : part;
    }
    return fraction;
}

/* Adds the halo exchange: the bytes of the busiest of up to 16 ranks, evenly spaced. The gradient
 * of a forward operator with a halo sums the same rows. */
static void add_halo(const trm_graph *g, const trmi_op *op, const trmi_loops *l,
                     const trmi_mesh *mesh, const char *letters, trmi_strategy *out) {
    uint32_t axes = trmi_letters_mask(letters, "hw");
    bool adds = l->window_adds;
    const trmi_value *x = adds ? trmi_output_of(g, op, 0)
                               : trmi_input_of(g, op, l->window_input < 0 ? 0 : l->window_input);
    const trmi_value *y =
        adds || l->window_input == 1 ? trmi_input_of(g, op, 0) : trmi_output_of(g, op, 0);
    const trmi_spread *sx =
        adds ? &out->outputs[0] : &out->inputs[l->window_input < 0 ? 0 : l->window_input];
    const trmi_spread *sy = adds || l->window_input == 1 ? &out->inputs[0] : &out->outputs[0];
    double most = 0;
    int32_t ranks = trmi_mesh_ranks(mesh), look = ranks < 16 ? ranks : 16;
    for (int32_t i = 0; i < look; i++) {
        int32_t rank = (int32_t)((int64_t)i * ranks / look);
        /* Count the elements that the window reads and the rank does not have. */
        trmi_box own = trmi_spread_box(mesh, &x->shape, sx, rank), both;
        trmi_box wide = trmi_window_box(l, mesh, &x->shape, &y->shape, sx, sy, rank);
        int64_t kept = trmi_box_intersect(&own, &wide, &both) ? trmi_box_count(&both) : 0;
        double bytes = (double)(trmi_box_count(&wide) - kept) * (double)trm_dtype_bytes(x->dtype);
        most = bytes > most ? bytes : most;
    }
    add_comm(out->comms, &out->comms_count, TRMI_MOVE_EXCHANGE, axes, most,
             adds ? "halo sum" : "halo");
    if (!adds && l->window_input == 0) {
        add_comm(out->backward, &out->backward_count, TRMI_MOVE_EXCHANGE, axes, most, "halo sum");
    }
}

/* Adds the exchange of batch norm statistics: two doubles for each channel, and a count. */
static void add_statistics(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh,
                           const char *letters, trmi_strategy *out) {
    uint32_t axes = trmi_letters_mask(letters, trmi_norm_loops(op));
    int64_t channels = trmi_output_of(g, op, 0)->shape.dim[1], parts = parts_of(mesh, letters, 'c');
    double bytes =
        (double)(2 * ((channels + parts - 1) / parts) + 1) * 8 * trmi_mesh_group(mesh, axes);
    add_comm(out->comms, &out->comms_count, TRMI_MOVE_ALL_GATHER, axes, bytes, "statistics");
    if (op->kind == TRMI_OP_BATCH_NORM || op->kind == TRMI_OP_NORM_ACT) {
        add_comm(out->backward, &out->backward_count, TRMI_MOVE_ALL_GATHER, axes, bytes,
                 "statistics");
    }
}

/* Adds the messages of a ring (emit_ring.c), and the copies of what it joins and takes apart: a
 * sum reads two and writes one, as long as one and a half copies. */
static void add_ring(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh,
                     const char *letters, trmi_strategy *out) {
    uint32_t axes = trmi_letters_mask(letters, "r");
    bool gradient = op->kind == TRMI_OP_ATTENTION_GRAD;
    int32_t first = gradient ? 1 : 0, turns = trmi_mesh_group(mesh, axes) - 1;
    const trmi_value *q = trmi_input_of(g, op, first), *k = trmi_input_of(g, op, first + 1);
    double size = (double)trm_dtype_bytes(q->dtype),
           own = size * (double)trmi_spread_most(mesh, &q->shape, &out->inputs[first]), block;
    if (k != NULL) {
        block = size * (double)trmi_spread_most(mesh, &k->shape, &out->inputs[first + 1]);
    } else { /* packed */
        double heads = (double)op->attrs.attention.heads,
               other = (double)op->attrs.attention.kv_heads;
        block = own * other / (heads + 2 * other);
    }
    double packed = k == NULL ? own : 0, queries = k == NULL ? own - 2 * block : own;
    /* A forward operator lists its own messages and those of its gradient; backward also passes the
     * gradients of keys and values on, those of the last turn when it has computed. */
    for (int backward = gradient; backward < 2 && axes != 0; backward++) {
        bool later = backward && !gradient;
        trmi_partition_comm *list = later ? out->backward : out->comms;
        int32_t *count = later ? &out->backward_count : &out->comms_count;
        const int32_t times = (backward ? 4 : 2) * turns;
        const trmi_partition_comm ring = {TRMI_MOVE_EXCHANGE,        axes, block, "ring", times,
                                          times - (backward ? 2 : 0)},
                                  sums = {TRMI_MOVE_LOCAL,
                                          axes,
                                          1.5 * (queries + (backward ? 2 * block : 0)),
                                          "ring",
                                          turns,
                                          0},
                                  parts = {TRMI_MOVE_LOCAL, axes, packed, "ring", 1 + backward, 0};
        list[(*count)++] = ring;
        list[(*count)++] = sums;
        list[(*count)++] = parts;
    }
}

/* Adds the messages of the operator itself. */
static void add_comms(const trm_graph *g, const trmi_op *op, const trmi_loops *l,
                      const trmi_mesh *mesh, const char *letters, trmi_strategy *out) {
    if (l->windows && (l->window_adds || l->window_input >= 0)) {
        add_halo(g, op, l, mesh, letters, out);
    }
    switch (op->kind) {
    case TRMI_OP_BATCH_NORM:
    case TRMI_OP_NORM_ACT:
    case TRMI_OP_BATCH_NORM_GRAD:
    case TRMI_OP_NORM_ACT_GRAD: add_statistics(g, op, mesh, letters, out); break;
    case TRMI_OP_ATTENTION:
    case TRMI_OP_ATTENTION_GRAD: add_ring(g, op, mesh, letters, out); break;
    case TRMI_OP_SOFTMAX_XENT: {
        uint32_t classes = trmi_letters_mask(letters, "k"), rows = trmi_letters_mask(letters, "n");
        int64_t n = trmi_input_of(g, op, 0)->shape.dim[0], parts = parts_of(mesh, letters, 'n');
        add_comm(out->comms, &out->comms_count, TRMI_MOVE_ALL_GATHER, classes,
                 (double)((n + parts - 1) / parts) * 4 * 8 * trmi_mesh_group(mesh, classes),
                 "loss by classes");
        add_comm(out->comms, &out->comms_count, TRMI_MOVE_ALL_GATHER, rows,
                 2.0 * 8 * trmi_mesh_group(mesh, rows), "loss by samples");
        break;
    }
    case TRMI_OP_LINEAR_XENT: {
        uint32_t classes = trmi_letters_mask(letters, "k"),
                 rows = trmi_letters_mask(letters, l->letters) & ~classes;
        double n = (double)trm_shape_count(&trmi_input_of(g, op, 2)->shape) /
                   (double)trmi_mesh_group(mesh, rows);
        add_comm(out->comms, &out->comms_count, TRMI_MOVE_ALL_GATHER, classes,
                 n * 2 * 8 * trmi_mesh_group(mesh, classes), "loss by classes");
        add_comm(out->comms, &out->comms_count, TRMI_MOVE_ALL_GATHER, rows,
                 2.0 * 2 * 8 * trmi_mesh_group(mesh, rows), "loss by samples");
        break;
    }
    default: break;
    }
}

/* ---- the strategy ---- */

/* Contract in partition.h. Derives everything from the letters: an axis cuts one loop of the
 * operator, and so every dimension of its inputs and outputs over which that loop runs. Where
 * the loop is a sum, the output is partial. Returns false if a part would be empty or uneven
 * where the operator cannot bear it. */
bool trmi_partition_strategy(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh,
                             const char *letters, trmi_strategy *out) {
    trmi_loops l;
    trmi_loops_of(g, op, &l);
    if (!letters_fit(&l, mesh, letters) || !groups_fit(&l, mesh, letters) ||
        !windows_fit(&l, mesh, letters) || op->inputs_count > TRMI_PARTITION_INPUTS) {
        return false;
    }
    memset(out, 0, sizeof *out);
    snprintf(out->letters, sizeof out->letters, "%s", letters);
    /* spreads of inputs; a bias is partial where the sum is cut */
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_value *v = trmi_input_of(g, op, i);
        if (v == NULL) {
            continue;
        }
        const char *dims = l.in[i < TRMI_LOOP_TENSORS ? i : TRMI_LOOP_TENSORS - 1];
        out->inputs[i] = spread_of(mesh, letters, dims, TRMI_WHOLE);
        for (int32_t axis = 0; axis < mesh->axes && i == l.once; axis++) {
            out->inputs[i].at[axis] =
                letters[axis] == 'c' ? TRMI_PARTIAL_SUM : out->inputs[i].at[axis];
        }
        for (int32_t axis = 0; axis < mesh->axes && i == l.whole; axis++) {
            out->inputs[i].at[axis] = letters[axis] == '+' ? TRMI_WHOLE : out->inputs[i].at[axis];
        }
        if (!trmi_spread_fits(mesh, &v->shape, &out->inputs[i])) {
            return false;
        }
    }
    /* spreads of outputs */
    for (int32_t i = 0; i < op->outputs_count; i++) {
        out->outputs[i] = spread_of(mesh, letters, l.out[i], l.without[i]);
        if (!trmi_spread_fits(mesh, &trmi_output_of(g, op, i)->shape, &out->outputs[i])) {
            return false;
        }
    }
    if (op->kind == TRMI_OP_RESHAPE &&
        !reshape_fits(&l, mesh, letters, &trmi_input_of(g, op, 0)->shape,
                      &trmi_output_of(g, op, 0)->shape)) {
        return false;
    }
    out->fraction = fraction_of(g, op, &l, mesh, letters);
    add_comms(g, op, &l, mesh, letters, out);
    /* local shapes of rank 0, which has the largest part */
    for (int32_t i = 0; i < 4 && i < op->inputs_count; i++) {
        const trmi_value *v = trmi_input_of(g, op, i);
        if (v != NULL) {
            trmi_box box = trmi_spread_box(mesh, &v->shape, &out->inputs[i], 0);
            if (l.windows && l.window_input == i) {
                bool second = i == 1; /* of a gradient, y is the first input */
                const trm_shape *y =
                    second ? &trmi_input_of(g, op, 0)->shape : &trmi_output_of(g, op, 0)->shape;
                box = trmi_window_box(&l, mesh, &v->shape, y, &out->inputs[i],
                                      second ? &out->inputs[0] : &out->outputs[0], 0);
            }
            out->local_inputs[i] = trmi_box_shape(&box);
            /* blocks of keys that pass by */
            const char *keys = strchr(letters, 'r') != NULL ? strchr(l.in[i], 's') : NULL;
            if (keys != NULL) {
                out->local_inputs[i].dim[keys - l.in[i]] = v->shape.dim[keys - l.in[i]];
            }
        }
    }
    trmi_box box = trmi_spread_box(mesh, &trmi_output_of(g, op, 0)->shape, &out->outputs[0], 0);
    out->local_output = trmi_box_shape(&box);
    return true;
}

/* Contract in partition.h. The gradient dW = dy^T x stays in its two factors where that is cheaper:
 * few samples, a large matrix, and no rank has other samples (letter n), as factors cannot be
 * summed over ranks. */
bool trmi_partition_in_factors(const trm_graph *g, const trmi_op *op, const trmi_strategy *strategy,
                               int32_t input) {
    bool product =
        op->kind == TRMI_OP_LINEAR || (op->kind == TRMI_OP_MATMUL && !op->attrs.matmul.transpose_a);
    if (!trmi_part_of(&op->attrs)->may_factor || !product || input != 1 ||
        trmi_input_of(g, op, 0)->shape.rank != 2) {
        return false;
    }
    const trmi_op *maker = trmi_maker_of(g, op->inputs[1]);
    maker = maker->kind == TRMI_OP_CAST ? trmi_maker_of(g, maker->inputs[0]) : maker;
    return maker->kind == TRMI_OP_PARAMETER && maker->attrs.leaf.trainable &&
           strchr(strategy->letters, 'n') == NULL &&
           strategy->local_inputs[0].dim[0] <= TRMI_FACTORS_MOST &&
           trm_shape_count(&strategy->local_inputs[1]) >= TRMI_FACTORS_FROM;
}

/* Counts all strategies of an operator and, if list is not NULL, writes them. */
static int64_t enumerate_strategies(const trm_graph *g, const trmi_op *op, const trmi_mesh *mesh,
                                    trmi_strategy *list) {
    char choices[TRMI_PARTITION_LETTERS + 1] = ".", letters[TRMI_MESH_AXES + 1] = "";
    trmi_partition_loops(g, op, choices + 1, NULL);
    int64_t options = (int64_t)strlen(choices), total = 1, count = 0;
    for (int32_t i = 0; i < mesh->axes; i++) {
        total *= options;
    }
    for (int64_t n = 0; n < total; n++) {
        int64_t rest = n;
        for (int32_t i = mesh->axes - 1; i >= 0; i--) {
            letters[i] = choices[rest % options];
            rest /= options;
        }
        trmi_strategy one;
        if (trmi_partition_strategy(g, op, mesh, letters, list != NULL ? &list[count] : &one)) {
            count++;
        }
    }
    return count;
}

/* Contract in partition.h. The list is counted first, then filled, since an arena does not
 * shrink. */
trm_status trmi_partition_strategies(const trm_graph *graph, const trmi_op *op,
                                     const trmi_mesh *mesh, trmi_arena *arena, trmi_strategy **out,
                                     int32_t *count, trm_error *err) {
    int64_t found = enumerate_strategies(graph, op, mesh, NULL);
    /* one more than found: the next candidate is computed in the place after the last one */
    trmi_strategy *list;
    TRMI_TRY(TRMI_NEW_IN(err, arena, list, found + 1, "for %lld strategies of %s", (long long)found,
                         op->name));
    *count = (int32_t)enumerate_strategies(graph, op, mesh, list);
    *out = list;
    return TRM_OK;
}
