/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises partitioned programs that cut nothing but samples. These run as data parallel training
 * does: what other ranks would contribute during forward is known, or can be exchanged after
 * forward (exec/distributed/reduction.c).
 *
 *      loss    mean over the rank's own samples; all ranks have equally many, so the mean over ranks is that of the batch
 *      weight  1 / samples of all ranks, as no label is ignored */
#include "plan/passes/pass.h"
#include "plan/partition/partition.h"

/* Returns whether every rank has an equal part of each input's samples and everything else whole.
 * Then all ranks have the same steps: no operator moves values between ranks. */
static bool is_split_by_samples(const trm_program *p, const trmi_mesh *mesh) {
    int64_t ranks = trmi_mesh_ranks(mesh);
    for (int64_t i = 1; i < p->graph->ops_count; i++) {
        if (p->graph->ops[i].kind == TRMI_OP_EXCHANGE ||
            p->graph->ops[i].kind == TRMI_OP_ALL_REDUCE) {
            return false;
        }
    }
    /* inputs are cut, all other leaves whole */
    for (int32_t i = 0; i < p->leaves_count; i++) {
        const trmi_partition_leaf *leaf = &p->leaves[i];
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

/* Returns whether a step reads the buffer or an alias of it. */
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

/* Returns whether the buffer is an output beside the loss. */
static bool is_asked_for(const trm_program *p, int32_t buffer) {
    bool asked = false;
    for (int32_t i = 1; i < p->outputs_count; i++) {
        asked = asked || p->outputs[i] == buffer;
    }
    return asked;
}

/* Makes the loss operator compute the loss of the rank's own samples, if no other operator reads
 * it. */
static void keep_own_loss(trm_program *p, const trmi_mesh *mesh) {
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *s = &p->steps[i];
        bool loss = s->kind == TRMI_STEP_OP && s->op_kind == TRMI_OP_SOFTMAX_XENT &&
                    s->outputs[0] != 0 && s->outputs[0] == p->outputs[0];
        if (loss && trmi_part_of(s->attrs)->class_axes == 0 && !s->attrs->xent.use_ignore_index &&
            !is_read(p, s->outputs[0]) && !is_asked_for(p, s->outputs[0])) {
            /* Change the record of the partition, in the arena of the program's graph. */
            trmi_op_part *part = (trmi_op_part *)(uintptr_t)trmi_part_of(s->attrs);
            part->sample_axes = 0;
            part->count = p->buffers[s->inputs[0]].shape.dim[0] * trmi_mesh_ranks(mesh);
            p->own_loss = true;
        }
    }
}

void trmi_lower_samples(trm_program *p, const trmi_plan_options *options) {
    const trmi_partition_plan *plan = options->partition;
    p->by_samples = plan != NULL && p->training && is_split_by_samples(p, &plan->mesh);
    if (p->by_samples && options->blocks == 0 && p->outputs_count > 0) {
        keep_own_loss(p, &plan->mesh);
    }
}
