/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallel training: the collectives that the executor starts between the program steps of a
 * training step.
 *
 *      [forward] agree [backward ... ] start 0 [...] start 1 [...]   wait for all
 *
 *      agree     start_agreement: an all-reduce of the loss and of the flags that ranks agree on
 *      start i   start_range: an all-reduce of range i of the gradients, as soon as its last
 *                gradient is computed, so that it overlaps the rest of backward
 *      wait      wait_for_ranges; then adopt_agreement reads the means of all ranks
 *
 * Buckets are cut at creation from predicted times, and once more from measured ones after
 * MEASURED_STEPS steps (recut_buckets). */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "base/error.h"
#include "base/format/half.h"
#include "base/os.h"

#include <string.h>

/* Steps that are measured before buckets are cut again, and elements of a chunk. */
enum { MEASURED_STEPS = 2, CHUNK = 16384 };

/* ---- gradients in 16 bits -------------------------------------------------------------------- */

/* Rounds `count` gradients to the type of the wire, in parts of CHUNK for the threads. */
static void pack_wire(trmi_parallel *p, const float *from, int64_t begin, int64_t count) {
    bool bf16 = p->options.wire == TRM_BFLOAT16;
#pragma omp parallel for schedule(static)
    for (int64_t at = begin; at < begin + count; at += CHUNK) {
        int64_t end = at + CHUNK < begin + count ? at + CHUNK : begin + count;
        for (int64_t i = at; i < end; i++) {
            p->wire[i] = bf16 ? trmi_float_to_bf16(from[i]) : trmi_float_to_f16(from[i]);
        }
    }
}

/* Converts `count` reduced gradients from the type of the wire to float32. */
static void unpack_wire(trm_exec *exec, int64_t begin, int64_t count) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    float *to = trmi_exec_gradient_range(exec);
    bool bf16 = p->options.wire == TRM_BFLOAT16;
#pragma omp parallel for schedule(static)
    for (int64_t at = begin; at < begin + count; at += CHUNK) {
        int64_t end = at + CHUNK < begin + count ? at + CHUNK : begin + count;
        for (int64_t i = at; i < end; i++) {
            to[i] = bf16 ? trmi_bf16_to_float(p->wire[i]) : trmi_f16_to_float(p->wire[i]);
        }
    }
}

/* Starts the reduction of a range whose gradients are complete on this rank. */
static trm_status start_range(trm_exec *exec, int32_t index, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    trmi_range *range = &p->ranges[index];
    const trmi_payload *payload = &p->payload;
    float *gradients = trmi_exec_gradient_range(exec);
    /* A way that accumulates adds the gradient of this batch to the sum, which is reduced after the
     * last one. */
    if (exec->adds_up) {
        trmi_exec_accumulate(exec, range->begin, range->count);
    }
    if (range->summed || range->always_zero || range->cooperative) {
        return TRM_OK;
    }
    /* Round to the type of the wire. */
    if (p->wire != NULL) {
        pack_wire(p, gradients, range->begin, range->count);
    }
    char *data = payload->data != NULL ? payload->data : (char *)gradients;
    bool slices = p->options.shard_optimizer;
    bool sums = p->options.sum || exec->seed_share != 1;
    const trm_collective op = {.kind = slices ? TRM_REDUCE_SCATTERV : TRM_ALLREDUCE,
                               .recv =
                                   data + range->begin * (int64_t)trm_dtype_bytes(payload->dtype),
                               .count = range->count,
                               .counts = slices ? range->counts : NULL,
                               .dtype = payload->dtype,
                               .reduce = sums ? TRM_REDUCTION_SUM : TRM_REDUCTION_MEAN,
                               .tag = range->name};
    return trm_comm_start(range->comm, &op, &range->request, err);
}

/* Waits for all started reductions, also after an error. `status` is the result so far; the first
 * error is returned. */
static trm_status wait_for_ranges(trm_exec *exec, trm_status status, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
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
        /* Convert what has come back to float32. */
        if (status == TRM_OK && p->payload.arrived != NULL) {
            bool slices = p->options.shard_optimizer;
            p->payload.arrived(exec, slices ? trmi_parallel_slice_begin(p, range) : range->begin,
                               slices ? range->counts[p->rank] : range->count);
        }
    }
    trmi_parallel_waited(p, begin);
    return status;
}

void trmi_parallel_wire_arrived(trm_exec *exec, int64_t begin, int64_t count) {
    unpack_wire(exec, begin, count);
}

/* ---- the loss and the flags ------------------------------------------------------------------ */

/* Starts the reduction of loss and flags to their means over all ranks. */
static trm_status start_agreement(trm_exec *exec, int32_t item, trm_error *err) {
    (void)item;
    trmi_parallel *p = trmi_parallel_of(exec);
    *p->agreed = (trmi_agreed){.loss = trmi_exec_own_loss(exec)};
    for (int which = 0; which < TRMI_FLAGS; which++) {
        p->agreed->flags[which] = exec->raised[which] ? 1 : 0;
    }
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = p->agreed,
                               .count = sizeof *p->agreed / sizeof(float),
                               .dtype = TRM_FLOAT32,
                               .reduce = TRM_REDUCTION_MEAN,
                               .tag = "loss"};
    return trm_comm_start(p->comm, &op, &p->agreement, err);
}

/* Makes the averages of all ranks this step's loss and flags. The loss of a split program, and of a
 * program with blocks of samples, is that of all ranks already, unless it is of own samples. */
static void adopt_agreement(trm_exec *exec) {
    trmi_parallel *p = trmi_parallel_of(exec);
    p->valid = true;
    bool own = p->split == NULL ? exec->program->blocks == 0 : exec->program->own_loss;
    exec->loss = own ? &p->agreed->loss : NULL;
}

/* Averages the loss of a forward pass without backward, where ranks compute it of own samples. */
static trm_status finish_forward(trm_exec *exec, trm_error *err) {
    if (!exec->program->own_loss) {
        return TRM_OK;
    }
    TRMI_TRY(start_agreement(exec, 0, err));
    trm_status status = trm_request_wait(trmi_parallel_of(exec)->agreement, -1, err);
    trmi_parallel_of(exec)->agreement = NULL;
    TRMI_TRY(status);
    adopt_agreement(exec);
    return TRM_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Adds the start of each range's reduction, when the step that completes its gradients has run, so
 * that sums travel while backward goes on. */
static void add_ranges(trm_exec *exec) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    const trm_program *program = exec->program;
    for (int32_t i = 0; i < p->ranges_count; i++) {
        /* Cooperative gradients, which all ranks compute together, come last: no sum of them
         * travels. */
        int32_t before = p->ranges[i].ready_step + 1;
        before = before < program->cooperative_begin ? before : program->cooperative_begin;
        trmi_distribution_add(
            exec,
            (trmi_action){.before = before, .last_only = true, .run = start_range, .item = i});
    }
}

/* Contract in ranks_state.h. The agreement starts as soon as the loss is there. */
void trmi_parallel_add_actions(trm_exec *exec) {
    trmi_distribution_add(
        exec, (trmi_action){.before = exec->program->backward_begin, .run = start_agreement});
    add_ranges(exec);
}

/* Cuts the buckets again, once, when MEASURED_STEPS steps have been timed. Keeps them if the
 * optimiser's slots lie by slices, or if the bits must not depend on measured times. */
static trm_status recut_buckets(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    bool free_to = p->options.bucket == TRM_BUCKET_AUTO && !p->options.shard_optimizer &&
                   trm_comm_deterministic(p->comm) == TRM_DETERMINISTIC_FALSE;
    if (p->measured++ != MEASURED_STEPS || !free_to) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_parallel_cut(exec, true, err));
    trmi_distribution_remove(exec, start_range);
    add_ranges(exec);
    return TRM_OK;
}

/* Implements trmi_distribution.before_step. With fixed bits nothing may depend on measured times,
 * so nothing is timed and buckets stay as they are. */
trm_status trmi_parallel_before_step(trm_exec *exec, bool training, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    p->valid = false;
    exec->loss = NULL;
    if (!training) {
        return TRM_OK;
    }
    trmi_parallel_note_step(exec);
    exec->adds_up = exec->accumulator != NULL && exec->accumulated + 1 >= exec->accumulate;
    if (exec->fixed_bits) {
        return TRM_OK;
    }
    TRMI_TRY(recut_buckets(exec, err));
    exec->step_end = p->measured <= MEASURED_STEPS ? p->step_end : NULL;
    exec->step_begin = trmi_os_now();
    return TRM_OK;
}

/* Returns whether a gradient is in no range, so that start_range does not add the last batch's. */
static bool is_in_no_range(const trmi_parallel *p, const trmi_param *param, int32_t index) {
    bool group = p->split != NULL && (param->grad_axes != 0 || p->options.shard_optimizer) &&
                 param->grad_buffer != 0;
    return p->items[index].skip && !group;
}

/* Adds the gradients that no range reduces to the accumulator, like those of the ranges. */
static void accumulate_skipped(trm_exec *exec) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    const trm_program *program = exec->program;
    for (int32_t i = 0; i < program->trained_count; i++) {
        const trmi_buffer *b = &program->buffers[program->params[i].param_buffer];
        if (is_in_no_range(p, &program->params[i], i)) {
            trmi_exec_accumulate(exec, b->offset / (int64_t)sizeof(float),
                                 b->bytes / (int64_t)sizeof(float));
        }
    }
}

/* Implements trmi_distribution.finish. */
trm_status trmi_parallel_finish(trm_exec *exec, bool training, trm_status status, trm_error *err) {
    if (!training) {
        return status == TRM_OK ? finish_forward(exec, err) : status;
    }
    exec->step_end = NULL;
    if (status != TRM_OK) {
        /* the other ranks must not wait for collectives that this rank does not start */
        trm_comm_abort(trmi_parallel_of(exec)->comm, err);
    }
    TRMI_TRY(wait_for_ranges(exec, status, err));
    adopt_agreement(exec);
    if (exec->adds_up) {
        accumulate_skipped(exec);
    }
    return TRM_OK;
}
