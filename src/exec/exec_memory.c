/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts how many bytes a process grows by when it makes an executor of a program and trains.
 *
 *      arenas, in whole pages + slots + packed gradients + staging of exchanges + fed batches
 *                             + heap beside the arenas (CHUNKS, EACH_STEP)
 *
 * Callers: memory_limit.c, the planner, exec_explain.c. Nothing is allocated here. */
#include "exec/exec_memory.h"

#include "base/checked.h"
#include "base/memory.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"

/* Heap beside the arenas, from a heap trace. CHUNKS: the first chunk of each of six allocators
 * (base/memory.h): user graph, compiled graph, program, executor, plan, names of variables.
 * EACH_STEP: the program step takes 1.5 KB, the operator in its graph 0.5 KB, the kernel's tables
 * 2.6 KB (1.7 in networks with few convolutions, at most 3.8), optimiser and buckets 0.4 KB. */
enum { CHUNKS = 6 * (64 << 10), EACH_STEP = 5 << 10 };

int64_t trmi_program_arena_resident(const trm_program *program, int arena, bool ranks) {
    bool shared = ranks && (arena == TRMI_ARENA_PARAM || arena == TRMI_ARENA_GRAD ||
                            arena == TRMI_ARENA_CAST || arena == TRMI_ARENA_COOPERATIVE);
    size_t bytes = (size_t)program->arena_bytes[arena],
           used = bytes - (arena == TRMI_ARENA_GRAD ? (size_t)program->untouched_bytes : 0);
    /* The untouched tail of GRAD is never resident; its first page may be a huge page. */
    if (used < bytes) {
        size_t page =
            !shared && used < trmi_map_huge(bytes) ? TRMI_HUGE_PAGE_BYTES : trmi_map_resident(1);
        return trmi_round_up((int64_t)used, (int64_t)page);
    }
    return bytes == 0 ? 0
                      : (int64_t)(shared ? trmi_shared_resident(bytes) : trmi_map_resident(bytes));
}

int64_t trmi_program_fed_bytes(const trm_program *program, int32_t ranks, bool own_samples) {
    int64_t sum = 0;
    for (int32_t i = 0; own_samples && i < program->inputs_count; i++) {
        const trmi_buffer *b = &program->buffers[program->inputs[i]];
        const trmi_partition_leaf *leaf = trmi_program_leaf(program, b->name);
        int64_t whole =
            leaf != NULL ? trm_shape_count(&leaf->global) * (int64_t)trm_dtype_bytes(b->dtype) : 0;
        sum += whole + whole / ranks;
    }
    return sum;
}

/* Returns the bytes of the parameters that have cooperative gradients. */
static size_t cooperative_gradient_bytes(const trm_program *program) {
    size_t bytes = 0;
    for (int32_t i = 0; program->cooperative_ranks > 1 && i < program->params_count; i++) {
        const trmi_param *param = &program->params[i];
        bytes += trmi_cooperative_makes(program, param)
                     ? (size_t)program->buffers[param->param_buffer].bytes
                     : 0;
    }
    return bytes;
}

/* Returns the bytes of the float32 copies that the optimiser makes of gradient factors in other
 * types. */
static int64_t factors_bytes(const trm_program *program) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < program->params_count; i++) {
        const trmi_param *param = &program->params[i];
        const trmi_buffer *left = &program->buffers[param->factor_left],
                          *right = &program->buffers[param->factor_right];
        if (param->factor_left != 0 && left->dtype != TRM_FLOAT32) {
            bytes += (trm_shape_count(&left->shape) + trm_shape_count(&right->shape)) *
                     (int64_t)sizeof(float);
        }
    }
    return bytes;
}

/* Returns how many of `bytes` lie in the slices of the other ranks. */
static int64_t bytes_of_other_ranks(size_t bytes, int32_t ranks) {
    return (int64_t)(bytes - bytes / (size_t)ranks);
}

int64_t trmi_program_resident(const trm_program *program, const trmi_training *t) {
    bool ranks = t->ranks > 1;
    size_t params = (size_t)program->arena_bytes[TRMI_ARENA_GRAD]; /* those that have slots */
    /* Slots. A rank with slices also leaves out the other ranks' share of cooperative gradients. */
    int64_t slot = (int64_t)trmi_map_resident(params) -
                   (t->sliced ? bytes_of_other_ranks(params, t->ranks) : 0);
    int64_t sum =
        slot * t->slots -
        (t->sliced ? bytes_of_other_ranks(cooperative_gradient_bytes(program), t->ranks) : 0);
    /* Arenas; slots are counted above. */
    int64_t gradients = trmi_program_arena_resident(program, TRMI_ARENA_GRAD, ranks);
    for (int a = 1; a < TRMI_ARENAS; a++) {
        sum += a == TRMI_ARENA_SLOT ? 0 : trmi_program_arena_resident(program, a, ranks);
    }
    /* Staging of exchanges, shared casts, accumulated and packed gradients, heap, fed batches. */
    int64_t send, recv;
    trmi_split_staging(program, t->ordered, &send, &recv);
    sum += send + recv > 0 ? (int64_t)trmi_shared_resident((size_t)(send + recv)) : 0;
    sum += t->one_copy ? trmi_parallel_casts_bytes(program) : 0;
    sum += (t->accumulates ? gradients : 0) + (t->packs && ranks ? gradients / 2 : 0);
    sum += CHUNKS + (int64_t)program->steps_count * EACH_STEP + factors_bytes(program);
    return sum + trmi_program_fed_bytes(program, t->ranks, t->own_samples);
}
