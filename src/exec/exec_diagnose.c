/* SPDX-License-Identifier: Apache-2.0 */
/* Finds where NaN or infinity first appears, after the optimiser has measured a gradient norm that
 * is not finite. The training step is repeated one program step at a time, and the outputs of each
 * program step are checked. This is slow; it runs only when training fails anyway.
 *
 *      inputs, parameters --> each step before cooperative_begin --> compare ranks --> cooperative steps
 *
 * On several ranks all ranks run all steps, because some kernels wait for other ranks.
 *
 * The step cannot be repeated in a pipeline, and where the inputs may be those of the next batch
 * (trm_exec.inputs_given). The gradients are checked then, parameter by parameter. */
#include "exec/exec.h"

#include "base/error.h"
#include "base/format/half.h"

#include <math.h>

/* Returns whether all values of an array are finite. Integers always are. */
static bool all_finite(const void *data, trm_dtype dtype, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float value = 0;
        if (dtype == TRM_FLOAT32) {
            value = ((const float *)data)[i];
        } else if (dtype == TRM_BFLOAT16) {
            value = trmi_bf16_to_float(((const uint16_t *)data)[i]);
        } else if (dtype == TRM_FLOAT16) {
            value = trmi_f16_to_float(((const uint16_t *)data)[i]);
        }
        if (!isfinite(value)) {
            return false;
        }
    }
    return true;
}

/* Returns whether all values of buffer `index` in the arenas of `env` are finite, padding included;
 * buffer 0 is absent. */
static bool buffer_finite(const trm_exec *exec, const trmi_kernel_env *env, int32_t index) {
    const trmi_buffer *b = &exec->program->buffers[index];
    return index == 0 || all_finite(env->arena[b->arena] + b->offset, b->dtype,
                                    b->bytes / (int64_t)trm_dtype_bytes(b->dtype));
}

/* Checks what the program reads: inputs first, then parameters. */
static trm_status check_leaves(const trm_exec *exec, const trmi_kernel_env *env, trm_error *err) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; i < p->inputs_count; i++) {
        if (!buffer_finite(exec, env, p->inputs[i])) {
            return TRMI_FAIL(err, TRM_DIVERGED,
                             "input '%s' holds NaN or infinity; finite data expected",
                             p->buffers[p->inputs[i]].name);
        }
    }
    for (int32_t i = 0; i < p->params_count; i++) {
        if (!buffer_finite(exec, env, p->params[i].param_buffer)) {
            return TRMI_FAIL(err, TRM_DIVERGED, "parameter '%s' holds NaN or infinity",
                             p->params[i].name);
        }
    }
    return TRM_OK;
}

/* Checks the outputs of one program step. */
static trm_status check_step(const trm_exec *exec, const trmi_kernel_env *env,
                             const trmi_step *step, trm_error *err) {
    for (int32_t j = 0; j < step->outputs_count; j++) {
        if (!buffer_finite(exec, env, step->outputs[j])) {
            return TRMI_FAIL(err, TRM_DIVERGED,
                             "NaN or infinity first appears in the %s of '%s' (%s); lower the "
                             "learning rate or clip gradients",
                             step->phase == TRMI_FORWARD ? "output" : "gradient", step->name,
                             trmi_step_kind_name(step));
        }
    }
    return TRM_OK;
}

/* Repeats the step on this rank. Returns DIVERGED with the first place that is not finite, or OK.
 * A rank of several continues after it has found the place, because kernels of other ranks may
 * wait for its kernels; a single rank stops there. */
static trm_status repeat_and_check_steps(trm_exec *exec, trm_error *err) {
    trm_status found = check_leaves(exec, &exec->env, err);
    /* The steps from cooperative_begin on also read activations of other ranks;
     * check_cooperative_steps checks them after all ranks have compared their results. */
    for (int32_t i = 0; i < exec->program->cooperative_begin; i++) {
        if (found == TRM_DIVERGED && exec->ways_count == 0) {
            break;
        }
        TRMI_TRY(exec->walk(exec, i, i + 1, found == TRM_OK ? err : NULL));
        if (found == TRM_OK) {
            found = check_step(exec, &exec->env, &exec->program->steps[i], err);
        }
    }
    return found;
}

/* Combines the results of all ranks; collective. Returns this rank's own DIVERGED with its place,
 * else DIVERGED with the number of the first rank that found one, else OK. */
static trm_status combine_rank_results(trm_exec *exec, trm_status found, trm_error *err) {
    int32_t first;
    trm_error broken;
    trm_status status =
        trmi_distribution_agree(exec, false, found == TRM_DIVERGED, &first, &broken);
    if (found == TRM_DIVERGED) {
        return found;
    }
    if (status != TRM_OK) {
        return TRMI_FAIL(err, status, "%s", broken.message);
    }
    return first < 0 ? TRM_OK
                     : TRMI_FAIL(err, TRM_DIVERGED,
                                 "NaN or infinity in a gradient of rank %d, see the message of "
                                 "that rank for the place",
                                 first);
}

/* Checks the outputs of the cooperative steps (from cooperative_begin on), which hold this rank's
 * rows of gradients over the samples of all ranks. The steps are not repeated: the buffers still
 * hold the results of the failed training step. */
static trm_status check_cooperative_steps(const trm_exec *exec, trm_error *err) {
    trm_status found = TRM_OK;
    for (int32_t i = exec->program->cooperative_begin;
         i < exec->program->steps_count && found == TRM_OK; i++) {
        found = check_step(exec, &exec->env, &exec->program->steps[i], err);
    }
    return found;
}

/* Returns whether the gradient of parameter `param` is finite: its rows, its factors, or the
 * gradient itself. */
static bool gradient_finite(const trm_exec *exec, const trmi_param *param) {
    const trmi_buffer *b = &exec->program->buffers[param->param_buffer];
    if (param->sparse_rows != 0) {
        return buffer_finite(exec, &exec->env, param->sparse_rows);
    }
    if (param->factor_left != 0 && !exec->gradients_handed_out) {
        return buffer_finite(exec, &exec->env, param->factor_left) &&
               buffer_finite(exec, &exec->env, param->factor_right);
    }
    return all_finite((const char *)trmi_exec_gradient_range(exec) + b->offset, TRM_FLOAT32,
                      b->bytes / (int64_t)sizeof(float));
}

/* Names the first parameter of this rank whose gradient is not finite. */
static trm_status check_gradients(const trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; i < p->trained_count; i++) {
        if (!gradient_finite(exec, &p->params[i])) {
            return TRMI_FAIL(err, TRM_DIVERGED,
                             "NaN or infinity in the gradient of '%s'; lower the learning rate or "
                             "clip gradients",
                             p->params[i].name);
        }
    }
    return TRM_OK;
}

/* Contract in exec.h. The step is repeated, kernel by kernel, to find the operator whose output
 * is not finite; that needs the same inputs on all ranks, so where a rank has been given those of
 * the next batch only the gradients are looked at. */
trm_status trmi_exec_find_nonfinite(trm_exec *exec, trm_error *err) {
    int32_t given; /* the first rank whose inputs may be those of the next batch */
    TRMI_TRY(trmi_distribution_agree(exec, false, exec->inputs_given, &given, err));
    const bool repeats = exec->program->staged == NULL && given < 0;
    trm_status found = repeats ? repeat_and_check_steps(exec, err) : check_gradients(exec, err);
    if (found != TRM_OK && found != TRM_DIVERGED) {
        return found;
    }
    found = combine_rank_results(exec, found, err);
    if (found == TRM_OK && exec->program->cooperative_begin < exec->program->steps_count) {
        found = combine_rank_results(exec, check_cooperative_steps(exec, err), err);
    }
    return found != TRM_OK
               ? found
               : TRMI_FAIL(err, TRM_DIVERGED, "NaN or infinity in a gradient%s",
                           repeats ? ", which did not show again when the step was repeated"
                                   : "; lower the learning rate or clip gradients");
}
