/* SPDX-License-Identifier: Apache-2.0 */
/* This rank's part of a variable: which part, where it is, reading and writing. Callers pass plain
 * layout; the functions convert to and from the layout that the program chose. */
#include "exec/exec.h"

#include "exec/convert.h"

const trmi_partition_leaf *trmi_exec_cut_of(const trm_exec *exec, int32_t variable) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[variable]];
    const trmi_partition_leaf *leaf =
        trmi_exec_is_elsewhere(exec, variable) ? NULL : trmi_program_leaf(exec->program, b->name);
    if (leaf == NULL) {
        return NULL;
    }
    trmi_box whole = trmi_box_whole(&leaf->global);
    return trmi_box_equal(&whole, &leaf->box) ? NULL : leaf;
}

void *trmi_exec_variable_address(const trm_exec *exec, int32_t index) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    /* A slot lies at the offset of its parameter, in the optimiser's array. */
    int32_t slot = exec->variable_slots[index];
    if (slot < 0) {
        return exec->env.arena[b->arena] + b->offset;
    }
    return (char *)trmi_update_slot(exec->update, slot) + b->offset;
}

void trmi_exec_write_part(trm_exec *exec, int32_t index, const void *data) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    trmi_convert_layout(data, TRMI_PLAIN, trmi_exec_variable_address(exec, index), b->layout,
                        b->dtype, &b->shape, b->weights);
}

void trmi_exec_read_part(const trm_exec *exec, int32_t index, void *data) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    trmi_convert_layout(trmi_exec_variable_address(exec, index), b->layout, data, TRMI_PLAIN,
                        b->dtype, &b->shape, b->weights);
}
