/* SPDX-License-Identifier: Apache-2.0 */
/* Cooperative gradients: weight gradients that the ranks of a host compute together instead of each
 * rank its own.
 *
 *      each its own    rank r: dW(r) = dy(r)^T x(r)                     every dW(r) is written, then read to be summed
 *      cooperative     rank r: some rows of  sum over q of dy(q)^T x(q)  x and dy of all ranks q are read where they are
 *
 * Late layers of convolutional networks and fully connected layers have few pixels and many
 * weights, so x and dy are much smaller than dW. Between hosts this is known as sufficient factors
 * (Xie et al. 2015); here the factors are in memory that all ranks can read, so nothing is sent,
 * and each rank computes the rows whose weights it updates.
 *
 * Invariants: shapes alone decide which gradients are cooperative, so bits do not depend on
 * measurements. The cooperative steps come after all other steps, following one barrier. Their
 * inputs are in arena COOPERATIVE: they share bytes with no other buffer and live until the end of
 * the training step. */
#include "plan/passes/pass.h"
#include "plan/partition/partition.h"

#include "base/element.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* LEAST: smallest dW in bytes; TIMES: dW must be so many times x + dy; LINE: x and dy must be
 * multiples of a cache line, so that those of all ranks form one tensor. */
enum { LEAST = 1 << 18, TIMES = 2, LINE = 64 };

/* Returns whether the step is a sum over rows of x and dy, which are contiguous, so that the rows
 * of all ranks are, too. */
static bool is_sum_over_rows(const trm_program *p, const trmi_step *s, bool products) {
    if (s->kind != TRMI_STEP_OP || s->inputs_count != 2 || s->inputs[0] == 0 || s->inputs[1] == 0) {
        return false;
    }
    const trmi_buffer *a = &p->buffers[s->inputs[0]], *b = &p->buffers[s->inputs[1]],
                      *c = &p->buffers[s->outputs[0]];
    if (s->op_kind == TRMI_OP_CONV2D_GRAD_WEIGHTS) {
        return s->attrs->conv.groups <= 1 && a->layout == TRMI_CHANNELS_LAST &&
               b->layout == TRMI_CHANNELS_LAST && c->layout == TRMI_CHANNELS_LAST;
    }
    return products && s->op_kind == TRMI_OP_MATMUL &&
           (a->shape.rank == 2 || s->attrs->matmul.rows) && s->attrs->matmul.transpose_a &&
           !s->attrs->matmul.transpose_b && s->attrs->matmul.columns == 0;
}

/* Returns whether the buffer is the gradient of a dense parameter that is summed over `axes`; 0 if
 * nothing is partitioned. */
static bool is_gradient(const trm_program *p, int32_t buffer, uint32_t axes) {
    const trmi_buffer *b = &p->buffers[buffer];
    for (int32_t i = 0;
         i < p->params_count && b->arena == TRMI_ARENA_GRAD && b->dtype == TRM_FLOAT32; i++) {
        const trmi_param *param = &p->params[i];
        if (param->grad_buffer == buffer) {
            return !param->remote && !param->table && param->grad_axes == axes;
        }
    }
    return false;
}

/* Returns whether the buffer can be placed in arena COOPERATIVE. */
static bool may_be_shared(const trm_program *p, int32_t buffer) {
    const trmi_buffer *b = &p->buffers[buffer], *root = &p->buffers[trmi_buffer_root(p, buffer)];
    bool known = trmi_dtype_is_fast(b->dtype);
    bool placed = root->arena == TRMI_ARENA_ACTIVATION || root->arena == TRMI_ARENA_COOPERATIVE;
    return known && placed && root->bytes == b->bytes && b->bytes % LINE == 0;
}

bool trmi_cooperative_is_worth_it(int64_t gradient, int64_t factors) {
    return gradient >= LEAST && gradient >= TIMES * factors;
}

/* Applies trmi_cooperative_is_worth_it() to a step. */
static bool is_worth_it(const trm_program *p, const trmi_step *s) {
    return trmi_cooperative_is_worth_it(p->buffers[s->outputs[0]].bytes,
                                        p->buffers[s->inputs[0]].bytes +
                                            p->buffers[s->inputs[1]].bytes);
}

/* Moves the cooperative steps after all other steps; both keep their order. */
static trm_status move_to_end(trm_program *p, int32_t cooperative, trm_error *err) {
    trmi_step *last = trmi_alloc((size_t)(cooperative + 1) * sizeof *last);
    int32_t kept = 0, moved = 0;
    if (last == NULL) {
        return TRMI_NO_MEMORY(err, "to order steps");
    }
    for (int32_t i = 0; i < p->steps_count; i++) {
        if (p->steps[i].cooperative) {
            last[moved++] = p->steps[i];
        } else {
            p->steps[kept++] = p->steps[i];
        }
    }
    memcpy(p->steps + kept, last, (size_t)moved * sizeof *last);
    p->cooperative_begin = kept;
    trmi_free(last);
    return TRM_OK;
}

/* Contract in plan/passes/pass.h. Marks the weight gradients that the ranks of a host compute
 * together, and moves their two inputs to the arena COOPERATIVE, which all ranks map. The marked
 * steps go after all others: their inputs must be complete on all ranks. */
trm_status trmi_lower_cooperative(trm_program *p, const trmi_plan_options *options,
                                  trm_error *err) {
    int32_t cooperative = 0;
    p->cooperative_begin = p->steps_count;
    p->cooperative_ranks = 1;
    const trmi_mesh *mesh = options->partition != NULL ? &options->partition->mesh : NULL;
    uint32_t axes = mesh != NULL ? (1u << mesh->axes) - 1 : 0;
    if (options->cooperative_ranks < 2 || !options->target->cooperative || !p->training ||
        trmi_seed_buffer(p) == 0 || (mesh != NULL && !p->by_samples)) {
        return TRM_OK;
    }
    /* mark the steps and move their inputs to arena COOPERATIVE */
    for (int32_t i = 0; i < p->steps_count; i++) {
        trmi_step *s = &p->steps[i];
        s->cooperative = is_sum_over_rows(p, s, options->cooperative_products) &&
                         is_gradient(p, s->outputs[0], axes) && may_be_shared(p, s->inputs[0]) &&
                         may_be_shared(p, s->inputs[1]) && is_worth_it(p, s);
        if (s->cooperative) {
            p->buffers[trmi_buffer_root(p, s->inputs[0])].arena = TRMI_ARENA_COOPERATIVE;
            p->buffers[trmi_buffer_root(p, s->inputs[1])].arena = TRMI_ARENA_COOPERATIVE;
            cooperative++;
        }
    }
    p->cooperative_ranks = cooperative > 0 ? options->cooperative_ranks : 1;
    return cooperative > 0 ? move_to_end(p, cooperative, err) : TRM_OK;
}

/* Contract in program.h. */
bool trmi_param_is_cooperative(const trm_program *p, const trmi_param *param) {
    return param->grad_buffer != 0 && param->ready_step >= p->cooperative_begin &&
           param->ready_step < p->steps_count;
}
