/* SPDX-License-Identifier: Apache-2.0 */
/* After a NaN: the steps once more, one by one, looking at what each makes. Slow, and only then. */
#include "exec/exec.h"

#include "base/error.h"
#include "base/half.h"

#include <math.h>

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

static bool buffer_finite(const trm_exec *exec, const trmi_kernel_env *env, int32_t index) {
    const trmi_buffer *b = &exec->program->buffers[index];
    return index == 0 || all_finite(env->arena[b->arena] + b->offset, b->dtype,
                                    b->bytes / (int64_t)trm_dtype_bytes(b->dtype));
}

static trm_status look_at_leaves(const trm_exec *exec, const trmi_kernel_env *env, trm_error *err) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; i < p->inputs_count; i++) {
        if (!buffer_finite(exec, env, p->inputs[i])) {
            return TRMI_FAIL(err, TRM_DIVERGED, "input '%s' holds NaN or infinity",
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

static trm_status look_at_step(const trm_exec *exec, const trmi_kernel_env *env,
                               const trmi_step *step, trm_error *err) {
    for (int32_t j = 0; j < step->outputs_count; j++) {
        if (!buffer_finite(exec, env, step->outputs[j])) {
            return TRMI_FAIL(err, TRM_DIVERGED,
                             "NaN or infinity first appears in the %s of '%s' (%s); lower the "
                             "learning rate or clip gradients",
                             step->phase == TRMI_FORWARD ? "output" : "gradient", step->name,
                             step->kind == TRMI_STEP_OP ? trmi_op_table[step->op_kind]->name
                                                        : "reorder");
        }
    }
    return TRM_OK;
}

/* The first place in any block of this rank's batch. */
static trm_status look_at_blocks(const trm_exec *exec, int32_t step, trm_error *err) {
    trm_status found = TRM_OK;
    for (int32_t v = 0; v < exec->blocks && found == TRM_OK; v++) {
        trmi_kernel_env env = trmi_distribution_environment(exec, v, step < 0 ? 0 : step);
        found = step < 0 ? look_at_leaves(exec, &env, err)
                         : look_at_step(exec, &env, &exec->program->steps[step], err);
    }
    return found;
}

/* The first place on this rank, or TRM_OK. With many ranks all steps run on all of them: some
 * kernels wait for each other. */
static trm_status look(trm_exec *exec, trm_error *err) {
    trm_status found = look_at_blocks(exec, -1, err);
    /* The steps behind joint_begin read what other ranks' samples made, too. */
    for (int32_t i = 0; i < exec->program->joint_begin; i++) {
        if (found == TRM_DIVERGED && exec->ways_count == 0) {
            break;
        }
        TRMI_TRY(exec->walk(exec, i, i + 1, found == TRM_OK ? err : NULL));
        if (found == TRM_OK) {
            found = look_at_blocks(exec, i, err);
        }
    }
    return found;
}

/* Of many ranks: what this one found, or that another one did; OK: none of them. */
static trm_status compare(trm_exec *exec, trm_status found, trm_error *err) {
    int32_t first;
    trm_error broken;
    trm_status status = trmi_distribution_first(exec, found == TRM_DIVERGED, &first, &broken);
    if (found == TRM_DIVERGED) {
        return found;
    }
    if (status != TRM_OK) {
        return TRMI_FAIL(err, status, "%s", broken.message);
    }
    return first < 0
               ? TRM_OK
               : TRMI_FAIL(err, TRM_DIVERGED,
                           "NaN or infinity in a gradient of rank %d, which says where", first);
}

/* What was made of all ranks' samples, where those were in order: this rank's slices, as they are.
 */
static trm_status look_at_joint(const trm_exec *exec, trm_error *err) {
    trm_status found = TRM_OK;
    for (int32_t i = exec->program->joint_begin; i < exec->program->steps_count && found == TRM_OK;
         i++) {
        found = look_at_step(exec, &exec->env, &exec->program->steps[i], err);
    }
    return found;
}

trm_status trmi_exec_find_nonfinite(trm_exec *exec, trm_error *err) {
    trm_status found = look(exec, err);
    if (found != TRM_OK && found != TRM_DIVERGED) {
        return found;
    }
    found = compare(exec, found, err);
    if (found == TRM_OK && exec->program->joint_begin < exec->program->steps_count) {
        found = compare(exec, look_at_joint(exec, err), err);
    }
    return found != TRM_OK
               ? found
               : TRMI_FAIL(
                     err, TRM_DIVERGED,
                     "NaN or infinity in a gradient, which did not show again when the step was "
                     "repeated");
}
