/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that the ranks of a host make together (plan/lower/lower_joint.c says which, and why):
 *
 *      forward, backward   each rank its own x and dy, in its part of JOINT
 *      buckets             what each rank made by itself is summed
 *      meet                all x and dy are there
 *      joint steps         each rank the rows that its slice of the optimiser needs, from all samples
 *      update, meet        and JOINT may be written again
 *
 * What they make is the mean over all samples at once, so backward begins with 1/ranks
 * (exec_scale.c), and what each rank made by itself is added, not averaged.
 */
#include "exec/exec.h"
#include "exec/distributed/shard.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "comm/net/reserve.h"

int32_t trmi_joint_ranks(const trm_exec *exec, const trm_exec_options *options) {
    const trmi_parallel *p = exec->parallel;
    const trm_parallel_options *o = &options->parallel;
    bool alike = p != NULL && o->joint != TRM_JOINT_OFF &&
                 (p->shard != NULL ? p->shard->slices : o->shard_optimizer) &&
                 o->bucket == TRM_BUCKET_AUTO && !o->no_broadcast && o->layerwise_count == 0 &&
                 !o->exact && o->block == 0;
    bool once = options->lanes == 0 && options->arena_alloc == NULL && options->share == NULL &&
                exec->accumulate == 1 && !exec->updated_elsewhere && options->memory_bytes == 0;
    return alike && once && trm_comm_reaches_first(p->comm) ? p->size : 0;
}

void trmi_joint_place(trm_exec *exec) {
    trm_program *p = exec->program;
    for (int32_t i = 1; i < p->buffers_count; i++) {
        trmi_buffer *b = &p->buffers[i];
        b->offset += b->arena == TRMI_ARENA_JOINT ? exec->parallel->rank * b->bytes : 0;
    }
}

/* What this rank's slices have of a parameter's gradient, from the first element to the last. */
static trmi_joint_part part_of(const trm_exec *exec, const trmi_buffer *gradient) {
    const trmi_parallel *p = exec->parallel;
    int64_t first = gradient->offset / (int64_t)sizeof(float),
            end = first + gradient->bytes / (int64_t)sizeof(float);
    int64_t from = end, to = first;
    for (int32_t i = 0; i < p->ranges_count; i++) {
        const trmi_range *range = &p->ranges[i];
        int64_t begin = trmi_parallel_slice_begin(p, range),
                behind = begin + range->counts[p->rank];
        if (range->joint && !range->still && behind > first && begin < end && behind > begin) {
            from = trmi_min_i64(from, trmi_max_i64(begin, first));
            to = trmi_max_i64(to, trmi_min_i64(behind, end));
        }
    }
    return (trmi_joint_part){
        .rank = p->rank, .begin = from - first, .count = trmi_max_i64(to - from, 0)};
}

static trm_status make_nothing(const trmi_kernel *kernel, const trmi_kernel_env *env,
                               trm_error *err) {
    (void)kernel;
    (void)env;
    (void)err;
    return TRM_OK;
}

char *trmi_joint_gradients(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    size_t bytes = (size_t)p->arena_bytes[TRMI_ARENA_GRAD],
           used = bytes - (size_t)p->untouched_bytes;
    size_t end = used < bytes ? used : trmi_shared_resident(bytes);
    char *memory = trmi_parallel_reserve(exec->parallel, bytes, err);
    for (int32_t i = 0; i < p->params_count; i++) {
        size_t at = (size_t)p->buffers[p->params[i].param_buffer].offset;
        end = trmi_joint_makes(p, &p->params[i]) && at < end ? at : end;
    }
    if (memory != NULL) {
        trmi_comm_fill_shared(memory, end);
    }
    return memory;
}

/* Nobody here reads or writes others' slices; calibration did (parallel_buckets.c). */
static void take_slices(trm_exec *exec) {
    const trmi_parallel *p = exec->parallel;
    float *gradients = (float *)(void *)exec->env.arena[TRMI_ARENA_GRAD];
    for (int32_t i = 0; i < p->ranges_count; i++) {
        const trmi_range *range = &p->ranges[i];
        int64_t own = trmi_parallel_slice_begin(p, range), behind = own + range->counts[p->rank],
                end = range->begin + range->count;
        if (range->joint) {
            trmi_release_pages(gradients + range->begin,
                               (size_t)(own - range->begin) * sizeof *gradients);
            trmi_release_pages(gradients + behind, (size_t)(end - behind) * sizeof *gradients);
            trmi_comm_fill_shared(gradients + own, (size_t)(behind - own) * sizeof *gradients);
        }
    }
}

trm_status trmi_joint_bind(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    take_slices(exec);
    for (int32_t i = p->joint_begin; i < p->steps_count; i++) {
        trmi_kernel *kernel = &exec->kernels[i];
        trmi_joint_part part = part_of(exec, &p->buffers[p->steps[i].outputs[0]]);
        kernel->run = make_nothing;
        if (part.count > 0) {
            TRMI_TRY(exec->backend->bind_joint(exec->backend, kernel, &part, err));
        }
    }
    return TRM_OK;
}

trm_status trmi_joint_begin_step(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    if (!p->joint_read) { /* the last update's end was such a meeting, where there was one */
        return TRM_OK;
    }
    p->joint_read = false;
    return trmi_parallel_meet(p, "the next step", err);
}

trm_status trmi_joint_run(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    if (p->joint_begin == p->steps_count) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_parallel_meet(exec->parallel, "gradients of all ranks", err));
    exec->parallel->joint_read = true;
    return trmi_exec_run(exec, p->joint_begin, p->steps_count, err);
}
