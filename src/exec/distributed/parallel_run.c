/* SPDX-License-Identifier: Apache-2.0 */
/* A step on many ranks: reductions started behind the kernels that complete their buckets. */
#include "exec/exec.h"

#include "base/error.h"
#include "base/half.h"
#include "base/os.h"

#include <string.h>

enum { MEASURED_STEPS = 2, CHUNK = 16384 };

static float *gradients_of(const trm_exec *exec) {
    return exec->accumulator != NULL ? exec->accumulator
                                     : (float *)exec->env.arena[TRMI_ARENA_GRAD];
}

/* ---- what travels
 *  -------------------------------------------------------------------------------------- */

static void pack(trmi_parallel *p, const float *from, int64_t begin, int64_t count) {
    bool bf16 = p->options.wire == TRM_BFLOAT16;
#pragma omp parallel for schedule(static)
    for (int64_t at = begin; at < begin + count; at += CHUNK) {
        int64_t end = at + CHUNK < begin + count ? at + CHUNK : begin + count;
        for (int64_t i = at; i < end; i++) {
            p->wire[i] = bf16 ? trmi_float_to_bf16(from[i]) : trmi_float_to_f16(from[i]);
        }
    }
}

static void unpack(trm_exec *exec, int64_t begin, int64_t count) {
    const trmi_parallel *p = exec->parallel;
    float *to = gradients_of(exec);
    bool bf16 = p->options.wire == TRM_BFLOAT16;
#pragma omp parallel for schedule(static)
    for (int64_t at = begin; at < begin + count; at += CHUNK) {
        int64_t end = at + CHUNK < begin + count ? at + CHUNK : begin + count;
        for (int64_t i = at; i < end; i++) {
            to[i] = bf16 ? trmi_bf16_to_float(p->wire[i]) : trmi_f16_to_float(p->wire[i]);
        }
    }
}

static trm_status start_range(trm_exec *exec, trmi_range *range, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    float *gradients = gradients_of(exec);
    if (exec->accumulator != NULL) {
        const float *fresh = (const float *)exec->env.arena[TRMI_ARENA_GRAD];
        trmi_update_accumulate(gradients + range->begin, fresh + range->begin, range->count,
                               1.0f / (float)exec->accumulate, exec->accumulated == 0);
    }
    if (range->summed || range->still || range->joint) {
        return TRM_OK;
    }
    if (p->wire != NULL) {
        pack(p, gradients, range->begin, range->count);
    }
    const trm_collective op = {
        .kind = p->options.shard_optimizer ? TRM_REDUCE_SCATTERV : TRM_ALLREDUCE,
        .recv =
            p->wire != NULL ? (void *)(p->wire + range->begin) : (void *)(gradients + range->begin),
        .count = range->count,
        .counts = p->options.shard_optimizer ? range->counts : NULL,
        .dtype = p->options.wire,
        .reduce = p->options.sum || exec->seed_share != 1 ? TRM_REDUCTION_SUM : TRM_REDUCTION_MEAN,
        .tag = range->name};
    return trm_comm_start(range->comm, &op, &range->request, err);
}

trm_status trmi_parallel_finish(trm_exec *exec, trm_status status, trmi_range_arrived *arrived,
                                trm_error *err) {
    trmi_parallel *p = exec->parallel;
    trm_error later;
    double begin = trmi_os_now();
    if (p->agreement != NULL) {
        trm_status ended = trm_request_wait(p->agreement, -1, status == TRM_OK ? err : &later);
        p->agreement = NULL;
        status = status == TRM_OK ? ended : status;
    }
    for (int32_t i = 0; i < p->ranges_count; i++) {
        trmi_range *range = &p->ranges[i];
        if (range->request == NULL) {
            continue;
        }
        trm_status ended = trm_request_wait(range->request, -1, status == TRM_OK ? err : &later);
        range->request = NULL;
        status = status == TRM_OK ? ended : status;
        if (status == TRM_OK && arrived != NULL) {
            bool slices = p->options.shard_optimizer;
            arrived(exec, slices ? trmi_parallel_slice_begin(p, range) : range->begin,
                    slices ? range->counts[p->rank] : range->count);
        }
    }
    trmi_parallel_waited(p, begin);
    return status;
}

/* ---- forward and backward
 *  ------------------------------------------------------------------------------ */

static trm_status run_measured(trm_exec *exec, int32_t begin, int32_t end, double start,
                               trm_error *err) {
    for (int32_t i = begin; i < end; i++) {
        TRMI_TRY(trmi_exec_run(exec, i, i + 1, err));
        exec->parallel->step_end[i] = trmi_os_now() - start;
    }
    return TRM_OK;
}

static trm_status start_agreement(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    p->valid = false;
    *p->agreed = (trmi_agreed){.loss = trmi_exec_own_loss(exec), .flag = p->flag};
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = p->agreed,
                               .count = 4,
                               .dtype = TRM_FLOAT32,
                               .reduce = TRM_REDUCTION_MEAN,
                               .tag = "loss"};
    return trm_comm_start(p->comm, &op, &p->agreement, err);
}

trm_status trmi_parallel_agree(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    TRMI_TRY(start_agreement(exec, err));
    trm_status status = trm_request_wait(p->agreement, -1, err);
    p->agreement = NULL;
    p->valid = status == TRM_OK;
    return status;
}

static trm_status run_steps(trm_exec *exec, bool last, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    const trm_program *program = exec->program;
    double start = trmi_os_now();
    bool measure = p->measured <= MEASURED_STEPS;
    int32_t at = 0;
    for (int32_t i = -1; i <= p->ranges_count; i++) {
        int32_t to = i < 0                           ? program->backward_begin
                     : i == p->ranges_count || !last ? program->joint_begin
                                                     : p->ranges[i].ready_step + 1;
        to = to < program->joint_begin ? to : program->joint_begin;
        if (to > at) {
            TRMI_TRY(measure ? run_measured(exec, at, to, start, err)
                             : trmi_exec_run(exec, at, to, err));
            at = to;
        }
        if (i < 0) {
            TRMI_TRY(start_agreement(exec, err));
        } else if (i < p->ranges_count && last) {
            TRMI_TRY(start_range(exec, &p->ranges[i], err));
        }
    }
    return trmi_joint_run(exec, err);
}

/* Once two steps have been timed the buckets are cut anew; not where slots lie by slices, nor where
 * the bits are promised not to depend on time. */
static trm_status recut(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    bool free_to = p->options.bucket == TRM_BUCKET_AUTO && !p->options.shard_optimizer &&
                   trm_comm_deterministic(p->comm) == TRM_DETERMINISTIC_FALSE;
    if (p->measured++ != MEASURED_STEPS || !free_to) {
        return TRM_OK;
    }
    return trmi_parallel_cut(exec, true, err);
}

/* Gradients that are in no range: nobody else adds the last batch's to theirs. */
static bool in_no_range(const trmi_parallel *p, const trmi_param *param, int32_t index) {
    bool group = p->shard != NULL && (param->grad_axes != 0 || p->options.shard_optimizer) &&
                 param->grad_buffer != 0;
    return p->items[index].skip && !group;
}

static void accumulate_skipped(trm_exec *exec) {
    const trmi_parallel *p = exec->parallel;
    const trm_program *program = exec->program;
    float *fresh = (float *)exec->env.arena[TRMI_ARENA_GRAD];
    for (int32_t i = 0; i < program->params_count; i++) {
        const trmi_buffer *b = &program->buffers[program->params[i].param_buffer];
        if (in_no_range(p, &program->params[i], i)) {
            int64_t begin = b->offset / (int64_t)sizeof(float);
            trmi_update_accumulate(exec->accumulator + begin, fresh + begin,
                                   b->bytes / (int64_t)sizeof(float),
                                   1.0f / (float)exec->accumulate, exec->accumulated == 0);
        }
    }
}

trm_status trmi_parallel_forward_backward(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    bool last = exec->accumulated + 1 >= exec->accumulate;
    TRMI_TRY(recut(exec, err));
    trm_error own = {.status = TRM_OK};
    err = err != NULL ? err : &own;
    trm_status status = trmi_joint_begin_step(exec, err);
    status = status == TRM_OK ? run_steps(exec, last, err) : status;
    if (status != TRM_OK) {
        trm_comm_abort(p->comm, err); /* the others must not wait for what never comes */
    }
    TRMI_TRY(trmi_parallel_finish(exec, status, exec->parallel->wire != NULL ? unpack : NULL, err));
    p->valid = true;
    if (exec->accumulator != NULL) {
        if (last) {
            accumulate_skipped(exec);
        } else {
            trmi_update_accumulate(
                exec->accumulator, (const float *)exec->env.arena[TRMI_ARENA_GRAD],
                exec->program->arena_bytes[TRMI_ARENA_GRAD] / (int64_t)sizeof(float),
                1.0f / (float)exec->accumulate, exec->accumulated == 0);
        }
        exec->accumulated++;
    }
    return TRM_OK;
}

/* ---- update
 *  ----------------------------------------------------------------------------------------------
 */

trm_status trmi_parallel_exchange(void *context, double *sums, int64_t count, trm_error *err) {
    trm_exec *exec = context;
    trmi_parallel *p = exec->parallel;
    for (int64_t i = 0; i < count; i++) {
        p->sums[i] = sums[i];
        sums[i] = p->everyones[i % p->blocks] ? 0 : sums[i];
    }
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = sums,
                               .count = count,
                               .dtype = TRM_FLOAT64,
                               .reduce = TRM_REDUCTION_SUM,
                               .tag = "norms of the update"};
    double begin = trmi_os_now();
    TRMI_TRY(trm_comm_run(p->comm, &op, err));
    trmi_parallel_waited(p, begin);
    for (int64_t i = 0; i < count; i++) {
        sums[i] = p->everyones[i % p->blocks] ? p->sums[i] : sums[i];
    }
    return TRM_OK;
}

trm_status trmi_parallel_any(trmi_parallel *p, bool *flag, trm_error *err) {
    int32_t any = *flag;
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = &any,
                               .count = 1,
                               .dtype = TRM_INT32,
                               .reduce = TRM_REDUCTION_MAX,
                               .tag = "whether a number is not finite"};
    TRMI_TRY(trm_comm_run(p->comm, &op, err));
    *flag = any != 0;
    return TRM_OK;
}

/* Where all have one copy of the parameters nobody needs the old ones any more when the first slice
 * is written: norms were exchanged before (trmi_parallel_exchange). */
trm_status trmi_parallel_publish(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    if (p == NULL || !p->options.shard_optimizer) {
        return TRM_OK;
    }
    if (p->common) {
        TRMI_TRY(trmi_parallel_meet(p, "parameters", err));
        p->joint_read = false;
        return trmi_parallel_run_casts(exec, err);
    }
    double begin = trmi_os_now();
    for (int32_t i = 0; i < p->ranges_count; i++) {
        trmi_range *range = &p->ranges[i];
        const trm_collective op = {.kind = TRM_ALLGATHERV,
                                   .recv =
                                       (float *)exec->env.arena[TRMI_ARENA_PARAM] + range->begin,
                                   .counts = range->counts,
                                   .dtype = TRM_FLOAT32,
                                   .tag = "parameters"};
        TRMI_TRY(trm_comm_run(p->comm, &op, err));
    }
    trmi_parallel_waited(p, begin);
    return TRM_OK;
}
