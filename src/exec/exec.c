/* SPDX-License-Identifier: Apache-2.0 */
/* The training step of an executor, with its inputs and outputs:
 *
 *      trm_exec_feed --> inputs          trm_exec_input, trm_exec_feed
 *            |
 *      forward, backward                 trm_exec_forward_backward; steps and actions: exec_run.c
 *            |
 *      loss, outputs, gradients          trm_exec_loss, trm_exec_output, trm_exec_ranges
 *            |
 *      update                            exec_update.c
 *
 * exec_create.c makes and destroys an executor, exec_variables.c reads and writes its variables.
 * One thread at a time uses an executor. After creation a step allocates nothing. */
#include "exec/exec.h"
#include "exec/threads.h"

#include "exec/convert.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <string.h>

/* ---- run ------------------------------------------------------------------------------------- */

trm_status trm_exec_forward(trm_exec *exec, trm_error *err) {
    TRMI_NEED(err, exec);
    trmi_threads_use(exec->env.threads);
    TRMI_TRY(trmi_distribution_before_step(exec, false, err));
    if (exec->casts_of != NULL && exec->casts_of->made != NULL) { /* the other program has run */
        exec->made = exec->kept;
    }
    TRMI_TRY(exec->walk(exec, 0, exec->program->backward_begin, err));
    exec->made = exec->kept != NULL ? exec->kept : exec->made;
    return trmi_distribution_finish_forward(exec, err);
}

/* Adds the gradients of this batch, divided by the number of batches, to the accumulator. Does
 * nothing where batches are not accumulated; does not add where a way has added them already, or
 * adds those of all batches with the last. */
static void accumulate_gradients(trm_exec *exec) {
    if (exec->accumulator == NULL) {
        return;
    }
    if (!exec->adds_up && !exec->together) {
        trmi_update_accumulate(exec->accumulator, (const float *)exec->env.arena[TRMI_ARENA_GRAD],
                               exec->program->arena_bytes[TRMI_ARENA_GRAD] / (int64_t)sizeof(float),
                               1.0f / (float)exec->accumulate, exec->accumulated == 0);
    }
    exec->accumulated++;
}

trm_status trm_exec_forward_backward(trm_exec *exec, trm_error *err) {
    TRMI_NEED(err, exec);
    if (!exec->program->training) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "forward_backward needs a training graph and a loss; use trm_exec_forward");
    }
    /* The ways end every step, also a failed one, so that no collective stays open. */
    trmi_threads_use(exec->env.threads);
    double begin = trmi_os_now();
    trm_error own; /* the other ranks get the error even if the caller passes NULL */
    err = err != NULL ? err : &own;
    trm_status status = trmi_distribution_before_step(exec, true, err);
    status = status == TRM_OK ? exec->walk_program(exec, err) : status;
    TRMI_TRY(trmi_distribution_finish_backward(exec, status, err));
    trmi_exec_multiply_factors(exec);
    exec->step_seconds += trmi_os_now() - begin;
    accumulate_gradients(exec);
    return TRM_OK;
}

/* ---- feed and read --------------------------------------------------------------------------- */

int32_t trmi_exec_input_index(const trm_exec *exec, const char *name) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; i < p->inputs_count; i++) {
        if (strcmp(p->buffers[p->inputs[i]].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

trm_status trm_exec_input(trm_exec *exec, const char *name, trm_tensor *out, trm_error *err) {
    TRMI_NEED(err, exec, name, out);
    int32_t index = trmi_exec_input_index(exec, name);
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

trm_status trm_exec_feed(trm_exec *exec, const char *name, const trm_tensor *tensor,
                         trm_error *err) {
    TRMI_NEED(err, exec, name, tensor);
    trm_tensor place;
    TRMI_TRY(trm_exec_input(exec, name, &place, err));
    if (place.dtype != tensor->dtype || !trm_shape_equal(&place.shape, &tensor->shape)) {
        char want[96], have[96];
        return TRMI_FAIL(
            err, TRM_INVALID, "input '%s': %s %s expected, %s %s fed", name,
            trm_shape_format(&place.shape, want, sizeof want), trm_dtype_name(place.dtype),
            trm_shape_format(&tensor->shape, have, sizeof have), trm_dtype_name(tensor->dtype));
    }
    if (!trmi_distribution_feed(exec, trmi_exec_input_index(exec, name), &place, tensor->data)) {
        memcpy(place.data, tensor->data, (size_t)trm_tensor_bytes(tensor));
    }
    return TRM_OK;
}

float trmi_exec_own_loss(const trm_exec *exec) {
    const trm_program *p = exec->program;
    float loss = 0;
    if (exec->own_loss != NULL) {
        return *exec->own_loss;
    }
    if (p->outputs_count > 0 && p->outputs[0] != 0) {
        const trmi_buffer *b = &p->buffers[p->outputs[0]];
        trmi_convert_to_float(exec->env.arena[b->arena] + b->offset, b->dtype, &loss, 1);
    }
    return loss;
}

float trm_exec_loss(const trm_exec *exec) {
    TRMI_NEED_OR(0, NULL, exec);
    return exec->loss != NULL ? *exec->loss : trmi_exec_own_loss(exec);
}

/* Contract in trireme/exec.h. Output 0 of the program is the loss, so outputs of the caller begin
 * at 1. */
trm_status trm_exec_output(trm_exec *exec, int32_t index, trm_tensor *out, trm_error *err) {
    TRMI_NEED(err, exec, out);
    const trm_program *p = exec->program;
    if (index < 0 || index + 1 >= p->outputs_count) {
        return TRMI_FAIL(err, TRM_INVALID, "output %d: the executor was made with %d outputs",
                         index, p->outputs_count - 1);
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

uint64_t trm_exec_step(const trm_exec *exec) {
    TRMI_NEED_OR(0, NULL, exec);
    return exec->env.step;
}
void trm_exec_set_step(trm_exec *exec, uint64_t step) {
    TRMI_NEED_OR(, NULL, exec);
    exec->env.step = step;
}

void trmi_exec_set_flag(trm_exec *exec, trmi_exec_flag which, bool raised) {
    exec->raised[which] = raised;
}

void trm_exec_ranges(trm_exec *exec, float **parameters, float **gradients, int64_t *count) {
    TRMI_NEED_OR(, NULL, exec, parameters, gradients, count);
    exec->parameters_handed_out = true;
    trmi_exec_parameters_changed(exec);
    exec->gradients_handed_out = true;
    trmi_exec_multiply_factors(exec); /* if this call is between backward and update */
    *parameters = (float *)exec->env.arena[TRMI_ARENA_PARAM];
    *gradients =
        exec->accumulator != NULL ? exec->accumulator : (float *)exec->env.arena[TRMI_ARENA_GRAD];
    *count = exec->program->arena_bytes[TRMI_ARENA_GRAD] / (int64_t)sizeof(float);
}
