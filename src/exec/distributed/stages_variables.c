/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of a pipeline. Every rank lists those of the whole graph; the stage that updates a
 * parameter (its owner) has its slots, and its values count.
 *
 *     variable            owner's stage         stage that also uses it      other stages
 *     parameter           updates it            has a copy                   nothing
 *     slot                has it                nothing                      nothing
 *
 *     publish  owner --> copies of a shared parameter, after its values have changed
 *     gather   owner --> the memory that each stage passes, for one variable
 *
 * All functions that send are collective within the pipeline: every stage calls them for the same
 * variables in the same order. */
#include "exec/distributed/stages.h"
#include "exec/exec.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* Returns the buffer of a parameter; NULL: this stage's program does not have it. */
static const trmi_buffer *parameter_named(const trm_program *p, const char *name) {
    for (int32_t i = 0; i < p->params_count; i++) {
        const trmi_buffer *b = &p->buffers[p->params[i].param_buffer];
        if (strcmp(b->name, name) == 0) {
            return b;
        }
    }
    return NULL;
}

/* The owner of a parameter sends it to the other stages that hold it. */
static trm_status send_one(trm_exec *exec, const trmi_stage_leaf *leaf, trm_error *err) {
    trmi_stages *s = trmi_stages_of(exec);
    const trmi_buffer *b = parameter_named(exec->program, leaf->name);
    trm_message messages[TRMI_STAGES_MAX];
    int32_t count = 0;
    /* This stage does not hold the parameter. */
    if (b == NULL) {
        return TRM_OK;
    }
    for (int32_t r = 0; r < s->options.stages; r++) {
        bool holds = (leaf->holders >> r & 1) != 0 && r != leaf->owner;
        if (holds && (s->options.stage == leaf->owner || s->options.stage == r)) {
            bool receive = s->options.stage == r;
            messages[count++] = (trm_message){.receive = receive,
                                              .peer = receive ? leaf->owner : r,
                                              .buffer = exec->env.arena[b->arena] + b->offset,
                                              .count = b->bytes,
                                              .dtype = TRM_UINT8,
                                              .tag = leaf->name};
        }
    }
    TRMI_TRY(count > 0 ? trm_comm_exchange(s->pipe, messages, count, err) : TRM_OK);
    /* Casts and packed weights of the old values are stale. */
    if (count > 0 && s->options.stage != leaf->owner) {
        trmi_exec_parameters_changed(exec);
    }
    return TRM_OK;
}

/* Returns whether this is a trained parameter that more than one stage holds: more than one bit
 * of `holders` is set. */
static bool is_shared(const trmi_stage_leaf *leaf) {
    return leaf->trained && !leaf->state && (leaf->holders & (leaf->holders - 1)) != 0;
}

/* Contract in stages.h. Values are sent in the order of the owner's memory, so it must be that of
 * all stages: TRMI_PLAIN. */
trm_status trmi_stages_check_shared(const trm_exec *exec, trm_error *err) {
    const trmi_staged *staged = exec->program->staged;
    for (int32_t i = 0; i < staged->leaves_count; i++) {
        const trmi_buffer *b = is_shared(&staged->leaves[i])
                                   ? parameter_named(exec->program, staged->leaves[i].name)
                                   : NULL;
        if (b != NULL && b->layout != TRMI_PLAIN) {
            return TRMI_FAIL(
                err, TRM_INVALID,
                "%s: two stages share it, and one of them keeps it in its kernel's order; "
                "let both uses be in one stage (trm_pipeline_options.begins)",
                b->name);
        }
    }
    return TRM_OK;
}

/* Contract in stages.h. One parameter after the other, in the order of the leaves, which is the
 * same on all stages. Slots have no copies. */
trm_status trmi_stages_publish(trm_exec *exec, bool slots, trm_error *err) {
    const trmi_staged *staged = exec->program->staged;
    for (int32_t i = 0; !slots && i < staged->leaves_count; i++) {
        const trmi_stage_leaf *leaf = &staged->leaves[i];
        if (is_shared(leaf)) {
            TRMI_TRY(send_one(exec, leaf, err));
        }
    }
    return TRM_OK;
}

/* Returns the stage whose values of a variable count. */
static int32_t owner_of(const trm_exec *exec, int32_t index) {
    const trmi_staged *staged = exec->program->staged;
    const char *name = exec->variables[index].name;
    for (int32_t i = 0; i < staged->leaves_count; i++) {
        size_t length = strlen(staged->leaves[i].name);
        bool slot = exec->variables[index].kind == TRM_VARIABLE_SLOT;
        if (strncmp(name, staged->leaves[i].name, length) == 0 &&
            name[length] == (slot ? '/' : '\0')) {
            return staged->leaves[i].owner;
        }
    }
    return 0;
}

/* Contract in stages.h. The stage has all elements of a variable or none, so the element does not
 * matter. */
void trmi_stages_hold(const trm_exec *exec, int32_t index, int64_t at, trmi_hold *hold) {
    (void)at;
    hold->mine = hold->mine && owner_of(exec, index) == trmi_stages_of(exec)->options.stage;
}

trm_status trmi_stages_gather(trm_exec *exec, int32_t index, const void *part, void *whole,
                              trm_error *err) {
    (void)part; /* the ranks of a stage have put theirs together in `whole` */
    const trm_variable *v = &exec->variables[index];
    return trm_comm_broadcast(trmi_stages_of(exec)->pipe, whole, trm_shape_count(&v->shape),
                              v->dtype, owner_of(exec, index), err);
}
