/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of weights that the ranks of a host make together instead of each its own:
 *
 *      each its own    rank r: dW(r) = dy(r)^T x(r)                     every dW(r) is written, and read to be summed
 *      jointly         rank r: some rows of  sum over q of dy(q)^T x(q)  x and dy are read where the ranks q have them
 *
 * Late layers of convolutional networks, and fully connected ones, have few pixels and many
 * weights: their x and dy are a fraction of dW. That they suffice is known of networks between
 * hosts (Xie et al. 2015, sufficient factors); here they are in memory that all reach, so that
 * nothing is sent, and each rank makes the rows whose weights it updates. The sum is longer and so
 * quicker, its order is fixed by shapes.
 *
 * Which ones is decided by shapes alone: bits do not depend on measurements. Their steps go behind
 * all others, so that the ranks meet once; what they read has no other's bytes and lives to the
 * end.
 */
#include "plan/passes/pass.h"
#include "plan/shard/sharding.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of dW from which it is worth it; how many times those of x and dy; x and dy of all ranks
 * are one tensor. */
enum { LEAST = 1 << 18, TIMES = 2, LINE = 64 };

/* Rows of x and dy lie one behind the other, so that those of all ranks do. */
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
    return products && s->op_kind == TRMI_OP_MATMUL && a->shape.rank == 2 &&
           s->attrs->matmul.transpose_a && !s->attrs->matmul.transpose_b &&
           s->attrs->matmul.columns == 0;
}

/* `axes`: over which the ranks' gradients are summed; 0 where nothing is split. */
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

static bool may_be_shared(const trm_program *p, int32_t buffer) {
    const trmi_buffer *b = &p->buffers[buffer], *root = &p->buffers[trmi_buffer_root(p, buffer)];
    bool known = b->dtype == TRM_FLOAT32 || b->dtype == TRM_BFLOAT16;
    bool placed = root->arena == TRMI_ARENA_ACTIVATION || root->arena == TRMI_ARENA_JOINT;
    return known && placed && root->bytes == b->bytes && b->bytes % LINE == 0;
}

bool trmi_joint_is_worth_it(int64_t gradient, int64_t factors) {
    return gradient >= LEAST && gradient >= TIMES * factors;
}

static bool is_worth_it(const trm_program *p, const trmi_step *s) {
    return trmi_joint_is_worth_it(p->buffers[s->outputs[0]].bytes,
                                  p->buffers[s->inputs[0]].bytes + p->buffers[s->inputs[1]].bytes);
}

/* Joint steps behind all others, both in their order. */
static trm_status move_behind(trm_program *p, int32_t joint, trm_error *err) {
    trmi_step *last = malloc((size_t)(joint + 1) * sizeof *last);
    int32_t kept = 0, moved = 0;
    if (last == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to order steps");
    }
    for (int32_t i = 0; i < p->steps_count; i++) {
        if (p->steps[i].joint) {
            last[moved++] = p->steps[i];
        } else {
            p->steps[kept++] = p->steps[i];
        }
    }
    memcpy(p->steps + kept, last, (size_t)moved * sizeof *last);
    p->joint_begin = kept;
    free(last);
    return TRM_OK;
}

trm_status trmi_lower_joint(trm_program *p, const trmi_plan_options *options, trm_error *err) {
    int32_t joint = 0;
    p->joint_begin = p->steps_count;
    p->joint_ranks = 1;
    const trmi_mesh *mesh = options->shard != NULL ? &options->shard->mesh : NULL;
    uint32_t axes = mesh != NULL ? (1u << mesh->axes) - 1 : 0;
    if (options->joint_ranks < 2 || !options->target->joint || !p->training ||
        trmi_seed_buffer(p) == 0 || (mesh != NULL && !p->by_samples)) {
        return TRM_OK;
    }
    for (int32_t i = 0; i < p->steps_count; i++) {
        trmi_step *s = &p->steps[i];
        s->joint = is_sum_over_rows(p, s, options->joint_products) &&
                   is_gradient(p, s->outputs[0], axes) && may_be_shared(p, s->inputs[0]) &&
                   may_be_shared(p, s->inputs[1]) && is_worth_it(p, s);
        if (s->joint) {
            p->buffers[trmi_buffer_root(p, s->inputs[0])].arena = TRMI_ARENA_JOINT;
            p->buffers[trmi_buffer_root(p, s->inputs[1])].arena = TRMI_ARENA_JOINT;
            joint++;
        }
    }
    p->joint_ranks = joint > 0 ? options->joint_ranks : 1;
    return joint > 0 ? move_behind(p, joint, err) : TRM_OK;
}
