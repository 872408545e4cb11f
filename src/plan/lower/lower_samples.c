/* SPDX-License-Identifier: Apache-2.0 */
/* Split programs that cut nothing but samples run as data parallel's do: what they would ask other
 * ranks on the way is known, or can wait for what is agreed on behind forward
 * (exec/distributed/parallel_run.c):
 *
 *      loss    each rank's own samples' mean; the mean over ranks is the whole batch's, as all have as many
 *      weight  1 / samples of all ranks, as none is ignored
 */
#include "plan/passes/pass.h"
#include "plan/shard/sharding.h"

/* Has every rank an equal part of each input's samples, and nothing else? Then all have the same
 * steps: no operator moves values between ranks, so what began as samples remains samples. */
static bool is_split_by_samples(const trm_program *p, const trmi_mesh *mesh) {
    int64_t ranks = trmi_mesh_ranks(mesh);
    for (int64_t i = 1; i < p->graph->ops_count; i++) {
        if (p->graph->ops[i].kind == TRMI_OP_EXCHANGE ||
            p->graph->ops[i].kind == TRMI_OP_ALL_REDUCE) {
            return false;
        }
    }
    for (int32_t i = 0; i < p->leaves_count; i++) {
        const trmi_shard_leaf *leaf = &p->leaves[i];
        bool input = leaf->value != 0 &&
                     p->graph->ops[p->graph->values[leaf->value].op].kind == TRMI_OP_INPUT;
        for (int32_t a = 0; leaf->value != 0 && a < mesh->axes; a++) {
            if (leaf->spread.at[a] != (input ? TRMI_SPLIT : TRMI_WHOLE)) {
                return false;
            }
        }
        if (input && leaf->global.dim[0] % ranks != 0) {
            return false;
        }
    }
    return ranks > 1;
}

static bool is_read(const trm_program *p, int32_t buffer) {
    for (int32_t i = 0; i < p->steps_count; i++) {
        for (int32_t k = 0; k < p->steps[i].inputs_count; k++) {
            if (p->steps[i].inputs[k] != 0 &&
                trmi_buffer_root(p, p->steps[i].inputs[k]) == trmi_buffer_root(p, buffer)) {
                return true;
            }
        }
    }
    return false;
}

static bool is_asked_for(const trm_program *p, int32_t buffer) {
    bool asked = false;
    for (int32_t i = 1; i < p->outputs_count; i++) {
        asked = asked || p->outputs[i] == buffer;
    }
    return asked;
}

/* The loss itself, which nothing else is made of. */
static void keep_own_loss(trm_program *p, const trmi_mesh *mesh) {
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *s = &p->steps[i];
        bool loss = s->kind == TRMI_STEP_OP && s->op_kind == TRMI_OP_SOFTMAX_XENT &&
                    s->outputs[0] != 0 && s->outputs[0] == p->outputs[0];
        if (loss && s->attrs->xent.sync_classes == 0 && !s->attrs->xent.use_ignore_index &&
            !is_read(p, s->outputs[0]) && !is_asked_for(p, s->outputs[0])) {
            trmi_attrs *attrs = &p->graph->ops[s->op].attrs;
            attrs->xent.sync_samples = 0;
            attrs->xent.samples = p->buffers[s->inputs[0]].shape.dim[0] * trmi_mesh_ranks(mesh);
            p->own_loss = true;
        }
    }
}

void trmi_lower_samples(trm_program *p, const trmi_plan_options *options) {
    const trmi_shard_plan *plan = options->shard;
    p->by_samples = plan != NULL && p->training && is_split_by_samples(p, &plan->mesh);
    if (p->by_samples && !plan->exact && p->outputs_count > 0) {
        keep_own_loss(p, &plan->mesh);
    }
}
