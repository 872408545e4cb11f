/* SPDX-License-Identifier: Apache-2.0 */
/* The way `cooperative`: each rank of a host computes some rows of the large weight gradients, from
 * the samples of all ranks (plan/lower/lower_cooperative.c chooses the gradients, and says why):
 *
 *      forward, backward   each rank its own x and dy, in its part of the arena COOPERATIVE
 *      buckets             the other gradients, which each rank has from its own samples, are summed
 *      meet                all ranks have written their x and dy
 *      cooperative steps   each rank computes the rows that its slice needs, from all samples
 *      update, meet        all ranks have read COOPERATIVE, which may be written again
 *
 * These gradients are the mean over all samples at once, so backward begins with 1/ranks
 * (exec->seed_share), and the other gradients are added, not averaged. */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "comm/shm/shared_buffers.h"

/* Returns how many ranks may compute cooperative gradients; 0 where options or hosts prevent it. */
int32_t trmi_cooperative_ranks(const trm_exec *exec, const trm_exec_options *options) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    const trm_parallel_options *o = &options->parallel;
    bool alike = p != NULL && o->cooperative != TRM_COOPERATIVE_OFF &&
                 (p->split != NULL ? p->split->slices : o->shard_optimizer) &&
                 o->bucket == TRM_BUCKET_AUTO && o->broadcast != TRM_OFF &&
                 o->layerwise_count == 0 && o->block == 0;
    bool once = options->blocks == 0 && options->parameters_of == NULL && exec->accumulate == 1 &&
                !exec->updated_elsewhere && options->memory_bytes == 0;
    return alike && once && trmi_comm_can_map_root(p->comm) ? p->size : 0;
}

/* Activates the way where options ask for cooperative gradients. */
static trm_status open_cooperative(trm_exec *exec, trm_exec_options *options, bool *active,
                                   trm_error *err) {
    (void)err;
    *active =
        trmi_parallel_of(exec) != NULL && options->parallel.cooperative != TRM_COOPERATIVE_OFF;
    return TRM_OK;
}

/* Sets the number of ranks that compute cooperative gradients, and of which operators, in the
 * options of the compiler. */
static trm_status plan_cooperative(trm_exec *exec, const trm_graph *graph,
                                   const trm_exec_options *options, trmi_plan_options *plan,
                                   trm_error *err) {
    (void)graph;
    (void)err;
    plan->cooperative_ranks = trmi_cooperative_ranks(exec, options);
    plan->cooperative_products = options->parallel.cooperative == TRM_COOPERATIVE_ALL;
    return TRM_OK;
}

/* Moves this rank's buffers of the arena COOPERATIVE after those of the ranks before it, and sets
 * the factor with which backward begins. */
static trm_status place_parts(trm_exec *exec, trm_error *err) {
    (void)err;
    trm_program *p = exec->program;
    for (int32_t i = 1; i < p->buffers_count; i++) {
        trmi_buffer *b = &p->buffers[i];
        b->offset +=
            b->arena == TRMI_ARENA_COOPERATIVE ? trmi_parallel_of(exec)->rank * b->bytes : 0;
    }
    bool mean = p->cooperative_ranks > 1 && !trmi_parallel_of(exec)->options.sum;
    exec->seed_share = mean ? 1 / (float)p->cooperative_ranks : 1;
    return TRM_OK;
}

/* Kernels of cooperative steps are bound once the ranks' slices are known (begin_cooperative). */
static trm_status bind_later(trm_exec *exec, trmi_kernel *kernel, trm_error *err) {
    (void)exec;
    (void)err;
    return kernel->step->cooperative ? TRM_OK : TRM_UNSUPPORTED;
}

/* Returns the part of a parameter's gradient that lies in this rank's slices. */
static trmi_cooperative_part part_of(const trm_exec *exec, const trmi_buffer *gradient) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    int64_t first = gradient->offset / (int64_t)sizeof(float),
            end = first + gradient->bytes / (int64_t)sizeof(float);
    int64_t from = end, to = first;
    for (int32_t i = 0; i < p->ranges_count; i++) {
        const trmi_range *range = &p->ranges[i];
        int64_t begin = trmi_parallel_slice_begin(p, range),
                behind = begin + range->counts[p->rank];
        if (range->cooperative && !range->always_zero && behind > first && begin < end &&
            behind > begin) {
            from = trmi_min_i64(from, trmi_max_i64(begin, first));
            to = trmi_max_i64(to, trmi_min_i64(behind, end));
        }
    }
    return (trmi_cooperative_part){
        .rank = p->rank, .begin = from - first, .count = trmi_max_i64(to - from, 0)};
}

/* Runs a cooperative step in which this rank has no rows: does nothing. */
static trm_status run_nothing(const trmi_kernel *kernel, const trmi_kernel_env *env,
                              trm_error *err) {
    (void)kernel;
    (void)env;
    (void)err;
    return TRM_OK;
}

/* Gives back the memory of the slices of other ranks, which this rank neither reads nor writes from
 * now on (the calibration in gradient_buckets.c has written them), and takes that of its own. */
static void keep_own_slices(trm_exec *exec) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    float *gradients = (float *)(void *)exec->env.arena[TRMI_ARENA_GRAD];
    for (int32_t i = 0; i < p->ranges_count; i++) {
        const trmi_range *range = &p->ranges[i];
        int64_t own = trmi_parallel_slice_begin(p, range), behind = own + range->counts[p->rank],
                end = range->begin + range->count;
        if (range->cooperative) {
            trmi_release_pages(gradients + range->begin,
                               (size_t)(own - range->begin) * sizeof *gradients);
            trmi_release_pages(gradients + behind, (size_t)(end - behind) * sizeof *gradients);
            trmi_comm_fill_shared(gradients + own, (size_t)(behind - own) * sizeof *gradients);
        }
    }
}

/* Waits before the first cooperative step until x and dy of all ranks are there. */
static trm_status meet_ranks(trm_exec *exec, int32_t item, trm_error *err) {
    (void)item;
    TRMI_TRY(trmi_parallel_meet(trmi_parallel_of(exec), "gradients of all ranks", err));
    trmi_parallel_of(exec)->cooperative_read = true;
    return TRM_OK;
}

/* Returns the bytes of cooperative gradients that this rank never touches: those of other ranks'
 * slices. */
static int64_t untouched_gradients(const trm_exec *exec) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    int64_t elements = 0;
    for (int32_t i = 0; i < p->ranges_count; i++) {
        const trmi_range *range = &p->ranges[i];
        elements += range->cooperative ? range->count - range->counts[p->rank] : 0;
    }
    return elements * (int64_t)sizeof(float);
}

/* Binds the kernel of each cooperative step to the rows of this rank's slices, and adds the meeting
 * before the first of them. */
static trm_status begin_cooperative(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    if (p->cooperative_ranks < 2) {
        return TRM_OK;
    }
    keep_own_slices(exec);
    exec->added.gradient_bytes -= untouched_gradients(exec);
    for (int32_t i = p->cooperative_begin; i < p->steps_count; i++) {
        trmi_kernel *kernel = &exec->kernels[i];
        trmi_cooperative_part part = part_of(exec, &p->buffers[p->steps[i].outputs[0]]);
        kernel->run = run_nothing;
        if (part.count > 0) {
            TRMI_TRY(exec->backend->bind_cooperative(exec->backend, kernel, &part, err));
        }
    }
    if (p->cooperative_begin < p->steps_count) {
        trmi_distribution_add(exec,
                              (trmi_action){.before = p->cooperative_begin, .run = meet_ranks});
    }
    return TRM_OK;
}

/* Waits before a step writes COOPERATIVE until the peers have read what they need from it, unless
 * the ranks have met at the end of the last update. */
static trm_status wait_for_readers(trm_exec *exec, bool training, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    if (!training || !p->cooperative_read) {
        return TRM_OK;
    }
    p->cooperative_read = false;
    return trmi_parallel_meet(p, "the next step", err);
}

const trmi_distribution trmi_way_cooperative = {
    .name = "cooperative",
    .open = open_cooperative,
    .plan = plan_cooperative,
    .place = place_parts,
    .bind = bind_later,
    .begin = begin_cooperative,
    .before_step = wait_for_readers,
};
