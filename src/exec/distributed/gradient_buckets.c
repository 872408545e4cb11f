/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts GRAD into ranges that are reduced together (buckets), and ranges into one slice for each
 * rank.
 *
 * AUTO minimises the predicted end of the last reduction from the times at which gradients are
 * ready and the cost of a message (alpha + beta * bytes), both measured; every rank uses rank
 * 0's numbers, so that all cut alike. Where the ranks' threads fill the cores there is one
 * bucket: the communicator's thread would take a core from a kernel. */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

/* Sizes of the two messages by which a line of costs is measured, and timed turns of each. */
enum { SMALL_BYTES = 4096, LARGE_BYTES = 4 << 20, SMALL_TURNS = 7, LARGE_TURNS = 3 };

/* ---- what a reduction costs ------------------------------------------------------------------ */

/* Measures the seconds of one started reduction of `count` elements: the least of `turns` ones. It
 * sums what training sums, so that no page of the peers is mapped that training does not read. */
static trm_status time_reduction(trm_exec *exec, int64_t count, int turns, double *best,
                                 trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = trmi_exec_gradient_range(exec),
                               .count = count,
                               .dtype = TRM_FLOAT32,
                               .reduce = TRM_REDUCTION_SUM,
                               .tag = "calibration"};
    *best = 1e9;
    for (int i = 0; i <= turns; i++) {
        trm_request *request;
        TRMI_TRY(trm_comm_barrier(p->comm, err));
        double begin = trmi_os_now();
        TRMI_TRY(trm_comm_start(p->comm, &op, &request, err));
        TRMI_TRY(trm_request_wait(request, -1, err));
        double seconds = trmi_os_now() - begin;
        *best = i > 0 && seconds < *best ? seconds : *best; /* the first touches memory */
    }
    return TRM_OK;
}

/* Contract in ranks_state.h. A small and a large reduction give the two figures of the model
 * seconds = alpha + beta bytes. All ranks take those of rank 0, since they must cut the same
 * buckets. */
trm_status trmi_parallel_measure_link(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    int64_t total = exec->program->arena_bytes[TRMI_ARENA_GRAD] - exec->program->untouched_bytes;
    if (p->split != NULL && p->options.bucket == TRM_BUCKET_AUTO) { /* parts differ in size */
        TRMI_TRY(trm_comm_allreduce(p->comm, &total, 1, TRM_INT64, TRM_REDUCTION_MIN, err));
    }
    int64_t small = trmi_min_i64(total, SMALL_BYTES), large = trmi_min_i64(total, LARGE_BYTES);
    double seconds[2] = {0, 0};
    if (p->options.bucket != TRM_BUCKET_AUTO || total == 0) {
        return TRM_OK;
    }
    TRMI_TRY(time_reduction(exec, small / 4, SMALL_TURNS, &seconds[0], err));
    TRMI_TRY(time_reduction(exec, large / 4, LARGE_TURNS, &seconds[1], err));
    TRMI_TRY(trm_comm_broadcast(p->comm, seconds, 2, TRM_FLOAT64, 0, err));
    p->alpha = seconds[0];
    p->beta = large > small && seconds[1] > seconds[0]
                  ? (seconds[1] - seconds[0]) / (double)(large - small)
                  : 0;
    return TRM_OK;
}

/* ---- the cut --------------------------------------------------------------------------------- */

/* Returns whether a gradient of a split graph is summed over some ranks only: it is in no
 * bucket. */
static bool is_of_some_ranks(const trmi_parallel *p, const trmi_param *param) {
    return p->split != NULL && param->grad_axes != (1u << p->split->plan->mesh.axes) - 1;
}

/* Fills in size and ready time of each gradient, from measured times or from those of the cost
 * model. */
static void fill_items(trm_exec *exec, bool measured) {
    trmi_parallel *p = trmi_parallel_of(exec);
    const trm_program *program = exec->program;
    double at = 0;
    /* A gradient is ready at the end of the step that completes it. Without measured times these
     * are sums of predicted ones. */
    if (!measured) {
        for (int32_t i = 0; i < program->steps_count; i++) {
            at += program->steps[i].predicted_seconds;
            p->step_end[i] = at;
        }
    }
    p->backward_end = program->steps_count > 0 ? p->step_end[program->steps_count - 1] : 0;
    /* Bytes as they are sent: half with a wire of 16 bits. Gradients that no bucket reduces are
     * skipped. */
    double half = (double)trm_dtype_bytes(p->payload.dtype) / sizeof(float);
    for (int32_t i = 0; i < program->trained_count; i++) {
        const trmi_param *param = &program->params[i];
        bool ready = param->ready_step < program->steps_count;
        int64_t bytes = trmi_round_up(program->buffers[param->param_buffer].bytes, 64);
        p->items[i] = (trmi_bucket_item){
            .bytes = (int64_t)((double)bytes * half),
            .ready_seconds = ready ? p->step_end[param->ready_step] : p->backward_end,
            .skip = is_of_some_ranks(p, param) || param->grad_buffer == 0 || param->remote ||
                    trmi_parallel_is_layerwise(p, param->name) ||
                    trmi_param_is_cooperative(program, param)};
    }
}

/* Returns the first element of a parameter's gradient; after the last parameter the arena's
 * end. */
static int64_t begin_of(const trm_program *program, int32_t param) {
    return param < program->trained_count
               ? program->buffers[program->params[param].param_buffer].offset /
                     (int64_t)sizeof(float)
               : program->arena_bytes[TRMI_ARENA_GRAD] / (int64_t)sizeof(float);
}

/* Makes a range of each bucket. */
static void fill_ranges(trm_exec *exec, int32_t count) {
    trmi_parallel *p = trmi_parallel_of(exec);
    const trm_program *program = exec->program;
    for (int32_t i = 0; i < count; i++) {
        const trmi_bucket *b = &p->cut[i];
        int32_t last = b->first + b->count - 1;
        int64_t begin = begin_of(program, b->first);
        p->ranges[i] = (trmi_range){.begin = begin,
                                    .count = begin_of(program, last + 1) - begin,
                                    .ready_step = program->params[last].ready_step,
                                    .comm = p->comm,
                                    .counts = p->counts + (int64_t)i * p->size};
        snprintf(p->ranges[i].name, sizeof p->ranges[i].name, "gradients %d/%d %s", i + 1, count,
                 program->params[b->first].name);
    }
    p->ranges_count = count;
}

/* Adds ranges for gradients that are summed over the ranks of some mesh axes only. With slices of
 * the optimiser also for those that need no sum: each rank then updates its slice of them. A range
 * is a run of neighbours with the same axes. */
static void add_group_ranges(trm_exec *exec) {
    trmi_parallel *p = trmi_parallel_of(exec);
    const trm_program *program = exec->program;
    for (int32_t i = 0; p->split != NULL && i < program->trained_count;) {
        uint32_t axes = program->params[i].grad_axes;
        int32_t end = i + 1;
        bool idle = axes == 0 && !p->options.shard_optimizer;
        if (!is_of_some_ranks(p, &program->params[i]) || idle ||
            program->params[i].grad_buffer == 0) {
            i = end;
            continue;
        }
        /* Extend the run while the axes are the same. */
        while (end < program->trained_count && program->params[end].grad_axes == axes &&
               program->params[end].grad_buffer != 0) {
            end++;
        }
        /* Ranges stay in the order of their begin in GRAD. */
        int32_t number = p->ranges_count++, at = number;
        int64_t begin = begin_of(program, i);
        for (; at > 0 && p->ranges[at - 1].begin > begin; at--) {
            p->ranges[at] = p->ranges[at - 1];
        }
        p->ranges[at] = (trmi_range){.begin = begin,
                                     .count = begin_of(program, end) - begin,
                                     .ready_step = program->params[end - 1].ready_step,
                                     .counts = p->counts + (int64_t)number * p->size,
                                     .comm = axes != 0 ? p->split->groups[axes].comm : p->comm,
                                     .summed = axes == 0};
        snprintf(p->ranges[at].name, sizeof p->ranges[at].name, "gradients %s",
                 program->params[i].name);
        i = end;
    }
}

/* Adds the range of the cooperative gradients, which are neighbours in GRAD after those of the
 * buckets. It is not reduced, because each rank computes its rows from the samples of all ranks; it
 * is in the list so that the optimiser's slices cover it. */
static void add_cooperative_range(trm_exec *exec) {
    trmi_parallel *p = trmi_parallel_of(exec);
    const trm_program *program = exec->program;
    int32_t first = 0, end;
    while (first < program->trained_count &&
           !trmi_param_is_cooperative(program, &program->params[first])) {
        first++;
    }
    for (end = first; end < program->trained_count &&
                      trmi_param_is_cooperative(program, &program->params[end]);) {
        end++;
    }
    if (end > first) {
        int32_t at = p->ranges_count++;
        p->ranges[at] = (trmi_range){.begin = begin_of(program, first),
                                     .count = begin_of(program, end) - begin_of(program, first),
                                     .ready_step = program->params[end - 1].ready_step,
                                     .cooperative = true,
                                     .comm = p->comm,
                                     .counts = p->counts + (int64_t)at * p->size,
                                     .name = "gradients of all ranks"};
    }
}

/* Cuts a range into slices of whole blocks, as equal as those allow. */
static void cut_slices(trm_exec *exec, trmi_range *range, int64_t *block) {
    trmi_parallel *p = trmi_parallel_of(exec);
    int64_t end = range->begin + range->count, at = range->begin;
    /* Blocks before the range belong to no range: every rank updates them, or rank 0 if the ranks
     * have one copy of the parameters (slice_all). */
    while (*block < p->blocks && trmi_update_block_offset(exec->update, *block) < range->begin) {
        p->everyones[(*block)++] = 1;
    }
    for (int32_t r = 0; r < p->size; r++) {
        /* Rank r's slice ends with the last block that begins before its equal share does. */
        int64_t ideal = range->begin + range->count * (r + 1) / p->size, next = end;
        while (*block < p->blocks) {
            int64_t offset = trmi_update_block_offset(exec->update, *block);
            if (offset >= end || (r + 1 < p->size && offset >= ideal)) {
                break;
            }
            p->mine[(*block)++] = r == p->rank;
        }
        if (r + 1 < p->size && *block < p->blocks) {
            next = trmi_min_i64(end, trmi_update_block_offset(exec->update, *block));
        }
        range->counts[r] = next - at;
        at = next;
    }
}

/* Marks the optimiser's blocks that this rank updates, and those that every rank updates because no
 * range holds them. */
static void slice_all(trm_exec *exec) {
    trmi_parallel *p = trmi_parallel_of(exec);
    int64_t block = 0;
    memset(p->mine, 0, (size_t)p->blocks);
    memset(p->everyones, 0, (size_t)p->blocks);
    for (int32_t i = 0; i < p->ranges_count; i++) {
        cut_slices(exec, &p->ranges[i], &block);
    }
    for (; block < p->blocks; block++) {
        p->everyones[block] = 1;
    }
    for (int64_t b = 0; b < p->blocks; b++) {
        if (p->common && p->everyones[b]) { /* there is one copy: rank 0's */
            p->mine[b] = p->rank == 0;
            p->everyones[b] = 0;
        }
        p->mine[b] |= p->everyones[b];
    }
}

/* Adds the sums of all ranks: trmi_update_exchange. `context`: the exec. */
static trm_status add_over_ranks(void *context, double *sums, int64_t count, trm_error *err) {
    const trm_exec *exec = context;
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = sums,
                               .count = count,
                               .dtype = TRM_FLOAT64,
                               .reduce = TRM_REDUCTION_SUM,
                               .tag = "norms of layerwise gradients"};
    return trm_comm_run(trmi_parallel_of(exec)->comm, &op, err);
}

/* Contract in ranks_state.h. Layerwise parameters (hybrid_parallel) belong to one rank, so norms
 * over all parameters add those of each rank. */
trm_status trmi_parallel_mark_own_blocks(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    const trm_program *program = exec->program;
    if (p->options.layerwise_count == 0) {
        return TRM_OK;
    }
    p->own_blocks = trmi_alloc((size_t)p->blocks + 1);
    if (p->own_blocks == NULL) {
        return TRMI_NO_MEMORY(err, "to list layerwise parameters");
    }
    int64_t block = 0;
    for (int32_t i = 0; i < program->trained_count; i++) {
        bool own = trmi_parallel_is_layerwise(p, program->params[i].name);
        while (block < p->blocks &&
               trmi_update_block_offset(exec->update, block) < begin_of(program, i + 1)) {
            p->own_blocks[block++] = own;
        }
    }
    trmi_update_set_own_blocks(exec->update, p->own_blocks, add_over_ranks, exec);
    return TRM_OK;
}

/* Contract in ranks_state.h. Buckets are runs of neighbouring gradients. By default they end where
 * the model of times (alpha + beta * bytes, and when each gradient is ready) predicts the earliest
 * end of the step. Where the ranks' threads fill the cores there is one bucket: the communicator's
 * thread has no core for itself. */
trm_status trmi_parallel_cut(trm_exec *exec, bool measured, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    const trm_parallel_options *o = &p->options;
    int32_t params = exec->program->trained_count, count = 0;
    fill_items(exec, measured);
    if (o->bucket == TRM_BUCKET_AUTO) {
        /* Every rank cuts by rank 0's times. */
        const trm_collective op = {.kind = TRM_BROADCAST,
                                   .recv = p->items,
                                   .count = (int64_t)params * (int64_t)sizeof *p->items,
                                   .dtype = TRM_UINT8,
                                   .tag = "gradient times"};
        TRMI_TRY(trm_comm_run(p->comm, &op, err));
        count = p->crowded ? trmi_buckets_fixed(p->items, params, INT64_MAX, p->cut)
                           : trmi_buckets_optimal(p->items, params, p->alpha, p->beta, p->cut,
                                                  &p->predicted_end);
        if (count < 0) {
            return TRMI_NO_MEMORY(err, "to cut gradients into buckets");
        }
        p->predicted_end = p->crowded ? trmi_buckets_end(p->items, p->cut, count, p->alpha, p->beta)
                                      : p->predicted_end;
    } else if (o->bucket == TRM_BUCKET_LIST) {
        TRMI_TRY(trmi_buckets_list(p->items, params, o->bucket_list, o->bucket_list_count, p->cut,
                                   &count, err));
    } else {
        int64_t limit = o->bucket == TRM_BUCKET_SIZE ? o->bucket_bytes : 0;
        count = trmi_buckets_fixed(p->items, params, limit, p->cut);
    }
    /* List the ranges: buckets, gradients of some mesh axes, cooperative gradients. Then take out
     * the parts that are always zero. */
    fill_ranges(exec, count);
    add_group_ranges(exec);
    add_cooperative_range(exec);
    for (int32_t i = 0; i < p->ranges_count;
         i++) { /* with blocks each step's sum is of all ranks */
        p->ranges[i].summed |= exec->program->blocks > 0;
    }
    trmi_cut_zero_gradients(exec);
    if (o->shard_optimizer) {
        slice_all(exec);
    }
    return TRM_OK;
}
