/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the values that hold samples and the operators that sum over them, in a graph whose samples
 * lie in equal blocks (strict determinism, docs/internals/determinism.md).
 *
 *      inputs [N, ...]     samples lie one after the other: "by sample"; also in rows of tables that
 *                          servers have given a worker for its batch
 *      operator            by sample -> by sample: each sample by itself (a layer, an activation)
 *                          by sample -> whole: a sum over samples (over_samples), or an operator
 *                          that exchanges its sums itself (norms, losses)
 *
 * For each value the file records how many of its rows belong to one block, and the dimension of
 * these rows: the first, except between two TRANSPOSEs. A partition over ranks does not change that
 * number, so this file reads the graph of one rank as it reads the whole graph. An operator that
 * mixes samples in another way would have bits that depend on how many samples a rank has; it is
 * refused. */
#include "plan/passes/pass.h"

#include "base/error.h"

#include <string.h>

/* The graph and what was found so far. */
typedef struct marking {
    const trm_graph *graph;
    trmi_block_marks *marks;
} marking;

/* Returns whether a value holds samples. */
static bool is_by_sample(const marking *m, int32_t value) { return m->marks->rows[value] > 0; }

/* Returns the shape of a value. */
static const trm_shape *shape_of(const marking *m, int32_t value) {
    return &m->graph->values[value].shape;
}

/* Returns the dimension of the samples in what an operator reads, 0 without samples; -1: they are
 * in several dimensions, or in another than the first, which only elementwise operators read. */
static int32_t dimension_read(const marking *m, const trmi_op *op) {
    int32_t dimension = -1;
    for (int32_t i = 0; i < op->inputs_count; i++) {
        int32_t value = op->inputs[i], own = m->marks->dimension[value];
        if (is_by_sample(m, value)) {
            bool same = dimension < 0 || dimension == own;
            dimension = same ? own : TRM_MAX_RANK;
        }
    }
    /* Samples in the first dimension suit every operator; elsewhere only elementwise ones, and
     * those that move values. */
    switch (dimension <= 0 ? TRMI_OP_TRANSPOSE : op->kind) {
    case TRMI_OP_ADD:
    case TRMI_OP_SUB:
    case TRMI_OP_MUL:
    case TRMI_OP_DIV:
    case TRMI_OP_SCALE:
    case TRMI_OP_CAST:
    case TRMI_OP_EXP:
    case TRMI_OP_LOG:
    case TRMI_OP_SQRT:
    case TRMI_OP_RELU:
    case TRMI_OP_RELU_GRAD:
    case TRMI_OP_SIGMOID:
    case TRMI_OP_SIGMOID_GRAD:
    case TRMI_OP_TANH:
    case TRMI_OP_TANH_GRAD:
    case TRMI_OP_ALL_REDUCE:
    case TRMI_OP_EXCHANGE:
    case TRMI_OP_TRANSPOSE: break;
    default: return -1;
    }
    return dimension == TRM_MAX_RANK ? -1 : dimension < 0 ? 0 : dimension;
}

/* Returns the dimension of the samples in an output. */
static int32_t dimension_made(const trmi_op *op, int32_t read) {
    for (int32_t d = 0; op->kind == TRMI_OP_TRANSPOSE && d < TRM_MAX_RANK; d++) {
        if (op->attrs.transpose.order[d] == read) {
            return d;
        }
    }
    return read;
}

/* Returns whether the operator leaves the first dimension, that of the samples, as it is. */
static bool keeps_first_dimension(const trmi_op *op, const trm_shape *x) {
    const trmi_attrs *a = &op->attrs;
    switch (op->kind) {
    case TRMI_OP_CONCAT: return a->concat.axis != 0;
    case TRMI_OP_SLICE: return a->slice.begin[0] == 0 && a->slice.size[0] == x->dim[0];
    case TRMI_OP_PAD: return a->pad.before[0] == 0 && a->pad.after[0] == 0;
    default: return true;
    }
}

/* Returns whether a matrix product can take its inputs by sample. Sets *over if it sums over
 * samples, and *whole if its result is not by sample. */
static bool read_product(const marking *m, const trmi_op *op, bool *over, bool *whole) {
    bool a = is_by_sample(m, op->inputs[0]), b = is_by_sample(m, op->inputs[1]);
    bool turned = op->attrs.matmul.transpose_a,
         flat = op->attrs.matmul.rows || shape_of(m, op->inputs[0])->rank == 2;
    if (op->kind == TRMI_OP_LINEAR || (flat && !turned)) {
        return a && !b;
    }
    if (flat) {
        *over = *whole = true;
        return a && b && !op->attrs.matmul.transpose_b;
    }
    return true;
}

/* Marks what an operator makes of samples; false: it mixes them. `over`: it sums over samples.
 * `whole`: its outputs have no samples. */
static bool read_op(const marking *m, const trmi_op *op, bool *over, bool *whole) {
    bool first = is_by_sample(m, op->inputs[0]);
    switch (op->kind) {
    case TRMI_OP_CONV2D_GRAD_WEIGHTS:
    case TRMI_OP_EXPERT_GRAD_WEIGHTS:
    case TRMI_OP_EMBEDDING_GRAD: return *over = *whole = true;
    case TRMI_OP_LAYER_NORM_GRAD:
    case TRMI_OP_RMS_NORM_GRAD:
    case TRMI_OP_LINEAR_XENT: return *over = true;
    case TRMI_OP_REDUCE_SUM:
        *over = *whole = first && (op->attrs.reduce.axes & 1) != 0;
        return true;
    case TRMI_OP_REDUCE_MEAN:
    case TRMI_OP_REDUCE_MAX:
    case TRMI_OP_REDUCE_MAX_GRAD: return (op->attrs.reduce.axes & 1) == 0;
    case TRMI_OP_LINEAR:
    case TRMI_OP_MATMUL: return read_product(m, op, over, whole);
    case TRMI_OP_SOFTMAX:
    case TRMI_OP_SOFTMAX_GRAD: return shape_of(m, op->outputs[0])->rank > 1;
    case TRMI_OP_BCE_LOGITS: return *whole = true;
    case TRMI_OP_KEYED_LINEAR:
    case TRMI_OP_KEYED_LINEAR_GRAD:
    case TRMI_OP_BAG_POOL:
    case TRMI_OP_BAG_POOL_GRAD:
    case TRMI_OP_CUSTOM: return false;
    default: return keeps_first_dimension(op, shape_of(m, op->inputs[0]));
    }
}

/* Returns whether output `i` is a statistic of a batch norm, which all samples have in common. */
static bool is_statistic(trmi_op_kind kind, int32_t i) {
    switch (kind) {
    case TRMI_OP_BATCH_NORM:
    case TRMI_OP_NORM_ACT: return i > 0;
    case TRMI_OP_BATCH_NORM_GRAD:
    case TRMI_OP_NORM_ACT_GRAD: return i == 1 || i == 2;
    case TRMI_OP_SOFTMAX_XENT:
    case TRMI_OP_LINEAR_XENT: return i != 1;
    case TRMI_OP_LAYER_NORM_GRAD:
    case TRMI_OP_RMS_NORM_GRAD: return i > 0;
    default: return false;
    }
}

/* Returns the rows that a block has of an output: as many for each row of the input as the shapes
 * say. 0: the shapes do not say. */
static int64_t rows_of_output(const marking *m, const trmi_op *op, const trm_shape *out) {
    if (op->kind == TRMI_OP_BROADCAST) {
        return op->attrs.shape.block_rows;
    }
    for (int32_t i = 0; i < op->inputs_count; i++) {
        int64_t rows = m->marks->rows[op->inputs[i]];
        if (op->inputs[i] == 0 || rows == 0) {
            continue;
        }
        if (op->kind == TRMI_OP_EXCHANGE || op->kind == TRMI_OP_ALL_REDUCE) {
            return rows;
        }
        if (op->kind == TRMI_OP_TRANSPOSE || m->marks->dimension[op->inputs[i]] > 0) {
            return rows;
        }
        int64_t in = shape_of(m, op->inputs[i])->dim[0], all = out->rank > 0 ? out->dim[0] : 0;
        return in > 0 && rows * all % in == 0 ? rows * all / in : 0;
    }
    return 0;
}

/* Marks one operator and its outputs: does it read values that belong to samples, does it sum
 * over them (`over`), or does it need all samples at once (`whole`)? An operator that mixes
 * samples in any other way, or rounds a sum before it is complete, is refused. */
static trm_status mark_op(const marking *m, int64_t index, trm_error *err) {
    const trmi_op *op = &m->graph->ops[index];
    bool any = op->kind == TRMI_OP_BROADCAST && op->attrs.shape.block_rows > 0;
    bool over = false, whole = false, fine = true, reads = false;
    for (int32_t i = 0; i < op->inputs_count; i++) {
        reads = reads || is_by_sample(m, op->inputs[i]);
    }
    int32_t dimension = dimension_read(m, op);
    fine = !reads || (dimension >= 0 && read_op(m, op, &over, &whole));
    m->marks->over_samples[index] = over;
    for (int32_t i = 0; i < op->outputs_count; i++) {
        int32_t value = op->outputs[i];
        const trmi_value *v = &m->graph->values[value];
        /* An output has samples unless it is a sum over them or a statistic of all. */
        bool samples = (any || reads) && !whole && !is_statistic(op->kind, i);
        /* a sum that is rounded before all ranks' sums are added */
        fine = fine && !(over && !samples && value != 0 && v->dtype != TRM_FLOAT32);
        if (value != 0 && samples) {
            m->marks->rows[value] = rows_of_output(m, op, &v->shape);
            m->marks->dimension[value] = fine ? (uint8_t)dimension_made(op, dimension) : 0;
            fine = fine && m->marks->rows[value] > 0;
        }
    }
    return fine ? TRM_OK
                : TRMI_FAIL(err, TRM_INVALID,
                            "%s: the operator mixes samples of the batch in a way that strict "
                            "determinism has no fixed order for; compute each sample by itself, or "
                            "train without strict",
                            op->name);
}

/* Contract in pass.h. All inputs must have a row for each sample, since a block is a range
 * of rows in each of them. */
trm_status trmi_block_samples(const trm_graph *g, int32_t blocks, int64_t *samples,
                              trm_error *err) {
    int64_t batch = -1;
    *samples = 0;
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        if (op->kind != TRMI_OP_INPUT) {
            continue;
        }
        const trm_shape *shape = &g->values[op->outputs[0]].shape;
        int64_t rows = shape->rank > 0 ? shape->dim[0] : 0;
        batch = batch < 0 ? rows : batch;
        if (rows != batch || rows % blocks != 0 || rows == 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "input '%s' has %lld rows; strict determinism needs one row a sample "
                             "in all inputs, and %d equal blocks of them",
                             op->name, (long long)rows, blocks);
        }
        *samples = rows / blocks;
    }
    return TRM_OK;
}

/* Returns the operator whose gradient `op` is a part of; NULL: unknown, or `op` is not of
 * backward. */
static const trmi_op *origin_of(const trm_graph *g, const trmi_op *op) {
    for (int64_t i = op->origin != NULL ? op - g->ops - 1 : 0; i > 0; i--) {
        if (g->ops[i].phase == TRMI_FORWARD && strcmp(g->ops[i].name, op->origin) == 0) {
            return &g->ops[i];
        }
    }
    return NULL;
}

/* Takes memory for marks from an arena. */
static trm_status open_marks(const trm_graph *g, trmi_arena *arena, trmi_block_marks *out,
                             trm_error *err) {
    TRMI_TRY(TRMI_NEW_IN(err, arena, out->rows, g->values_count, "to plan"));
    TRMI_TRY(TRMI_NEW_IN(err, arena, out->dimension, g->values_count, "to plan"));
    return TRMI_NEW_IN(err, arena, out->over_samples, g->ops_count, "to plan");
}

/* Marks a leaf that holds samples: an input, or the rows that the look-ups of a batch have read on
 * servers. `blocks`: of the batch. */
static trm_status mark_leaf(const marking *m, const trmi_op *op, int64_t samples, int64_t blocks,
                            trm_error *err) {
    const trm_shape *shape = shape_of(m, op->outputs[0]);
    if (op->kind == TRMI_OP_INPUT) {
        m->marks->rows[op->outputs[0]] = samples;
        return TRM_OK;
    }
    int64_t rows = shape->rank > 0 ? shape->dim[0] : 0;
    if (blocks == 0 || rows == 0 || rows % blocks != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: %lld rows are not those of %lld blocks of samples; strict "
                         "determinism needs ids with one row a sample",
                         op->name, (long long)rows, (long long)blocks);
    }
    m->marks->rows[op->outputs[0]] = rows / blocks;
    return TRM_OK;
}

/* Returns the blocks of samples in the inputs of the graph; 0: it has none. */
static int64_t count_blocks(const trm_graph *g, int64_t samples) {
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trm_shape *shape = &g->values[g->ops[i].outputs[0]].shape;
        if (g->ops[i].kind == TRMI_OP_INPUT && shape->rank > 0 && samples > 0) {
            return shape->dim[0] / samples;
        }
    }
    return 0;
}

/* Marks operator `index`, after all before it. */
static trm_status mark_next(const marking *m, int64_t index, int64_t samples, int64_t blocks,
                            trm_error *err) {
    const trmi_op *op = &m->graph->ops[index];
    if (op->kind == TRMI_OP_INPUT || (op->kind == TRMI_OP_PARAMETER && op->attrs.leaf.remote)) {
        return mark_leaf(m, op, samples, blocks, err);
    }
    if (op->kind == TRMI_OP_RECEIVE) {
        m->marks->rows[op->outputs[0]] = trmi_transfer_of(&op->attrs)->block_rows;
        m->marks->dimension[op->outputs[0]] = trmi_transfer_of(&op->attrs)->block_dimension;
        return TRM_OK;
    }
    return op->kind == TRMI_OP_SEND ? TRM_OK : mark_op(m, index, err);
}

/* A gradient is spread over samples where its operator has reduced them: a dimension may by chance
 * be as long as the batch. */
trm_status trmi_spread_blocks(trm_graph *g, int32_t blocks, int64_t samples, trm_error *err) {
    trmi_arena arena = {0};
    trmi_block_marks marks;
    trm_status status = open_marks(g, &arena, &marks, err);
    const marking m = {.graph = g, .marks = &marks};
    for (int64_t i = 1; status == TRM_OK && i < g->ops_count; i++) {
        trmi_op *op = &g->ops[i];
        const trmi_op *of = op->kind == TRMI_OP_BROADCAST ? origin_of(g, op) : NULL;
        const trm_shape *shape = op->kind == TRMI_OP_BROADCAST ? &op->attrs.shape.shape : NULL;
        if (shape != NULL && shape->rank > 0 && samples > 0 &&
            shape->dim[0] % (samples * blocks) == 0 &&
            (of == NULL || is_by_sample(&m, of->inputs[0]))) {
            op->attrs.shape.block_rows = shape->dim[0] / blocks;
        }
        trm_error refused; /* trmi_mark_blocks reports it */
        (void)!mark_next(&m, i, samples, blocks, &refused);
    }
    trmi_arena_free(&arena);
    return status;
}

trm_status trmi_mark_blocks(const trm_graph *g, int64_t samples, trmi_arena *arena,
                            trmi_block_marks *out, trm_error *err) {
    TRMI_TRY(open_marks(g, arena, out, err));
    marking m = {.graph = g, .marks = out};
    const int64_t blocks = count_blocks(g, samples);
    for (int64_t i = 1; i < g->ops_count; i++) {
        TRMI_TRY(mark_next(&m, i, samples, blocks, err));
    }
    return TRM_OK;
}
