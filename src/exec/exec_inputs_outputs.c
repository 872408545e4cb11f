/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs and outputs of an executor: the caller feeds inputs by name before a step (or writes to
 * them where they are), and reads outputs and the ranges of parameters and gradients after it.
 *
 *         trm_exec_input    name --> address of an input      trm_exec_feed copies to it
 *         trm_exec_output   index --> address of an output
 *         trm_exec_ranges   addresses of all parameters and all gradients
 *
 * Invariants: addresses were fixed at creation (arena + offset) and stay the same from step to
 * step. What is handed out is borrowed: the executor's next forward overwrites it. Where ranks cut
 * inputs among each other, the ways of training (exec/distributed) say what part is here. */
#include "exec/exec.h"

#include "exec/convert.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

int32_t trmi_exec_input_index(const trm_exec *exec, const char *name) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; i < p->inputs_count; i++) {
        if (strcmp(p->buffers[p->inputs[i]].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Finds the memory of an input. The error lists the inputs that the graph has, because a wrong name
 * is the most frequent mistake. trmi_distribution_input replaces address and shape where a way of
 * training keeps the caller's whole input elsewhere than the part that this rank computes. */
static trm_status find_input(trm_exec *exec, const char *name, int32_t *out_index, trm_tensor *out,
                             trm_error *err) {
    int32_t index = trmi_exec_input_index(exec, name);
    *out_index = index;
    if (index < 0) {
        trmi_text names = {0};
        const trm_program *p = exec->program;
        for (int32_t i = 0; i < p->inputs_count; i++) {
            trmi_text_printf(&names, "%s%s", i ? ", " : "", p->buffers[p->inputs[i]].name);
        }
        trm_status status = TRMI_FAIL(err, TRM_INVALID, "the graph has no input '%s'; it has: %s",
                                      name, names.data == NULL ? "none" : names.data);
        trmi_text_free(&names);
        return status;
    }
    const trmi_buffer *b = &exec->program->buffers[exec->program->inputs[index]];
    *out = (trm_tensor){
        .data = exec->env.arena[b->arena] + b->offset, .dtype = b->dtype, .shape = b->shape};
    trmi_distribution_input(exec, index, out);
    return TRM_OK;
}

/* Notes that an input has values, and that inputs may be those of the next batch. */
static void note_input(trm_exec *exec, int32_t index) {
    exec->inputs_given = true;
    exec->inputs_unknown -= !exec->inputs_known[index];
    exec->inputs_known[index] = true;
}

/* Contract in trireme/exec.h. The caller may write at once, also before the update. */
trm_status trm_exec_input(trm_exec *exec, const char *name, trm_tensor *out, trm_error *err) {
    TRMI_NEED(err, exec, name, out);
    int32_t index;
    TRMI_TRY(find_input(exec, name, &index, out, err));
    note_input(exec, index);
    return TRM_OK;
}

/* Contract in trireme/exec.h. A way of training that cuts the input takes its part of `tensor`
 * itself; without one the whole tensor is copied. */
trm_status trm_exec_feed(trm_exec *exec, const char *name, const trm_tensor *tensor,
                         trm_error *err) {
    TRMI_NEED(err, exec, name, tensor);
    int32_t index;
    trm_tensor place;
    TRMI_TRY(find_input(exec, name, &index, &place, err));
    if (place.dtype != tensor->dtype || !trm_shape_equal(&place.shape, &tensor->shape)) {
        char want[96], have[96];
        return TRMI_FAIL(
            err, TRM_INVALID, "input '%s': %s %s expected, %s %s fed", name,
            trm_shape_format(&place.shape, want, sizeof want), trm_dtype_name(place.dtype),
            trm_shape_format(&tensor->shape, have, sizeof have), trm_dtype_name(tensor->dtype));
    }
    note_input(exec, index);
    if (!trmi_distribution_feed(exec, index, &place, tensor->data)) {
        memcpy(place.data, tensor->data, (size_t)trm_tensor_bytes(tensor));
    }
    return TRM_OK;
}

/* Contract in trireme/exec.h. Output 0 of the program is the loss, so outputs of the caller begin
 * at 1. */
trm_status trm_exec_output(trm_exec *exec, int32_t index, trm_tensor *out, trm_error *err) {
    TRMI_NEED(err, exec, out);
    const trm_program *p = exec->program;
    if (index < 0 || index + 1 >= p->outputs_count) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "output %d: the executor was made with %d outputs, counted from 0", index,
                         p->outputs_count - 1);
    }
    const trmi_output *output = &exec->outputs[index + 1];
    if (output->buffer == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "output %d: another stage of the pipeline makes it",
                         index);
    }
    const trmi_buffer *b = &p->buffers[output->buffer];
    void *data = exec->env.arena[b->arena] + b->offset;
    *out = (trm_tensor){.data = data, .dtype = b->dtype, .shape = b->shape};
    /* An output in a 16-bit type is converted to float32 on each call, into memory taken at
     * creation. */
    if (output->copy != NULL) {
        trmi_convert_to_float(data, b->dtype, output->copy, trm_shape_count(&b->shape));
        out->data = output->copy;
        out->dtype = TRM_FLOAT32;
    }
    return TRM_OK;
}

/* Contract in trireme/exec.h. The caller may write to the ranges at any time from now on, so the
 * executor notes that they were handed out: casts of parameters that ranks share are computed
 * again, and each backward completes the gradients that the update would else take in factors. The
 * first call does so itself, in case it is between backward and update; a later one leaves what the
 * caller has written there. */
void trm_exec_ranges(trm_exec *exec, float **parameters, float **gradients, int64_t *count) {
    TRMI_NEED_OR(, NULL, exec, parameters, gradients, count);
    exec->parameters_handed_out = true;
    trmi_exec_parameters_changed(exec);
    if (!exec->gradients_handed_out) {
        trmi_exec_hand_out_gradients(exec);
    }
    *parameters = (float *)exec->env.arena[TRMI_ARENA_PARAM];
    *gradients = trmi_exec_gradient_range(exec);
    *count = exec->program->arena_bytes[TRMI_ARENA_GRAD] / (int64_t)sizeof(float);
}
