/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups in a program that several passes and the executor use. */
#include "plan/lower/program.h"

#include "plan/partition/partition.h"
#include "plan/pipeline/stages.h"

#include <string.h>

int32_t trmi_buffer_root(const trm_program *p, int32_t buffer) {
    while (p->buffers[buffer].alias_of != 0) {
        buffer = p->buffers[buffer].alias_of;
    }
    return buffer;
}

int32_t trmi_seed_buffer(const trm_program *p) {
    for (int32_t i = 1; i < p->buffers_count; i++) {
        const trmi_buffer *b = &p->buffers[i];
        if (b->arena == TRMI_ARENA_CONSTANT && b->alias_of == 0 && b->dtype == TRM_FLOAT32 &&
            p->graph->ops[p->graph->values[b->value].op].attrs.constant.seed) {
            return i;
        }
    }
    return 0;
}

const trmi_partition_leaf *trmi_program_leaf(const trm_program *p, const char *name) {
    for (int32_t i = 0; i < p->leaves_count; i++) {
        if (strcmp(p->leaves[i].name, name) == 0) {
            return &p->leaves[i];
        }
    }
    return NULL;
}

/* Returns whether every rank has the whole parameter and its whole gradient. */
static bool is_whole_everywhere(const trm_program *p, const trmi_param *param) {
    uint32_t all = (1u << p->mesh_axes) - 1;
    const trmi_partition_leaf *leaf = trmi_program_leaf(p, p->buffers[param->param_buffer].name);
    bool summed = param->grad_axes == all || param->grad_axes == 0;
    bool whole = leaf != NULL && summed && param->factor_left == 0 && param->sparse_rows == 0 &&
                 !param->remote;
    for (int32_t i = 0; whole && i < TRMI_MESH_AXES; i++) {
        whole = leaf->spread.at[i] == TRMI_WHOLE;
    }
    return whole;
}

bool trmi_program_is_whole(const trm_program *p) {
    bool whole = p->training && p->params_count > 0;
    for (int32_t i = 0; whole && i < p->params_count; i++) {
        whole = is_whole_everywhere(p, &p->params[i]);
    }
    return whole;
}

bool trmi_program_is_frozen(const trm_program *p) {
    bool any = p->params_count > 0, trained = p->trained_count > 0;
    for (int32_t i = 0; p->staged != NULL && i < p->staged->leaves_count; i++) {
        const trmi_stage_leaf *leaf = &p->staged->leaves[i];
        trained = trained || (!leaf->state && !leaf->frozen);
    }
    return any && !trained;
}
