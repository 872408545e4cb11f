/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the steps that sum over samples in a program whose samples lie in equal blocks (strict
 * determinism, docs/internals/determinism.md).
 *
 *      inputs [N, ...]     samples lie one behind the other: "by sample"
 *      step                by sample -> by sample: each sample by itself (a layer, an activation)
 *                          by sample -> whole: a sum over samples (over_samples), or an operator
 *                          that exchanges its sums itself (norms, losses)
 *
 * An operator that mixes samples in another way would have bits that depend on how many samples a
 * rank has; it is refused. */
#include "plan/passes/pass.h"

#include "base/error.h"
#include "base/memory.h"

enum { UNKNOWN, BY_SAMPLE, WHOLE };

typedef struct marking {
    trm_program *program;
    int64_t batch;
    uint8_t *of; /* by buffer */
} marking;

static bool is_by_sample(const marking *m, int32_t buffer) {
    if (buffer == 0) {
        return false;
    }
    if (m->of[buffer] == UNKNOWN) { /* another shape of the same bytes */
        buffer = trmi_buffer_root(m->program, buffer);
    }
    return m->of[buffer] == BY_SAMPLE;
}

static const trm_shape *shape_of(const marking *m, int32_t buffer) {
    return &m->program->buffers[buffer].shape;
}

static bool holds_samples(const marking *m, int32_t buffer) {
    const trm_shape *shape = shape_of(m, buffer);
    return shape->rank > 0 && shape->dim[0] % m->batch == 0;
}

static bool keeps_first_dimension(const trmi_step *s, const trm_shape *x) {
    const trmi_attrs *a = s->attrs;
    switch (s->op_kind) {
    case TRMI_OP_TRANSPOSE: return a->transpose.order[0] == 0;
    case TRMI_OP_CONCAT: return a->concat.axis != 0;
    case TRMI_OP_SLICE: return a->slice.begin[0] == 0 && a->slice.size[0] == x->dim[0];
    case TRMI_OP_PAD: return a->pad.before[0] == 0 && a->pad.after[0] == 0;
    default: return true;
    }
}

/* What a product makes of samples. */
static bool read_product(const marking *m, trmi_step *s, bool *whole) {
    bool a = is_by_sample(m, s->inputs[0]), b = is_by_sample(m, s->inputs[1]);
    bool turned = s->attrs->matmul.transpose_a, flat = shape_of(m, s->inputs[0])->rank == 2;
    if (s->op_kind == TRMI_OP_LINEAR || (flat && !turned)) {
        return a && !b;
    }
    if (flat) {
        s->over_samples = *whole = true;
        return a && b && !s->attrs->matmul.transpose_b;
    }
    return true;
}

/* Marks what a step makes of samples; false: it mixes them. `whole`: the outputs have no samples. */
static bool read_step(const marking *m, trmi_step *s, bool *whole) {
    bool first = is_by_sample(m, s->inputs[0]);
    switch (s->op_kind) {
    case TRMI_OP_CONV2D_GRAD_WEIGHTS:
    case TRMI_OP_EMBEDDING_GRAD: return s->over_samples = *whole = true;
    case TRMI_OP_LAYER_NORM_GRAD:
    case TRMI_OP_RMS_NORM_GRAD:
    case TRMI_OP_LINEAR_XENT: return s->over_samples = true;
    case TRMI_OP_REDUCE_SUM:
        s->over_samples = *whole = first && (s->attrs->reduce.axes & 1) != 0;
        return true;
    case TRMI_OP_REDUCE_MEAN:
    case TRMI_OP_REDUCE_MAX:
    case TRMI_OP_REDUCE_MAX_GRAD: return (s->attrs->reduce.axes & 1) == 0;
    case TRMI_OP_LINEAR:
    case TRMI_OP_MATMUL: return read_product(m, s, whole);
    case TRMI_OP_SOFTMAX:
    case TRMI_OP_SOFTMAX_GRAD: return shape_of(m, s->outputs[0])->rank > 1;
    case TRMI_OP_BCE_LOGITS: return *whole = true;
    case TRMI_OP_KEYED_LINEAR:
    case TRMI_OP_KEYED_LINEAR_GRAD:
    case TRMI_OP_BAG_POOL:
    case TRMI_OP_BAG_POOL_GRAD:
    case TRMI_OP_CUSTOM: return false;
    default: return keeps_first_dimension(s, shape_of(m, s->inputs[0]));
    }
}

/* Is output `i` one of an operator's statistics, which samples have in common? */
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

static trm_status mark_step(const marking *m, trmi_step *s, trm_error *err) {
    bool any = false, whole = false, fine = true;
    for (int32_t i = 0; i < s->inputs_count; i++) {
        any = any || is_by_sample(m, s->inputs[i]);
    }
    if (any && s->kind == TRMI_STEP_OP) {
        fine = read_step(m, s, &whole);
    }
    /* A constant that is spread over the samples is the same for each of them. */
    bool spread = s->kind == TRMI_STEP_OP && s->op_kind == TRMI_OP_BROADCAST &&
                  holds_samples(m, s->outputs[0]);
    for (int32_t i = 0; i < s->outputs_count; i++) {
        int32_t b = s->outputs[i];
        bool samples =
            (any || spread) && !whole && !(s->kind == TRMI_STEP_OP && is_statistic(s->op_kind, i));
        if (b != 0) {
            bool narrow =
                s->over_samples && !samples && m->program->buffers[b].dtype != TRM_FLOAT32;
            fine = fine && !narrow; /* a sum that is rounded before all ranks' are added */
            m->of[b] = samples ? BY_SAMPLE : WHOLE;
            fine = fine && (!samples || holds_samples(m, b));
        }
    }
    return fine ? TRM_OK
                : TRMI_FAIL(err, TRM_INVALID,
                            "%s: the operator mixes samples of the batch in a way that strict "
                            "determinism has no fixed order for; compute each sample by itself, or "
                            "train without strict",
                            s->name);
}

static trm_status mark_inputs(marking *m, trm_error *err) {
    const trm_program *p = m->program;
    for (int32_t i = 0; i < p->inputs_count; i++) {
        const trmi_buffer *b = &p->buffers[p->inputs[i]];
        int64_t rows = b->shape.rank > 0 ? b->shape.dim[0] : 0;
        m->batch = i == 0 ? rows : m->batch;
        if (rows != m->batch || rows % p->blocks != 0 || rows == 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "input '%s' has %lld rows; strict determinism needs one row a sample "
                             "in all inputs, and %d equal blocks of them",
                             b->name, (long long)rows, p->blocks);
        }
        m->of[p->inputs[i]] = BY_SAMPLE;
    }
    return TRM_OK;
}

/* Bytes from a block to the next in each of `buffers`; NULL: no memory. */
static int64_t *strides_of(const marking *m, const int32_t *buffers, int32_t count) {
    int64_t *stride = trmi_arena_alloc(&m->program->arena, (size_t)(count + 1) * sizeof *stride);
    for (int32_t i = 0; stride != NULL && i < count; i++) {
        bool samples = is_by_sample(m, buffers[i]);
        stride[i] = samples ? m->program->buffers[buffers[i]].bytes / m->program->blocks : 0;
    }
    return stride;
}

static trm_status add_strides(const marking *m, trmi_step *s, trm_error *err) {
    s->block_stride = strides_of(m, s->inputs, s->inputs_count);
    s->block_out_stride = strides_of(m, s->outputs, s->outputs_count);
    return s->block_stride != NULL && s->block_out_stride != NULL
               ? TRM_OK
               : TRMI_FAIL(err, TRM_NOMEM, "no memory to plan");
}

trm_status trmi_lower_blocks(trm_program *p, const trmi_plan_options *options, trm_error *err) {
    p->blocks = options->blocks;
    if (p->blocks == 0 || p->inputs_count == 0) {
        return TRM_OK;
    }
    marking m = {.program = p,
                 .of = trmi_arena_alloc(&p->arena, (size_t)p->buffers_count * sizeof *m.of)};
    if (m.of == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to plan");
    }
    TRMI_TRY(mark_inputs(&m, err));
    for (int32_t i = 0; i < p->steps_count; i++) {
        TRMI_TRY(mark_step(&m, &p->steps[i], err));
        const trmi_step *s = &p->steps[i];
        bool dropout = s->kind == TRMI_STEP_OP && s->op_kind == TRMI_OP_DROPOUT &&
                       is_by_sample(&m, s->inputs[0]);
        if (s->over_samples || dropout) {
            TRMI_TRY(add_strides(&m, &p->steps[i], err));
        }
    }
    return TRM_OK;
}
