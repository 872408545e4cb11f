/* SPDX-License-Identifier: Apache-2.0 */
/* Times each program step and the optimiser (trm_exec_profile, `trireme bench ops`), in the order
 * of training, so that each step meets the caches as in training.
 *
 *      repeats x [ step 0 | step 1 | ... | update ]  --> median of each step and of the whole
 *                 ^ a sample of the machine's peak arithmetic, 20 times a second
 *
 * A row also has the bytes that are read and written, and the bytes that other steps touch between
 * two uses of its inputs, from which the caller computes the time that the machine's peak would
 * allow. */
#include "exec/exec.h"
#include "exec/measure/peak.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/os.h"
#include "base/stop.h"

/* Returns how many steps have the same operator, input shapes and layouts, and output shape as
 * `step`, and in *first the first of them. Reports group such steps. */
static int32_t equal_steps(const trm_program *p, const trmi_step *step, int32_t *first) {
    int32_t same = 0;
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *other = &p->steps[i];
        bool equal = other->kind == step->kind && other->op_kind == step->op_kind &&
                     other->inputs_count == step->inputs_count;
        for (int32_t j = 0; equal && j < step->inputs_count; j++) {
            const trmi_buffer *a = &p->buffers[step->inputs[j]], *b = &p->buffers[other->inputs[j]];
            equal = (step->inputs[j] == 0) == (other->inputs[j] == 0) &&
                    (step->inputs[j] == 0 ||
                     (trm_shape_equal(&a->shape, &b->shape) && a->layout == b->layout));
        }
        if (equal && step->outputs[0] != 0 && other->outputs[0] != 0) {
            equal = trm_shape_equal(&p->buffers[step->outputs[0]].shape,
                                    &p->buffers[other->outputs[0]].shape);
        }
        *first = equal && same == 0 ? i : *first;
        same += equal;
    }
    return same;
}

/* Returns whether a step reads or writes the memory of buffer `b`. */
static bool step_uses_buffer(const trm_program *p, const trmi_step *step, const trmi_buffer *b) {
    for (int32_t i = 0; i < step->inputs_count + step->outputs_count; i++) {
        int32_t other =
            i < step->inputs_count ? step->inputs[i] : step->outputs[i - step->inputs_count];
        if (other != 0 && p->buffers[other].arena == b->arena &&
            p->buffers[other].offset == b->offset) {
            return true;
        }
    }
    return false;
}

/* Returns the bytes that are touched between the previous use of an input and this step: the
 * maximum over the inputs that are at least half as large as the largest. Whether they fit in a
 * cache tells where the input is read from. Training repeats the program, so the search continues
 * from the last step. */
static double reuse_bytes(const trm_program *p, int32_t index) {
    const trmi_step *step = &p->steps[index];
    int64_t largest = 0;
    double farthest = 0;
    for (int32_t i = 0; i < step->inputs_count; i++) {
        largest = trmi_max_i64(largest, p->buffers[step->inputs[i]].bytes);
    }
    for (int32_t i = 0; i < step->inputs_count; i++) {
        const trmi_buffer *b = &p->buffers[step->inputs[i]];
        if (step->inputs[i] == 0 || 2 * b->bytes < largest) {
            continue;
        }
        double bytes = step->cost.bytes;
        /* Walk back to the last step that used the buffer, adding what the steps between touch. */
        for (int32_t back = 1; back < p->steps_count; back++) {
            const trmi_step *before = &p->steps[(index - back + p->steps_count) % p->steps_count];
            if (step_uses_buffer(p, before, b)) {
                break;
            }
            bytes += before->cost.bytes;
        }
        farthest = bytes > farthest ? bytes : farthest;
    }
    return farthest;
}

/* Returns the bytes of all outputs of a step, at most its predicted traffic. */
static double written_bytes(const trm_program *p, const trmi_step *step) {
    double bytes = 0;
    for (int32_t i = 0; i < step->outputs_count; i++) {
        bytes += step->outputs[i] != 0 ? (double)p->buffers[step->outputs[i]].bytes : 0;
    }
    return bytes < step->cost.bytes ? bytes : step->cost.bytes;
}

/* The times of one profile: times[row][run] of each step, wholes[run] of all steps together. */
typedef struct stopwatch {
    trm_exec *exec;
    trm_meter *beside;
    double *times, *wholes;
    bool *left; /* [steps] whether the last run of a step has left its output as it was */
    double sampled, sampling; /* time of the last sample; seconds of samples in this run */
    int32_t rows;
    int repeats;
    bool update;
    const int32_t *stop; /* the caller's */
} stopwatch;

/* Samples are rare because, while one runs, processes that share the caches evict the data of the
 * program. A sample after each operator made operators a tenth slower. */
static const double between_samples = 0.05; /* seconds */

/* Returns the time of the calling thread: CPU time where the program has one thread and one rank,
 * which other processes do not disturb; else wall-clock time. */
static double profile_clock(const trm_exec *exec) {
    return exec->threads == 1 && exec->ways_count == 0 ? trmi_os_thread_now() : trmi_os_now();
}

/* Samples the machine's arithmetic if the last sample is older than between_samples; `now`:
 * time. */
static void sample_between(stopwatch *w, double now) {
    if (w->beside != NULL && now > w->sampled + between_samples) {
        trmi_meter_sample_arithmetic(w->beside);
        w->sampled = profile_clock(w->exec);
        w->sampling += w->sampled - now;
    }
}

/* Runs the executor's own actions after backward. Ways' actions there start collectives, which a
 * profile does not run, and of accumulated batches only the last one has them; the sum of
 * accumulated batches stays as it is. */
static trm_status run_own_actions(trm_exec *exec, trm_error *err) {
    for (int32_t i = 0; i < exec->actions_count && exec->accumulator == NULL; i++) {
        const trmi_action *action = &exec->actions[i];
        if (action->before == exec->program->steps_count && !action->last_only) {
            TRMI_TRY(action->run(exec, action->item, err));
        }
    }
    return TRM_OK;
}

/* Runs one training step, step by step, and records all times. */
static trm_status time_step(stopwatch *w, int run, trm_error *err) {
    double start = profile_clock(w->exec);
    int32_t steps = w->exec->program->steps_count;
    w->sampling = 0;
    for (int32_t i = 0; i < steps; i++) {
        const trmi_kernel *kernel = &w->exec->kernels[i];
        TRMI_TRY(trmi_stop_check(w->stop, "profile", err));
        w->left[i] = kernel->leaves != NULL && kernel->leaves(kernel, &w->exec->env);
        double begin = profile_clock(w->exec);
        TRMI_TRY(trmi_exec_run(w->exec, i, i + 1, err));
        double end = profile_clock(w->exec);
        w->times[(size_t)i * (size_t)w->repeats + (size_t)run] = end - begin;
        sample_between(w, end);
    }
    TRMI_TRY(run_own_actions(w->exec, err));
    w->exec->gradients_overwritten = w->exec->inputs_given = false; /* backward has run */
    if (w->update) {
        double begin = profile_clock(w->exec);
        TRMI_TRY(trm_exec_update(w->exec, 0, err));
        w->times[(size_t)steps * (size_t)w->repeats + (size_t)run] = profile_clock(w->exec) - begin;
    }
    w->wholes[run] = profile_clock(w->exec) - start - w->sampling;
    return TRM_OK;
}

/* Fills in the row of program step `i`, whose median is `seconds`. A step that leaves its output as
 * it is has neither operations nor bytes. */
static void describe_step(const stopwatch *w, int32_t i, double seconds, trm_step_profile *out) {
    const trm_program *p = w->exec->program;
    const trmi_step *step = &p->steps[i];
    const bool works = !w->left[i];
    const trmi_cost cost = works ? step->cost : (trmi_cost){0};
    int32_t first = i, same = equal_steps(p, step, &first);
    *out = (trm_step_profile){
        .name = step->name,
        .kind = trmi_step_kind_name(step),
        .algorithm = step->algorithm,
        .phase = step->phase == TRMI_FORWARD ? "forward" : "backward",
        .seconds = seconds,
        .flops = cost.flops,
        .bytes = cost.bytes,
        .written_bytes = works ? written_bytes(p, step) : 0,
        .first_bytes = cost.first_read + cost.first_written,
        .first_written_bytes = cost.first_written,
        .work_flops = works && step->work_flops > 0 ? step->work_flops : cost.flops,
        .work_float32 = works ? step->work_float32 : 0,
        .bfloat16 = step->inputs_count > 0 && p->buffers[step->inputs[0]].dtype == TRM_BFLOAT16,
        .reuse_bytes = works ? reuse_bytes(p, i) : 0,
        .same = same,
        .first_same = first};
}

/* Fills in the row of the optimiser, for the dense parameters: it reads parameters, gradients and
 * slots once and writes all but the gradients. */
static void describe_update(const trm_exec *exec, double seconds, trm_step_profile *out) {
    const trm_program *p = exec->program;
    double bytes = 0, step = 0, slots = trmi_update_slots(exec->update);
    /* Only parameters with a dense gradient count: rows of tables and factored gradients are
     * updated elsewhere. */
    for (int32_t i = 0; i < p->params_count; i++) {
        const trmi_param *param = &p->params[i];
        bool whole =
            param->grad_buffer != 0 && param->factor_left == 0 && !param->table && !param->remote;
        bytes += whole ? (double)p->buffers[param->param_buffer].bytes : 0;
    }
    for (int32_t i = 0; i < p->steps_count; i++) {
        step += p->steps[i].cost.bytes;
    }
    *out = (trm_step_profile){.name = "update",
                              .kind = "optimizer",
                              .phase = "update",
                              .seconds = seconds,
                              .flops = bytes / 4 * 2 * (1 + slots),
                              .work_flops = bytes / 4 * 2 * (1 + slots),
                              .bytes = bytes * (3 + 2 * slots),
                              .written_bytes = bytes * (1 + slots),
                              .reuse_bytes = step,
                              .same = 1,
                              .first_same = p->steps_count};
}

/* Contract in trireme/exec.h. The times of a step are the medians over the repeats, not the
 * minima, so that they add up to about the whole. */
trm_status trm_exec_profile(trm_exec *exec, const trm_profile_options *options,
                            trm_program_profile *out, trm_error *err) {
    TRMI_NEED(err, exec, out);
    const trm_program *p = exec->program;
    const trm_profile_options o = options != NULL ? *options : (trm_profile_options){0};
    stopwatch w = {.exec = exec,
                   .beside = o.beside,
                   .repeats = o.repeats < 1 ? 1 : o.repeats,
                   .stop = o.stop,
                   .sampled = profile_clock(exec)};
    w.update = o.update && p->training && !exec->updated_elsewhere && exec->accumulator == NULL;
    w.rows = p->steps_count + w.update;
    w.times = trmi_alloc((size_t)(w.rows + 1) * (size_t)w.repeats * sizeof *w.times);
    w.left = trmi_alloc((size_t)p->steps_count * sizeof *w.left);
    trmi_free(exec->profile);
    exec->profile = trmi_alloc((size_t)(w.rows + 1) * sizeof *exec->profile);
    trm_status status = TRM_OK;
    if (w.times == NULL || w.left == NULL || exec->profile == NULL) {
        status = TRMI_NO_MEMORY(err, "to profile");
        goto done;
    }
    /* times[rows][repeats], then wholes[repeats]: one allocation */
    w.wholes = w.times + (size_t)w.rows * (size_t)w.repeats;
    for (int r = 0; r < w.repeats; r++) {
        TRMI_TRY_GOTO(status, time_step(&w, r, err), done);
        if (o.beside != NULL) {
            trm_meter_sample(o.beside);
        }
    }
    /* The median of the repeats of each step; the update has the last row. */
    for (int32_t i = 0; i < w.rows; i++) {
        double seconds = trmi_median(w.times + (size_t)i * (size_t)w.repeats, w.repeats);
        if (i < p->steps_count) {
            describe_step(&w, i, seconds, &exec->profile[i]);
        } else {
            describe_update(exec, seconds, &exec->profile[i]);
        }
    }
    *out = (trm_program_profile){
        .steps = exec->profile, .count = w.rows, .seconds = trmi_median(w.wholes, w.repeats)};
done:
    trmi_free(w.times);
    trmi_free(w.left);
    return status;
}
